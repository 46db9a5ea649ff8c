package attach

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
	"agentgw/internal/pki"
)

// fake is a gateway that answers as a test tells it to.
type fake struct {
	t        *testing.T
	domain   *identitytest.Domain
	find     func(context.Context) ([]string, error) // of the client; nil: it is told the address
	ep       *endpoint.Endpoint
	capacity atomic.Uint32 // of the last ATTACH
	attach   atomic.Value  // func(*arp.Attach) *arp.Attached
	answer   atomic.Value  // func(*semreq.Request) *semreq.Response
	enrol    atomic.Value  // func(*arp.Enrol) frame.Message

	registered        atomic.Value // [32]byte, hash of the key of the one agent; empty: any
	lose              atomic.Bool  // the answer to the next RENEW; its key counts from then on
	acks              chan arp.OfferAck
	kept              atomic.Int32  // renewed credentials that the agent has kept
	refuse            atomic.Uint32 // code with which renewals are refused
	ousted            atomic.Bool   // certificates are refused in the handshake, but for self-signed ones
	renewal           atomic.Pointer[Renewal]
	nextKept, bundles atomic.Int32
	revoked           chan *arp.SessionRevoke
	mu                sync.Mutex
	streams           []*endpoint.Stream // control streams, the newest last
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, domain: identitytest.New(t, "home.example", "A1"), acks: make(chan arp.OfferAck, 8), revoked: make(chan *arp.SessionRevoke, 8)}
	f.attach.Store(func(*arp.Attach) *arp.Attached { return &arp.Attached{KeepaliveMS: 20_000, OfflineMS: 45_000} })
	cert := f.domain.Certificate(t, f.domain.Gateway)
	var err error
	f.ep, err = endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", HandshakeRate: 1000, HandshakeBurst: 1000, Faces: []endpoint.Face{{
		ALPN: frame.ALPNControl,
		Credentials: func(string) (endpoint.Credentials, error) {
			return endpoint.Credentials{Certificate: cert, Verify: func(cs tls.ConnectionState) error {
				if f.ousted.Load() && !identity.IsSelfSigned(cs.PeerCertificates) {
					return errors.New("suspended")
				}
				return nil
			}}, nil
		},
		Serve: f.serve,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f.ep.Close(ctx)
	})
	return f
}

func (f *fake) serve(ctx context.Context, c *endpoint.Conn) {
	c.Serve(ctx, endpoint.Handlers{
		frame.StreamControl: f.control,
		frame.StreamRequest: func(_ context.Context, s *endpoint.Stream) {
			var r semreq.Request
			if s.ReadMessage(5*time.Second, &r) == nil {
				if out := f.answer.Load().(func(*semreq.Request) *semreq.Response)(&r); out != nil {
					s.WriteMessage(5*time.Second, out)
					s.CloseWrite()
				} else {
					<-s.Context().Done() // the asker gives up
				}
			}
		},
		frame.StreamRegistration: func(_ context.Context, s *endpoint.Stream) {
			switch t, payload, err := s.ReadFrame(5 * time.Second); {
			case err != nil:
				return
			case t == frame.Renew:
				s.WriteMessage(5*time.Second, f.renew(s, payload))
			default:
				var m arp.Enrol
				if frame.Unmarshal(payload, &m) != nil {
					return
				}
				s.WriteMessage(5*time.Second, f.enrol.Load().(func(*arp.Enrol) frame.Message)(&m))
			}
			s.CloseWrite()
		},
	})
}

// renew issues a certificate of an hour over the key of the request.
func (f *fake) renew(s *endpoint.Stream, payload []byte) frame.Message {
	var m arp.Renew
	if err := frame.Unmarshal(payload, &m); err != nil {
		return arp.Refusal(err)
	}
	if code := f.refuse.Load(); code != 0 {
		return arp.Refusal(frame.Errorf(frame.Code(code), "it needs a new enrolment"))
	}
	csr, err := identity.ParseCSR(m.CSR)
	if err != nil {
		return arp.Refusal(err)
	}
	if !f.knows(s) {
		return &arp.Answer{Code: frame.Binding, Msg: "another key"}
	}
	if f.lose.Swap(false) {
		spki, _ := identity.SPKIHash(csr.PublicKey)
		f.registered.Store(spki)
		s.Conn().Close(frame.Internal, "")
		return &arp.Answer{}
	}
	chain, err := f.domain.Authority.Issue(pki.Profile{Kind: pki.Agent, AIC: aic.AIC(m.AIC), Life: time.Hour}, csr.PublicKey, time.Now())
	if err != nil {
		return arp.Refusal(err)
	}
	return &arp.Credential{Chain: chain, Bundle: []byte{1}}
}

// knows says whether a connection is under the key that the agent is registered with.
func (f *fake) knows(s *endpoint.Stream) bool {
	spki, known := f.registered.Load().([32]byte)
	return !known || spki == s.Conn().PeerSPKI()
}

func (f *fake) control(_ context.Context, s *endpoint.Stream) {
	var m arp.Attach
	if s.ReadMessage(5*time.Second, &m) != nil {
		return
	}
	if !f.knows(s) {
		s.WriteMessage(5*time.Second, &arp.Attached{Code: frame.IdentityMismatch})
		return
	}
	f.capacity.Store(uint32(m.Capacity))
	attached := f.attach.Load().(func(*arp.Attach) *arp.Attached)(&m)
	f.mu.Lock() // until it is written: a test writes on the same stream
	f.streams = append(f.streams, s)
	s.WriteMessage(5*time.Second, attached)
	f.mu.Unlock()
	for {
		var ack arp.OfferAck
		if s.ReadMessage(time.Minute, &ack) != nil {
			return
		}
		f.acks <- ack
	}
}

func (f *fake) newest() *endpoint.Stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.streams) == 0 {
		return nil
	}
	return f.streams[len(f.streams)-1]
}

// client makes an agent of the fake's domain and runs it.
func (f *fake) client(t *testing.T, offered func([16]byte, []byte) frame.Code) *Client {
	t.Helper()
	id := f.domain.AIC(t)
	return f.clientWith(t, id, f.domain.Certificate(t, id), offered)
}

func (f *fake) clientWith(t *testing.T, id aic.AIC, cert tls.Certificate, offered func([16]byte, []byte) frame.Code) *Client {
	t.Helper()
	ep, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Profile: endpoint.Agent})
	if err != nil {
		t.Fatal(err)
	}
	trust := f.domain.Trust(t)
	c, err := New(Config{
		Endpoint: ep, Gateway: f.ep.Addr().String(), Find: f.find, AIC: string(id), Certificate: cert, Trust: trust, Statuses: identity.NewStatuses(trust, time.Now),
		Renewed:    func(r Renewal) error { f.kept.Add(1); f.renewal.Store(&r); return nil },
		KeepNext:   func(key crypto.Signer) error { f.nextKept.Add(1); return nil },
		KeepBundle: func([]byte) error { f.bundles.Add(1); return nil },
		Revoked:    func(m *arp.SessionRevoke) { f.revoked <- m },
		Listening: func() []semreq.Endpoint {
			return []semreq.Endpoint{{Host: "127.0.0.1", Port: 1, ALPN: frame.ALPNAgent}}
		},
		Offered: offered, Capacity: func() uint8 { return 77 }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ep.Close(ctx)
	})
	return c
}

func wait(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.WaitAttached(ctx); err != nil {
		_, why := c.Attached()
		t.Fatal(err, why)
	}
}

func ask(t *testing.T, budget uint64) *semreq.Request {
	t.Helper()
	r, err := semreq.Ask{Query: semreq.Query{Text: "x"}, BudgetMS: budget}.Request()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOffersAreAcknowledged(t *testing.T) {
	f := newFake(t)
	c := f.client(t, func(cti [16]byte, sat []byte) frame.Code {
		if string(sat) == "good" {
			return frame.OK
		}
		return frame.TokenInvalid
	})
	wait(t, c)
	if f.capacity.Load() != 77 {
		t.Errorf("it attached with capacity %d", f.capacity.Load())
	}
	for sat, want := range map[string]frame.Code{"good": frame.OK, "bad": frame.TokenInvalid} {
		f.newest().WriteMessage(5*time.Second, &arp.SessionOffer{CTI: make([]byte, 16), SAT: []byte(sat)})
		ack := <-f.acks
		if ack.Code != want || len(ack.Endpoints) != 1 {
			t.Errorf("%s: %+v", sat, ack)
		}
	}
	c.OfferUsed([16]byte{7})
	if ack := <-f.acks; ack.Code != frame.TokenReplayed || ack.CTI[0] != 7 {
		t.Errorf("used offer: %+v", ack)
	}
}

func TestResolve(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	f.answer.Store(func(r *semreq.Request) *semreq.Response {
		return &semreq.Response{ReqID: r.ReqID, Status: frame.NotFound}
	})
	if out, err := c.Resolve(t.Context(), ask(t, 1000)); err != nil || out.Status != frame.NotFound {
		t.Error(out, err)
	}
	f.answer.Store(func(*semreq.Request) *semreq.Response { return nil })
	began := time.Now()
	if _, err := c.Resolve(t.Context(), ask(t, 100)); frame.CodeOf(err) != frame.Deadline || time.Since(began) > 3*time.Second {
		t.Errorf("a gateway that is silent: %v after %v", err, time.Since(began))
	}
	f.answer.Store(func(*semreq.Request) *semreq.Response { return &semreq.Response{ReqID: []byte{1}} })
	if _, err := c.Resolve(t.Context(), ask(t, 1000)); frame.CodeOf(err) != frame.Malformed {
		t.Errorf("an answer over its limits: %v", err)
	}
}

func TestResolveWhileDetached(t *testing.T) {
	f := newFake(t)
	c, err := New(Config{Gateway: f.ep.Addr().String(), Log: slog.New(slog.DiscardHandler)}) // and never run
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = c.Resolve(t.Context(), ask(t, 100))
	if frame.CodeOf(err) != frame.Deadline || !strings.Contains(err.Error(), "not attached") || !strings.Contains(err.Error(), f.ep.Addr().String()) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("told after %v of a budget of 100 ms", took)
	}
}

// A gateway that is killed says nothing: the request that meets the silence gives the connection up, and one whose
// connection breaks under it is asked once more.
func TestResolveSurvivesARestart(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	asked := atomic.Int32{}
	f.answer.Store(func(r *semreq.Request) *semreq.Response {
		if asked.Add(1) == 1 {
			f.newest().Conn().Close(frame.UpstreamFailed, "")
			return nil
		}
		return &semreq.Response{ReqID: r.ReqID, Status: frame.NotFound}
	})
	if out, err := c.Resolve(t.Context(), ask(t, 5000)); err != nil || out.Status != frame.NotFound || asked.Load() != 2 {
		t.Errorf("%+v %v, asked %d times", out, err, asked.Load())
	}
	f.answer.Store(func(*semreq.Request) *semreq.Response { return nil })
	before := f.newest()
	if _, err := c.Resolve(t.Context(), ask(t, 100)); frame.CodeOf(err) != frame.Deadline || !strings.Contains(err.Error(), "is it down") {
		t.Errorf("silence: %v", err)
	}
	select {
	case <-before.Conn().Context().Done():
	case <-time.After(5 * time.Second):
		t.Error("the silent connection is kept")
	}
}

// A request that is sent once more is given what is left of its time, and one that its caller gives up early is no sign of a
// gateway that is gone: the connection stays, with all else that runs on it.
func TestHealthyConnectionIsKept(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	asked := atomic.Int32{}
	f.answer.Store(func(r *semreq.Request) *semreq.Response {
		if asked.Add(1) == 1 {
			time.Sleep(500 * time.Millisecond)
			f.newest().Conn().Close(frame.UpstreamFailed, "")
			return nil
		}
		time.Sleep(time.Duration(r.BudgetMS)*time.Millisecond - 100*time.Millisecond)
		return &semreq.Response{ReqID: r.ReqID, Status: frame.NotFound}
	})
	if out, err := c.Resolve(t.Context(), ask(t, 3000)); err != nil || out.Status != frame.NotFound {
		t.Errorf("asked again: %+v %v", out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Resolve(ctx, ask(t, 3000)); err == nil {
		t.Error("an answer after the caller has gone")
	}
	time.Sleep(100 * time.Millisecond)
	if err := f.newest().Conn().Context().Err(); err != nil {
		t.Error("the connection is closed:", err)
	}
}

// While a connection with a renewed credential cannot be made, the one that is there serves on.
func TestFailedSwitchKeepsTheConnection(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	first := f.newest()
	refused := make(chan struct{}, 16)
	f.attach.Store(func(*arp.Attach) *arp.Attached {
		refused <- struct{}{}
		return &arp.Attached{Code: frame.Overloaded}
	})
	c.switching <- struct{}{}
	<-refused
	<-refused // the client has taken note of the first
	if up, err := c.Attached(); !up || first.Conn().Context().Err() != nil {
		t.Errorf("attached %v (%v), first connection %v", up, err, first.Conn().Context().Err())
	}
}

func TestAttachesAgain(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	f.newest().Conn().Close(frame.Shutdown, "")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		n := len(f.streams)
		f.mu.Unlock()
		if n == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the client has not come back")
		}
	}
	wait(t, c)
}

// A certificate whose life is over, or soon will be, is renewed, and the next connection is made with the new one.
func TestRenewal(t *testing.T) {
	for name, shift := range map[string]time.Duration{"near its end": 0, "expired": -32 * time.Second} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			id, key := f.domain.AIC(t), identitytest.NewKey(t)
			chain, err := f.domain.Authority.Issue(pki.Profile{Kind: pki.Agent, AIC: id, Life: 2 * time.Second}, key.Public(), time.Now().Add(shift))
			if err != nil {
				t.Fatal(err)
			}
			cert, err := identity.TLSCertificate(chain, key)
			if err != nil {
				t.Fatal(err)
			}
			c := f.clientWith(t, id, cert, nil)
			for end := time.Now().Add(15 * time.Second); time.Until(c.Certificate().Leaf.NotAfter) < time.Minute; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					_, why := c.Attached()
					t.Fatal("not renewed:", why)
				}
			}
			for end := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				if s := f.newest(); s != nil && s.Conn().PeerLeaf().SerialNumber.Cmp(c.Certificate().Leaf.SerialNumber) == 0 {
					break
				} else if time.Now().After(end) {
					t.Fatal("no connection with the renewed certificate")
				}
			}
			if f.kept.Load() != 1 {
				t.Errorf("kept %d times", f.kept.Load())
			}
		})
	}
}

// A gateway that was restored from a backup knows an older grant: the agent renews at once, and attaches.
func TestRefusedAttachmentRenews(t *testing.T) {
	f := newFake(t)
	f.attach.Store(func(*arp.Attach) *arp.Attached {
		if f.kept.Load() == 0 {
			return &arp.Attached{Code: frame.IdentityMismatch}
		}
		return &arp.Attached{KeepaliveMS: 20_000, OfflineMS: 45_000}
	})
	wait(t, f.client(t, nil))
	if n := f.kept.Load(); n != 1 {
		t.Errorf("renewed %d times", n)
	}
}

func TestRefusedAttachmentSaysWhy(t *testing.T) {
	f := newFake(t)
	f.attach.Store(func(*arp.Attach) *arp.Attached { return &arp.Attached{Code: frame.IdentityMismatch} })
	c := f.client(t, nil)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if up, err := c.Attached(); !up && frame.CodeOf(err) == frame.IdentityMismatch {
			return
		} else if time.Now().After(end) {
			t.Fatal(up, err)
		}
	}
}

// The agent trusts gateways of its own domain and nobody else.
func TestImpostorGateway(t *testing.T) {
	f := newFake(t)
	c := &Client{}
	for _, cert := range []tls.Certificate{f.domain.Certificate(t, f.domain.Gateway), f.domain.Certificate(t, f.domain.AIC(t))} {
		verify := f.domain.Trust(t).Verify(x509.ExtKeyUsageServerAuth, c.role)
		var chain []*x509.Certificate
		for _, der := range cert.Certificate {
			parsed, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			chain = append(chain, parsed)
		}
		id, _ := identity.AICOf(chain[0])
		err := verify(tls.ConnectionState{PeerCertificates: chain})
		if isGateway := id == f.domain.Gateway; (err == nil) != isGateway {
			t.Errorf("gateway %v: %v", isGateway, err)
		}
	}
}

func TestEnrol(t *testing.T) {
	f := newFake(t)
	spki, err := identity.SPKIHash(f.domain.Certificate(t, f.domain.Gateway).Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Profile: endpoint.Agent})
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close(t.Context())
	addr := f.ep.Addr()
	tok := arp.Token{
		Secret: make([]byte, 32), GatewayPK: spki[:], Addresses: []arp.HostPort{{Host: addr.Addr().String(), Port: addr.Port()}},
		Exp: uint64(time.Now().Add(time.Minute).Unix()),
	}
	e := Enrolment{Token: tok, Key: identitytest.NewKey(t), Draft: []byte("{}")}
	if _, _, err := Enrol(t.Context(), ep, e); frame.CodeOf(err) != frame.IdentityMismatch || !strings.Contains(err.Error(), "new token") {
		t.Errorf("a gateway with another key than the token names: %v", err)
	}
	// The fake makes a certificate of its own for each start: pin what it shows.
	c, err := ep.Dial(t.Context(), addr.String(), frame.ALPNControl, "", endpoint.Credentials{
		Certificate: f.domain.Certificate(t, f.domain.AIC(t)), Verify: func(tls.ConnectionState) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := c.PeerSPKI()
	c.Close(frame.OK, "")
	e.Token.GatewayPK = shown[:]
	f.enrol.Store(func(m *arp.Enrol) frame.Message {
		if _, err := identity.ParseCSR(m.CSR); err != nil {
			return arp.Refusal(err)
		}
		return &arp.Enrolled{AIC: "A", Chain: [][]byte{{1}}, Bundle: []byte{1}, ACS: []byte("{}"), Grant: []byte{1}}
	})
	if done, at, err := Enrol(t.Context(), ep, e); err != nil || done.AIC != "A" || at != addr.String() {
		t.Error(done, at, err)
	}
	f.enrol.Store(func(*arp.Enrol) frame.Message {
		a := arp.Refusal(frame.Errorf(frame.ReqInvalid, "ACS: wrong"))
		a.AddDetail("skills[0]: an id is due", frame.ReqInvalid)
		return a
	})
	_, _, err = Enrol(t.Context(), ep, e)
	var refused *Refused
	if !errors.As(err, &refused) || frame.CodeOf(err) != frame.ReqInvalid || !strings.Contains(err.Error(), "skills[0]") {
		t.Errorf("refusal: %v", err)
	}
	e.Token.Exp = 1
	if _, _, err := Enrol(t.Context(), ep, e); frame.CodeOf(err) != frame.TokenExpired {
		t.Errorf("expired token: %v", err)
	}
	e.Token.Exp, e.Token.Addresses = tok.Exp, []arp.HostPort{{Host: "127.0.0.1", Port: 1}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, _, err := Enrol(ctx, ep, e); frame.CodeOf(err) != frame.UpstreamFailed {
		t.Errorf("nobody at the address: %v", err)
	}
}

// A re-key keeps the new key before anybody hears of it, and attaches with it.
func TestReKeyKeepsTheKeyFirst(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	before, err := c.SPKI()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ReKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := c.SPKI()
	if err != nil || after == before {
		t.Errorf("the key is the same, %v", err)
	}
	r := f.renewal.Load()
	if f.nextKept.Load() != 1 || r == nil || !r.ReKey || r.Key == nil {
		t.Errorf("next key kept %d times, renewal %+v", f.nextKept.Load(), r)
	}
}

// After a re-key only a connection under the new key is good for provisioning.
func TestWaitCurrent(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.WaitCurrent(ctx); err != nil {
		t.Fatal(err)
	}
	old := c.current()
	if err := c.ReKey(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitCurrent(ctx); err != nil || c.current() == old {
		t.Errorf("%v, or still on the connection under the old key", err)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	c.mu.Lock()
	c.link = old
	c.mu.Unlock()
	if err := c.WaitCurrent(over); err == nil {
		t.Error("the connection under the old key counts")
	}
}

// An answer to a re-key that is lost leaves the agent neither without its gateway until somebody restarts it, nor without its key.
func TestLostAnswerToAReKey(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	before, err := c.SPKI()
	if err != nil {
		t.Fatal(err)
	}
	f.lose.Store(true)
	if err := c.ReKey(t.Context()); err == nil {
		t.Fatal("re-keyed without an answer")
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the old connection may count for a moment
		ok, why := c.Attached()
		after, err := c.SPKI()
		if ok && err == nil && after != before && after == f.registered.Load() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the agent does not come back: attached %v %v, its key is %x, %x before, %v", ok, why, after, before, err)
		}
	}
	if err := c.ReKey(t.Context()); err != nil {
		t.Errorf("the next re-key: %v", err)
	}
}

// What the gateway carries of the own domain's trust counts by its signatures alone.
func TestTrustOfTheOwnDomainArrives(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	for f.newest() == nil {
		time.Sleep(time.Millisecond)
	}
	next := *f.domain.Bundle
	next.Seq++
	foreign := identitytest.New(t, "foreign.example", "F1")
	bad := string(f.domain.AIC(t))
	now := time.Now()
	for _, m := range []frame.Message{
		&arp.Bundle{Bundle: foreign.Raw}, &arp.Bundle{Bundle: f.domain.SignBundle(t, &next)}, &arp.Status{List: foreign.Status(t, 1, now)},
		&arp.Status{List: f.domain.Status(t, 1, now, identity.StatusEntry{Subject: bad, State: identity.Suspended})},
		&arp.SessionRevoke{Kind: arp.RevokeIssuer, Value: string(f.domain.Gateway), IatFloor: 7, Code: frame.Revoked},
	} {
		if err := f.newest().WriteMessage(5*time.Second, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint8{arp.RevokePeer, arp.RevokeIssuer} {
		select {
		case m := <-f.revoked:
			if m.Kind != want || want == arp.RevokePeer && m.Value != bad {
				t.Errorf("revoked %+v", m)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("nothing was revoked")
		}
	}
	if seq := c.cfg.Trust.Own().Seq; seq != next.Seq || f.bundles.Load() != 1 {
		t.Errorf("own bundle at %d, kept %d times", seq, f.bundles.Load())
	}
	if err := c.cfg.Statuses.Check(bad, nil); frame.CodeOf(err) != frame.CertStatus {
		t.Errorf("a suspended agent is %v", err)
	}
}

// An agent whose credential is over and will not be renewed says what its people must do, and does not ask in a loop.
func TestRefusedRenewalSaysWhatToDo(t *testing.T) {
	f := newFake(t)
	f.refuse.Store(uint32(frame.Expired))
	f.attach.Store(func(*arp.Attach) *arp.Attached { return &arp.Attached{Code: frame.CertStatus} }) // as a gateway takes an expired certificate
	id, key := f.domain.AIC(t), identitytest.NewKey(t)
	chain, err := f.domain.Authority.Issue(pki.Profile{Kind: pki.Agent, AIC: id, Life: time.Second}, key.Public(), time.Now().Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := identity.TLSCertificate(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	c := f.clientWith(t, id, cert, nil)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if up, err := c.Attached(); !up && err != nil && strings.Contains(err.Error(), "new enrolment") {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the agent says %v", err)
		}
	}
}

// awaitReason waits until the agent is detached for a reason with a text.
func awaitReason(t *testing.T, c *Client, text string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if up, err := c.Attached(); !up && err != nil && strings.Contains(err.Error(), text) {
			return
		} else if time.Now().After(end) {
			t.Fatalf("attached %v; it says %v and not %q", up, err, text)
		}
	}
}

// A gateway that takes an agent out of service says so once; the handshakes that it refuses afterwards say less, and hide nothing.
func TestAgentOutOfServiceRemembersWhy(t *testing.T) {
	f := newFake(t)
	c := f.client(t, nil)
	wait(t, c)
	f.refuse.Store(uint32(frame.UpstreamFailed)) // who decides of renewals is away
	f.ousted.Store(true)
	f.newest().Conn().Close(frame.CertStatus, "")
	awaitReason(t, c, "suspended or revoked")
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // several attempts
		if up, err := c.Attached(); up || frame.CodeOf(err) != frame.CertStatus {
			t.Fatalf("attached %v, and it says %v", up, err)
		}
	}
	f.ousted.Store(false)
	wait(t, c)
	if up, err := c.Attached(); !up || err != nil {
		t.Errorf("resumed: attached %v, %v", up, err)
	}
	f.ousted.Store(true)
	f.newest().Conn().Close(frame.Shutdown, "")
	awaitReason(t, c, frame.TrustDenied.String()) // the reason of then is over
}

// An agent that starts while it is suspended meets nothing but refused handshakes: its key alone is told why.
func TestAgentThatStartsSuspendedAsksWhy(t *testing.T) {
	f := newFake(t)
	f.ousted.Store(true)
	f.refuse.Store(uint32(frame.CertStatus))
	c := f.client(t, nil)
	awaitReason(t, c, "it needs a new enrolment") // the fake's words
	f.ousted.Store(false)
	wait(t, c)
}

// Where DNS names a gateway of another domain beside the own one, the own one is attached to; where it names none, the agent says why.
func TestFindsItsGateway(t *testing.T) {
	wrong, f := newFake(t), newFake(t)
	var asked atomic.Int32
	f.find = func(context.Context) ([]string, error) {
		if asked.Add(1) == 1 {
			return nil, frame.Errorf(frame.NotFound, "DNS names none")
		}
		return []string{f.ep.Addr().String(), wrong.ep.Addr().String()}, frame.Errorf(frame.UpstreamFailed, "the last good answer")
	}
	first := true
	f.attach.Store(func(*arp.Attach) *arp.Attached {
		if first { // so that the next attempt meets the other address
			first = false
			return &arp.Attached{Code: frame.Overloaded}
		}
		return &arp.Attached{KeepaliveMS: 20_000, OfflineMS: 45_000}
	})
	c := f.client(t, nil)
	awaitReason(t, c, "DNS names none")
	awaitReason(t, c, "OVERLOADED")
	wait(t, c)
	if wrong.newest() != nil || asked.Load() < 4 {
		t.Errorf("it was attached to the wrong gateway, or not dialled it: %d attempts", asked.Load())
	}
}

// The version of the entry is the one that the gateway said last: with ATTACHED, then with a keepalive.
func TestEntryVersionFollowsTheGateway(t *testing.T) {
	f := newFake(t)
	f.attach.Store(func(*arp.Attach) *arp.Attached {
		return &arp.Attached{EntryVersion: 3, KeepaliveMS: 20_000, OfflineMS: 45_000}
	})
	c := f.client(t, nil)
	until := func(want uint64) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if v, ok := c.EntryVersion(); ok && v == want {
				return
			} else if time.Now().After(end) {
				t.Fatalf("version %d, want %d", v, want)
			}
		}
	}
	until(3)
	for _, m := range []*arp.Keepalive{{TSMS: 1, Version: 7, Pad: arp.KeepalivePad}, {TSMS: 2, Pad: arp.KeepalivePad}} { // the second as of an older gateway
		if err := f.newest().WriteMessage(5*time.Second, m); err != nil {
			t.Fatal(err)
		}
	}
	until(7)
}
