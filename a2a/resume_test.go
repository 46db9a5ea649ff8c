package a2a

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"slices"
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
	"agentgw/directory/aic"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity/identitytest"
)

// worker is an agent whose work on each context takes until it is told; it counts what it is given.
type worker struct {
	calls   atomic.Int32
	started chan struct{}
	finish  chan struct{}
}

func newWorker() *worker {
	return &worker{started: make(chan struct{}, 16), finish: make(chan struct{}, 16)}
}

func (w *worker) Deliver(ctx context.Context, d Delivery, progress func([]aci.ItemState, string)) ([]byte, error) {
	w.calls.Add(1)
	w.started <- struct{}{}
	select {
	case <-w.finish:
		return sells(ctx, d, progress)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// delivery is one Deliver in the background.
type delivery struct {
	result []byte
	err    error
	notes  []string
}

func (n *net2) deliver(s *Session) <-chan delivery {
	body, out := n.context(), make(chan delivery, 1)
	go func() {
		var d delivery
		d.result, d.err = s.Deliver(n.t.Context(), body, DeliverOptions{Progress: func(_ []aci.ItemState, note string) { d.notes = append(d.notes, note) }})
		out <- d
	}()
	return out
}

// conn is the connection of a session now.
func (s *Session) conn() *endpoint.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return nil
	}
	return s.link.conn
}

// reach waits until a session is in a state.
func (n *net2) reach(s *Session, want session.State) {
	n.t.Helper()
	for range 1000 {
		if s.Info().State == want {
			return
		}
		time.Sleep(10 * time.Millisecond) // fake
	}
	n.t.Fatalf("the session is %v, not %v", s.Info().State, want)
}

func (n *net2) atTarget() *Session {
	n.t.Helper()
	all := n.b.Sessions()
	if len(all) != 1 {
		n.t.Fatalf("the target has %d sessions", len(all))
	}
	return all[0]
}

// Row 36: the connection breaks while a context is worked on. The session goes on over another one, the message is repeated, worked on
// once, and its result arrives with the progress of after.
func TestCase36ConnectionLostMidContext(t *testing.T) {
	for name, finish := range map[string]func(n *net2, w *worker, s *Session){
		"the work ends after the resume": func(n *net2, w *worker, s *Session) {
			n.reach(s, session.Established)
			time.Sleep(time.Second)
			for _, x := range []*Session{s, n.atTarget()} { // the exchange of the old connection counts no more
				x.mu.Lock()
				if got := x.machine.Running(); got != 1 {
					n.t.Errorf("%d exchanges run", got)
				}
				x.mu.Unlock()
			}
			w.finish <- struct{}{}
		},
		"the work ends while there is no connection": func(n *net2, w *worker, s *Session) {
			n.cut.Store(true)
			w.finish <- struct{}{}
			time.Sleep(3 * time.Second)
			n.cut.Store(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorker()
				var resumed atomic.Int32
				n := newNet2(t, w, func(c *Config) { c.Resumed = func(Info) { resumed.Add(1) } })
				s := n.mustOpen(nil)
				got := n.deliver(s)
				<-w.started
				before := s.conn()
				left := s.linkOn(before)
				before.Close(frame.OK, "")
				n.reach(s, session.Lost)
				finish(n, w, s)
				d := <-got
				if err := s.received(left, &wire.SessionTerminate{Sid: s.sid}); err != errLeft || s.Info().State != session.Established {
					t.Errorf("a frame of the old connection: %v, %v", err, s.Info().State)
				}
				if d.err != nil || w.calls.Load() != 1 {
					t.Errorf("%v, worked %d times", d.err, w.calls.Load())
				}
				if s.conn() == before || resumed.Load() != 1 || len(n.a.Sessions()) != 1 || n.atTarget().sid != s.sid {
					t.Errorf("resumed %d times, %d and %d sessions", resumed.Load(), len(n.a.Sessions()), len(n.b.Sessions()))
				}
				if !strings.Contains(name, "no connection") && !slices.Equal(d.notes, []string{"ordered"}) {
					t.Errorf("progress %q", d.notes)
				}
				w.finish <- struct{}{}
				if d := <-n.deliver(s); d.err != nil {
					t.Errorf("the next one: %v", d.err)
				}
				s.Close(frame.OK)
				synctest.Wait()
				if s.Err() != nil {
					t.Error(s.Err())
				}
			})
		})
	}
}

// A broken network is noticed after the idle timeout; healed within 60 s more, everything goes on.
func TestResumeAfterABrokenNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		n := newNet2(t, w, nil)
		s := n.mustOpen(nil)
		got := n.deliver(s)
		<-w.started
		n.cut.Store(true)
		time.Sleep(90 * time.Second)
		if state := s.Info().State; state != session.Lost {
			t.Fatalf("it is %v", state)
		}
		n.cut.Store(false)
		w.finish <- struct{}{}
		if d := <-got; d.err != nil || w.calls.Load() != 1 {
			t.Errorf("%v, worked %d times", d.err, w.calls.Load())
		}
		s.Close(frame.OK)
	})
}

// 60 s without a connection end the session at both ends, and what is worked on in it; whoever waits is told, and a new message too.
func TestSessionThatIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		n := newNet2(t, w, nil)
		s := n.mustOpen(nil)
		got := n.deliver(s)
		<-w.started
		target := n.atTarget()
		n.cut.Store(true)
		s.conn().Close(frame.OK, "")
		target.conn().Close(frame.OK, "")
		lost := time.Now()
		if d := <-got; frame.CodeOf(d.err) != frame.UpstreamFailed {
			t.Errorf("whoever waits is told %v", d.err)
		}
		<-target.Released()
		if took := time.Since(lost); took < session.ResumeTime || took > session.ResumeTime+time.Second {
			t.Errorf("it ended after %v", took)
		}
		if d := <-n.deliver(s); frame.CodeOf(d.err) != frame.UpstreamFailed {
			t.Errorf("a new message: %v", d.err)
		}
		if frame.CodeOf(s.Err()) != frame.UpstreamFailed || len(n.a.Sessions())+len(n.b.Sessions()) != 0 {
			t.Errorf("%v, %d and %d sessions", s.Err(), len(n.a.Sessions()), len(n.b.Sessions()))
		}
		n.cut.Store(false)
	})
}

// A target that has restarted, or ended the session, does not take it back; the leader does not try for long.
func TestResumeOfASessionThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpenRenewable()
		target := n.atTarget()
		n.cut.Store(true)
		target.step(session.ConnLost{Final: true})
		s.conn().Close(frame.OK, "")
		n.cut.Store(false)
		began := time.Now()
		<-s.Released()
		if took := time.Since(began); frame.CodeOf(s.Err()) == frame.OK || took > 10*time.Second {
			t.Errorf("%v after %v", s.Err(), took)
		}
	})
}

// Messages that are sent while there is no connection wait for it, and end with their own deadline.
func TestDeliverWaitsForTheResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpen(nil)
		n.cut.Store(true)
		s.conn().Close(frame.OK, "")
		n.reach(s, session.Lost)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := s.Deliver(ctx, n.context(), DeliverOptions{}); frame.CodeOf(err) != frame.Deadline {
			t.Errorf("its deadline passed: %v", err)
		}
		got := n.deliver(s)
		n.cut.Store(false)
		if d := <-got; d.err != nil {
			t.Error(d.err)
		}
		s.Close(frame.OK)
	})
}

// Cancelling still reaches the work, also after a resume.
func TestCancelAfterTheResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, cancelled := newWorker(), make(chan struct{})
		n := newNet2(t, handlerFunc(func(ctx context.Context, d Delivery, p func([]aci.ItemState, string)) ([]byte, error) {
			defer close(cancelled)
			return w.Deliver(ctx, d, p)
		}), nil)
		s := n.mustOpen(nil)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := s.Deliver(ctx, n.context(), DeliverOptions{})
			failed <- err
		}()
		<-w.started
		s.conn().Close(frame.OK, "")
		n.reach(s, session.Lost)
		n.reach(s, session.Established)
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		<-cancelled
		if err := <-failed; frame.CodeOf(err) != frame.Cancelled || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		s.Close(frame.OK)
	})
}

// resuming is the SESSION_INIT with which a resumes a session by hand.
func (n *net2) resuming(s *Session, ctr uint64) *wire.SessionInit {
	return &wire.SessionInit{
		Version: 1, Sid: s.sid, Initiator: n.a.AIC(), Target: n.b.AIC(), Cap: s.cap, Params: session.DefaultParams(), Resume: &wire.Resume{Ctr: ctr},
	}
}

// dial connects a to b for a session by hand, under a certificate.
func (n *net2) dial(sid wire.ID, cert tls.Certificate) *endpoint.Conn {
	n.t.Helper()
	way := n.route()
	way.certificate = cert
	conn, err := n.a.connect(n.t.Context(), way, token.SAT{Sid: sid, Audience: n.b.AIC(), TargetSPKI: n.b.cfg.SPKI()})
	if err != nil {
		n.t.Fatal(err)
	}
	return conn
}

// opened sends a SESSION_INIT by hand, and returns the control stream and the answer.
func (n *net2) opened(conn *endpoint.Conn, m *wire.SessionInit) (*endpoint.Stream, *wire.SessionAccept) {
	n.t.Helper()
	control, err := conn.Open(n.t.Context(), frame.StreamA2AControl)
	if err != nil {
		n.t.Fatal(err)
	}
	var accept wire.SessionAccept
	if err := control.WriteMessage(time.Second, m); err != nil {
		n.t.Fatal(err)
	}
	if err := control.ReadMessage(time.Second, &accept); err != nil {
		n.t.Fatal(err)
	}
	return control, &accept
}

// The older connection of a session that is resumed may still live: it is closed with 0B.
func TestResumeOverALiveConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		claims, _ := token.ReadSAT(sat)
		before := n.dial(claims.Sid, n.a.cert)
		n.opened(before, n.init(sat))
		target := n.atTarget()
		conn := n.dial(claims.Sid, n.a.cert)
		defer conn.Close(frame.OK, "")
		_, accept := n.opened(conn, n.resuming(target, 1))
		if !accept.Resumed || accept.SessExp != claims.SessExp {
			t.Errorf("accepted with %+v", accept)
		}
		<-before.Context().Done()
		if frame.CodeOf(before.Err()) != frame.Collision {
			t.Errorf("the older connection ended with %v", before.Err())
		}
		if got := n.rejected(conn, n.resuming(target, 1)); got != frame.TokenInvalid {
			t.Errorf("the same ctr again: %v; abroad it looks like any other", got)
		}
		n.opened(conn, n.resuming(target, 2))
		if conn.Err() != nil || n.atTarget() != target || target.Info().State != session.Established {
			t.Errorf("resumed on the same connection: %v, %v", conn.Err(), target.Info().State)
		}
	})
}

// A session may be resumed on the very connection that it has. A message that is repeated then takes the place of the stream of before,
// which is reset; without a resume it is refused as a duplicate.
func TestRepeatOnTheSameConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		n := newNet2(t, w, nil)
		sat := n.offered(nil)
		claims, _ := token.ReadSAT(sat)
		conn := n.dial(claims.Sid, n.a.cert)
		defer conn.Close(frame.OK, "")
		n.opened(conn, n.init(sat))
		first := n.send(conn, claims.Sid)
		<-w.started
		if m, err := wire.ReadData(source{n.send(conn, claims.Sid), time.Second}); err != nil || m.(*wire.CtxErr).Code != frame.Duplicate {
			t.Errorf("the same message meanwhile: %+v, %v", m, err)
		}
		n.opened(conn, n.resuming(n.atTarget(), 1))
		again := n.send(conn, claims.Sid)
		if _, err := wire.ReadData(source{first, time.Second}); frame.CodeOf(err) != frame.Collision {
			t.Errorf("the stream of before: %v", err)
		}
		w.finish <- struct{}{}
		for _, want := range []frame.Type{frame.CtxProgress, frame.CtxHdr} {
			if m, err := wire.ReadData(source{again, time.Second}); err != nil || m.FrameType() != want {
				t.Fatalf("%+v, %v; want %v", m, err, want)
			}
		}
		if w.calls.Load() != 1 {
			t.Errorf("worked %d times", w.calls.Load())
		}
	})
}

// Work that goes on without its connection counts: resuming again and again does not multiply what a session may have done at a time.
func TestWorkIsBoundedAcrossResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		n := newNet2(t, w, nil)
		sat := n.offered(nil)
		claims, _ := token.ReadSAT(sat)
		conn := n.dial(claims.Sid, n.a.cert)
		defer conn.Close(frame.OK, "")
		n.opened(conn, n.init(sat))
		for i := range session.MaxStreams {
			n.sendAs(conn, claims.Sid, wire.ID{1, byte(i)})
			<-w.started
		}
		n.opened(conn, n.resuming(n.atTarget(), 1))
		if m, err := wire.ReadData(source{n.sendAs(conn, claims.Sid, wire.ID{2}), time.Second}); err != nil || m.(*wire.CtxErr).Code != frame.LimitExceeded {
			t.Errorf("one more: %+v, %v", m, err)
		}
		again := n.sendAs(conn, claims.Sid, wire.ID{1, 3})
		time.Sleep(time.Second) // fake: it has arrived
		for range session.MaxStreams {
			w.finish <- struct{}{}
		}
		if m, err := wire.ReadData(source{again, time.Second}); err != nil || m.FrameType() != frame.CtxProgress {
			t.Errorf("one that was under way: %+v, %v", m, err)
		}
	})
}

// send sends the one context of a test by hand.
func (n *net2) send(conn *endpoint.Conn, sid wire.ID) *endpoint.Stream {
	n.t.Helper()
	return n.sendAs(conn, sid, wire.ID{1})
}

func (n *net2) sendAs(conn *endpoint.Conn, sid, msgID wire.ID) *endpoint.Stream {
	n.t.Helper()
	stream, err := conn.Open(n.t.Context(), frame.StreamA2AData)
	if err != nil {
		n.t.Fatal(err)
	}
	body := n.context()
	if err := writeBody(stream, &wire.CtxHdr{
		Sid: sid, MsgID: msgID, Kind: wire.KindAgentContext, Media: wire.MediaJSON, Len: uint64(len(body)), SHA256: sha256.Sum256(body), Cap: wire.Cap8Of(n.cap()),
	}, body); err != nil {
		n.t.Fatal(err)
	}
	return stream
}

// What a resume is refused for; its session, where there is one, lives on.
func TestResumeIsChecked(t *testing.T) {
	var bound, standing atomic.Pointer[frame.Error]
	failure := func(p *atomic.Pointer[frame.Error]) error {
		if err := p.Load(); err != nil {
			return err
		}
		return nil
	}
	otherKey := wire.Hash{7}
	for name, c := range map[string]struct {
		change func(n *net2, m *wire.SessionInit, remote *session.Remote)
		want   frame.Code
	}{
		"as it should be":      {func(*net2, *wire.SessionInit, *session.Remote) {}, frame.OK},
		"ctr not larger":       {func(_ *net2, m *wire.SessionInit, _ *session.Remote) { m.Resume.Ctr = 5 }, frame.TokenReplayed},
		"another key, no SAT":  {func(_ *net2, _ *wire.SessionInit, r *session.Remote) { r.SPKI = otherKey }, frame.Binding},
		"another agent":        {func(_ *net2, _ *wire.SessionInit, r *session.Remote) { r.AIC = "X" }, frame.Binding},
		"in another's name":    {func(_ *net2, m *wire.SessionInit, _ *session.Remote) { m.Initiator = "X" }, frame.Binding},
		"another agent itself": {func(_ *net2, m *wire.SessionInit, r *session.Remote) { m.Initiator, r.AIC = "X", "X" }, frame.Binding},
		"another target":       {func(_ *net2, m *wire.SessionInit, _ *session.Remote) { m.Target = "X" }, frame.Audience},
		"another capability":   {func(_ *net2, m *wire.SessionInit, _ *session.Remote) { m.Cap += "x" }, frame.Binding},
		"another session":      {func(_ *net2, m *wire.SessionInit, _ *session.Remote) { m.Sid = wire.ID{9} }, frame.SessionUnknown},
		"no longer bound": {func(*net2, *wire.SessionInit, *session.Remote) {
			bound.Store(frame.Errorf(frame.CapUnbound, "disabled"))
		}, frame.CapUnbound},
		"suspended": {func(*net2, *wire.SessionInit, *session.Remote) {
			standing.Store(frame.Errorf(frame.CertStatus, "suspended"))
		}, frame.CertStatus},
		"revoked in between":         {func(n *net2, _ *wire.SessionInit, _ *session.Remote) { n.b.RevokePeer(n.a.AIC(), frame.Revoked) }, frame.SessionUnknown},
		"the target has another key": {func(n *net2, _ *wire.SessionInit, _ *session.Remote) { n.b.rekey() }, frame.Binding},
		"its time is over": {func(n *net2, _ *wire.SessionInit, _ *session.Remote) {
			s := n.atTarget()
			s.mu.Lock()
			s.machine.Until = time.Now().Add(-time.Second)
			s.mu.Unlock()
		}, frame.Expired},
		"SAT without an offer":   {func(n *net2, m *wire.SessionInit, _ *session.Remote) { m.SAT = n.mint(n.same(m.Sid)) }, frame.TokenInvalid},
		"SAT of another session": {func(n *net2, m *wire.SessionInit, _ *session.Remote) { m.SAT = n.offered(nil) }, frame.Binding},
		"SAT for another key": {func(n *net2, m *wire.SessionInit, r *session.Remote) {
			m.SAT, r.SPKI = n.offered(n.same(m.Sid)), otherKey
		}, frame.Binding},
		"a good SAT": {func(n *net2, m *wire.SessionInit, r *session.Remote) {
			r.SPKI = otherKey
			m.SAT = n.offered(func(s *token.SAT) { n.same(m.Sid)(s); s.Confirm.SPKI = otherKey })
		}, frame.OK},
		"a SAT of before the revocation": {func(n *net2, m *wire.SessionInit, _ *session.Remote) {
			m.SAT = n.offered(n.same(m.Sid))
			n.b.Agent.mu.Lock()
			n.b.noteRevocation(time.Now(), func(id string) bool { return id == n.a.AIC() })
			n.b.Agent.mu.Unlock()
		}, frame.Revoked},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bound.Store(nil)
				standing.Store(nil)
				n := newNet2(t, handlerFunc(sells), func(c *Config) {
					c.CapBound = func(string) error { return failure(&bound) }
					c.Status = func(string) error { return failure(&standing) }
				})
				s := n.mustOpen(nil)
				target := n.atTarget()
				target.mu.Lock()
				target.ctr = 5
				target.mu.Unlock()
				m, remote := n.resuming(s, 6), session.Remote{AIC: n.a.AIC(), SPKI: n.a.cfg.SPKI()}
				c.change(n, m, &remote)
				before := target.conn()
				l := newLink(before, nil, false)
				_, err := n.b.takeOver(l, m, remote)
				if frame.CodeOf(err) != c.want {
					t.Fatalf("%v, want %v", err, c.want)
				}
				if c.want == frame.OK {
					if target.Info().State != session.Established || target.linkOn(before) != l || target.binding().peer != remote.SPKI {
						t.Error("the session has not moved")
					}
					m.Resume.Ctr++
					if _, err := n.b.takeOver(newLink(before, nil, false), m, remote); len(m.SAT) > 0 && frame.CodeOf(err) != frame.TokenReplayed {
						t.Errorf("the same SAT again: %v", err)
					}
				} else if len(n.b.Sessions()) == 1 && (target.linkOn(before) == nil || target.linkOn(before) == l) {
					t.Error("a refused resume has moved the session")
				}
			})
		})
	}
}

// same makes a SAT of a session that runs already.
func (n *net2) same(sid wire.ID) func(*token.SAT) {
	return func(s *token.SAT) { s.Sid, s.Update = sid, true }
}

// rekey gives an agent another key under its AIC.
func (s *side) rekey() {
	id, err := aic.Parse(s.AIC())
	if err != nil {
		s.domain.t.Fatal(err)
	}
	next := s.domain.Certificate(s.domain.t, id)
	s.key.Lock()
	defer s.key.Unlock()
	s.cert = next
}

// home is the domain of a side.
type home struct {
	*identitytest.Domain
	t *testing.T
}

// gateway gives a new SATs for sessions that run, as its gateway would; the first `fail` times it does not.
type gateway struct {
	n     *net2
	fail  atomic.Int32
	asked atomic.Int32
	life  uint64 // of the sessions, seconds; 0 for the default
}

func (g *gateway) newSAT(_ context.Context, sid wire.ID, capID string) ([]byte, []string, error) {
	if g.asked.Add(1) <= g.fail.Load() {
		return nil, nil, frame.Errorf(frame.UpstreamFailed, "no gateway")
	}
	return g.n.offered(func(s *token.SAT) {
		g.n.same(sid)(s)
		s.Cap = capID
		if g.life > 0 {
			s.SessExp = s.Issued + g.life
		}
	}), g.n.route().addrs, nil
}

// mustOpenRenewable opens a session that has a gateway to ask for new SATs.
func (n *net2) mustOpenRenewable() *Session {
	n.t.Helper()
	n.gateway = &gateway{n: n}
	way := n.way()
	way.NewSAT = n.gateway.newSAT
	s, err := n.a.Open(n.t.Context(), way, n.offered(func(s *token.SAT) { s.Update = true }))
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// After a re-key of its leader a running session goes on under the new key with a new SAT; what is under way is worked on once.
func TestReKeyMovesTheSession(t *testing.T) {
	for name, fail := range map[string]int32{"at once": 0, "when the gateway is there again": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorker()
				n := newNet2(t, w, nil)
				s := n.mustOpenRenewable()
				n.gateway.fail.Store(fail)
				got := n.deliver(s)
				<-w.started
				before, old := s.conn(), session.Remote{AIC: n.a.AIC(), SPKI: n.a.cfg.SPKI()}
				n.a.rekey()
				n.a.KeyChanged()
				synctest.Wait()
				if fail > 0 && (s.conn() != before || s.Info().State != session.Established) {
					t.Error("it left its connection before it had another one")
				}
				time.Sleep(20 * time.Second)
				if s.conn() == before || before.Err() == nil || s.Info().State != session.Established {
					t.Fatalf("it is still on its old connection (%v), %v", before.Err(), s.Info().State)
				}
				now := n.a.cfg.SPKI()
				if target := n.atTarget(); target.binding().peer != now || target.conn().PeerSPKI() != [32]byte(now) || n.b.Admits(old) {
					t.Error("the target still takes it for the old key's")
				}
				w.finish <- struct{}{}
				if d := <-got; d.err != nil || w.calls.Load() != 1 {
					t.Errorf("%v, worked %d times", d.err, w.calls.Load())
				}
				if got := n.gateway.asked.Load(); got != fail+1 {
					t.Errorf("the gateway was asked %d times", got)
				}
				s.Close(frame.OK)
			})
		})
	}
}

// A re-key that ends while a session is being opened is not missed.
func TestReKeyWhileTheSessionIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		n.a.cfg.Opened = func(Info) { n.a.rekey() } // KeyChanged came too early
		s := n.mustOpenRenewable()
		time.Sleep(time.Second)
		if s.binding().own != n.a.cfg.SPKI() || n.gateway.asked.Load() != 1 {
			t.Errorf("it is bound to another key; the gateway was asked %d times", n.gateway.asked.Load())
		}
		s.Close(frame.OK)
	})
}

// A re-key of the target leaves the session on its connection; the next one needs a new SAT, which names the new key.
func TestReKeyOfTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpenRenewable()
		before := s.conn()
		n.b.rekey()
		n.b.KeyChanged()
		if d := <-n.deliver(s); d.err != nil || s.conn() != before || n.gateway.asked.Load() != 0 {
			t.Errorf("%v, the gateway was asked %d times", d.err, n.gateway.asked.Load())
		}
		before.Close(frame.OK, "")
		n.reach(s, session.Lost)
		if d := <-n.deliver(s); d.err != nil || n.gateway.asked.Load() != 1 || s.binding().peer != n.b.cfg.SPKI() {
			t.Errorf("%v, the gateway was asked %d times", d.err, n.gateway.asked.Load())
		}
		s.Close(frame.OK)
	})
}

// Without somebody to ask for a new SAT a session stays on its connection, and ends with it.
func TestReKeyWithoutAGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpen(nil)
		n.a.rekey()
		n.a.KeyChanged()
		if d := <-n.deliver(s); d.err != nil {
			t.Error(d.err)
		}
		s.conn().Close(frame.OK, "")
		<-s.Released()
		if frame.CodeOf(s.Err()) != frame.UpstreamFailed {
			t.Error(s.Err())
		}
	})
}

// A gateway that hands over the token of another session does not make the leader show it.
func TestNewSATMustBeForTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		way, asked := n.way(), make(chan struct{}, 100)
		way.NewSAT = func(context.Context, wire.ID, string) ([]byte, []string, error) {
			asked <- struct{}{}
			return n.mint(nil), way.Addrs, nil
		}
		s, err := n.a.Open(t.Context(), way, n.offered(nil))
		if err != nil {
			t.Fatal(err)
		}
		before := s.conn()
		n.a.rekey()
		n.a.KeyChanged()
		<-asked
		time.Sleep(2 * time.Minute)
		if s.conn() != before || len(asked) > 2*resumeTries { // once for the key, and once more where it was told while it tried
			t.Errorf("%d times asked", len(asked))
		}
		s.Close(frame.OK)
	})
}

// Sessions that wait for a connection end with their agent, and with a revocation.
func TestLostSessionEnds(t *testing.T) {
	for name, end := range map[string]func(n *net2){
		"closed":  func(n *net2) { n.a.Close(n.t.Context()); n.b.Close(n.t.Context()) },
		"revoked": func(n *net2) { n.a.RevokePeer(n.b.AIC(), frame.Revoked); n.b.RevokePeer(n.a.AIC(), frame.Revoked) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNet2(t, handlerFunc(sells), nil)
				s := n.mustOpen(nil)
				target := n.atTarget()
				n.cut.Store(true)
				s.conn().Close(frame.OK, "")
				target.conn().Close(frame.OK, "")
				n.reach(s, session.Lost)
				n.reach(target, session.Lost)
				end(n)
				<-s.Released()
				<-target.Released()
				if len(n.a.Sessions())+len(n.b.Sessions()) != 0 {
					t.Error("a session is left")
				}
				n.cut.Store(false)
			})
		})
	}
}

// Connections that are cut again and again, at whatever moment: each context is worked on once, and its own result arrives.
func TestManyCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		worked := map[wire.ID]int{}
		n := newNet2(t, handlerFunc(func(ctx context.Context, d Delivery, p func([]aci.ItemState, string)) ([]byte, error) {
			mu.Lock()
			worked[d.MsgID]++
			mu.Unlock()
			time.Sleep(time.Duration(d.MsgID[1]) * 10 * time.Millisecond)
			return sells(ctx, d, p)
		}), nil)
		s := n.mustOpen(nil)
		stop := make(chan struct{})
		var cutter, senders sync.WaitGroup
		cutter.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(137+i%7*53) * time.Millisecond):
				}
				if c := s.conn(); c != nil {
					c.Close(frame.OK, "")
				}
			}
		})
		for i := range 8 {
			senders.Go(func() {
				for k := range 10 {
					got, err := s.Deliver(t.Context(), n.context(), DeliverOptions{MsgID: wire.ID{byte(i + 1), byte(k + 1)}})
					if err != nil || !bytes.Contains(got, []byte(`"passed"`)) {
						t.Errorf("%d/%d: %v", i, k, err)
					}
				}
			})
		}
		senders.Wait()
		close(stop)
		cutter.Wait()
		for id, times := range worked {
			if times != 1 {
				t.Errorf("%v: worked %d times", id, times)
			}
		}
		if len(worked) != 80 {
			t.Errorf("%d contexts", len(worked))
		}
		s.Close(frame.OK)
	})
}

// A target that cannot be reached for a while does not cost a token for each try.
func TestNewSATIsKeptUntilItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpenRenewable()
		n.a.rekey()
		n.cut.Store(true)
		s.conn().Close(frame.OK, "")
		time.Sleep(40 * time.Second)
		if s.Info().State != session.Lost || n.gateway.asked.Load() != 1 {
			t.Errorf("%v, asked %d times", s.Info().State, n.gateway.asked.Load())
		}
		n.cut.Store(false)
		if d := <-n.deliver(s); d.err != nil || n.gateway.asked.Load() != 1 {
			t.Errorf("%v, asked %d times", d.err, n.gateway.asked.Load())
		}
		s.Close(frame.OK)
	})
}

// All sessions of a pair move after a re-key, with one new SAT each, at a pace that their target takes; none is without a connection.
func TestReKeyMovesManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		n.gateway = &gateway{n: n}
		way := n.way()
		way.NewSAT = n.gateway.newSAT
		var all []*Session
		for range MaxPeerSessions {
			s, err := n.a.Open(t.Context(), way, n.offered(func(s *token.SAT) { s.Update = true }))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
			time.Sleep(time.Second / initRate) // fake
		}
		n.a.rekey()
		n.a.KeyChanged()
		time.Sleep(10 * time.Second)
		for i, s := range all {
			if s.Info().State != session.Established || s.binding().own != n.a.cfg.SPKI() {
				t.Errorf("session %d is %v, or under the old key", i, s.Info().State)
			}
			s.mu.Lock()
			for _, change := range s.machine.Transitions() {
				if change.To == session.Lost {
					t.Errorf("session %d was without a connection", i)
				}
			}
			s.mu.Unlock()
		}
		if got := n.gateway.asked.Load(); got != MaxPeerSessions {
			t.Errorf("the gateway was asked %d times", got)
		}
		for _, s := range all {
			s.Close(frame.OK)
		}
	})
}

// A SAT that a target under load has refused is shown again, and not another one asked for.
func TestNewSATIsKeptWhenTheTargetIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpenRenewable()
		for range initBurst {
			n.b.mayInit(n.a.AIC())
		}
		n.a.rekey()
		n.a.KeyChanged()
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		lost := slices.ContainsFunc(s.machine.Transitions(), func(c session.Transition) bool { return c.To == session.Lost })
		s.mu.Unlock()
		if !lost || s.Info().State != session.Established || s.binding().own != n.a.cfg.SPKI() || n.gateway.asked.Load() != 1 {
			t.Errorf("refused: %v, now %v, asked %d times", lost, s.Info().State, n.gateway.asked.Load())
		}
		s.Close(frame.OK)
	})
}
