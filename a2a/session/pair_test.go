package session

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

var seed = flag.Uint64("seed", 0, "of one run of TestPair, as a failed one prints it; 0 runs many")

// pair is the two machines of a session and what is on its way between them, in order. A connection that is lost takes that with it.
type pair struct {
	t      *testing.T
	rnd    *rand.Rand
	now    time.Time
	end    [2]*Session // leader, partner
	toward [2][]Effect // frames that the end will receive
	widest time.Time   // no SAT has allowed a later end
	lost   bool        // a connection was lost: an answer may have been, too
	old    bool        // the partner is still on the connection that was lost
}

func newPair(t *testing.T, n uint64) *pair {
	p := &pair{t: t, rnd: rand.New(rand.NewPCG(n, 1)), now: t0, widest: t0.Add(time.Hour)}
	leader, partner := config(Leader), config(Partner)
	partner.Self, partner.Peer = peer, self
	if n%2 == 0 { // the partner has the lower AIC
		leader.Self, leader.Peer, partner.Self, partner.Peer = leader.Peer, leader.Self, partner.Peer, partner.Self
	}
	p.end = [2]*Session{New(leader), New(partner)}
	p.step(0, Start{})
	p.settle()
	return p
}

// step gives one end an event; neither may find fault with what the other sends.
func (p *pair) step(i int, ev Event) {
	before := p.end[i].Until
	effects, err := p.end[i].Step(ev, p.now)
	if _, own := ev.(Update); err != nil && !own {
		p.t.Fatalf("%T at end %d: %v", ev, i, err)
	}
	if end := p.end[i].Until; end.After(p.widest) {
		p.t.Fatalf("%T at end %d: it ends at %v, which no SAT allows; before %v", ev, i, end, before)
	}
	for _, e := range effects {
		switch e := e.(type) {
		case CheckInit:
			p.step(i, Admit{Params: DefaultParams(), Until: p.end[i].Until})
		case CheckUpdate:
			if p.rnd.IntN(4) == 0 {
				p.step(i, RefuseUpdate{Seq: e.Seq, Code: frame.TokenInvalid})
			} else {
				p.step(i, AdmitUpdate{Seq: e.Seq, Grant: p.grant(e.SAT)})
			}
		case SendInit, SendAccept, SendUpdate, SendUpdateAck, SendTerminate:
			if i == 0 || !p.old {
				p.toward[1-i] = append(p.toward[1-i], e)
			}
		}
	}
}

// deliver hands the next frame to an end.
func (p *pair) deliver(i int) {
	if len(p.toward[i]) == 0 {
		return
	}
	e := p.toward[i][0]
	p.toward[i] = p.toward[i][1:]
	switch e := e.(type) {
	case SendInit:
		if p.end[i].State() == None {
			p.step(i, RecvInit{})
		} else {
			p.old = false
			p.step(i, Readmit{})
		}
	case SendAccept:
		p.step(i, RecvAccept(e))
	case SendUpdate:
		p.step(i, RecvUpdate(e))
	case SendUpdateAck:
		p.step(i, RecvUpdateAck(e))
	case SendTerminate:
		p.step(i, RecvTerminate(e))
	}
}

func (p *pair) settle() {
	for len(p.toward[0])+len(p.toward[1]) > 0 {
		p.deliver(p.rnd.IntN(2))
	}
}

// lose cuts the connection: each end notices for itself, and the leader resumes.
func (p *pair) lose() {
	p.lost, p.old = true, true
	p.toward = [2][]Effect{}
	p.step(0, ConnLost{})
	if p.rnd.IntN(2) == 0 { // else the partner learns of it from the resume
		p.step(1, ConnLost{})
	}
	p.step(0, Resume{})
}

// grant is what the SAT of an update allows: its one byte is minutes beyond an hour.
func (p *pair) grant(sat []byte) Grant {
	end := t0.Add(time.Hour + time.Duration(sat[0])*time.Minute)
	if end.After(p.widest) {
		p.widest = end
	}
	return Grant{Scope: []string{invoke, "acps.skill.invoke:other"}, Until: end, Update: true}
}

func (p *pair) update(i int) {
	var c Change
	var g *Grant
	switch p.rnd.IntN(5) {
	case 0:
		c.Until = p.end[i].Until.Add(-time.Duration(p.rnd.IntN(5)) * time.Minute)
	case 1:
		params := p.end[i].Params
		params.MaxContext = max(1, params.MaxContext-uint64(p.rnd.IntN(1000)))
		c.Params = &params
	case 2:
		c.Scope = []string{invoke}
	case 3:
		c.Until = p.end[i].Until.Add(time.Hour) // refused at once
	default:
		c.SAT = []byte{byte(p.rnd.IntN(60))}
		if i == 0 {
			granted := p.grant(c.SAT)
			g = &granted
		}
	}
	if c.SAT == nil || i == 0 {
		p.step(i, Update{Change: c, Grant: g})
	}
}

// Whatever the two ends ask of each other and whenever, also across lost connections: neither is ever out of order for the other, no end
// is later than a SAT allows, and without a loss both allow the same in the end.
func TestPair(t *testing.T) {
	from, to := uint64(1), uint64(500)
	if *seed != 0 {
		from, to = *seed, *seed
	}
	updated := 0
	for n := from; n <= to; n++ {
		p := newPair(t, n)
		for range 60 {
			p.now = p.now.Add(time.Duration(p.rnd.IntN(100)) * time.Millisecond)
			switch k := p.rnd.IntN(20); {
			case k < 6:
				p.update(p.rnd.IntN(2))
			case k == 6 && n%3 == 0:
				p.lose()
			default:
				p.deliver(p.rnd.IntN(2))
			}
			if t.Failed() {
				t.Fatalf("-seed %d", n)
			}
		}
		p.settle()
		a, b := p.end[0], p.end[1]
		if a.State() != Established || b.State() != Established {
			t.Fatalf("-seed %d: %v and %v", n, a.State(), b.State())
		}
		if !p.lost && (!a.Until.Equal(b.Until) || a.Params.MaxContext != b.Params.MaxContext || len(a.Scope) != len(b.Scope)) {
			t.Fatalf("-seed %d: until %v and %v, max_ctx %d and %d, scope %q and %q", n, a.Until, b.Until, a.Params.MaxContext, b.Params.MaxContext, a.Scope, b.Scope)
		}
		if a.Params.MaxContext != wire.MaxContext {
			updated++
		}
	}
	if *seed == 0 && updated < 100 {
		t.Errorf("only %d runs have changed anything", updated)
	}
}
