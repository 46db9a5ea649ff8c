package endpoint_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// mute is a socket that keeps what is sent and receives nothing.
type mute struct {
	mu     sync.Mutex // guards sent
	sent   [][]byte
	wrote  chan struct{} // after each
	closed chan struct{}
	once   sync.Once
}

func (m *mute) WriteTo(b []byte, _ net.Addr) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, slices.Clone(b))
	select {
	case m.wrote <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (m *mute) ReadFrom([]byte) (int, net.Addr, error) {
	<-m.closed
	return 0, nil, net.ErrClosed
}

func (m *mute) Close() error                     { m.once.Do(func() { close(m.closed) }); return nil }
func (m *mute) LocalAddr() net.Addr              { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (m *mute) SetDeadline(time.Time) error      { return nil }
func (m *mute) SetReadDeadline(time.Time) error  { return nil }
func (m *mute) SetWriteDeadline(time.Time) error { return nil }

// firstFlight is the datagrams with which a client begins, before it has heard anything.
func firstFlight(t *testing.T, to net.Addr) [][]byte {
	m := &mute{wrote: make(chan struct{}, 1), closed: make(chan struct{})}
	tr := &quic.Transport{Conn: m}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	go func() {
		<-m.wrote
		time.Sleep(10 * time.Millisecond) // a flight is two datagrams, and is repeated later
		cancel()
	}()
	if _, err := tr.Dial(ctx, to, &tls.Config{NextProtos: []string{frame.ALPNControl}, InsecureSkipVerify: true}, nil); err == nil {
		t.Error("a mute socket has connected")
	}
	m.Close()
	tr.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(m.sent, func(b []byte) bool { return b[0]&0xf0 != 0xc0 }) // Initial packets; the rest is how it gave up
}

const maxPacket = 1452 // octets, the longest of quic-go

// isRetry says whether a datagram is a Retry packet of QUIC version 1.
func isRetry(b []byte) bool { return len(b) > 5 && b[0]&0xf0 == 0xf0 && b[4] == 1 }

// Handshakes from more sources than can be: above the rate each has to prove its address first. To nobody goes more than three times what came
// from there, who is connected goes on, and whoever is honest still connects.
func TestCase50HandshakeFloodFromForgedSources(t *testing.T) {
	const sources = 1500
	p := newPair(t, endpoint.Config{}, echo)
	old := p.mustDial(t)
	if _, err := ask(t, old, "before"); err != nil {
		t.Fatal(err)
	}
	to, err := net.ResolveUDPAddr("udp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	var flights [sources][][]byte
	var making sync.WaitGroup
	turn := make(chan struct{}, 64)
	for i := range sources {
		turn <- struct{}{}
		making.Go(func() { flights[i] = firstFlight(t, to); <-turn })
	}
	making.Wait()

	var from [sources]*net.UDPConn
	for i := range from {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 0)))
		if err != nil {
			t.Skipf("this system has one loopback address only: %v", err)
		}
		defer c.Close()
		from[i] = c
	}
	var mu sync.Mutex
	retries, answered := 0, 0
	var last time.Duration // from the begin until a source had its first answer
	began := time.Now()
	var flood sync.WaitGroup
	until := time.Now().Add(4 * time.Second) // the server repeats what is not acknowledged
	for i, flight := range flights {
		c, sent := from[i], 0
		time.Sleep(300 * time.Microsecond) // the flood is to be answered, not lost on its way
		for _, b := range flight {
			n, err := c.WriteTo(b, to)
			if err != nil {
				t.Fatal(err)
			}
			sent += n
		}
		if sent < 1200 {
			t.Fatalf("a first flight of %d octets", sent)
		}
		flood.Go(func() {
			c.SetReadDeadline(until)
			got, buf := 0, make([]byte, 2048)
			retry, first := false, time.Duration(0)
			for {
				n, err := c.Read(buf)
				if err != nil {
					break
				}
				if got == 0 {
					first = time.Since(began)
				}
				got += n
				retry = retry || isRetry(buf[:n])
			}
			mu.Lock()
			defer mu.Unlock()
			if got > 3*sent+maxPacket { // quic-go looks before it sends a packet, and not at what comes of it
				t.Errorf("%d octets to an address that sent %d", got, sent)
			}
			if retry {
				retries++
			}
			if got > 0 {
				answered++
				last = max(last, first)
			}
		})
	}
	for n := range 20 {
		if _, err := ask(t, old, "during"); err != nil {
			t.Fatalf("request %d of a connected peer: %v", n, err)
		}
	}
	if _, err := ask(t, p.mustDial(t), "honest"); err != nil {
		t.Errorf("an honest client: %v", err)
	}
	flood.Wait()
	t.Logf("%d sources, %d answered within %v, %d of them by Retry", sources, answered, last.Round(time.Millisecond), retries)
	const rate, burst = 200, 400 // handshakes that are begun without such a proof; a slow machine begins fewer
	if most := burst + int(rate*last.Seconds()) + 50; answered-retries > most || answered == 0 {
		t.Errorf("%d of %d answered sources did not have to prove their address, %d at most need not", answered-retries, answered, most)
	}
	if _, err := ask(t, old, "after"); err != nil {
		t.Error(err)
	}
}

// Where nothing comes back the error says which UDP port is to be let through, and which switches there are for offloads that lose packets.
func TestCase54NoUDPNamesPortAndSwitches(t *testing.T) {
	hole, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) // it takes everything and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	p := newPair(t, endpoint.Config{}, echo)
	for _, wait := range []time.Duration{time.Second, 10 * time.Second} { // the caller's time, and the handshake's own
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err := p.client.Dial(ctx, hole.LocalAddr().String(), frame.ALPNControl, "", endpoint.Credentials{Certificate: p.domain.Certificate(t, p.domain.Gateway)})
		cancel()
		for _, want := range []string{hole.LocalAddr().String(), "UDP", "QUIC_GO_DISABLE_GSO=true", "QUIC_GO_DISABLE_ECN=true"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("after %v: %v; it does not name %s", wait, err, want)
			}
		}
		if code := frame.CodeOf(err); code != frame.UpstreamFailed && code != frame.Deadline {
			t.Errorf("code %v", code)
		}
	}
}
