// Package bounded is TCP listeners that strangers may reach: they take so many connections in all and from one network, and close those beyond
// at once.
//
// A [Listener] is safe for concurrent use.
package bounded

import (
	"net"
	"net/netip"
	"sync"
)

// Listener closes what is beyond its bounds. It is made by [Listen].
type Listener struct {
	net.Listener
	most, each int
	network    func(net.Addr) netip.Prefix

	mu    sync.Mutex // guards the rest
	total int
	open  map[netip.Prefix]int
}

// Listen bounds a listener to most connections at once in all, and each from one network as network tells it.
func Listen(l net.Listener, most, each int, network func(net.Addr) netip.Prefix) *Listener {
	return &Listener{Listener: l, most: most, each: each, network: network, open: map[netip.Prefix]int{}}
}

// Network is the network of an address: its first v4 or v6 bits. What is no IP address counts as one and the same.
func Network(a net.Addr, v4, v6 int) netip.Prefix {
	var at netip.AddrPort
	switch v := a.(type) {
	case *net.UDPAddr:
		at = v.AddrPort()
	case *net.TCPAddr:
		at = v.AddrPort()
	}
	ip, bits := at.Addr().Unmap().WithZone(""), v4
	if ip.Is6() {
		bits = v6
	}
	p, _ := ip.Prefix(bits)
	return p
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who := l.network(c.RemoteAddr())
		if l.take(who) {
			return &counted{Conn: c, gone: sync.OnceFunc(func() { l.give(who) })}, nil
		}
		_ = c.Close() // it was told nothing, so nothing can be lost
	}
}

func (l *Listener) take(who netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.most || l.open[who] >= l.each {
		return false
	}
	l.total++
	l.open[who]++
	return true
}

func (l *Listener) give(who netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.open[who]--; l.open[who] == 0 {
		delete(l.open, who)
	}
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	gone func()
}

func (c *counted) Close() error {
	defer c.gone()
	return c.Conn.Close()
}
