package replica

import (
	"slices"
	"time"

	"agentgw/cdsp/wire"
)

// announcement is what one neighbour is told about one key: an element of its Adj-RIB-Out.
type announcement struct {
	content *content
	path    []string
	attrs   wire.Attrs
	seq     uint64 // frame that carried it last
}

// same says whether telling b after a would tell nothing new.
func (a *announcement) same(b *announcement) bool {
	return a.content.batch == b.content.batch && a.content.index == b.content.index && a.attrs.HopsLeft == b.attrs.HopsLeft &&
		slices.Equal(a.path, b.path) && !(a.attrs.Stale && !b.attrs.Stale)
}

// export is what the neighbour of a session may be told about d, or nil. The rules are those of PROTOCOL.md, "Export".
func (r *Replica) export(now time.Time, s *session, d *dest) *announcement {
	if d == nil || d.newest == nil || d.quarantined || d.newest.expired(now) || r.lameTowards(s.peer) {
		return nil
	}
	p, b := s.peer, d.newest.batch.body
	if !visibleTo(p.row, b) || uint64(len(b.Raw[d.newest.index])) > s.hello.Limits.MaxEntry {
		return nil
	}
	if d.own {
		return r.exportOwn(p, d)
	}
	return r.exportLearned(p, d)
}

// visibleTo applies what the origin allows and what the policy row discloses.
func visibleTo(row Neighbour, b *wire.Batch) bool {
	if row.Role == wire.RoleInternal {
		return true
	}
	switch b.Visibility {
	case wire.VisibleDomain:
		return false
	case wire.VisibleListed:
		if !slices.Contains(b.Allow, row.Domain) {
			return false
		}
	}
	return b.Level <= row.Level
}

// exportOwn: own digests go to a neighbour at exactly the level of its row.
func (r *Replica) exportOwn(p *peer, d *dest) *announcement {
	b := d.newest.batch.body
	a := &announcement{content: d.newest, path: []string{}, attrs: wire.Attrs{HopsLeft: b.MaxHops}}
	if p.row.Role == wire.RoleInternal {
		return a
	}
	if b.Level != p.row.Level {
		return nil
	}
	a.path = []string{r.cfg.Domain}
	return a
}

// exportLearned passes on the best route, or the way on which a tombstone came.
func (r *Replica) exportLearned(p *peer, d *dest) *announcement {
	rt := d.best
	if d.newest.tombstone() {
		rt = d.last
	}
	if rt == nil || rt.peer == p || rt.restored && !r.released {
		return nil // split horizon; what was kept from before this start is passed on when its neighbour is back, or will not be soon
	}
	a := &announcement{content: d.newest, path: rt.path,
		attrs: wire.Attrs{HopsLeft: rt.hops, Stale: rt.stale || rt.farStale, MetricMS: rt.metric}}
	if p.row.Role == wire.RoleInternal {
		if rt.peer.row.Role == wire.RoleInternal {
			return nil // gateways of one domain hear it from the one that learned it
		}
		return a
	}
	if !r.mayTransit(rt, p.row) || slices.Contains(rt.path, p.row.Domain) || len(rt.path) >= wire.MaxPath {
		return nil
	}
	if len(rt.path) > 0 {
		if rt.hops == 0 {
			return nil
		}
		a.attrs.HopsLeft--
	}
	a.path = append([]string{r.cfg.Domain}, rt.path...)
	return a
}

// mayTransit: what our own domain says goes to whom it is meant for. What others say is passed on only where the row says
// so, and never from one who is not our customer to another who is not: nobody carries traffic for two that pay nothing.
func (r *Replica) mayTransit(rt *route, to Neighbour) bool {
	from := r.roleOf(rt)
	if from == wire.RoleInternal && len(rt.path) == 0 {
		return true
	}
	if !to.ExportTransit {
		return false
	}
	return from == wire.RoleCustomer || to.Role == wire.RoleCustomer
}
