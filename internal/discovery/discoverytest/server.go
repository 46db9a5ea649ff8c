// Package discoverytest is name servers for tests, on the loopback: as good, and as bad, as a test wants them.
package discoverytest

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// Server is a name server. Its handler may be changed at any time.
type Server struct {
	Addr    string // ip:port, of UDP and TCP
	Queries atomic.Int64
	handler atomic.Pointer[dns.HandlerFunc]
}

// New starts a server that ends with the test.
func New(t testing.TB, h dns.HandlerFunc) *Server {
	t.Helper()
	s := &Server{}
	s.Set(h)
	packets, listener := sockets(t)
	s.Addr = packets.LocalAddr().String()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		s.Queries.Add(1)
		(*s.handler.Load())(w, q)
	})
	var running sync.WaitGroup
	servers := []*dns.Server{{PacketConn: packets, Handler: handler, UDPSize: 4096}, {Listener: listener, Handler: handler}}
	for _, srv := range servers {
		ready := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(ready) }
		running.Go(func() {
			if err := srv.ActivateAndServe(); err != nil {
				t.Errorf("name server of the test: %v", err)
			}
		})
		<-ready
	}
	t.Cleanup(func() {
		for _, srv := range servers {
			srv.Shutdown() //nolint:errcheck // it runs
		}
		running.Wait()
	})
	return s
}

// sockets are of one port.
func sockets(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if listener, err := net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, listener
		}
		packets.Close() // somebody else has the port for TCP
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

// Set makes another handler answer from now on.
func (s *Server) Set(h dns.HandlerFunc) { s.handler.Store(&h) }

// Records answers with these records, in the form of zone files, as a resolver would: with CNAMEs followed, and NXDOMAIN for what is not there.
func Records(t testing.TB, lines ...string) dns.HandlerFunc {
	t.Helper()
	var all []dns.RR
	for _, l := range lines {
		rr, err := dns.NewRR(l)
		if err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		all = append(all, rr)
	}
	return func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(Reply(q, all)) }
}

// Reply is a resolver's answer out of records.
func Reply(q *dns.Msg, all []dns.RR) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	name, known := q.Question[0].Name, false
	for range 20 {
		next := ""
		for _, rr := range all {
			h := rr.Header()
			if !strings.EqualFold(h.Name, name) {
				continue
			}
			known = true
			switch h.Rrtype {
			case q.Question[0].Qtype:
				m.Answer = append(m.Answer, rr)
			case dns.TypeCNAME:
				m.Answer, next = append(m.Answer, rr), rr.(*dns.CNAME).Target
			}
		}
		if next == "" {
			break
		}
		name, known = next, false
	}
	if !known {
		m.Rcode = dns.RcodeNameError
	}
	return m
}

// Fails answers with a code, such as [dns.RcodeServerFailure].
func Fails(rcode int) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetRcode(q, rcode)
		m.RecursionAvailable = true
		_ = w.WriteMsg(m)
	}
}
