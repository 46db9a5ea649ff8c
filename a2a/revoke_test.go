package a2a

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/a2a/aci"
	"agentgw/a2a/token"
	"agentgw/internal/frame"
)

// A revocation ends the sessions that it names at both ends, with what runs in them, and drops the offers that match; the
// others stay.
func TestRevocationEndsSessions(t *testing.T) {
	for name, c := range map[string]struct {
		revoke func(n *net2, s *Session)
		ends   bool
	}{
		"its peer":     {func(n *net2, _ *Session) { n.b.RevokePeer(n.a.AIC(), frame.Revoked) }, true},
		"another peer": {func(n *net2, _ *Session) { n.b.RevokePeer(n.b.AIC(), frame.Revoked) }, false},
		"the session":  {func(n *net2, s *Session) { n.b.RevokeSession(s.sid, frame.Revoked) }, true},
		"its issuer": {func(n *net2, s *Session) {
			n.b.RevokeIssuer(string(n.domB.Gateway), s.binding().issued+1, frame.Revoked)
		}, true},
		"its issuer, before": {func(n *net2, s *Session) { n.b.RevokeIssuer(string(n.domB.Gateway), s.binding().issued, frame.Revoked) }, false},
		"another issuer": {func(n *net2, s *Session) {
			n.b.RevokeIssuer(string(n.domA.Gateway), s.binding().issued+1, frame.Revoked)
		}, false},
		"at the other end": {func(n *net2, _ *Session) { n.a.RevokePeer(n.b.AIC(), frame.Revoked) }, true},
		"all":              {func(n *net2, _ *Session) { n.b.RevokeAll(frame.Revoked, "test") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				working := make(chan struct{})
				n := newNet2(t, handlerFunc(func(ctx context.Context, _ Delivery, _ func([]aci.ItemState, string)) ([]byte, error) {
					close(working)
					<-ctx.Done() // the work of a session that ends is given up
					return nil, ctx.Err()
				}), nil)
				s := n.mustOpen(nil)
				failed := make(chan error, 1)
				go func() {
					_, err := s.Deliver(t.Context(), n.context(), DeliverOptions{})
					failed <- err
				}()
				<-working
				if free := n.b.Capacity(); free != 254 { // one of 256 places is taken
					t.Errorf("capacity %d with one session", free)
				}
				began := time.Now()
				c.revoke(n, s)
				if !c.ends {
					time.Sleep(10 * time.Second)
					if len(n.a.Sessions()) != 1 || len(n.b.Sessions()) != 1 {
						t.Errorf("%d and %d sessions are left", len(n.a.Sessions()), len(n.b.Sessions()))
					}
					s.Close(frame.OK)
					<-failed
					return
				}
				if err := <-failed; frame.CodeOf(err) != frame.Revoked || !strings.Contains(err.Error(), "revoked") {
					t.Errorf("whoever waits for the context is told %v", err)
				}
				<-s.Released()
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
				time.Sleep(100 * time.Millisecond) // the other end hears of it
				if left := len(n.a.Sessions()) + len(n.b.Sessions()); left != 0 {
					t.Errorf("%d sessions are left", left)
				}
				if frame.CodeOf(s.Err()) != frame.Revoked {
					t.Errorf("it ended with %v", s.Err())
				}
			})
		})
	}
}

// A revoked initiator's offer opens nothing, in the handshake already.
func TestRevocationDropsOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		n.b.RevokePeer(n.a.AIC(), frame.Revoked)
		if _, err := n.open(sat); err == nil {
			t.Error("a session began on the offer of a revoked agent")
		}
		time.Sleep(2 * time.Second) // it is good again, and has a new token
		kept := n.offered(func(s *token.SAT) {})
		n.b.RevokePeer(n.b.AIC(), frame.Revoked)
		if _, err := n.open(kept); err != nil {
			t.Errorf("another's revocation dropped an offer: %v", err)
		}
	})
}

// A revocation that comes while a session is about to begin is not missed: neither end opens it on the token of before.
func TestRevocationBeforeTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNet2(t, handlerFunc(sells), nil)
		sat := n.offered(nil)
		n.a.RevokePeer(n.b.AIC(), frame.Revoked)
		if _, err := n.open(sat); frame.CodeOf(err) != frame.Revoked {
			t.Errorf("the initiator opens a session with a revoked target: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := n.open(n.offered(nil)); err != nil {
			t.Errorf("on a token of after: %v", err)
		}
	})
}

// Whoever waits for an answer of an agent that is taken out of service is told that, and not how its stream has ended.
func TestCutDeliverySaysThatThePeerWasRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working := make(chan struct{})
		n := newNet2(t, handlerFunc(func(ctx context.Context, _ Delivery, _ func([]aci.ItemState, string)) ([]byte, error) {
			close(working)
			<-ctx.Done()
			return nil, ctx.Err()
		}), nil)
		s := n.mustOpen(nil)
		failed := make(chan error, 1)
		go func() {
			_, err := s.Deliver(t.Context(), n.context(), DeliverOptions{})
			failed <- err
		}()
		<-working
		n.a.RevokePeer(n.b.AIC(), frame.Revoked)
		if err := <-failed; frame.CodeOf(err) != frame.Revoked || frame.Text(err) != "the other agent was suspended or revoked" {
			t.Errorf("it is told %v", err)
		}
		<-s.Released()
	})
}
