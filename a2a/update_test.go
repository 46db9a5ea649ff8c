package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

const (
	invoke = "acps.skill.invoke:" + skill
	other  = "acps.skill.invoke:other"
)

// twoScopes is a SAT that grants more than its own capability, so that something can be narrowed away.
func twoScopes(s *token.SAT) { s.Scope, s.Update = []string{invoke, other}, true }

// sendRaw sends a context past the sender's own checks, and returns the code that the target answers; OK for a result.
func (n *net2) sendRaw(s *Session, mode wire.Mode) frame.Code {
	n.t.Helper()
	body := n.context()
	stream, err := s.conn().Open(n.t.Context(), frame.StreamA2AData)
	if err != nil {
		n.t.Fatal(err)
	}
	h := &wire.CtxHdr{
		Sid: s.sid, MsgID: wire.ID{0xff, byte(n.ids.Add(1))}, Kind: wire.KindAgentContext, Media: wire.MediaJSON, Len: uint64(len(body)),
		SHA256: sha256.Sum256(body), Mode: mode, Cap: wire.Cap8Of(s.cap),
	}
	if err := writeBody(stream, h, body); err != nil {
		n.t.Fatal(err)
	}
	defer stream.Reset(frame.OK)
	for {
		m, err := wire.ReadData(source{stream, time.Second})
		if err != nil {
			n.t.Fatal(err)
		}
		switch m := m.(type) {
		case *wire.CtxErr:
			return m.Code
		case *wire.CtxHdr:
			return frame.OK
		}
	}
}

// What an update narrows away is refused from its answer on, by who sends and by who receives, whichever end has asked for it.
func TestUpdateNarrows(t *testing.T) {
	small := session.DefaultParams()
	small.MaxContext = 100
	syncOnly := session.DefaultParams()
	syncOnly.Modes = []wire.Mode{wire.ModeSync}
	for name, c := range map[string]struct {
		change session.Change
		mode   wire.Mode
		want   frame.Code
	}{
		"scope":   {session.Change{Scope: []string{other}}, wire.ModeSync, frame.Scope},
		"size":    {session.Change{Params: &small}, wire.ModeSync, frame.LimitExceeded},
		"mode":    {session.Change{Params: &syncOnly}, wire.ModeAsync, frame.PolicyDenied},
		"nothing": {session.Change{Scope: []string{invoke}}, wire.ModeSync, frame.OK},
	} {
		for _, by := range []string{"initiator", "target"} {
			t.Run(name+" by the "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var told [2]atomic.Int32
					n := newNet2(t, handlerFunc(sells), func(c *Config) { c.Updated = func(Info) { told[0].Add(1) } })
					n.a.cfg.Updated = func(Info) { told[1].Add(1) }
					s := n.mustOpen(twoScopes)
					if got := n.sendRaw(s, c.mode); got != frame.OK {
						t.Fatalf("before the update: %v", got)
					}
					asks := s
					if by == "target" {
						asks = n.atTarget()
					}
					if err := asks.Update(t.Context(), c.change); err != nil {
						t.Fatal(err)
					}
					_, err := s.Deliver(t.Context(), n.context(), DeliverOptions{Async: c.mode == wire.ModeAsync})
					if frame.CodeOf(err) != c.want {
						t.Errorf("the sender: %v, want %v", err, c.want)
					}
					if got := n.sendRaw(s, c.mode); got != c.want {
						t.Errorf("the receiver: %v, want %v", got, c.want)
					}
					if told[0].Load() != 1 || told[1].Load() != 1 {
						t.Errorf("told %d and %d times", told[0].Load(), told[1].Load())
					}
					s.Close(frame.OK)
				})
			})
		}
	}
}

// An update may bring the end nearer, at both ends; what is wider is not sent, and refused where it comes all the same (6B).
func TestUpdateWithoutASATOnlyNarrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		claims, _ := token.ReadSAT(sat)
		conn := n.dial(claims.Sid, n.a.cert)
		defer conn.Close(frame.OK, "")
		control, _ := n.opened(conn, n.init(sat))
		wide := session.DefaultParams()
		wide.IdleMS++
		for i, c := range []struct {
			change session.Change
			want   frame.Code
		}{
			{session.Change{Until: time.Unix(int64(claims.SessExp)+1, 0)}, frame.UpdateRejected},
			{session.Change{Scope: []string{"acps.skill.invoke:*"}}, frame.UpdateRejected},
			{session.Change{Scope: []string{invoke, other}}, frame.UpdateRejected},
			{session.Change{Params: &wide}, frame.UpdateRejected},
			{session.Change{Until: time.Now()}, frame.UpdateRejected},
			{session.Change{Until: time.Now().Add(time.Minute)}, frame.OK},
			{session.Change{Until: time.Now().Add(time.Hour)}, frame.UpdateRejected}, // not even back to what the SAT has allowed
		} {
			time.Sleep(time.Second) // fake: below the rate of updates
			if i != 5 {
				if err := n.atTarget().Update(t.Context(), c.change); frame.CodeOf(err) != frame.UpdateRejected {
					t.Errorf("%d: this side asks for it: %v", i, err)
				}
			}
			if got := n.ask(control, updateOf(claims.Sid, session.SendUpdate{Seq: uint64(i + 1), Change: c.change})); got != c.want {
				t.Errorf("%d: %v, want %v", i, got, c.want)
			}
		}
		time.Sleep(time.Second) // fake: the next second
		for i := range 6 {
			got, m := frame.OK, updateOf(claims.Sid, session.SendUpdate{Seq: uint64(i + 10), Change: session.Change{Scope: []string{invoke}}})
			if i == session.MaxUpdateRate {
				got = frame.RateLimited
			}
			if code := n.ask(control, m); code != got {
				t.Errorf("update %d of a second: %v", i+1, code)
			}
		}
		if left := time.Until(n.atTarget().Info().Until); left > time.Minute {
			t.Errorf("it ends in %v", left)
		}
	})
}

// ask sends an update by hand and returns the code of its answer.
func (n *net2) ask(control *endpoint.Stream, m *wire.SessionUpdate) frame.Code {
	n.t.Helper()
	if err := control.WriteMessage(time.Second, m); err != nil {
		n.t.Fatal(err)
	}
	var ack wire.UpdateAck
	if err := control.ReadMessage(time.Second, &ack); err != nil || ack.Seq != m.Seq || ack.Sid != m.Sid {
		n.t.Fatalf("%+v, %v", ack, err)
	}
	return ack.Code
}

// With a new SAT, offered like any other, the initiator extends and widens; every check of INIT is repeated, and each SAT counts once.
func TestUpdateWithASAT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpen(func(s *token.SAT) { s.Update = true })
		target := n.atTarget()
		if err := s.Update(t.Context(), session.Change{Until: time.Now().Add(time.Minute), Scope: []string{invoke}}); err != nil {
			t.Fatal(err)
		}
		wider := n.offered(func(x *token.SAT) {
			n.same(s.sid)(x)
			x.Scope, x.SessExp = []string{invoke, other}, x.Issued+2*3600
		})
		if err := s.Update(t.Context(), session.Change{SAT: wider}); err != nil {
			t.Fatal(err)
		}
		for name, x := range map[string]*Session{"initiator": s, "target": target} {
			if left := time.Until(x.Info().Until); left < 119*time.Minute || !slices.Equal(x.scope(), []string{invoke, other}) {
				t.Errorf("%s: %v, %v left", name, x.scope(), left)
			}
		}
		for name, c := range map[string]struct {
			sat  []byte
			want frame.Code
		}{
			"used":            {wider, frame.TokenInvalid},
			"never offered":   {n.mint(n.same(s.sid)), frame.TokenInvalid},
			"another session": {n.offered(nil), frame.Binding},
			"another key": {n.offered(func(x *token.SAT) {
				n.same(s.sid)(x)
				x.Confirm.SPKI = wire.Hash{7}
			}), frame.Binding},
			"another key of the target": {n.offered(func(x *token.SAT) {
				n.same(s.sid)(x)
				x.TargetSPKI = wire.Hash{7}
			}), frame.Binding},
			"no token": {[]byte("x"), frame.TokenInvalid},
		} {
			if err := s.Update(t.Context(), session.Change{SAT: c.sat}); frame.CodeOf(err) != c.want {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			time.Sleep(time.Second) // fake: stays below the rate of SESSION_INIT
		}
		if left := time.Until(target.Info().Until); left < 119*time.Minute || s.Info().State != session.Established {
			t.Errorf("a refused update has changed something: %v left, %v", left, s.Info().State)
		}
		if _, err := s.Deliver(t.Context(), n.context(), DeliverOptions{}); err != nil {
			t.Error(err)
		}
		if err := target.Update(t.Context(), session.Change{SAT: n.offered(n.same(s.sid))}); frame.CodeOf(err) != frame.Binding {
			t.Errorf("the target brings a SAT: %v", err)
		}
		s.Close(frame.OK)
	})
}

// A session whose SAT does not say upd is not renewed, nor one whose initiator was revoked since, or is suspended.
func TestUpdateThatMayNotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		suspended := false
		n := newNet2(t, handlerFunc(sells), func(c *Config) {
			c.Status = func(string) error {
				if suspended {
					return frame.Errorf(frame.CertStatus, "suspended")
				}
				return nil
			}
		})
		s := n.mustOpen(nil)
		if err := s.Update(t.Context(), session.Change{SAT: n.offered(n.same(s.sid))}); frame.CodeOf(err) != frame.UpdateRejected {
			t.Errorf("without upd: %v", err)
		}
		s.Close(frame.OK)
		synctest.Wait()
		s = n.mustOpen(func(s *token.SAT) { s.Update = true })
		suspended = true
		if err := s.Update(t.Context(), session.Change{SAT: n.offered(n.same(s.sid))}); frame.CodeOf(err) != frame.TokenInvalid {
			t.Errorf("suspended: %v", err)
		}
		suspended = false
		if err := s.Update(t.Context(), session.Change{}); frame.CodeOf(err) != frame.ReqInvalid || s.Info().State != session.Established {
			t.Errorf("of nothing: %v, %v", err, s.Info().State)
		}
		late := n.offered(n.same(s.sid))
		n.b.Agent.mu.Lock()
		n.b.noteRevocation(time.Now(), func(id string) bool { return id == n.a.AIC() })
		n.b.Agent.mu.Unlock()
		if err := s.Update(t.Context(), session.Change{SAT: late}); frame.CodeOf(err) != frame.TokenInvalid {
			t.Errorf("revoked since: %v", err)
		}
		s.Close(frame.OK)
		if err := s.Update(t.Context(), session.Change{Until: time.Now().Add(time.Minute)}); frame.CodeOf(err) != frame.SessionUnknown {
			t.Errorf("in a session that has ended: %v", err)
		}
	})
}

// Row 38: both ends update at once. The one of the lower AIC wins, the other gets 6B, and may ask again.
func TestCase38UpdatesCross(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpen(nil)
		target := n.atTarget()
		lower, higher := s, target
		if n.b.AIC() < n.a.AIC() {
			lower, higher = target, s
		}
		end := time.Now().Add(30 * time.Minute).Truncate(time.Second)
		failed := make(chan error, 1)
		go func() { failed <- higher.Update(t.Context(), session.Change{Until: end.Add(-time.Minute)}) }()
		if err := lower.Update(t.Context(), session.Change{Until: end}); err != nil {
			t.Errorf("the lower AIC: %v", err)
		}
		if err := <-failed; frame.CodeOf(err) != frame.UpdateRejected {
			t.Errorf("the higher AIC: %v", err)
		}
		if !s.Info().Until.Equal(end) || !target.Info().Until.Equal(end) {
			t.Errorf("it ends at %v and %v", s.Info().Until, target.Info().Until)
		}
		if err := higher.Update(t.Context(), session.Change{Until: end.Add(-time.Minute)}); err != nil {
			t.Errorf("asked again: %v", err)
		}
		s.Close(frame.OK)
	})
}

// An update that is not answered ends its session after 5 s; one whose connection goes is told so, and may be repeated after the resume.
func TestUpdateWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpen(nil)
		n.cut.Store(true)
		failed := make(chan error, 1)
		change := session.Change{Until: time.Now().Add(time.Minute)}
		go func() { failed <- s.Update(t.Context(), change) }()
		n.reach(s, session.Updating)
		if err := s.Update(t.Context(), change); frame.CodeOf(err) != frame.State {
			t.Errorf("a second one meanwhile: %v", err)
		}
		s.conn().Close(frame.OK, "")
		if err := <-failed; frame.CodeOf(err) != frame.UpstreamFailed {
			t.Errorf("its connection went: %v", err)
		}
		n.cut.Store(false)
		n.reach(s, session.Established)
		if err := s.Update(t.Context(), change); err != nil {
			t.Errorf("repeated: %v", err)
		}
		n.cut.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Update(ctx, change); frame.CodeOf(err) != frame.Deadline {
			t.Errorf("with a deadline: %v", err)
		}
		<-s.Released()
		if frame.CodeOf(s.Err()) != frame.Deadline {
			t.Error(s.Err())
		}
		n.cut.Store(false)
	})
}

// After a resume the two ends allow what both remember: the answer to an update may have been lost.
func TestResumeAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		s := n.mustOpen(nil)
		small := session.DefaultParams()
		small.MaxContext = 100
		end := time.Now().Add(10 * time.Minute).Truncate(time.Second)
		target := n.atTarget()
		target.mu.Lock()
		target.machine.Params, target.machine.Until = small, end // as if its answer had not arrived
		target.mu.Unlock()
		s.conn().Close(frame.OK, "")
		n.reach(s, session.Lost)
		n.reach(s, session.Established)
		s.mu.Lock()
		params := s.machine.Params
		s.mu.Unlock()
		if got, _ := json.Marshal(params); params.MaxContext != 100 || !s.Info().Until.Equal(end) {
			t.Errorf("%s until %v", got, s.Info().Until)
		}
		s.Close(frame.OK)
	})
}

// A session whose end comes in the middle of an exchange is renewed by its leader, again and again; when nothing runs any more it ends.
func TestRunningExchangeRenewsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		n := newNet2(t, w, nil)
		n.gateway = &gateway{n: n, life: 100}
		n.gateway.fail.Store(2) // each session is asked for again until its end
		way := n.way()
		way.NewSAT = n.gateway.newSAT
		began := time.Now()
		s, err := n.a.Open(t.Context(), way, n.offered(func(s *token.SAT) { s.Update, s.SessExp = true, s.Issued+100 }))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		failed := make(chan error, 1)
		go func() {
			_, err := s.Deliver(ctx, n.context(), DeliverOptions{})
			failed <- err
		}()
		<-w.started
		time.Sleep(10 * time.Minute)
		w.finish <- struct{}{}
		if err := <-failed; err != nil {
			t.Error(err)
		}
		if asked := n.gateway.asked.Load(); asked < 7 || asked > 12 {
			t.Errorf("the gateway was asked %d times", asked)
		}
		<-s.Released()
		if took := time.Since(began); frame.CodeOf(s.Err()) != frame.Expired || took > 12*time.Minute {
			t.Errorf("%v after %v", s.Err(), took)
		}
	})
}
