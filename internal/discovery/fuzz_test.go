package discovery

import (
	"context"
	"testing"

	"github.com/miekg/dns"

	"agentgw/internal/discovery/discoverytest"
)

// FuzzReply reads what any server may send: nothing panics, and nothing counts that was not asked for.
func FuzzReply(f *testing.F) {
	const id = 7
	q := dns.Question{Name: "_dmsc-agw.a.example.", Qtype: dns.TypeSVCB, Qclass: dns.ClassINET}
	var all []dns.RR
	for _, l := range zone {
		rr, err := dns.NewRR(l)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, rr)
	}
	for _, name := range []string{"_dmsc-agw.a.example.", "_dmsc-agw.cname.example.", "_dmsc-agw.circle.example.", "none.example."} {
		m := new(dns.Msg).SetQuestion(name, dns.TypeSVCB)
		m.Id = id
		answer := discoverytest.Reply(m, all)
		answer.Question[0].Name = q.Name
		raw, err := answer.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := readReply(raw, q, id)
		if err != nil {
			if r != nil {
				t.Fatal("an answer and an error")
			}
			return
		}
		for _, rr := range r.records {
			if !same(rr.Header().Name, r.name) || rr.Header().Rrtype != dns.TypeSVCB {
				t.Fatalf("%v counts as an answer about %s", rr, r.name)
			}
		}
		if r.aliases > maxAliases {
			t.Fatalf("%d aliases", r.aliases)
		}
		l := &lookup{alpn: alpn, ask: func(_ context.Context, name string, qtype uint16) (*reply, error) {
			if qtype == dns.TypeSVCB {
				return r, nil
			}
			return &reply{name: name}, nil
		}}
		if a, err := l.domain(t.Context(), "a.example"); err == nil && len(a.Addresses()) == 0 {
			t.Fatalf("%+v", a)
		}
	})
}
