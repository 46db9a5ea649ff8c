package endpoint_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// pair is a listening endpoint and one that dials, both of one domain.
type pair struct {
	domain         *identitytest.Domain
	server, client *endpoint.Endpoint
	addr           string
}

func anyPeer(t *testing.T, d *identitytest.Domain, usage x509.ExtKeyUsage) func(tls.ConnectionState) error {
	return d.Trust(t).Verify(usage, func(identity.Peer) error { return nil })
}

func newPair(t *testing.T, cfg endpoint.Config, serve func(context.Context, *endpoint.Conn)) *pair {
	t.Helper()
	d := identitytest.New(t, "home.example", "A1")
	cert := d.Certificate(t, d.Gateway)
	cfg.Addr = "127.0.0.1:0"
	cfg.Faces = []endpoint.Face{{
		ALPN: frame.ALPNControl,
		Credentials: func(string) (endpoint.Credentials, error) {
			return endpoint.Credentials{Certificate: cert, Verify: anyPeer(t, d, x509.ExtKeyUsageClientAuth)}, nil
		},
		Serve: serve,
	}}
	server, err := endpoint.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(client.Close(ctx), server.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return &pair{domain: d, server: server, client: client, addr: server.Addr().String()}
}

func (p *pair) dial(t *testing.T, alpn string, cert tls.Certificate) (*endpoint.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return p.client.Dial(ctx, p.addr, alpn, "", endpoint.Credentials{
		Certificate: cert, Verify: anyPeer(t, p.domain, x509.ExtKeyUsageServerAuth),
	})
}

func (p *pair) mustDial(t *testing.T) *endpoint.Conn {
	t.Helper()
	c, err := p.dial(t, frame.ALPNControl, p.domain.Certificate(t, p.domain.AIC(t)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// echo answers each ANSWER on a request stream with the same.
func echo(ctx context.Context, c *endpoint.Conn) {
	c.Serve(ctx, endpoint.Handlers{frame.StreamRequest: func(_ context.Context, s *endpoint.Stream) {
		var m arp.Answer
		if err := s.ReadMessage(5*time.Second, &m); err != nil {
			s.Reset(frame.CodeOf(err))
			return
		}
		s.WriteMessage(5*time.Second, &m)
		s.CloseWrite()
	}})
}

func ask(t *testing.T, c *endpoint.Conn, msg string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := c.Open(ctx, frame.StreamRequest)
	if err != nil {
		return "", err
	}
	if err := s.WriteMessage(5*time.Second, &arp.Answer{Msg: msg}); err != nil {
		return "", err
	}
	s.CloseWrite()
	var m arp.Answer
	if err := s.ReadMessage(5*time.Second, &m); err != nil {
		return "", err
	}
	if _, _, err := s.ReadFrame(5 * time.Second); err != io.EOF {
		return "", err
	}
	return m.Msg, nil
}

func TestStreams(t *testing.T) {
	p := newPair(t, endpoint.Config{}, echo)
	c := p.mustDial(t)
	for range 600 { // more than the stream limit: credit must come back
		if got, err := ask(t, c, "hello"); err != nil || got != "hello" {
			t.Fatal(got, err)
		}
	}
	if id, err := identity.AICOf(c.PeerLeaf()); err != nil || id != p.domain.Gateway {
		t.Error(id, err)
	}
	c.Close(frame.OK, "")
}

// Streams are served beside each other, whether or not one was served before, and as many as there may be have credit again and again.
func TestStreamsBesideEachOther(t *testing.T) {
	const together = 200
	arrived := make(chan struct{}, together)
	leave := make(chan struct{})
	p := newPair(t, endpoint.Config{}, func(ctx context.Context, c *endpoint.Conn) {
		c.Serve(ctx, endpoint.Handlers{frame.StreamRequest: func(ctx context.Context, s *endpoint.Stream) {
			arrived <- struct{}{}
			select {
			case <-leave:
			case <-ctx.Done():
			}
			var m arp.Answer
			if err := s.ReadMessage(5*time.Second, &m); err != nil {
				s.Reset(frame.CodeOf(err))
				return
			}
			s.WriteMessage(5*time.Second, &m)
			s.CloseWrite()
		}})
	})
	c := p.mustDial(t)
	for range 3 {
		errs := make(chan error, together)
		for range together {
			go func() {
				_, err := ask(t, c, "hello")
				errs <- err
			}()
		}
		for n := range together {
			select {
			case <-arrived:
			case <-time.After(5 * time.Second):
				t.Fatalf("%d of %d streams are served at once", n, together)
			}
		}
		for range together {
			leave <- struct{}{}
		}
		for range together {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestUnknownStreamClosesConnection(t *testing.T) {
	p := newPair(t, endpoint.Config{}, echo)
	c := p.mustDial(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := c.Open(ctx, 0x3f)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadFrame(5 * time.Second); frame.CodeOf(err) != frame.UnknownStream {
		t.Errorf("got %v", err)
	}
}

func TestRefusals(t *testing.T) {
	p := newPair(t, endpoint.Config{}, echo)
	if _, err := p.dial(t, "h3", p.domain.Certificate(t, p.domain.AIC(t))); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("unknown protocol: %v", err)
	}
	stranger := identitytest.New(t, "stranger.example", "C1")
	c, err := p.dial(t, frame.ALPNControl, stranger.Certificate(t, stranger.AIC(t)))
	if err == nil { // TLS 1.3 lets the dial return; the refusal comes with the first answer
		_, err = ask(t, c, "x")
	}
	if frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("stranger: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := p.client.Dial(ctx, p.addr, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: p.domain.Certificate(t, p.domain.AIC(t)), Verify: anyPeer(t, stranger, x509.ExtKeyUsageServerAuth),
	}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("server of a domain that the client does not trust: %v", err)
	}
}

func TestHandshakeRate(t *testing.T) {
	p := newPair(t, endpoint.Config{HandshakeRate: 0.001, HandshakeBurst: 1}, echo)
	cert := p.domain.Certificate(t, p.domain.AIC(t))
	stranger := identitytest.New(t, "stranger.example", "C1")
	bad, err := p.dial(t, frame.ALPNControl, stranger.Certificate(t, stranger.AIC(t))) // takes the only token, and completes nothing
	if err == nil {
		ask(t, bad, "x")
	}
	if _, err := p.dial(t, frame.ALPNControl, cert); frame.CodeOf(err) != frame.Overloaded {
		t.Errorf("second handshake of an unknown address: %v", err)
	}
}

func TestDrain(t *testing.T) {
	inHandler, release := make(chan struct{}), make(chan struct{})
	p := newPair(t, endpoint.Config{}, func(ctx context.Context, c *endpoint.Conn) {
		c.Serve(ctx, endpoint.Handlers{frame.StreamRequest: func(_ context.Context, s *endpoint.Stream) {
			var m arp.Answer
			s.ReadMessage(5*time.Second, &m)
			close(inHandler)
			<-release
			s.WriteMessage(5*time.Second, &m)
			s.CloseWrite()
		}})
	})
	c := p.mustDial(t)
	type answer struct {
		msg string
		err error
	}
	got := make(chan answer, 1)
	go func() {
		msg, err := ask(t, c, "late")
		got <- answer{msg, err}
	}()
	<-inHandler
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		closed <- p.server.Close(ctx)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := p.client.Dial(ctx, p.addr, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: p.domain.Certificate(t, p.domain.AIC(t)), Verify: anyPeer(t, p.domain, x509.ExtKeyUsageServerAuth),
	}); err == nil {
		t.Error("a draining endpoint takes new connections")
	}
	close(release)
	if a := <-got; a.err != nil || a.msg != "late" {
		t.Errorf("a request that ran when the drain began: %q %v", a.msg, a.err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	<-c.Context().Done()
	if err := c.Err(); frame.CodeOf(err) != frame.UpstreamFailed && frame.CodeOf(err) != frame.Shutdown {
		t.Error(err)
	}
}

func TestKeysPersist(t *testing.T) {
	dir := t.TempDir()
	read := func() string {
		e, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", StateDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		e.Close(t.Context())
		reset, err := os.ReadFile(filepath.Join(dir, "stateless-reset.key"))
		if err != nil {
			t.Fatal(err)
		}
		return string(reset)
	}
	if first := read(); len(first) != 32 || first != read() {
		t.Error("the stateless reset key must survive a restart")
	}
	os.WriteFile(filepath.Join(dir, "address-token.key"), []byte("short"), 0o600)
	if _, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", StateDir: dir}); err == nil {
		t.Error("a damaged key file is accepted")
	}
}

func TestBindErrorNamesTheAddress(t *testing.T) {
	e, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	_, err = endpoint.Open(endpoint.Config{Addr: e.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), e.Addr().String()) {
		t.Errorf("a second endpoint on %s: %v", e.Addr(), err)
	}
}
