package a2a

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"time"

	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// How a leader resumes. The machine keeps a session without a connection for 60 s; one that moves to a new key is on its old connection
// meanwhile, and stays there when these tries are over.
const (
	resumeTries    = 16
	resumeTime     = 10 * time.Second // of one try
	resumePauseMin = 200 * time.Millisecond
	resumePauseMax = 8 * time.Second
)

// Route is how this agent reaches the target of a session, now and when the session has to be resumed.
type Route struct {
	Endpoint *endpoint.Endpoint
	Addrs    []string // host:port, the best first; at most 6 are tried
	// Certificate is this agent's current one, asked anew at each dial.
	Certificate func() tls.Certificate
	// NewSAT asks this agent's gateway for another token of a session that runs, under this agent's current key, and says where the
	// target is now. It is asked when either key has changed, and when the session would end in the middle of an exchange. May be nil:
	// such a session ends at its time, and with the keys that it began under.
	NewSAT func(ctx context.Context, sid wire.ID, capID string) (sat []byte, addrs []string, err error)
}

// KeyChanged moves the sessions that this agent leads to connections under its new key, each with a new SAT, and does not wait for
// that. Those that it is the partner in stay until their leaders resume them.
func (a *Agent) KeyChanged() {
	for _, s := range a.Sessions() {
		if s.leader {
			s.nudge()
		}
	}
}

// nudge has the leader look whether it has to resume.
func (s *Session) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// resumer is what one goroutine knows of a leader's way to its target.
type resumer struct {
	*Session
	addrs []string
	stale bool           // the target has shown another key than the session's
	links sync.WaitGroup // that it has resumed on
	spare presented      // a new SAT that was not used yet
}

// stayConnected resumes the session whenever its connection is lost, or bound to a key that is this agent's no more, and renews it where
// it would end too early.
func (s *Session) stayConnected() {
	r := &resumer{Session: s, addrs: s.route.Addrs}
	defer r.links.Wait()
	look := time.NewTimer(time.Hour)
	defer look.Stop()
	for {
		look.Reset(r.untilRenewal(time.Now()))
		select {
		case <-s.wake:
			r.reconnect()
		case <-look.C:
			r.renew(time.Now())
		case <-s.life.Done():
			return
		}
	}
}

func (r *resumer) reconnect() {
	pause := resumePauseMin
	for try := 1; try <= resumeTries && r.due(); try++ {
		select {
		case <-r.wake: // whatever it was for, this try does it
		default:
		}
		err := r.resume()
		if r.life.Err() != nil {
			return
		}
		if err == nil {
			r.agent.log.Info("session_resumed", "sid", r.sid, "peer", r.peer, "try", try)
			continue
		}
		r.agent.log.Warn("session_not_resumed", "sid", r.sid, "peer", r.peer, "try", try, "err", err)
		if errors.Is(err, errNoWay) {
			r.step(session.ConnLost{Final: true})
			return
		}
		if errors.Is(err, errOtherKey) { // with a new SAT, at once
			continue
		}
		select {
		case <-time.After(pause/2 + time.Duration(mrand.Int64N(int64(pause)))):
		case <-r.life.Done():
			return
		}
		pause = min(2*pause, resumePauseMax)
	}
}

// due says whether there is a reason to resume: no connection, or one under a key of before.
func (r *resumer) due() bool {
	r.mu.Lock()
	state := r.machine.State()
	r.mu.Unlock()
	return state == session.Lost || state.Live() && r.route.NewSAT != nil && r.binding().own != spkiOf(r.route.Certificate())
}

func spkiOf(c tls.Certificate) wire.Hash { return sha256.Sum256(c.Leaf.RawSubjectPublicKeyInfo) }

var (
	errNoWay    = frame.Errorf(frame.Binding, "the session is bound to a key that is not in use any more, and there is nobody to ask for a new SAT")
	errOtherKey = frame.Errorf(frame.TrustDenied, "the target has another key, or does not know the session")
)

// presented is what a leader shows to resume: a new SAT, or where both keys are those of before none.
type presented struct {
	cert tls.Certificate
	raw  []byte
	sat  token.SAT // without raw: what is known of the target
}

// resume makes one try: it asks for a new SAT where one is needed, dials, and has the session go on over the new connection.
func (r *resumer) resume() error {
	if err := r.agent.pace(r.life, r.peer); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.life, resumeTime)
	defer cancel()
	p, err := r.present(ctx)
	if err != nil {
		return err
	}
	conn, err := r.agent.connect(ctx, route{endpoint: r.route.Endpoint, addrs: r.addrs, certificate: p.cert}, p.sat)
	if err != nil {
		return r.refused(err, p)
	}
	l, err := r.switchTo(ctx, conn, p)
	if err != nil {
		conn.Close(frame.OK, "")
		return err
	}
	r.links.Go(func() { r.serve(l) })
	if err := r.answerOn(ctx, l, p); err != nil {
		return r.refused(err, p)
	}
	r.stale = false
	if p.raw != nil {
		r.rebind(p.sat)
	}
	return nil
}

// refused looks at why a try has failed: where either side did not take the other in the handshake, the next one brings a new SAT.
func (r *resumer) refused(err error, p presented) error {
	if code := frame.CodeOf(err); code != frame.TrustDenied && code != frame.IdentityMismatch {
		return err
	}
	r.spare = presented{} // the key that it names may be old by now
	if p.raw != nil || r.route.NewSAT == nil {
		return err
	}
	r.stale = true
	return errOtherKey
}

func (r *resumer) present(ctx context.Context) (presented, error) {
	bound, p := r.binding(), presented{cert: r.route.Certificate()}
	own := spkiOf(p.cert)
	if bound.own == own && !r.stale {
		p.sat = token.SAT{Sid: r.sid, Audience: r.peer, TargetSPKI: bound.peer}
		return p, nil
	}
	if r.route.NewSAT == nil {
		return p, errNoWay
	}
	if r.spare.raw != nil && session.CheckHeld(r.spare.sat, r.agent.cfg.AIC, own, time.Now()) == nil {
		return r.spare, nil // each one that is asked for takes one of the few offers that a domain may have at the target
	}
	var err error
	if p.raw, r.addrs, err = r.route.NewSAT(ctx, r.sid, r.cap); err != nil {
		return p, err
	}
	if p.sat, err = token.ReadSAT(p.raw); err != nil {
		return p, err
	}
	if err := r.isFor(p.sat); err != nil {
		return p, err
	}
	if err := session.CheckHeld(p.sat, r.agent.cfg.AIC, own, time.Now()); err != nil {
		return p, err
	}
	r.spare = p
	return p, nil
}

// switchTo leaves the link of before, which may still live, and sends the resuming SESSION_INIT on the new one.
func (r *resumer) switchTo(ctx context.Context, conn *endpoint.Conn, p presented) (*link, error) {
	if err := isTarget(conn, p.sat); err != nil {
		return nil, err
	}
	l, err := openLink(ctx, conn, true)
	if err != nil {
		return nil, err
	}
	ev := session.Resume{}
	if p.raw != nil {
		ev.Grant = session.GrantOf(p.sat)
	}
	r.mu.Lock()
	r.ctr = session.NextCtr(r.ctr, time.Now())
	l.init = r.agent.initOf(r.machine.Config, p.raw)
	l.init.Resume = &wire.Resume{Ctr: r.ctr}
	done := r.apply(ev, l)
	r.mu.Unlock()
	r.spare = presented{}
	return l, r.finishStep(done)
}

// answerOn waits for what the target says to the SESSION_INIT on a link.
func (r *resumer) answerOn(ctx context.Context, l *link, p presented) error {
	r.mu.Lock()
	flows := r.flows
	r.mu.Unlock()
	select {
	case <-flows:
	case <-l.left:
	case <-ctx.Done(): // the machine's own 5 s are shorter
		r.lost(l, contextError(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := r.machine.State(); state == session.Lost && l.rejected != frame.OK { // for load: before anything was used up
		r.spare = p
	}
	switch state := r.machine.State(); {
	case state.Live():
		return nil
	case state >= session.Closing:
		return frame.Errorf(r.machine.Reason(), "%s does not take the session back", r.peer)
	case l.cause != nil:
		return l.cause
	}
	return frame.Errorf(frame.UpstreamFailed, "%s does not take the session back now", r.peer)
}
