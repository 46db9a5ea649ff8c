package cdsp

import (
	"context"
	"crypto/sha256"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Bounds of what travels about trust.
const (
	maxRelayed  = 4096             // signed objects of a session that are remembered as sent
	maxBundles  = 256              // BUNDLE frames of a neighbour within a minute
	maxStatuses = 1024             // STATUS frames of a neighbour within a minute: lists have parts, and change
	maxGets     = 256              // TRUST_GET frames of a neighbour within a minute
	getEvery    = 10 * time.Second // a TRUST_GET of a neighbour for the same domain counts again after it
	paceMinute  = 63 * time.Second // our own minutes are a little longer than the neighbour's
)

// minute counts what happened within a minute.
type minute struct {
	from  time.Time
	count int
}

func (c *minute) add(now time.Time, length time.Duration) int {
	if now.Sub(c.from) > length {
		*c = minute{from: now}
	}
	c.count++
	return c.count
}

// trustIn bounds what one neighbour tells and asks about trust.
type trustIn struct {
	bundles, statuses, gets minute
	asked                   map[asked]time.Time // when it was last asked for
}

// asked is what a TRUST_GET asks for.
type asked struct{ domain, issuer string }

// takeTrust hands what is about trust to the trust store. Only frames of an established session count.
func (s *Session) takeTrust(ctx context.Context, m wire.Message, in *trustIn) error {
	cfg, gw := &s.node.cfg, s.link.RemoteGateway()
	switch m := m.(type) {
	case *wire.Bundle:
		if in.bundles.add(time.Now(), time.Minute) > maxBundles {
			return frame.Errorf(frame.Malformed, "more than %d bundles within a minute", maxBundles)
		}
		if s.waitUp() && cfg.OnBundle != nil {
			s.refused("trust bundle refused", cfg.OnBundle(ctx, gw, s.domain, m.Bundle))
		}
	case *wire.Status:
		if in.statuses.add(time.Now(), time.Minute) > maxStatuses {
			return frame.Errorf(frame.Malformed, "more than %d status lists within a minute", maxStatuses)
		}
		if s.waitUp() && cfg.OnStatus != nil {
			s.refused("status list refused", cfg.OnStatus(ctx, gw, s.domain, m.List))
		}
	case *wire.TrustGet:
		if in.gets.add(time.Now(), time.Minute) > maxGets {
			return frame.Errorf(frame.Malformed, "more than %d TRUST_GET within a minute", maxGets)
		}
		if s.waitUp() && cfg.OnTrustGet != nil && in.mayAsk(asked{m.Domain, m.Issuer}, time.Now()) {
			bundles, statuses := cfg.OnTrustGet(gw, s.domain, m)
			s.send(ctx, bundles, statuses, nil)
		}
	case *wire.Moved:
		if s.domain != cfg.Domain {
			return frame.Errorf(frame.UnexpectedFrame, "MOVED from a gateway of another domain")
		}
		if s.waitUp() && cfg.OnMoved != nil {
			cfg.OnMoved(gw, m)
		}
	case *wire.Keepalive:
		s.trustHeld(m.Trust)
	}
	return nil
}

// trustHeld hears what the neighbour holds; HELLO says it too, and the first KEEPALIVE of an established session repeats it.
func (s *Session) trustHeld(held []wire.TrustVersion) {
	if s.node.cfg.OnTrustHeld != nil && len(held) > 0 && s.waitUp() {
		s.node.cfg.OnTrustHeld(s.link.RemoteGateway(), s.domain, held)
	}
}

// mayAsk says whether an issuer of a domain was not asked for too recently.
func (in *trustIn) mayAsk(what asked, now time.Time) bool {
	if now.Sub(in.asked[what]) < getEvery {
		return false
	}
	if len(in.asked) >= maxGets { // what is older counts no more; there cannot be as many younger
		for w, at := range in.asked {
			if now.Sub(at) >= getEvery {
				delete(in.asked, w)
			}
		}
	}
	in.asked[what] = now
	return true
}

// waitUp waits until the session is established; false says that it ends instead.
func (s *Session) waitUp() bool {
	select {
	case <-s.up:
		return true
	case <-s.ending:
		return false
	}
}

func (s *Session) refused(what string, err error) {
	if err != nil {
		s.node.log.Warn(what, "peer", s.link.RemoteGateway(), "domain", s.domain, "error", err)
	}
}

// sendTrust sends each bundle and each status list once a session, and looks again when they changed.
func (s *Session) sendTrust(ctx context.Context, _ Stream) {
	sent := map[[32]byte]bool{}
	var bundles, statuses minute
	first := s.told
	for {
		select {
		case <-s.relay:
		case <-ctx.Done():
			return
		}
		select {
		case <-s.up: // BundleAccepted may come before HELLO
		default:
			continue
		}
		cfg := &s.node.cfg
		var b, l [][]byte
		if cfg.Bundles != nil {
			b = unsent(cfg.Bundles(s.domain), sent, wire.MaxBundle)
		}
		if cfg.Statuses != nil {
			l = unsent(cfg.Statuses(s.domain), sent, wire.MaxStatus)
		}
		pace := func(ctx context.Context, m wire.Message) bool {
			c, most := &bundles, maxBundles/2 // the other half is for answers
			if m.FrameType() == frame.StatusFrame {
				c, most = &statuses, maxStatuses/2
			}
			return c.wait(ctx, most)
		}
		if !s.send(ctx, b, l, pace) {
			return
		}
		if first != nil {
			close(first)
			first = nil
		}
	}
}

// wait waits until one more within this minute is within the bound.
func (c *minute) wait(ctx context.Context, most int) bool {
	if c.add(time.Now(), paceMinute) <= most {
		return true
	}
	timer := time.NewTimer(time.Until(c.from.Add(paceMinute)) + time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.add(time.Now(), paceMinute)
		return true
	case <-ctx.Done():
		return false
	}
}

// unsent picks what was not sent in this session, and takes it as sent.
func unsent(list [][]byte, sent map[[32]byte]bool, limit int) (out [][]byte) {
	for _, b := range list {
		sum := sha256.Sum256(b)
		if sent[sum] || len(b) > limit {
			continue
		}
		if len(sent) == maxRelayed {
			clear(sent)
		}
		sent[sum] = true
		out = append(out, b)
	}
	return out
}

// send hands bundles, then status lists, to the writer: the keys before what they sign.
func (s *Session) send(ctx context.Context, bundles, statuses [][]byte, pace func(context.Context, wire.Message) bool) bool {
	var list []wire.Message
	for _, b := range bundles {
		list = append(list, &wire.Bundle{Bundle: b})
	}
	for _, b := range statuses {
		list = append(list, &wire.Status{List: b})
	}
	for _, m := range list {
		if pace != nil && !pace(ctx, m) {
			return false
		}
		select {
		case s.control <- m:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// StatusChanged says that Config.Statuses answers differently than before: what is new is sent to every neighbour.
func (n *Node) StatusChanged() {
	n.post(context.Background(), func() {
		for _, s := range n.sessions {
			s.relaySoon()
		}
	})
}

// AskTrust asks the neighbours of a domain for what is newer than get says is held. It says how many were asked.
func (n *Node) AskTrust(ctx context.Context, neighbour string, get wire.TrustGet) int {
	answer := make(chan int, 1)
	err := n.post(ctx, func() {
		asked := 0
		defer func() { answer <- asked }()
		for _, s := range n.sessions {
			select {
			case <-s.up:
			default:
				continue
			}
			if s.domain == neighbour {
				s.queue(&get)
				asked++
			}
		}
	})
	if err != nil {
		return 0
	}
	select {
	case asked := <-answer:
		return asked
	case <-n.done:
	case <-ctx.Done():
	}
	return 0
}

// Expel ends the sessions of a gateway that is believed no more, and drops at once what it told.
func (n *Node) Expel(gateway string, code frame.Code, reason string) {
	n.post(context.Background(), func() { n.step(replica.Expel{Gateway: gateway, Code: code, Reason: reason}) })
}
