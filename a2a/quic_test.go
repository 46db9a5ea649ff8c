package a2a

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/a2a/aci"
	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/directory"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"

	"github.com/quic-go/quic-go/testutils/simnet"
)

// net2 is two agents of two domains, each with its own socket on a simulated network with 5 ms from one to the other.
type net2 struct {
	t          *testing.T
	cut        atomic.Bool // nothing passes
	a, b       *side
	domA, domB *identitytest.Domain
	ids        atomic.Uint32
	gateway    *gateway
}

type side struct {
	*Agent
	domain home
	key    sync.Mutex // guards cert
	cert   tls.Certificate
	ep     *endpoint.Endpoint
}

func (s *side) certificate() tls.Certificate {
	s.key.Lock()
	defer s.key.Unlock()
	return s.cert
}

// router drops everything while the network is cut.
type router struct {
	simnet.PerfectRouter
	cut *atomic.Bool
}

func (r *router) SendPacket(p simnet.Packet) error {
	if r.cut.Load() {
		return nil
	}
	return r.PerfectRouter.SendPacket(p)
}

const skill = "medicine.sell"

func newNet2(t *testing.T, handler Handler, change func(*Config)) *net2 {
	t.Helper()
	n := &net2{t: t, domA: identitytest.New(t, "a.example", "A1"), domB: identitytest.New(t, "b.example", "B1")}
	sim := &simnet.Simnet{Router: &router{cut: &n.cut}}
	link := simnet.NodeBiDiLinkSettings{Latency: 5 * time.Millisecond}
	connA := sim.NewEndpoint(&net.UDPAddr{IP: net.IP{10, 0, 0, 1}, Port: 4434}, link)
	connB := sim.NewEndpoint(&net.UDPAddr{IP: net.IP{10, 0, 0, 2}, Port: 4434}, link)
	if err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	n.a = n.side(n.domA, connA, nil, nil)
	n.b = n.side(n.domB, connB, handler, change)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		n.a.Close(ctx)
		n.b.Close(ctx)
		if err := errors.Join(n.a.ep.Close(ctx), n.b.ep.Close(ctx), sim.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *net2) side(d *identitytest.Domain, conn net.PacketConn, handler Handler, change func(*Config)) *side {
	n.t.Helper()
	id := d.AIC(n.t)
	cert := d.Certificate(n.t, id)
	trust := d.Trust(n.t) // an agent knows the bundle of its own domain, no other
	s := &side{cert: cert, domain: home{d, n.t}}
	cfg := Config{AIC: string(id), SPKI: func() wire.Hash { return spkiOf(s.certificate()) }, Keys: trust.Keys(identity.UseSAT), DomainOf: trust.DomainOf, Handler: handler}
	if change != nil {
		change(&cfg)
	}
	s.Agent = New(cfg)
	host := &Host{}
	host.Add(s.Agent, s.certificate)
	ep, err := endpoint.Open(endpoint.Config{PacketConn: conn, Profile: endpoint.Agent, Faces: []endpoint.Face{host.Face()}})
	if err != nil {
		n.t.Fatal(err)
	}
	s.ep = ep
	return s
}

func (n *net2) cap() string { return directory.CapID(n.b.AIC(), skill) }

// mint makes the SAT of a new session of a at b.
func (n *net2) mint(change func(*token.SAT)) []byte {
	n.t.Helper()
	id := byte(n.ids.Add(1))
	sat := token.SAT{
		Issuer: string(n.domB.Gateway), Subject: n.a.AIC(), Audience: n.b.AIC(), Issued: uint64(time.Now().Unix()), ID: wire.ID{1, id},
		Confirm: token.Confirm{SPKI: n.a.cfg.SPKI()}, Scope: []string{"acps.skill.invoke:" + skill}, TargetSPKI: n.b.cfg.SPKI(), Sid: wire.ID{2, id},
		Cap: n.cap(), Txn: wire.ID{3},
	}
	if change != nil {
		change(&sat)
	}
	b, err := token.MintSAT(n.domB.Sign[identity.UseSAT], sat)
	if err != nil {
		n.t.Fatal(err)
	}
	return b
}

// offered is a SAT that b's gateway has offered to b.
func (n *net2) offered(change func(*token.SAT)) []byte {
	n.t.Helper()
	b := n.mint(change)
	if _, err := n.b.Offer(b); err != nil {
		n.t.Fatal(err)
	}
	return b
}

// route is a's way to b; nobody answers at the second address.
func (n *net2) route() route {
	return route{endpoint: n.a.ep, certificate: n.a.cert, addrs: []string{"10.0.0.2:4434", "10.0.0.9:4434"}}
}

// way is the same for a session.
func (n *net2) way() Route {
	return Route{Endpoint: n.a.ep, Addrs: n.route().addrs, Certificate: n.a.certificate}
}

func (n *net2) open(sat []byte) (*Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.a.Open(ctx, n.way(), sat)
}

func (n *net2) mustOpen(change func(*token.SAT)) *Session {
	n.t.Helper()
	s, err := n.open(n.offered(change))
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *net2) context() []byte {
	n.t.Helper()
	c := aci.Outbound(aci.Target{AIC: n.b.AIC(), Name: "Pharmacy"}, aci.Subtask{
		ID: "buy", Name: "Buy", Todo: []aci.TodoItem{{ItemID: "order", Description: "order it"}}, Evaluation: aci.EvaluationPolicy{ConfidenceThreshold: 0.5},
	}, "")
	b, err := c.Encode()
	if err != nil {
		n.t.Fatal(err)
	}
	return b
}

// handlerFunc is a Handler.
type handlerFunc func(ctx context.Context, d Delivery, progress func([]aci.ItemState, string)) ([]byte, error)

func (f handlerFunc) Deliver(ctx context.Context, d Delivery, progress func([]aci.ItemState, string)) ([]byte, error) {
	return f(ctx, d, progress)
}

// sells is an agent that does what it is asked.
func sells(_ context.Context, d Delivery, progress func([]aci.ItemState, string)) ([]byte, error) {
	progress([]aci.ItemState{{ItemID: "order", State: 1}}, "ordered")
	d.Context.ItemStateUpdates[0].State = 1
	d.Context.EvaluationResult = aci.EvaluationResult{Status: aci.Passed, Confidence: 1}
	return json.Marshal(d.Context)
}

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpen(nil)
		var notes []string
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for range 3 {
			result, err := s.Deliver(ctx, n.context(), DeliverOptions{Progress: func(items []aci.ItemState, note string) {
				notes = append(notes, items[0].ItemID+" "+note)
			}})
			if err != nil {
				t.Fatal(err)
			}
			sent, _ := aci.ParseAgentContext(n.context())
			returned, err := aci.ParseAgentContext(result)
			if err != nil {
				t.Fatal(err)
			}
			if err := aci.CheckReturn(sent, returned, aci.OwnsInline); err != nil || !aci.EvaluateFirstLayer(returned).Done {
				t.Errorf("%v, %+v", err, aci.EvaluateFirstLayer(returned))
			}
		}
		if len(notes) != 3 || notes[0] != "order ordered" {
			t.Errorf("progress %q", notes)
		}
		if got := n.b.Sessions(); len(got) != 1 || got[0].Info().Peer != n.a.AIC() || got[0].Info().State != session.Established {
			t.Errorf("target has %d sessions", len(got))
		}
		s.Close(frame.OK)
		synctest.Wait()
		if len(n.b.Sessions())+len(n.a.Sessions()) != 0 || s.Err() != nil {
			t.Errorf("after TERMINATE: %d, %d sessions, %v", len(n.a.Sessions()), len(n.b.Sessions()), s.Err())
		}
		if _, err := s.Deliver(ctx, n.context(), DeliverOptions{}); frame.CodeOf(err) != frame.SessionUnknown {
			t.Errorf("delivery in an ended session: %v", err)
		}
	})
}

// Agents that are trusted no more lose their sessions, and their offers open none; others keep theirs.
func TestRevokedPeersLoseTheirSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpen(nil)
		sat := n.offered(nil)
		n.b.RevokePeers(func(id string) bool { return id == n.b.AIC() }, frame.Revoked)
		synctest.Wait()
		if len(n.b.Sessions()) != 1 {
			t.Fatal("a session with somebody else ends")
		}
		n.b.RevokePeers(func(id string) bool { return id == n.a.AIC() }, frame.Revoked)
		time.Sleep(time.Second)
		if len(n.b.Sessions())+len(n.a.Sessions()) != 0 || frame.CodeOf(s.Err()) != frame.Revoked {
			t.Errorf("%d, %d sessions, %v", len(n.a.Sessions()), len(n.b.Sessions()), s.Err())
		}
		if _, err := n.open(sat); err == nil {
			t.Error("an offer of before opens a session")
		}
	})
}

// Strangers cannot finish a handshake; nor can the right agent under another key, nor anybody once the offer is used.
func TestHandshakeNeedsAnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		if _, err := n.open(n.mint(nil)); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("without an offer: %v", err)
		}
		sat := n.offered(nil)
		claims, _ := token.ReadSAT(sat)
		other := n.domA.Certificate(t, n.domA.AIC(t))
		way := n.route()
		way.certificate = other
		conn, err := n.a.connect(t.Context(), way, claims)
		if err == nil {
			select {
			case <-conn.Context().Done():
				err = conn.Err()
			case <-time.After(10 * time.Second):
				conn.Close(frame.OK, "")
			}
		}
		if frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("another key and AIC: %v", err)
		}
		s, err := n.open(sat)
		if err != nil {
			t.Fatal(err)
		}
		s.Close(frame.OK)
		synctest.Wait()
		if _, err := n.open(sat); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("used offer: %v", err)
		}
	})
}

// Row 60: an initiator that is faster than the offer is refused once, waits 200 ms, and gets its session.
func TestCase60RetryAfterRefusedHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.mint(nil)
		time.AfterFunc(100*time.Millisecond, func() { n.b.Offer(sat) })
		begin := time.Now()
		s, err := n.open(sat)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 200*time.Millisecond || took > 400*time.Millisecond {
			t.Errorf("opened after %v, the retry is due after 200ms", took)
		}
		s.Close(frame.OK)
	})
}

// Row 33 over the wire: whoever may still finish a handshake with a used or foreign token is rejected, and no session begins.
func TestCase33SATReplayedOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		claims, _ := token.ReadSAT(sat)
		conn, err := n.a.connect(t.Context(), n.route(), claims)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(frame.OK, "")
		s, err := n.a.Initiate(t.Context(), conn, sat)
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*wire.SessionInit){
			"the live sid": func(*wire.SessionInit) {},
			"other sid":    func(m *wire.SessionInit) { m.Sid = wire.ID{9} },
			"other target": func(m *wire.SessionInit) { m.Target = string(n.domB.Gateway) },
			"other cap":    func(m *wire.SessionInit) { m.Cap += "x" },
			"tampered":     func(m *wire.SessionInit) { m.SAT[len(m.SAT)-1] ^= 1 },
		} {
			m := n.init(sat)
			change(m)
			if got := n.rejected(conn, m); got != frame.TokenInvalid {
				t.Errorf("%s: rejected with %v; abroad each looks like 60", name, got)
			}
			time.Sleep(time.Second) // fake: stays below the rate of SESSION_INIT
		}
		if len(n.b.Sessions()) != 1 {
			t.Errorf("%d sessions", len(n.b.Sessions()))
		}
		if _, err := s.Deliver(t.Context(), n.context(), DeliverOptions{}); err != nil {
			t.Errorf("the live session suffered: %v", err)
		}
		s.Close(frame.OK)
		if got := n.rejected(conn, n.init(sat)); got != frame.TokenInvalid {
			t.Errorf("after its end: %v", got)
		}
	})
}

// init is the SESSION_INIT of a with a SAT.
func (n *net2) init(sat []byte) *wire.SessionInit {
	n.t.Helper()
	claims, err := token.ReadSAT(sat)
	if err != nil {
		n.t.Fatal(err)
	}
	return &wire.SessionInit{
		Version: 1, Sid: claims.Sid, Initiator: n.a.AIC(), Target: n.b.AIC(), Cap: claims.Cap, SAT: append([]byte(nil), sat...),
		Params: session.DefaultParams(),
	}
}

// rejected sends an INIT of the test's own making and returns the code of its REJECT.
func (n *net2) rejected(conn *endpoint.Conn, m *wire.SessionInit) frame.Code {
	n.t.Helper()
	control, err := conn.Open(n.t.Context(), frame.StreamA2AControl)
	if err != nil {
		n.t.Fatal(err)
	}
	defer control.Reset(frame.OK)
	if err := control.WriteMessage(time.Second, m); err != nil {
		n.t.Fatal(err)
	}
	var reject wire.SessionReject
	if err := control.ReadMessage(5*time.Second, &reject); err != nil {
		n.t.Fatal(err)
	}
	return reject.Code
}

func TestInitRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		claims, _ := token.ReadSAT(sat)
		conn, err := n.a.connect(t.Context(), n.route(), claims)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(frame.OK, "")
		m := n.init(sat)
		m.Sid = wire.ID{9}
		codes := make(map[frame.Code]int)
		for range initBurst + 2 {
			codes[n.rejected(conn, m)]++
		}
		if codes[frame.RateLimited] == 0 || codes[frame.TokenInvalid] < initBurst {
			t.Errorf("%v", codes)
		}
	})
}

func TestBackendFailures(t *testing.T) {
	fail := func(err error) Handler {
		return handlerFunc(func(context.Context, Delivery, func([]aci.ItemState, string)) ([]byte, error) { return nil, err })
	}
	tests := []struct {
		name    string
		handler Handler
		body    func(*net2) []byte
		want    frame.Code
	}{
		{"coded", fail(frame.Errorf(frame.Overloaded, "secret detail")), nil, frame.Overloaded},
		{"plain", fail(errors.New("secret detail")), nil, frame.Internal},
		{"nothing", handlerFunc(func(context.Context, Delivery, func([]aci.ItemState, string)) ([]byte, error) { return nil, nil }), nil, frame.Internal},
		{"no backend", nil, nil, frame.CapUnbound},
		{"not a context", handlerFunc(sells), func(*net2) []byte { return []byte("{}") }, frame.Malformed},
		{"context of another agent", handlerFunc(sells), func(n *net2) []byte {
			return []byte(strings.Replace(string(n.context()), n.b.AIC(), n.a.AIC(), 1))
		}, frame.Scope},
		{"larger than 1 MiB", handlerFunc(sells), func(*net2) []byte { return make([]byte, wire.MaxContext+1) }, frame.LimitExceeded},
		{"large and refused early", nil, func(n *net2) []byte {
			return []byte(strings.Replace(string(n.context()), `"Buy"`, `"`+strings.Repeat("x", 900<<10)+`"`, 1))
		}, frame.CapUnbound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNet2(t, tt.handler, nil)
				s := n.mustOpen(nil)
				defer s.Close(frame.OK)
				body := n.context()
				if tt.body != nil {
					body = tt.body(n)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				_, err := s.Deliver(ctx, body, DeliverOptions{})
				if frame.CodeOf(err) != tt.want || strings.Contains(err.Error(), "secret") {
					t.Errorf("%v, want %v and no detail", err, tt.want)
				}
			})
		})
	}
}

// Row 28 in a session: the deadline passes; the master has 44 on time, and the work at the target is cancelled.
func TestCase28DeadlineOfAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		n := newNet2(t, handlerFunc(func(ctx context.Context, _ Delivery, _ func([]aci.ItemState, string)) ([]byte, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}), nil)
		s := n.mustOpen(nil)
		defer s.Close(frame.OK)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := s.Deliver(ctx, n.context(), DeliverOptions{})
		if took := time.Since(begin); frame.CodeOf(err) != frame.Deadline || took < 1950*time.Millisecond || took > 2050*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		<-ended
		if took := time.Since(begin); took > 2050*time.Millisecond {
			t.Errorf("the target worked for %v", took)
		}
		until, stop := context.WithCancel(t.Context())
		defer stop()
		time.AfterFunc(time.Second, stop)
		begin = time.Now()
		if _, err := s.Deliver(until, n.context(), DeliverOptions{}); frame.CodeOf(err) != frame.Cancelled {
			t.Errorf("cancelled: %v", err)
		}
		<-ended
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Errorf("the target worked for %v after the cancellation", took)
		}
	})
}

// A message that is repeated is answered with its stored outcome, and worked on once.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		outcomes := NewMemory()
		n := newNet2(t, handlerFunc(func(ctx context.Context, d Delivery, p func([]aci.ItemState, string)) ([]byte, error) {
			calls.Add(1)
			return sells(ctx, d, p)
		}), func(c *Config) { c.Outcomes = outcomes })
		s := n.mustOpen(nil)
		defer s.Close(frame.OK)
		id := wire.ID{7}
		first, err := s.Deliver(t.Context(), n.context(), DeliverOptions{MsgID: id})
		if err != nil {
			t.Fatal(err)
		}
		second, err := s.Deliver(t.Context(), n.context(), DeliverOptions{MsgID: id})
		if err != nil || string(first) != string(second) || calls.Load() != 1 {
			t.Errorf("%v, worked %d times", err, calls.Load())
		}
		// One that was begun before a crash, and never ended.
		outcomes.Begin(s.sid, wire.ID{8})
		if _, err := s.Deliver(t.Context(), n.context(), DeliverOptions{MsgID: wire.ID{8}}); frame.CodeOf(err) != frame.Internal || !strings.Contains(err.Error(), "interrupted") || calls.Load() != 1 {
			t.Errorf("%v, worked %d times", err, calls.Load())
		}
	})
}

// The order of once is the promise: begun before the handler runs, ended before the answer is on its way.
type recorder struct {
	mu    sync.Mutex
	steps []string
}

func (r *recorder) note(s string) { r.mu.Lock(); defer r.mu.Unlock(); r.steps = append(r.steps, s) }

func (r *recorder) Begin(wire.ID, wire.ID) (bool, *Outcome, error) {
	r.note("begin")
	return false, nil, nil
}
func (r *recorder) End(wire.ID, wire.ID, Outcome) error { r.note("end"); return nil }
func (r *recorder) Ended(wire.ID, time.Time)            { r.note("ended") }

func TestOutcomeIsPersistedBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		n := newNet2(t, handlerFunc(func(ctx context.Context, d Delivery, p func([]aci.ItemState, string)) ([]byte, error) {
			r.note("work")
			return sells(ctx, d, p)
		}), func(c *Config) { c.Outcomes = r })
		s := n.mustOpen(nil)
		if _, err := s.Deliver(t.Context(), n.context(), DeliverOptions{}); err != nil {
			t.Fatal(err)
		}
		r.note("answered")
		s.Close(frame.OK)
		synctest.Wait()
		if got := strings.Join(r.steps, " "); got != "begin work end answered ended" {
			t.Error(got)
		}
	})
}

func TestConcurrentExchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(func(ctx context.Context, d Delivery, p func([]aci.ItemState, string)) ([]byte, error) {
			time.Sleep(time.Second)
			return sells(ctx, d, p)
		}), nil)
		s := n.mustOpen(nil)
		defer s.Close(frame.OK)
		var wg sync.WaitGroup
		begin := time.Now()
		var refused atomic.Int32
		for range session.MaxStreams + 1 {
			wg.Go(func() {
				if _, err := s.Deliver(t.Context(), n.context(), DeliverOptions{Async: true}); err != nil {
					refused.Add(1)
					if frame.CodeOf(err) != frame.LimitExceeded {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took > 1200*time.Millisecond || refused.Load() != 1 {
			t.Errorf("%d refused, took %v", refused.Load(), took)
		}
	})
}

func TestEnds(t *testing.T) {
	t.Run("by the limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNet2(t, handlerFunc(sells), nil)
			s := n.mustOpen(func(s *token.SAT) { s.Limits.MaxMessages = 2 })
			if _, err := s.Deliver(t.Context(), n.context(), DeliverOptions{}); err != nil {
				t.Fatal(err)
			}
			<-s.Released()
			if frame.CodeOf(s.Err()) != frame.SessionLimit {
				t.Error(s.Err())
			}
		})
	})
	t.Run("by sess_exp", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNet2(t, handlerFunc(sells), nil)
			begin := time.Now()
			s := n.mustOpen(func(s *token.SAT) { s.SessExp = s.Issued + 130 })
			<-s.Released()
			if frame.CodeOf(s.Err()) != frame.Expired || time.Since(begin) > 131*time.Second || time.Since(begin) < 128*time.Second {
				t.Errorf("%v after %v", s.Err(), time.Since(begin))
			}
		})
	})
	t.Run("by idleness, in spite of keepalives", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNet2(t, handlerFunc(sells), nil)
			begin := time.Now()
			s := n.mustOpen(nil)
			<-s.Released()
			if took := time.Since(begin); took < session.DefaultIdle || took > session.DefaultIdle+time.Second || frame.CodeOf(s.Err()) != frame.HoldExpired {
				t.Errorf("%v after %v", s.Err(), took)
			}
		})
	})
	t.Run("by the target's shutdown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNet2(t, handlerFunc(sells), nil)
			s := n.mustOpen(nil)
			n.b.Close(t.Context())
			<-s.Released()
			if frame.CodeOf(s.Err()) != frame.Shutdown {
				t.Error(s.Err())
			}
			if _, err := n.open(n.offered(nil)); err == nil {
				t.Error("a stopped agent opens a session")
			}
		})
	})
	t.Run("by a broken network", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNet2(t, handlerFunc(sells), nil)
			s := n.mustOpen(nil)
			n.cut.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if _, err := s.Deliver(ctx, n.context(), DeliverOptions{}); frame.CodeOf(err) != frame.Deadline {
				t.Errorf("while cut: %v", err)
			}
			<-s.Released()
			if frame.CodeOf(s.Err()) != frame.UpstreamFailed {
				t.Error(s.Err())
			}
		})
	})
}

// Agent.Close sees a session as soon as it is known, which is before its SESSION_INIT: nothing is said any more, and Open fails.
func TestCloseBeforeTheInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		claims, _ := token.ReadSAT(sat)
		conn, err := n.a.connect(t.Context(), n.route(), claims)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(frame.OK, "")
		l, err := openLink(t.Context(), conn, false)
		if err != nil {
			t.Fatal(err)
		}
		l.init = n.init(sat)
		s := n.a.newSession(l, claims, configOf(claims, session.Leader, session.DefaultParams()))
		if err := n.a.begin(s); err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() { n.a.Close(t.Context()); close(closed) }()
		<-s.Released()
		s.start(l)
		if err := s.waitOpen(t.Context()); frame.CodeOf(err) != frame.Shutdown {
			t.Errorf("open: %v", err)
		}
		<-closed
		synctest.Wait()
		if len(l.outbox) != 0 || len(n.b.Sessions()) != 0 || conn.Err() != nil {
			t.Errorf("%d frames wait, the target has %d sessions, connection %v", len(l.outbox), len(n.b.Sessions()), conn.Err())
		}
	})
}

// Agent.Close beside Open, at whatever moment: Open returns, with a session that has ended or an error, and the target lives on.
func TestCloseBesideOpen(t *testing.T) {
	n := newNet2(t, handlerFunc(sells), nil)
	for i := range 60 {
		a := New(n.a.cfg)
		sat := n.offered(nil)
		returned := make(chan *Session, 1)
		go func() {
			s, _ := a.Open(t.Context(), n.way(), sat)
			returned <- s
		}()
		var s *Session
		switch i % 3 { // 0: before anything
		case 1: // as soon as the session is known
			for len(a.Sessions()) == 0 && len(returned) == 0 {
				runtime.Gosched()
			}
		case 2:
			if s = <-returned; s == nil {
				t.Fatal("no session is opened")
			}
			returned <- s
		}
		a.Close(t.Context())
		if s = <-returned; s != nil {
			<-s.done
		}
		if left := a.Sessions(); len(left) != 0 {
			t.Fatalf("%d sessions after Close", len(left))
		}
		for _, s := range n.b.Sessions() {
			<-s.Released()
		}
		n.b.mu.Lock()
		n.b.rates.Purge()
		n.b.offers = session.NewOffers(n.b.AIC()) // without those that nobody used
		n.b.mu.Unlock()
	}
}

// Frames leave in the order of the states: a TERMINATE that overtook its INIT would cost the whole connection.
func TestInitLeavesBeforeTerminate(t *testing.T) {
	for range 500 {
		agent := New(Config{AIC: "A", DomainOf: func(string) string { return "" }})
		l := newLink(nil, nil, false)
		l.init = &wire.SessionInit{Sid: wire.ID{1}}
		s := agent.newSession(l, token.SAT{}, session.Config{Sid: wire.ID{1}, Role: session.Leader, Peer: "B", Until: time.Now().Add(time.Hour)})
		var both sync.WaitGroup
		both.Go(func() { s.step(session.Start{}) })
		both.Go(func() {
			for s.Info().State == session.None {
				runtime.Gosched()
			}
			s.step(session.Close{Code: frame.Shutdown})
		})
		both.Wait()
		if m := <-l.outbox; m.FrameType() != frame.SessionInit {
			t.Fatalf("%v leaves first", m.FrameType())
		}
	}
}

// A peer that may finish a handshake and then asks for nothing does not hold its connection.
func TestConnectionWithoutASession(t *testing.T) {
	connect := func(t *testing.T, n *net2, sat []byte) *endpoint.Conn {
		claims, _ := token.ReadSAT(sat)
		conn, err := n.a.connect(t.Context(), n.route(), claims)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	mustEnd := func(t *testing.T, conn *endpoint.Conn, since time.Time, code frame.Code) {
		t.Helper()
		select {
		case <-conn.Context().Done():
		case <-time.After(10 * time.Minute):
			t.Fatal("the connection is held")
		}
		if took := time.Since(since); frame.CodeOf(conn.Err()) != code || took < sessionless || took > sessionless+time.Second {
			t.Errorf("ended after %v: %v", took, conn.Err())
		}
	}
	t.Run("never one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNet2(t, handlerFunc(sells), nil)
			begin := time.Now()
			mustEnd(t, connect(t, n, n.offered(nil)), begin, frame.HelloTimeout)
		})
	})
	t.Run("only refused ones", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNet2(t, handlerFunc(sells), nil)
			begin, sat := time.Now(), n.offered(nil)
			conn, m := connect(t, n, sat), n.init(sat)
			m.Sid = wire.ID{9}
			for range 5 {
				n.rejected(conn, m)
				time.Sleep(5 * time.Second) // fake
			}
			mustEnd(t, conn, begin, frame.HelloTimeout)
		})
	})
	t.Run("none any more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNet2(t, handlerFunc(sells), nil)
			sat, second := n.offered(nil), n.offered(nil)
			conn := connect(t, n, sat)
			var open []*Session
			for _, sat := range [][]byte{sat, second} {
				s, err := n.a.Initiate(t.Context(), conn, sat)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, s)
			}
			open[0].Close(frame.OK)
			time.Sleep(2 * sessionless) // fake
			if conn.Err() != nil {
				t.Fatalf("closed though a session lives: %v", conn.Err())
			}
			begin := time.Now()
			open[1].Close(frame.OK)
			mustEnd(t, conn, begin, frame.HoldExpired)
		})
	})
}

// A dead address costs 250 ms, not a timeout.
func TestAddressesAreTriedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		addrs := []string{"10.0.0.9:4434", "10.0.0.2:4434"}
		begin := time.Now()
		way := n.way()
		way.Addrs = addrs
		s, err := n.a.Open(t.Context(), way, sat)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(frame.OK)
		if took := time.Since(begin); took < dialStagger || took > 2*dialStagger {
			t.Errorf("opened after %v", took)
		}
		way.Addrs = nil
		if _, err := n.a.Open(t.Context(), way, n.offered(nil)); frame.CodeOf(err) != frame.UpstreamFailed {
			t.Errorf("without an address: %v", err)
		}
	})
}

// What a peer may not send: each gets its code, on the stream or for the connection, and the target lives on.
func TestMisbehaviour(t *testing.T) {
	body := []byte("{}")
	hdr := func(n *net2, sid wire.ID) *wire.CtxHdr {
		return &wire.CtxHdr{Sid: sid, MsgID: wire.ID{1}, Kind: wire.KindAgentContext, Media: wire.MediaJSON, Len: 2, SHA256: sha256.Sum256(body), Cap: wire.Cap8Of(n.cap())}
	}
	tests := []struct {
		name string
		kind frame.StreamType
		send func(n *net2, sid wire.ID) frame.Message
		body string
		want frame.Code // of CTX_ERR, or of the connection's end
		conn bool
	}{
		{"unknown sid", frame.StreamA2AData, func(n *net2, _ wire.ID) frame.Message { return hdr(n, wire.ID{9}) }, "{}", frame.SessionUnknown, false},
		{"other capability", frame.StreamA2AData, func(n *net2, sid wire.ID) frame.Message { h := hdr(n, sid); h.Cap[0] ^= 1; return h }, "{}", frame.Scope, false},
		{"body differs from its hash", frame.StreamA2AData, func(n *net2, sid wire.ID) frame.Message {
			h := hdr(n, sid)
			h.Len = uint64(len(n.context()))
			return h
		}, "context", frame.Malformed, false},
		{"body too long", frame.StreamA2AData, func(n *net2, sid wire.ID) frame.Message { return hdr(n, sid) }, "{} ", frame.Malformed, false},
		{"body too short", frame.StreamA2AData, func(n *net2, sid wire.ID) frame.Message { return hdr(n, sid) }, "{", frame.Malformed, false},
		{"a result that nobody asked for", frame.StreamA2AData, func(n *net2, sid wire.ID) frame.Message {
			h := hdr(n, sid)
			h.Kind, h.ReplyTo = wire.KindResult, wire.ID{2}
			return h
		}, "{}", frame.UnexpectedFrame, false},
		{"progress without a request", frame.StreamA2AData, func(*net2, wire.ID) frame.Message { return &wire.CtxProgress{MsgID: wire.ID{1}} }, "", frame.UnexpectedFrame, true},
		{"control frame on a data stream", frame.StreamA2AData, func(_ *net2, sid wire.ID) frame.Message { return &wire.SessionTerminate{Sid: sid} }, "", frame.UnexpectedFrame, true},
		{"a TaskContext", frame.StreamA2AData, func(n *net2, sid wire.ID) frame.Message { h := hdr(n, sid); h.Kind = 1; return h }, "{}", frame.Malformed, true},
		{"terminate where an INIT is due", frame.StreamA2AControl, func(_ *net2, sid wire.ID) frame.Message { return &wire.SessionTerminate{Sid: sid} }, "", frame.UnexpectedFrame, true},
		{"unknown stream", frame.StreamRequest, func(_ *net2, sid wire.ID) frame.Message { return &wire.SessionTerminate{Sid: sid} }, "", frame.UnknownStream, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNet2(t, handlerFunc(sells), nil)
				s := n.mustOpen(nil)
				conn := s.link.conn
				stream, err := conn.Open(t.Context(), tt.kind)
				if err != nil {
					t.Fatal(err)
				}
				if err := stream.WriteMessage(time.Second, tt.send(n, s.sid)); err != nil {
					t.Fatal(err)
				}
				if tt.body == "context" {
					stream.Write(n.context())
				} else {
					stream.Write([]byte(tt.body))
				}
				stream.CloseWrite()
				if tt.conn {
					<-conn.Context().Done()
					if got := frame.CodeOf(conn.Err()); got != tt.want {
						t.Errorf("connection ended with %v, want %v", conn.Err(), tt.want)
					}
					<-s.Released()
					return
				}
				var answer wire.CtxErr
				if err := stream.ReadMessage(time.Second, &answer); err != nil || answer.Code != tt.want || answer.Msg != tt.want.String() {
					t.Errorf("%+v, %v; want %v and no detail", answer, err, tt.want)
				}
				if _, err := s.Deliver(t.Context(), n.context(), DeliverOptions{}); err != nil {
					t.Errorf("the session suffered: %v", err)
				}
				s.Close(frame.OK)
			})
		})
	}
}

// The initiator holds the other end against its SAT: the name as well as the key.
func TestInitiatorChecksTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		good := n.offered(nil)
		claims, _ := token.ReadSAT(good)
		conn, err := n.a.connect(t.Context(), n.route(), claims)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(frame.OK, "")
		for name, change := range map[string]func(*token.SAT){
			"other target": func(s *token.SAT) { s.Audience = string(n.domB.Gateway) },
			"other key":    func(s *token.SAT) { s.TargetSPKI = wire.Hash{1} },
		} {
			if _, err := n.a.Initiate(t.Context(), conn, n.mint(change)); frame.CodeOf(err) != frame.IdentityMismatch {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := n.a.Initiate(t.Context(), conn, n.mint(func(s *token.SAT) { s.Confirm.SPKI = wire.Hash{1} })); frame.CodeOf(err) != frame.Binding {
			t.Errorf("a SAT for another key of ours: %v", err)
		}
		pinned := claims
		pinned.TargetSPKI = wire.Hash{1}
		if _, err := n.a.connect(t.Context(), n.route(), pinned); err == nil {
			t.Error("a target with another key than pinned is dialled")
		}
	})
}

// A second INIT on a control stream is a frame out of state: the session ends with 6A.
func TestSecondInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		s, err := n.open(sat)
		if err != nil {
			t.Fatal(err)
		}
		s.link.queue(n.init(sat))
		<-s.Released()
		if frame.CodeOf(s.Err()) != frame.State {
			t.Error(s.Err())
		}
	})
}

func TestOfferForUnboundCapability(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), func(c *Config) {
			c.CapBound = func(capID string) error { return frame.Errorf(frame.CapUnbound, "%s is disabled", capID) }
		})
		if _, err := n.b.Offer(n.mint(nil)); frame.CodeOf(err) != frame.CapUnbound {
			t.Error(err)
		}
		if _, err := n.b.Offer(n.mint(func(s *token.SAT) { s.Scope = []string{"acps.skill.invoke:other"} })); frame.CodeOf(err) != frame.Scope {
			t.Error(err)
		}
		if _, err := n.b.Offer(n.mint(func(s *token.SAT) { s.Cap = directory.CapID(n.a.AIC(), skill) })); frame.CodeOf(err) != frame.CapUnbound {
			t.Error(err)
		}
	})
}
