package endpoint_test

import (
	"context"
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// A chain that is longer or larger than one may be is refused before it is looked at, by whichever side it comes to, and both sides
// say so.
func TestCase52OversizeChains(t *testing.T) {
	p := newPair(t, endpoint.Config{}, echo)
	good := p.domain.Certificate(t, p.domain.AIC(t))
	for name, more := range map[string]int{
		"one certificate too many": 1,
		"twenty kilobytes":         20 << 10 / len(good.Certificate[0]),
	} {
		swollen := good
		for range more + identity.MaxChain - len(good.Certificate) {
			swollen.Certificate = append(slices.Clone(swollen.Certificate), good.Certificate[0])
		}
		c, err := p.dial(t, frame.ALPNControl, swollen)
		if err == nil { // TLS 1.3 lets the dial return; the refusal comes with the first answer
			_, err = ask(t, c, "x")
		}
		if frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("%s from a client: %v", name, err)
		}
		server, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Faces: []endpoint.Face{{
			ALPN: frame.ALPNControl,
			Credentials: func(string) (endpoint.Credentials, error) {
				cert := p.domain.Certificate(t, p.domain.Gateway)
				for len(cert.Certificate) < len(swollen.Certificate) {
					cert.Certificate = append(cert.Certificate, cert.Certificate[0])
				}
				return endpoint.Credentials{Certificate: cert, Verify: anyPeer(t, p.domain, x509.ExtKeyUsageClientAuth)}, nil
			},
			Serve: echo,
		}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if _, err := p.client.Dial(ctx, server.Addr().String(), frame.ALPNControl, "", endpoint.Credentials{
			Certificate: good, Verify: anyPeer(t, p.domain, x509.ExtKeyUsageServerAuth),
		}); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("%s from a server: %v", name, err)
		}
		cancel()
		if err := server.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got, err := ask(t, p.mustDial(t), "still here"); err != nil || got != "still here" {
		t.Errorf("%q, %v", got, err)
	}
}

// Streams that are opened and say nothing hold their places for the time of one frame, and not longer.
func TestCase51SlowLorisStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a frame's deadline")
	}
	t.Parallel()
	p := newPair(t, endpoint.Config{}, echo)
	c := p.mustDial(t)
	const places = 256
	began := time.Now()
	for i := range places {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := c.Open(ctx, frame.StreamRequest)
		cancel()
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := c.Open(ctx, frame.StreamRequest); err == nil {
		t.Error("one stream too many has a place")
	}
	if got, err := ask(t, p.mustDial(t), "another connection"); err != nil || got != "another connection" {
		t.Errorf("%q, %v", got, err)
	}
	for {
		if _, err := ask(t, c, "after them"); err == nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("their places are never free again")
		}
	}
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("they were free after %v: did they ever hold a place?", took)
	}
}
