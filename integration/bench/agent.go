package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/integration/proc"
	"agentgw/internal/control"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const (
	wait       = 10 * time.Second // for one answer
	aliveEvery = 15 * time.Second // a gateway forgets an agent that was silent for 45 s
)

// agent is an agent that the bench plays: enrolled by token, attached over dmsc-ctl/1.
type agent struct {
	aic     string
	conn    *endpoint.Conn
	control *endpoint.Stream
}

// join enrols an agent with a gateway and attaches it.
func (w *world) join(ctx context.Context, g *gateway, name string, visibility directory.Visibility, skills []skill) (*agent, error) {
	a, err := w.tryJoin(ctx, g, name, visibility, skills)
	if err != nil {
		return nil, fmt.Errorf("enrol and attach %s with %s: %w", name, g.domain, err)
	}
	return a, nil
}

func (w *world) tryJoin(ctx context.Context, g *gateway, name string, visibility directory.Visibility, skills []skill) (*agent, error) {
	acs, err := draft(name, skills)
	if err != nil {
		return nil, err
	}
	return w.joinWith(ctx, g, visibility, acs)
}

func (w *world) joinWith(ctx context.Context, g *gateway, visibility directory.Visibility, acs []byte) (*agent, error) {
	key, err := identity.NewLeafKey()
	if err != nil {
		return nil, err
	}
	csr, err := identity.NewCSR(key)
	if err != nil {
		return nil, err
	}
	self, err := identity.SelfSigned(key)
	if err != nil {
		return nil, err
	}
	done, err := w.enrol(ctx, g, self, &arp.Enrol{CSR: csr, Draft: acs, DraftKind: arp.DraftACS, Visibility: uint8(visibility)})
	if err != nil {
		return nil, err
	}
	cert, err := identity.TLSCertificate(done.Chain, key)
	if err != nil {
		return nil, err
	}
	return w.attach(ctx, g, cert, done)
}

// token is a new one of a gateway.
func (w *world) token(ctx context.Context, g *gateway) (t arp.Token, err error) {
	var made struct {
		Token string `json:"token"`
	}
	if err := control.NewClient(g.control).Call(ctx, "/v1/token", struct{}{}, &made); err != nil {
		return t, err
	}
	return arp.ParseToken(made.Token)
}

// enrol presents m with a new token.
func (w *world) enrol(ctx context.Context, g *gateway, self tls.Certificate, m *arp.Enrol) (*arp.Enrolled, error) {
	token, err := w.token(ctx, g)
	if err != nil {
		return nil, err
	}
	return w.present(ctx, g, self, token, m)
}

// present enrols with a token.
func (w *world) present(ctx context.Context, g *gateway, self tls.Certificate, token arp.Token, m *arp.Enrol) (*arp.Enrolled, error) {
	cred := endpoint.Credentials{Certificate: self, Verify: identity.VerifyPinned([32]byte(token.GatewayPK), time.Now)}
	conn, err := w.ep.Dial(ctx, g.listen, frame.ALPNControl, "", cred)
	if err != nil {
		return nil, err
	}
	defer conn.Close(frame.OK, "")
	s, err := conn.Open(ctx, frame.StreamRegistration)
	if err != nil {
		return nil, err
	}
	m.Secret = token.Secret
	if err := s.WriteMessage(wait, m); err != nil {
		return nil, err
	}
	s.CloseWrite()
	t, payload, err := s.ReadFrame(wait)
	if err != nil {
		return nil, err
	}
	if t == frame.Answer {
		var refusal arp.Answer
		if err := frame.Unmarshal(payload, &refusal); err != nil {
			return nil, err
		}
		return nil, refusal.Err()
	}
	done := new(arp.Enrolled)
	return done, frame.Unmarshal(payload, done)
}

func (w *world) attach(ctx context.Context, g *gateway, cert tls.Certificate, e *arp.Enrolled) (*agent, error) {
	trust, err := identity.NewTrust(e.Bundle, time.Now)
	if err != nil {
		return nil, err
	}
	conn, err := w.ep.Dial(ctx, g.listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: cert,
		Verify: trust.Verify(x509.ExtKeyUsageServerAuth, func(p identity.Peer) error {
			if !p.Bundle.IsGateway(string(p.AIC)) {
				return frame.Errorf(frame.IdentityMismatch, "%s is no gateway", p.AIC)
			}
			return nil
		}),
	})
	if err != nil {
		return nil, err
	}
	s, err := conn.Open(ctx, frame.StreamControl)
	if err != nil {
		return nil, err
	}
	boot := make([]byte, 16)
	rand.Read(boot)
	err = s.WriteMessage(wait, &arp.Attach{AIC: e.AIC, BootID: boot, Capacity: 255, Grant: e.Grant, Now: uint64(time.Now().Unix())})
	if err != nil {
		return nil, err
	}
	var done arp.Attached
	if err := s.ReadMessage(wait, &done); err != nil {
		return nil, err
	}
	if done.Code != frame.OK {
		return nil, frame.Errorf(done.Code, "the gateway does not take the agent")
	}
	return &agent{aic: e.AIC, conn: conn, control: s}, nil
}

// keepAlive keeps agents attached until stop is called.
func keepAlive(agents []*agent) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				for _, a := range agents {
					a.control.WriteMessage(wait, &arp.Keepalive{TSMS: uint64(now.UnixMilli()), Capacity: 255, Pad: arp.KeepalivePad}) // a lost agent fails its row
				}
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// question is a request that is asked many times under new ids.
type question struct {
	query []byte
	hash  [32]byte
	want  uint8
}

func newQuestion(q semreq.Query, want uint8) (*question, error) {
	raw, err := q.Normalise().Encode()
	return &question{query: raw, hash: semreq.Hash(raw), want: want}, err
}

// ask resolves and says when nothing was found.
func (a *agent) ask(ctx context.Context, q *question) error {
	r, err := a.resolve(ctx, q)
	if err == nil && (r.Status != frame.OK || len(r.Results) == 0) {
		err = frame.Errorf(r.Status, "nothing was found")
	}
	return err
}

// resolve is one semantic request on a stream of its own, as agentd sends it.
func (a *agent) resolve(ctx context.Context, q *question) (*semreq.Response, error) {
	s, err := a.conn.Open(ctx, frame.StreamRequest)
	if err != nil {
		return nil, err
	}
	id := make([]byte, 16)
	rand.Read(id)
	err = s.WriteMessage(wait, &semreq.Request{
		ReqID: id, Query: q.query, QHash: q.hash[:], HopLimit: semreq.DefaultHops, BudgetMS: semreq.DefaultBudgetMS,
		Breadth: semreq.DefaultBreadth, Want: q.want,
	})
	if err != nil {
		return nil, err
	}
	s.CloseWrite()
	out := new(semreq.Response)
	if err := s.ReadMessage(wait, out); err != nil {
		return nil, err
	}
	return out, out.Validate()
}

// expect holds a question against what must come first, after so many hops; digests may still be on their way.
func (a *agent) expect(ctx context.Context, q *question, capID string, hops int) error {
	return proc.Until(ctx, startLimit, "the answer is not "+capID, func(ctx context.Context) (bool, error) {
		r, err := a.resolve(ctx, q)
		if err != nil || len(r.Results) == 0 {
			return false, err
		}
		best, err := semreq.PeekResult(r.Results[0])
		return err == nil && best.Cap == capID && len(r.Route) == hops+1, err
	})
}
