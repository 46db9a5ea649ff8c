package topo

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// Hub joins links to one: what a node sends into one of them comes out of the others, later and not always. The kernel of a test machine may have
// no netem, so the frames pass through this process, by one TAP device at each link.
type Hub struct {
	delay time.Duration
	loss  float64
	taps  []*tap
	done  chan struct{}
	tasks sync.WaitGroup
	mute  []atomic.Bool // of each pair from*len(taps)+to
	Lost  atomic.Uint64
}

// tap is the hub's port at one link.
type tap struct {
	file  *os.File
	queue chan delayed // of frames that wait to be written
}

type delayed struct {
	due   time.Time
	frame []byte
}

const (
	hubQueue = 4096 // frames that are under way to one link; more are lost, as at any switch
	hubFrame = 2048 // octets: that of an Ethernet frame and some
)

// Join makes a hub of links; every frame takes delay, and a share of them, loss, is lost.
func (w *Wires) Join(delay time.Duration, loss float64, links ...*Net) (*Hub, error) {
	h := &Hub{delay: delay, loss: loss, done: make(chan struct{}), mute: make([]atomic.Bool, len(links)*len(links))}
	for _, l := range links {
		t, err := w.tap(l)
		if err != nil {
			h.Close()
			return nil, fmt.Errorf("hub at link %s: %w", l.Name, err)
		}
		h.taps = append(h.taps, t)
	}
	for from := range h.taps {
		h.tasks.Go(func() { h.read(from) })
		h.tasks.Go(func() { h.write(h.taps[from]) })
	}
	return h, nil
}

// tap makes a port of a link's bridge that this process reads and writes.
func (w *Wires) tap(l *Net) (*tap, error) {
	t := &tap{queue: make(chan delayed, hubQueue)}
	err := w.Do(func() error {
		bridge, err := netlink.LinkByName(l.Name)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("tap%d", w.ports.Add(1))
		dev := &netlink.Tuntap{
			LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP, Queues: 1, NonPersist: true,
			Flags: netlink.TUNTAP_NO_PI,
		}
		if err := netlink.LinkAdd(dev); err != nil {
			return err
		}
		if t.file, err = polled(dev.Fds[0]); err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(dev, bridge); err != nil {
			return err
		}
		return up(name)
	})
	if err != nil && t.file != nil {
		t.file.Close()
	}
	return t, err
}

// polled is a device's file whose reads end when it is closed.
func polled(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (h *Hub) read(from int) {
	for {
		frame := make([]byte, hubFrame)
		n, err := h.taps[from].file.Read(frame)
		if err != nil {
			return
		}
		due := time.Now().Add(h.delay)
		for to, t := range h.taps {
			if to == from || h.mute[from*len(h.taps)+to].Load() {
				continue
			}
			if rand.Float64() < h.loss {
				h.Lost.Add(1)
				continue
			}
			select {
			case t.queue <- delayed{due, frame[:n]}:
			default:
				h.Lost.Add(1)
			}
		}
	}
}

func (h *Hub) write(t *tap) {
	for {
		select {
		case d := <-t.queue:
			time.Sleep(time.Until(d.due))
			t.file.Write(d.frame) // a device that is gone ends the hub anyway
		case <-h.done:
			return
		}
	}
}

// Mute has nothing pass from one link to another, or has it pass again.
func (h *Hub) Mute(from, to int, on bool) { h.mute[from*len(h.taps)+to].Store(on) }

// Part has nothing pass between one link and the others, either way, or has it pass again.
func (h *Hub) Part(link int, on bool) {
	for other := range h.taps {
		if other != link {
			h.Mute(link, other, on)
			h.Mute(other, link, on)
		}
	}
}

// Close takes the hub away. Its devices go with it.
func (h *Hub) Close() {
	close(h.done)
	for _, t := range h.taps {
		t.file.Close()
	}
	h.tasks.Wait()
}
