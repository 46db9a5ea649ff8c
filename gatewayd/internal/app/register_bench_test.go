package app

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// BenchmarkACSPut is 64 attached agents that replace their ACS, each one after the other.
func BenchmarkACSPut(b *testing.B) {
	g := newGateway(b, "pharmacy.example")
	type putter struct {
		s *endpoint.Stream
		m arp.ACSPut
	}
	var list []*putter
	for range 64 {
		done, cert := g.mustEnrol()
		s, err := g.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant})
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, &putter{s, arp.ACSPut{AIC: done.AIC, Expected: done.EntryVersion}})
	}
	texts := [2]string{pharmacyACS, strings.Replace(pharmacyACS, "Sells medicine.", "Sells medicine at night.", 1)}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var running sync.WaitGroup
	for _, p := range list {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				p.m.ACS = []byte(texts[p.m.Expected%2])
				s, err := p.s.Conn().Open(b.Context(), frame.StreamRegistration)
				if err == nil {
					err = s.WriteMessage(5*time.Second, &p.m)
				}
				if err != nil {
					b.Error(err)
					return
				}
				var out arp.ACSState
				if err := s.ReadMessage(5*time.Second, &out); err != nil {
					b.Error(err)
					return
				}
				s.CloseWrite()
				p.m.Expected = out.EntryVersion
			}
		})
	}
	running.Wait()
}

// BenchmarkEnrol is one enrolment after the other, with its handshake.
func BenchmarkEnrol(b *testing.B) {
	g := newGateway(b, "pharmacy.example")
	for b.Loop() {
		b.StopTimer()
		key, token := identitytest.NewKey(b), g.token()
		csr, err := identity.NewCSR(key)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := g.enrol(token, key, csr, pharmacyACS); err != nil {
			b.Fatal(err)
		}
	}
}
