package topo

import (
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Namespace is one network namespace and the thread that lives in it. Create it with [NewNamespace].
type Namespace struct {
	Name string // for messages
	fd   netns.NsHandle

	jobs chan func()
	done chan struct{} // closed when the thread has left
	once sync.Once
}

// NewNamespace makes an empty network namespace with its loopback up. It needs root.
func NewNamespace(name string) (*Namespace, error) {
	n := &Namespace{Name: name, jobs: make(chan func()), done: make(chan struct{})}
	made := make(chan error, 1)
	go n.live(made)
	if err := <-made; err != nil {
		return nil, fmt.Errorf("make the network namespace %s: %w", name, err)
	}
	return n, nil
}

// live is the thread of the namespace. It stays locked, so that the runtime ends the thread instead of using it elsewhere.
func (n *Namespace) live(made chan<- error) {
	defer close(n.done)
	runtime.LockOSThread()
	fd, err := netns.New()
	if err == nil {
		n.fd = fd
		defer fd.Close()
		err = up("lo")
	}
	made <- err
	if err != nil {
		return
	}
	for job := range n.jobs {
		job()
	}
}

// Close ends the namespace's thread and with it every process that was started there.
func (n *Namespace) Close() {
	n.once.Do(func() { close(n.jobs) })
	<-n.done
}

// Do runs f in the namespace. It must not be called after Close, nor from within f.
func (n *Namespace) Do(f func() error) error {
	result := make(chan error, 1)
	n.jobs <- func() { result <- f() }
	if err := <-result; err != nil {
		return fmt.Errorf("in namespace %s: %w", n.Name, err)
	}
	return nil
}

// Start starts a program in the namespace. It is killed when the namespace's thread ends.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return n.Do(cmd.Start)
}

// Route has packets to dst leave by the interface of one link, where no address of that link says so already.
func (n *Namespace) Route(dst netip.Addr, link string) error {
	return n.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("route to %s by %s: %w", dst, link, err)
		}
		to := netlink.NewIPNet(dst.AsSlice())
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("route to %s by %s: %w", dst, link, err)
		}
		return nil
	})
}

// address gives an interface its address and takes it up.
func (n *Namespace) address(link string, addr netip.Prefix) error {
	return n.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(addr.String())
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

// up takes up an interface of the calling thread's namespace.
func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// Unplug takes an interface of the namespace down, as one whose cable is drawn; [Namespace.Plug] undoes it.
func (n *Namespace) Unplug(link string) error { return n.Do(func() error { return down(link) }) }

// Plug undoes [Namespace.Unplug].
func (n *Namespace) Plug(link string) error { return n.Do(func() error { return up(link) }) }

func down(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetDown(l)
}
