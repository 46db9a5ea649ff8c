package app

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// BenchmarkResolveByID is one request of an attached agent for an exact capability, over real QUIC.
func BenchmarkResolveByID(b *testing.B) {
	g := newGateway(b, "pharmacy.example")
	done, cert := g.mustEnrol()
	if _, err := g.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err != nil {
		b.Fatal(err)
	}
	asker, askerCert := g.mustEnrol()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	c, err := g.ep.Dial(ctx, g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: askerCert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
	})
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.Open(ctx, frame.StreamControl)
	if err != nil {
		b.Fatal(err)
	}
	s.WriteMessage(time.Second, &arp.Attach{AIC: asker.AIC, BootID: make([]byte, 16), Grant: asker.Grant})
	var at arp.Attached
	if err := s.ReadMessage(time.Second, &at); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		req, err := semreq.Ask{Query: semreq.Query{Caps: done.Caps[:1]}, Want: 1}.Request()
		if err != nil {
			b.Fatal(err)
		}
		q, err := c.Open(ctx, frame.StreamRequest)
		if err != nil {
			b.Fatal(err)
		}
		if err := q.WriteMessage(time.Second, req); err != nil {
			b.Fatal(err)
		}
		q.CloseWrite()
		var out semreq.Response
		if err := q.ReadMessage(time.Second, &out); err != nil || len(out.Results) != 1 {
			b.Fatal(out.Status, err)
		}
		q.ReadFrame(time.Second)
	}
}
