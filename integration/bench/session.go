package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"agentgw/a2a"
	"agentgw/a2a/aci"
	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/integration/proc"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
	"agentgw/internal/policy"
)

const (
	benchSkill = "medicine.sell"
	textLines  = 26 // of the one ContextItem: the whole context has about 2 KB
)

// domain is what issues certificates and tokens in place of a gateway: sessions run without one.
type domain struct {
	name, arsp string
	authority  *pki.CA
	gateway    aic.AIC
	sat        frame.Signer
	trust      *identity.Trust
	serial     int
}

func newDomain(name, arsp string) (*domain, error) {
	now := time.Now()
	authority, err := pki.New(pki.Options{Domain: name})
	if err != nil {
		return nil, err
	}
	d := &domain{name: name, arsp: arsp, authority: authority}
	if d.gateway, err = d.newAIC(); err != nil {
		return nil, err
	}
	issuer, err := d.newAIC()
	if err != nil {
		return nil, err
	}
	b := identity.Bundle{
		Domain: name, Seq: 1, Issued: uint64(now.Unix()), RefreshS: 300, Roots: [][]byte{authority.Root().Raw},
		Prefixes: []string{d.gateway.ARSPKey()}, Issuer: string(issuer),
	}
	var signers [2]frame.Signer
	for i, use := range []identity.Use{identity.UseSAT, identity.UseBundle} {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		signers[i] = frame.NewSigner(key)
		b.Keys = append(b.Keys, identity.NewBundleKey(signers[i], d.gateway, use, now, time.Hour))
	}
	d.sat = signers[0]
	raw, err := b.Sign(signers[1])
	if err != nil {
		return nil, err
	}
	d.trust, err = identity.NewTrust(raw, time.Now)
	return d, err
}

func (d *domain) newAIC() (aic.AIC, error) {
	d.serial++
	return aic.New("2.999.1.1", d.arsp, "1", "1", fmt.Sprint(d.serial), []byte{0x12, 0x34})
}

// issue makes an identity with its credential.
func (d *domain) issue() (aic.AIC, tls.Certificate, error) {
	id, err := d.newAIC()
	if err != nil {
		return "", tls.Certificate{}, err
	}
	key, err := identity.NewLeafKey()
	if err != nil {
		return "", tls.Certificate{}, err
	}
	chain, err := d.authority.Issue(pki.Profile{Kind: pki.Agent, AIC: id, Life: time.Hour}, key.Public(), time.Now())
	if err != nil {
		return "", tls.Certificate{}, err
	}
	cert, err := identity.TLSCertificate(chain, key)
	return id, cert, err
}

func (d *domain) config(id aic.AIC, cert tls.Certificate) a2a.Config {
	return a2a.Config{
		AIC: string(id), SPKI: func() wire.Hash { return sha256.Sum256(cert.Leaf.RawSubjectPublicKeyInfo) }, Keys: d.trust.Keys(identity.UseSAT), DomainOf: d.trust.DomainOf,
	}
}

// target is what the child tells of itself.
type target struct {
	Addr string `json:"addr"`
	AIC  string `json:"aic"`
}

// serveAgent is the agent that sessions are opened with. For each line "AIC key-hash" it mints a SAT as its gateway would, makes
// the offer to itself and answers with the SAT in hexadecimal. It ends with standard input.
func serveAgent(ctx context.Context) error {
	d, err := newDomain("target.example", "B1")
	if err != nil {
		return err
	}
	id, cert, err := d.issue()
	if err != nil {
		return err
	}
	cfg := d.config(id, cert)
	cfg.Handler = backend{}
	me := a2a.New(cfg)
	host := &a2a.Host{}
	host.Add(me, func() tls.Certificate { return cert })
	ep, err := endpoint.Open(endpoint.Config{
		Addr: "127.0.0.1:0", Profile: endpoint.Agent, Faces: []endpoint.Face{host.Face()}, HandshakeRate: 1e5, HandshakeBurst: 1e5,
	})
	if err != nil {
		return err
	}
	err = offerByLine(d, me, cfg.SPKI(), ep.Addr().String())
	ctx, cancel := context.WithTimeout(ctx, proc.StopGrace)
	defer cancel()
	me.Close(ctx)
	return errors.Join(err, ep.Close(ctx))
}

func offerByLine(d *domain, me *a2a.Agent, spki wire.Hash, addr string) error {
	if err := json.NewEncoder(os.Stdout).Encode(target{addr, me.AIC()}); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		subject, key, _ := strings.Cut(lines.Text(), " ")
		hash, err := hex.DecodeString(key)
		if err != nil || len(hash) != len(wire.Hash{}) {
			return fmt.Errorf("line %q is not an AIC and a key hash", lines.Text())
		}
		sat, err := mint(d, subject, wire.Hash(hash), me.AIC(), spki)
		if err != nil {
			return err
		}
		if _, err := me.Offer(sat); err != nil {
			return err
		}
		fmt.Println(hex.EncodeToString(sat))
	}
	return lines.Err()
}

func mint(d *domain, subject string, key wire.Hash, audience string, spki wire.Hash) ([]byte, error) {
	s := token.SAT{
		Issuer: string(d.gateway), Subject: subject, Audience: audience, Issued: uint64(time.Now().Unix()), Confirm: token.Confirm{SPKI: key},
		Scope: []string{policy.ScopeSkillInvoke + benchSkill}, TargetSPKI: spki, Cap: directory.CapID(audience, benchSkill),
	}
	for _, id := range []*wire.ID{&s.ID, &s.Sid, &s.Txn} {
		rand.Read(id[:])
	}
	return token.MintSAT(d.sat, s)
}

// backend does what it is asked, at once.
type backend struct{}

// Deliver implements a2a.Handler.
func (backend) Deliver(_ context.Context, d a2a.Delivery, _ func([]aci.ItemState, string)) ([]byte, error) {
	for i := range d.Context.ItemStateUpdates {
		d.Context.ItemStateUpdates[i].State = 1
	}
	d.Context.EvaluationResult = aci.EvaluationResult{Status: aci.Passed, Confidence: 1}
	return d.Context.Encode()
}

// party is one initiator with a connection to the target.
type party struct {
	agent *a2a.Agent
	cfg   a2a.Config
	conn  *endpoint.Conn
	inits *rate.Limiter // below what the target takes of one peer
}

// sessions starts the target and the initiators, and returns the rows of sessions.
func (w *world) sessions(ctx context.Context) ([]row, error) {
	c, line, err := w.spawn("agent", "-serve", "agent")
	if err != nil {
		return nil, err
	}
	var t target
	if err := json.Unmarshal([]byte(line), &t); err != nil {
		return nil, err
	}
	d, err := newDomain("initiators.example", "A1")
	if err != nil {
		return nil, err
	}
	for range initiators {
		p, err := w.connect(ctx, c, d, t)
		if err != nil {
			return nil, fmt.Errorf("connect an initiator: %w", err)
		}
		w.parties = append(w.parties, p)
	}
	next := 0
	setup := func(ctx context.Context) (time.Duration, error) {
		next = (next + 1) % len(w.parties)
		return w.parties[next].setup(ctx, c)
	}
	signed := make([]byte, floorQuery)
	deliver, floor, err := w.delivery(ctx, c, t)
	if err != nil {
		return nil, err
	}
	return []row{
		{name: "session INIT→ACCEPT, warm", bar: 1.3, blocks: 160, ours: setup, floor: timed(func(ctx context.Context) error {
			_, err := w.floor.signed(ctx, signed)
			return err
		})},
		{name: "2 KB context there and back", bar: 1.3, blocks: 300, ours: deliver, floor: floor},
	}, nil
}

// connect makes an initiator and dials: the target lets it in because of an offer, which the first session uses up.
func (w *world) connect(ctx context.Context, c *child, d *domain, t target) (*party, error) {
	id, cert, err := d.issue()
	if err != nil {
		return nil, err
	}
	p := &party{cfg: d.config(id, cert), inits: rate.NewLimiter(4.5, 4)}
	p.agent = a2a.New(p.cfg)
	sat, claims, err := p.offered(c)
	if err != nil {
		return nil, err
	}
	p.conn, err = w.ep.Dial(ctx, t.Addr, frame.ALPNAgent, session.ServerName(claims.Sid), endpoint.Credentials{
		Certificate: cert, Verify: identity.VerifyPinned(claims.TargetSPKI, time.Now),
	})
	if err != nil {
		return nil, err
	}
	s, err := p.agent.Initiate(ctx, p.conn, sat)
	if err != nil {
		return nil, err
	}
	s.Close(frame.OK)
	return p, nil
}

func (p *party) offered(c *child) ([]byte, token.SAT, error) {
	spki := p.cfg.SPKI()
	line, err := c.ask(p.cfg.AIC + " " + hex.EncodeToString(spki[:]))
	if err != nil {
		return nil, token.SAT{}, err
	}
	sat, err := hex.DecodeString(line)
	if err != nil {
		return nil, token.SAT{}, err
	}
	claims, err := token.ReadSAT(sat)
	return sat, claims, err
}

// setup opens and ends one session; the opening is timed.
func (p *party) setup(ctx context.Context, c *child) (time.Duration, error) {
	if err := p.inits.Wait(ctx); err != nil {
		return 0, err
	}
	sat, _, err := p.offered(c)
	if err != nil {
		return 0, err
	}
	at := time.Now()
	s, err := p.agent.Initiate(ctx, p.conn, sat)
	took := time.Since(at)
	if err != nil {
		return 0, err
	}
	s.Close(frame.OK)
	return took, nil
}

// delivery opens a session that lasts, and returns the exchange of one context in it with its floor.
func (w *world) delivery(ctx context.Context, c *child, t target) (ours, floor op, err error) {
	p := w.parties[0]
	sat, _, err := p.offered(c)
	if err != nil {
		return nil, nil, err
	}
	s, err := p.agent.Initiate(ctx, p.conn, sat)
	if err != nil {
		return nil, nil, err
	}
	sent, err := sampleContext(t)
	if err != nil {
		return nil, nil, err
	}
	body, err := sent.Encode()
	if err != nil {
		return nil, nil, err
	}
	plain := new(floorAgentContext)
	if err := json.Unmarshal(body, plain); err != nil {
		return nil, nil, err
	}
	fmt.Printf("sessions: SATs are minted in the target's process by a key of its own domain, no gateway takes part; the context has %d bytes\n", len(body))
	ours = timed(func(ctx context.Context) error { return exchange(ctx, s, sent) })
	floor = timed(func(ctx context.Context) error { return w.floor.exchange(ctx, plain) })
	return ours, floor, nil
}

func exchange(ctx context.Context, s *a2a.Session, c *aci.AgentContext) error {
	body, err := c.Encode()
	if err != nil {
		return err
	}
	result, err := s.Deliver(ctx, body, a2a.DeliverOptions{})
	if err != nil {
		return err
	}
	back, err := aci.ParseAgentContext(result)
	if err == nil && back.EvaluationResult.Status != aci.Passed {
		err = errors.New("the agent did nothing")
	}
	return err
}

// sampleContext is what a master sends to a pharmacy.
func sampleContext(t target) (*aci.AgentContext, error) {
	uri, err := aci.MakeInline("text/plain", bytes.Repeat([]byte("paracetamol 500 mg thrice a day. "), textLines))
	return aci.Outbound(aci.Target{AIC: t.AIC, Name: "Pharmacy"}, aci.Subtask{
		ID: "buy", Name: "Medicine purchase", Dependencies: []string{"prescription"},
		Items: []aci.ContextItem{{
			ContextID: "prescription-1", ContextType: "upstream", MediaType: "text/plain", Priority: "must_preserve",
			ContextURI: uri, Description: "What the doctor prescribed.",
		}},
		Todo: []aci.TodoItem{{ItemID: "order", Description: "Order it."}, {ItemID: "deliver", Description: "Have it delivered."}},
		Evaluation: aci.EvaluationPolicy{
			SuccessCriteria:     []aci.Criterion{{CriterionID: "price", Description: "The price is within the budget.", Required: true}},
			ConfidenceThreshold: .8,
		},
	}, time.Now().UTC().Format(time.RFC3339)), err
}
