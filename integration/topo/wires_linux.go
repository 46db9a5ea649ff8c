package topo

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/vishvananda/netlink"
)

// Wires is the namespace of the bridges, in which no node lives. Create it with [NewWires].
type Wires struct {
	*Namespace
	ports atomic.Int32 // names of ports
}

// NewWires makes the namespace of the bridges.
func NewWires() (*Wires, error) {
	n, err := NewNamespace("wires")
	if err != nil {
		return nil, err
	}
	return &Wires{Namespace: n}, nil
}

// Port is a node's end of a link.
type Port struct {
	Node *Namespace
	Addr netip.Prefix
}

// Net is one link: a bridge, and a veth pair to each of its nodes, where the interface has the link's name.
type Net struct {
	Name  string
	wires *Wires
	ports []string
}

// Connect makes a link between nodes. Its name is that of interfaces: at most 15 characters, unique within the wires.
func (w *Wires) Connect(name string, members ...Port) (*Net, error) {
	n := &Net{Name: name, wires: w}
	err := w.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			return err
		}
		return up(name)
	})
	for i := 0; err == nil && i < len(members); i++ {
		err = n.join(members[i])
	}
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	return n, nil
}

// join makes one veth pair: one end a port of the bridge, the other the node's interface.
func (n *Net) join(p Port) error {
	port := fmt.Sprintf("port%d", n.wires.ports.Add(1))
	err := n.wires.Do(func() error {
		bridge, err := netlink.LinkByName(n.Name)
		if err != nil {
			return err
		}
		err = netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: bridge.Attrs().Index},
			PeerName:  n.Name, PeerNamespace: netlink.NsFd(p.Node.fd),
		})
		if err != nil {
			return err
		}
		return up(port)
	})
	if err != nil {
		return fmt.Errorf("port of %s: %w", p.Node.Name, err)
	}
	n.ports = append(n.ports, port)
	return p.Node.address(n.Name, p.Addr)
}

// Cut makes the link carry nothing. The nodes' interfaces stay up: neither end is told, packets just vanish.
func (n *Net) Cut() error { return n.set("cut", netlink.LinkSetDown) }

// Heal undoes [Net.Cut].
func (n *Net) Heal() error { return n.set("heal", netlink.LinkSetUp) }

func (n *Net) set(what string, do func(netlink.Link) error) error {
	return n.wires.Do(func() error {
		l, err := netlink.LinkByName(n.Name)
		if err == nil {
			err = do(l)
		}
		if err != nil {
			return fmt.Errorf("%s link %s: %w", what, n.Name, err)
		}
		return nil
	})
}

// Bytes is how much its nodes have sent into the link so far, headers included.
func (n *Net) Bytes() (sum uint64, err error) {
	err = n.wires.Do(func() error {
		for _, p := range n.ports {
			l, err := netlink.LinkByName(p)
			if err != nil {
				return fmt.Errorf("count link %s: %w", n.Name, err)
			}
			sum += l.Attrs().Statistics.RxBytes
		}
		return nil
	})
	return sum, err
}
