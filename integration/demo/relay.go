package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxClients  = 64        // addresses that one relay serves; datagrams of others are dropped
	maxDatagram = 64 << 10  // bytes
	relayBuffer = 512 << 10 // bytes of socket buffers: a burst of digests must fit
)

// relay carries the datagrams of one link between two gateways, so that the demo can cut it. Each client address has a socket
// of its own towards the target. It is safe for concurrent use.
type relay struct {
	listen  *net.UDPConn
	target  *net.UDPAddr
	silent  atomic.Bool
	dropped atomic.Int64 // datagrams, while it was silent
	loops   sync.WaitGroup

	mu      sync.Mutex // guards the rest
	clients map[netip.AddrPort]*net.UDPConn
	closed  bool
}

// newRelay listens on a free port of the loopback interface.
func newRelay(target string) (*relay, error) {
	to, err := net.ResolveUDPAddr("udp", target)
	if err != nil {
		return nil, fmt.Errorf("relay to %s: %w", target, err)
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("relay to %s: %w", target, err)
	}
	enlarge(conn)
	r := &relay{listen: conn, target: to, clients: map[netip.AddrPort]*net.UDPConn{}}
	r.loops.Go(r.forward)
	return r, nil
}

// enlarge asks for larger buffers; the kernel's default also works.
func enlarge(c *net.UDPConn) {
	c.SetReadBuffer(relayBuffer)
	c.SetWriteBuffer(relayBuffer)
}

// addr is where clients send to.
func (r *relay) addr() string { return r.listen.LocalAddr().String() }

// silence drops every datagram of both directions until heal.
func (r *relay) silence() { r.silent.Store(true) }

// heal carries datagrams again.
func (r *relay) heal() { r.silent.Store(false) }

// close ends the relay and waits for its goroutines.
func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	r.listen.Close()
	for _, c := range r.clients {
		c.Close()
	}
	r.mu.Unlock()
	r.loops.Wait()
}

func (r *relay) forward() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := r.listen.ReadFromUDPAddrPort(buf)
		if err != nil {
			if again(err) {
				continue
			}
			return
		}
		if up := r.upstream(from); up != nil && r.carries() {
			up.Write(buf[:n]) // a datagram may be lost
		}
	}
}

// carries says whether a datagram goes through now, and counts one that does not.
func (r *relay) carries() bool {
	if r.silent.Load() {
		r.dropped.Add(1)
		return false
	}
	return true
}

// again says whether a socket can be read after an error: on Linux a datagram that nobody took comes back as one.
func again(err error) bool { return !errors.Is(err, net.ErrClosed) }

// upstream is the client's socket towards the target, nil when there are too many clients.
func (r *relay) upstream(client netip.AddrPort) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[client]; c != nil || r.closed || len(r.clients) >= maxClients {
		return c
	}
	c, err := net.DialUDP("udp", nil, r.target)
	if err != nil {
		return nil
	}
	enlarge(c)
	r.clients[client] = c
	r.loops.Go(func() { r.back(c, client) })
	return c
}

func (r *relay) back(c *net.UDPConn, client netip.AddrPort) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := c.Read(buf)
		if err != nil {
			if again(err) {
				time.Sleep(time.Millisecond) // the target is not there (yet): no busy loop
				continue
			}
			return
		}
		if r.carries() {
			r.listen.WriteToUDPAddrPort(buf[:n], client)
		}
	}
}
