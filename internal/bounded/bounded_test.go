package bounded

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// Beyond either bound a connection ends at once; one that is closed makes room.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ports := map[bool]netip.Prefix{true: netip.MustParsePrefix("192.0.2.0/24"), false: netip.MustParsePrefix("198.51.100.0/24")}
	var second atomic.Bool
	l := Listen(inner, 3, 2, func(net.Addr) netip.Prefix { return ports[!second.Load()] })
	defer l.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() (server net.Conn) {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		closed := make(chan struct{})
		go func() {
			c.Read(make([]byte, 1))
			close(closed)
		}()
		select {
		case server = <-accepted:
			return server
		case <-closed:
			return nil
		case <-time.After(5 * time.Second):
			t.Fatal("neither taken nor closed")
		}
		return nil
	}
	one, two := dial(), dial()
	if one == nil || two == nil {
		t.Fatal("refused within the bounds")
	}
	if dial() != nil {
		t.Error("a third of one network")
	}
	second.Store(true)
	if dial() == nil {
		t.Error("another network is refused")
	}
	if dial() != nil {
		t.Error("a fourth in all")
	}
	one.Close()
	one.Close() // gives its place back once
	if dial() == nil || dial() != nil {
		t.Error("one place is free, and one only")
	}
}

func TestNetwork(t *testing.T) {
	for addr, want := range map[string]string{"192.0.2.7:1": "192.0.2.0/24", "[::ffff:192.0.2.7]:1": "192.0.2.0/24", "[2001:db8:1:2::3]:1": "2001:db8:1::/56"} {
		a := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		if got := Network(a, 24, 56).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if got := Network(&net.UnixAddr{Name: "x"}, 24, 56); got.IsValid() {
		t.Errorf("no IP address: %v", got)
	}
}
