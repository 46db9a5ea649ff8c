package registrar

import (
	"sync"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// maxPartners bounds the partners that are remembered of one agent; over it the one whose sessions end first is forgotten, and
// hears of a revocation all the same, which goes to every agent.
const maxPartners = 1024

// partners is with whom the agents of this gateway were brought together, and until when a session that came of it may live. It
// is what is needed when nobody can tell any more who is revoked in a domain.
type partners struct {
	mu   sync.Mutex // guards with
	with map[string]map[string]time.Time
}

// Met notes that an agent of this gateway may have a session with partner until a time.
func (r *Registrar) Met(agent, partner string, until time.Time) {
	p := &r.partners
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.with == nil {
		p.with = map[string]map[string]time.Time{}
	}
	list := p.with[agent]
	if list == nil {
		list = map[string]time.Time{}
		p.with[agent] = list
	}
	if _, known := list[partner]; !known && len(list) >= maxPartners {
		first := ""
		for id, at := range list {
			if first == "" || at.Before(list[first]) {
				first = id
			}
		}
		delete(list, first)
	}
	if until.After(list[partner]) {
		list[partner] = until
	}
}

// ReviewPartners ends the sessions of this gateway's agents with partners of whom doubt has an error: their domain's status list
// is too old to say that they are still good.
func (r *Registrar) ReviewPartners(now time.Time, doubt func(partner string) error) {
	type pair struct {
		agent, partner string
		why            error
	}
	var end []pair
	p := &r.partners
	p.mu.Lock()
	for agent, list := range p.with {
		for partner, until := range list {
			if now.After(until) {
				delete(list, partner)
			} else if err := doubt(partner); err != nil {
				delete(list, partner)
				end = append(end, pair{agent, partner, err})
			}
		}
		if len(list) == 0 {
			delete(p.with, agent)
		}
	}
	p.mu.Unlock()
	for _, e := range end {
		if a := r.find(e.agent); a != nil {
			r.log.Warn("sessions end: nobody can say that the partner is still good", "agent", e.agent, "partner", e.partner, "err", e.why)
			a.send(&arp.SessionRevoke{Kind: arp.RevokePeer, Value: e.partner, Code: frame.CertStatus})
		}
	}
}
