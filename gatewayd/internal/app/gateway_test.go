package app

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// gateway is a whole gatewayd in this process, with a socket of its own to dial from.
type gateway struct {
	t    testing.TB
	cfg  *config.Gateway
	app  *app
	dir  string
	stop func()
	ep   *endpoint.Endpoint
	key  crypto.Signer // of the agent that was enrolled last
	tune func(*config.Gateway)
	logs logText
}

// logText is what a gateway has logged.
type logText struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newGateway makes a domain and starts its gateway on a free port of the loopback.
func newGateway(t testing.TB, domain string) *gateway {
	t.Helper()
	return newGatewayWith(t, domain, nil)
}

// newGatewayWith is newGateway with another configuration.
func newGatewayWith(t testing.TB, domain string, tune func(*config.Gateway)) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: t.TempDir(), tune: tune}
	if _, err := Init(InitOptions{Dir: g.dir, Domain: domain, Listen: freeAddr(t), Lab: true}); err != nil {
		t.Fatal(err)
	}
	g.start()
	var err error
	if g.ep, err = endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Profile: endpoint.Agent}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.ep.Close(ctx)
		g.stop()
	})
	return g
}

// freeAddr is a UDP address of the loopback that nobody used a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}

func (g *gateway) start() {
	g.t.Helper()
	cfg, err := config.LoadGateway(filepath.Join(g.dir, "gatewayd.yaml"))
	if err != nil {
		g.t.Fatal(err)
	}
	cfg.Limits.EnrolRate, cfg.Limits.HandshakeRate, cfg.Limits.AgentRequestRate = 1000, 1000, 1e6 // one address makes every connection
	if g.tune != nil {
		g.tune(cfg)
	}
	g.cfg = cfg
	ctx, cancel := context.WithCancel(context.Background())
	var cleanup daemon.Cleanup
	running, err := Start(ctx, cfg, slog.New(slog.NewTextHandler(io.MultiWriter(logWriter{g.t}, &g.logs), &slog.HandlerOptions{Level: slog.LevelWarn})), &cleanup)
	if err != nil {
		cancel()
		g.t.Fatal(errors.Join(err, cleanup.Run()))
	}
	g.app = running.(*app)
	stopped := false
	g.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := cleanup.Run(); err != nil {
			g.t.Error(err)
		}
	}
}

type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

const pharmacyACS = `{"protocolVersion":"02.02","name":"Corner pharmacy","description":"Sells medicine.","version":"1.0.0",
"provider":{"organization":"Pharmacy"},"securitySchemes":{"mtls":{"type":"mutualTLS"}},"endPoints":[],
"capabilities":{"streaming":false,"notification":false,"messageQueue":[]},"defaultInputModes":["application/json"],
"defaultOutputModes":["application/json"],"skills":[
{"id":"medicine.sell","name":"Sell medicine","description":"Throat lozenges, sore throat remedies.","version":"1.0.0","tags":["medicine"]},
{"id":"medicine.advise","name":"Advise","description":"Which remedy helps.","version":"1.0.0","tags":["medicine"]}]}`

func (g *gateway) token(scope ...string) arp.Token {
	g.t.Helper()
	a, err := g.app.CreateToken(g.t.Context(), admin.TokenRequest{Scope: scope})
	if err != nil {
		g.t.Fatal(err)
	}
	t, err := arp.ParseToken(a.Token)
	if err != nil {
		g.t.Fatal(err)
	}
	return t
}

// enrol presents what it is given and returns the answer, or the refusal as an error.
func (g *gateway) enrol(token arp.Token, key crypto.Signer, csr []byte, draft string) (*arp.Enrolled, error) {
	g.t.Helper()
	return g.enrolAs(token, key, arp.Enrol{CSR: csr, Draft: []byte(draft), Visibility: 2})
}

func (g *gateway) enrolAs(token arp.Token, key crypto.Signer, m arp.Enrol) (*arp.Enrolled, error) {
	g.t.Helper()
	cert, err := identity.SelfSigned(key)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
	defer cancel()
	c, err := g.ep.Dial(ctx, g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: cert, Verify: identity.VerifyPinned([32]byte(token.GatewayPK), time.Now),
	})
	if err != nil {
		return nil, err
	}
	defer c.Close(frame.OK, "")
	s, err := c.Open(ctx, frame.StreamRegistration)
	if err != nil {
		return nil, err
	}
	m.Secret = token.Secret
	if err := s.WriteMessage(5*time.Second, &m); err != nil {
		return nil, err
	}
	t, payload, err := s.ReadFrame(10 * time.Second)
	if err != nil {
		return nil, err
	}
	if t == frame.Answer {
		var a arp.Answer
		if err := frame.Unmarshal(payload, &a); err != nil {
			g.t.Fatal(err)
		}
		text := a.Msg
		for _, d := range a.Detail {
			text += "\n" + d.Path
		}
		return nil, frame.Errorf(a.Code, "%s", text)
	}
	out := new(arp.Enrolled)
	return out, frame.Unmarshal(payload, out)
}

func (g *gateway) mustEnrol(scope ...string) (*arp.Enrolled, tls.Certificate) {
	g.t.Helper()
	key := identitytest.NewKey(g.t)
	csr, err := identity.NewCSR(key)
	if err != nil {
		g.t.Fatal(err)
	}
	done, err := g.enrol(g.token(scope...), key, csr, pharmacyACS)
	if err != nil {
		g.t.Fatal(err)
	}
	cert, err := identity.TLSCertificate(done.Chain, key)
	if err != nil {
		g.t.Fatal(err)
	}
	return done, cert
}

// rows are the agents that the gateway lists.
func (g *gateway) rows() []admin.AgentRow {
	g.t.Helper()
	p, err := g.app.Agents(admin.AgentsRequest{})
	if err != nil {
		g.t.Fatal(err)
	}
	return p.Agents
}
