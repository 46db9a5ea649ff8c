package registrar

import (
	"sync"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// maxPartners bounds the partners that are remembered of one agent. One with more hears of every revocation.
const maxPartners = 1024

// partners is with whom the agents of this gateway were brought together, and until when a session that came of it may live:
// who must be told when somebody is revoked, or when nobody can tell any more who is. Agents name those with whom they have
// sessions when they attach, so that a restart forgets nobody.
type partners struct {
	mu   sync.Mutex                      // guards the rest
	of   map[string]map[string]time.Time // agents by partner
	many map[string]int                  // partners by agent
}

// Met notes that an agent of this gateway may have a session with partner until a time.
func (r *Registrar) Met(agent, partner string, until time.Time) {
	p := &r.partners
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of, p.many = map[string]map[string]time.Time{}, map[string]int{}
	}
	agents := p.of[partner]
	last, known := agents[agent]
	if !known {
		if p.many[agent] > maxPartners {
			return
		}
		if p.many[agent]++; p.many[agent] > maxPartners { // from now on it hears of everybody
			return
		}
		if agents == nil {
			agents = map[string]time.Time{}
			p.of[partner] = agents
		}
	}
	if until.After(last) {
		agents[agent] = until
	}
}

// forget is called with mu held.
func (p *partners) forget(agent, partner string) {
	delete(p.of[partner], agent)
	if len(p.of[partner]) == 0 {
		delete(p.of, partner)
	}
	if p.many[agent]--; p.many[agent] <= 0 {
		delete(p.many, agent)
	}
}

// whoMet lists the agents that must hear of a partner, and forgets them.
func (p *partners) whoMet(partner string) (agents []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent := range p.of[partner] {
		agents = append(agents, agent)
	}
	for _, agent := range agents {
		p.forget(agent, partner)
	}
	for agent, n := range p.many {
		if n > maxPartners {
			agents = append(agents, agent)
		}
	}
	return agents
}

// RevokePeer has the attached agents that may have sessions with an AIC end them.
func (r *Registrar) RevokePeer(id string, code frame.Code) {
	for _, agent := range r.partners.whoMet(id) {
		if a := r.find(agent); a != nil {
			a.send(&arp.SessionRevoke{Kind: arp.RevokePeer, Value: id, Code: code})
		}
	}
}

// ReviewPartners ends the sessions of this gateway's agents with partners of whom doubt has an error: their domain's status list
// is too old to say that they are still good.
func (r *Registrar) ReviewPartners(now time.Time, doubt func(partner string) error) {
	type end struct {
		partner string
		why     error
	}
	var ends []end
	p := &r.partners
	p.mu.Lock()
	for partner, agents := range p.of {
		for agent, until := range agents {
			if now.After(until) {
				p.forget(agent, partner)
			}
		}
		if err := doubt(partner); err != nil && len(p.of[partner]) > 0 {
			ends = append(ends, end{partner, err})
		}
	}
	p.mu.Unlock()
	for _, e := range ends {
		r.log.Warn("sessions end: nobody can say that the partner is still good", "partner", e.partner, "err", e.why)
		r.RevokePeer(e.partner, frame.CertStatus)
	}
}
