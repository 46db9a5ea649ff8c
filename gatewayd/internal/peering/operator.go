package peering

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentgw/cdsp"
	"agentgw/internal/frame"
	"agentgw/internal/spelling"
)

// Find lists the neighbours that a name means: a gateway by its AIC, or all known gateways of a domain. A row whose gateways were never met
// is listed without one. The error says that there is none (40), and what may have been meant.
func (p *Peering) Find(name string) ([]PeerStatus, error) {
	var found []PeerStatus
	var names []string
	for _, st := range p.Status() {
		if st.Domain == name || st.Gateway == name && name != "" {
			found = append(found, st)
		}
		names = append(names, st.Domain, st.Gateway)
	}
	if len(found) > 0 {
		return found, nil
	}
	meant := "`gatewayd peer list` shows those that there are"
	if best := spelling.Nearest(name, names); best != "" {
		meant = fmt.Sprintf("did you mean %s?", best)
	}
	return nil, frame.Errorf(frame.NotFound, "no peer is called %q: %s", name, meant)
}

// Reset ends the sessions with a neighbour, with a GOODBYE, and dials it anew at once where there is somewhere to dial. It says how many
// sessions it ended, and whether this gateway dials. The error says that there is nothing to reset (40, 6A).
func (p *Peering) Reset(ctx context.Context, name string) (ended int, dials bool, err error) {
	found, err := p.Find(name)
	if err != nil {
		return 0, false, err
	}
	for _, st := range found {
		for _, d := range p.diallersOf(st) {
			dials = true
			d.atOnce.Store(true)
		}
		if st.Gateway == "" {
			continue
		}
		n, err := p.node.Reset(ctx, st.Gateway, resetReason)
		if err != nil {
			return ended, dials, err
		}
		ended += n
	}
	if ended > 0 {
		return ended, dials, nil
	}
	if !dials {
		return 0, false, frame.Errorf(frame.State, "there is no session with %s, and its row names no address: it has to dial", name)
	}
	for _, st := range found {
		for _, d := range p.diallersOf(st) {
			d.dialAgain()
		}
	}
	return 0, true, nil
}

// resetReason travels.
const resetReason = "reset by its operator"

// diallersOf are those that keep a neighbour connected.
func (p *Peering) diallersOf(st PeerStatus) (out []*dialler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rows[st.Domain]; r != nil && r.dials {
		out = append(out, r.dialler)
	}
	if s := p.siblings[st.Gateway]; s != nil && s.dials {
		out = append(out, s.dialler)
	}
	return out
}

// Resync asks a neighbour for its whole table anew, over the session that there is. It says how many of its gateways were asked; the error
// that none could be (40, 6A).
func (p *Peering) Resync(ctx context.Context, name string) (asked int, err error) {
	found, err := p.Find(name)
	if err != nil {
		return 0, err
	}
	state := ""
	for _, st := range found {
		state = st.State
		switch err := p.node.Refresh(ctx, st.Gateway); {
		case err == nil:
			asked++
		case frame.CodeOf(err) != frame.State:
			return asked, err
		}
	}
	if asked == 0 {
		return 0, frame.Errorf(frame.State, "there is no session with %s, it is %s: `gatewayd peer reset %s` dials it", name, state, name)
	}
	return asked, nil
}

// Drain makes this gateway a lame duck towards a neighbour, or undoes that: what it was told is withdrawn, requests go there no more, those
// that run may end. A domain stands for all its gateways, also those that come later. The error says that there is no such neighbour (40),
// or that it is so already (6A).
func (p *Peering) Drain(ctx context.Context, name string, undo bool) error {
	p.mu.Lock()
	drained := p.drained[name]
	p.mu.Unlock()
	if !undo || !drained { // a row that is gone may still be undone
		if _, err := p.Find(name); err != nil {
			return err
		}
	}
	if drained != undo {
		return frame.Errorf(frame.State, map[bool]string{true: "%s is not drained", false: "%s is drained already: --undo ends that"}[undo], name)
	}
	return p.changeLame(ctx, func() {
		if undo {
			delete(p.drained, name)
		} else {
			p.drained[name] = true
		}
	})
}

// SetLame makes this gateway a lame duck towards every neighbour, or undoes that. Those that are drained by themselves stay so.
func (p *Peering) SetLame(ctx context.Context, lame bool) error {
	return p.changeLame(ctx, func() { p.lame = lame })
}

// changeLame changes who is told that this gateway is a lame duck, and tells them.
func (p *Peering) changeLame(ctx context.Context, change func()) error {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.changingLame.Lock() // else the node may hear of two changes in the wrong order
	defer p.changingLame.Unlock()
	p.mu.Lock()
	change()
	all, to := p.lame, slices.Sorted(maps.Keys(p.drained))
	p.mu.Unlock()
	return p.node.SetLame(ctx, all, to)
}

// Drained says whether this gateway is a lame duck towards a neighbour: new requests of it are refused.
func (p *Peering) Drained(domain, gateway string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lame || p.drained[domain] || p.drained[gateway]
}

// RouteQuery asks for a page of [Peering.Routes].
type RouteQuery struct {
	Name  string // a label, a domain or the AIC of an origin; empty: all
	After cdsp.Ref
	Limit int
}

// Routes lists the keys of the digest table with every route to each. The error says that nothing of that name is known (40), and what may have
// been meant.
func (p *Peering) Routes(ctx context.Context, q RouteQuery) (list []cdsp.Known, more bool, err error) {
	seen := map[string]bool{}
	list, more, err = p.node.Routes(ctx, func(k *cdsp.Known) bool {
		if q.Name == "" || k.Label == q.Name || k.Domain == q.Name || k.Ref.Origin == q.Name {
			return true
		}
		seen[k.Label], seen[k.Domain] = true, true
		return false
	}, q.After, q.Limit)
	if err == nil && len(list) == 0 && q.Name != "" && q.After.Origin == "" {
		meant := "`gatewayd routes` shows all"
		if best := spelling.Nearest(strings.ToLower(q.Name), slices.Sorted(maps.Keys(seen))); best != "" {
			meant = fmt.Sprintf("did you mean %s?", best)
		}
		return nil, false, frame.Errorf(frame.NotFound, "no digest has the label or is of the domain %q: %s", q.Name, meant)
	}
	return list, more, err
}
