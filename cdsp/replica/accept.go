package replica

import (
	"slices"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// acceptEntry takes one entry in, or refuses it. The checks are in the order of PROTOCOL.md, "Acceptance of an entry"; the
// first that fails gives the code, and the neighbour counts as having withdrawn the key.
func (r *Replica) acceptEntry(now time.Time, s *session, raw []byte) {
	e, err := wire.ParseEntry(raw)
	if err == nil && e.Op == wire.OpUnreach {
		ref := Ref{Origin: e.Origin, Key: e.Key}
		if s.peer.in[ref] != nil {
			r.notedKey(Withdrawn, s.peer, ref, frame.OK)
		}
		r.dropRoute(now, s.peer, ref)
		return
	}
	var in arrival
	opened := in.open(s, e) // of a malformed entry too: what it names is what is refused
	if err == nil {
		err = opened
	}
	if err == nil {
		err = r.judge(now, s.peer, e, &in)
	}
	if err == nil {
		err = r.install(now, s.peer, e, &in)
	}
	if err != nil {
		r.refuse(now, s, &in, err)
		return
	}
	s.peer.accepted++
	what := Accepted
	if e.Op == wire.OpDel {
		what = Withdrawn
	}
	r.notedKey(what, s.peer, in.ref, frame.OK)
}

// arrival is an entry with what it refers to.
type arrival struct {
	ref  Ref // zero while unknown
	data content
	size int

	restored bool // it did not come now
}

// open finds the item that an entry refers to.
func (in *arrival) open(s *session, e wire.Entry) error {
	b := s.rx.carried[e.Batch]
	switch {
	case b == nil && s.rx.full:
		return frame.Errorf(frame.LimitExceeded, "batches of this neighbour are over their limit")
	case b == nil:
		return frame.Errorf(frame.Malformed, "entry refers to a batch that the stream did not carry")
	}
	return in.of(b, e)
}

// of finds it in its batch.
func (in *arrival) of(b *batch, e wire.Entry) error {
	if b.form != nil {
		return b.form
	}
	it, err := b.body.Item(int(e.Index))
	if err != nil {
		return err
	}
	in.ref = Ref{Origin: b.body.Origin, Key: it.Key}
	in.data = content{version: Version{OEpoch: b.body.OEpoch, OSeq: it.OSeq}, batch: b, index: e.Index, item: it}
	in.size = len(b.body.Raw[e.Index])
	if (it.Kind == wire.KindTombstone) != (e.Op == wire.OpDel) {
		return frame.Errorf(frame.Malformed, "operation does not fit the item's kind")
	}
	return nil
}

// judge applies every check that does not depend on what is known of the key.
func (r *Replica) judge(now time.Time, p *peer, e wire.Entry, in *arrival) error {
	b := in.data.batch
	if err := r.judgePath(p, e, b.body); err != nil {
		return err
	}
	if err := r.judgePolicy(p, e, b.body); err != nil {
		return err
	}
	if err := r.judgeSignature(now, p, b); err != nil {
		return err
	}
	if err := judgeTimes(now, b.body); err != nil {
		return err
	}
	return r.judgeLimits(p, in)
}

func (r *Replica) judgePath(p *peer, e wire.Entry, b *wire.Batch) error {
	path := e.Path
	if b.Origin == r.cfg.Gateway || slices.Contains(path, r.cfg.Domain) {
		return frame.Errorf(frame.BadPath, "entry came around: its path holds our own domain")
	}
	if p.row.Role == wire.RoleInternal && len(path) == 0 {
		if b.Domain != r.cfg.Domain {
			return frame.Errorf(frame.BadPath, "entry of another domain has no path")
		}
		return nil
	}
	switch {
	case len(path) == 0:
		return frame.Errorf(frame.BadPath, "entry has no path")
	case p.row.Role != wire.RoleInternal && path[0] != p.row.Domain:
		return frame.Errorf(frame.BadPath, "path begins with another domain than the neighbour's")
	case path[len(path)-1] != b.Domain:
		return frame.Errorf(frame.BadPath, "path ends with another domain than the origin's")
	case len(path)+int(e.Attrs.HopsLeft) > int(b.MaxHops)+1:
		return frame.Errorf(frame.BadPath, "path and hops left are longer than the origin allows")
	case repeats(path):
		return frame.Errorf(frame.BadPath, "path visits a domain twice")
	}
	return nil
}

func repeats(path []string) bool {
	for i, d := range path {
		if slices.Contains(path[:i], d) {
			return true
		}
	}
	return false
}

func (r *Replica) judgePolicy(p *peer, e wire.Entry, b *wire.Batch) error {
	switch {
	case b.Visibility == wire.VisibleDomain && b.Domain != r.cfg.Domain:
		return frame.Errorf(frame.Policy, "batch is for its own domain")
	case b.Visibility == wire.VisibleListed && b.Domain != r.cfg.Domain && !slices.Contains(b.Allow, r.cfg.Domain):
		return frame.Errorf(frame.Policy, "batch does not allow our domain")
	case p.row.Role != wire.RoleInternal && len(e.Path) > 1 && !p.row.ImportTransit:
		return frame.Errorf(frame.Policy, "no transit is taken from this neighbour")
	}
	return nil
}

// judgeSignature also counts forgeries: a neighbour that passes many on is cut off.
func (r *Replica) judgeSignature(now time.Time, p *peer, b *batch) error {
	tried := b.ok || b.bad != nil
	err := b.verify(r.cfg.Keys)
	switch frame.CodeOf(err) {
	case frame.OK:
		return nil
	case frame.UnknownKey:
		if p.noteUnknown(b.kid) {
			r.emit(UnknownKey{Gateway: p.gateway, Domain: b.body.Domain})
		}
	default:
		if !tried {
			p.countForgery(now)
		}
	}
	return err
}

func judgeTimes(now time.Time, b *wire.Batch) error {
	exp := unix(b.Expires)
	switch {
	case now.Before(unix(b.NotBefore).Add(-tolerance)):
		return frame.Errorf(frame.Expired, "batch is not valid yet")
	case !now.Before(exp.Add(tolerance)):
		return frame.Errorf(frame.Expired, "batch has expired")
	case exp.Sub(now) > maxTTL+tolerance:
		return frame.Errorf(frame.Expired, "batch is valid for longer than two hours")
	case b.OEpoch > uint64(now.Add(maxAhead).UnixMilli()):
		return frame.Errorf(frame.ClockSkew, "epoch of the origin lies in the future")
	}
	return nil
}

const (
	maxTTL   = 2 * time.Hour
	maxAhead = time.Hour // of an oepoch
)

func (r *Replica) judgeLimits(p *peer, in *arrival) error {
	l := r.cfg.Limits
	held := len(p.in) + len(p.parked)
	if near := nearLimit; !p.nearAlarmed && (float64(held) >= near*float64(l.PeerEntries) || float64(p.bytes) >= near*float64(l.PeerBytes)) {
		p.nearAlarmed = true
		r.alarm(p.gateway, "%d entries and %d octets, near its limits of %d and %d", held, p.bytes, l.PeerEntries, l.PeerBytes)
	}
	if p.in[in.ref] == nil && p.parked[in.ref] == nil && held >= l.PeerEntries || p.bytes+in.size > l.PeerBytes {
		p.overLimit = true
		if !p.limitAlarmed {
			p.limitAlarmed = true
			r.alarm(p.gateway, "more than %d entries or %d octets; what is new is refused", l.PeerEntries, l.PeerBytes)
		}
		return frame.Errorf(frame.LimitExceeded, "neighbour is over its limit")
	}
	if r.dests[in.ref] != nil {
		return nil
	}
	keys, known := r.origins[in.ref.Origin]
	if keys >= l.OriginEntries || !known && len(r.origins) >= l.Origins {
		return frame.Errorf(frame.LimitExceeded, "origin is over its limit")
	}
	return nil
}

// install compares with the newest version known and stores the route. An older version is not refused: the route counts,
// its content does not.
func (r *Replica) install(now time.Time, p *peer, e wire.Entry, in *arrival) error {
	d := r.destOf(in.ref)
	if err := r.renew(now, d, in); err != nil {
		r.recompute(now, d)
		return err
	}
	if e.Op == wire.OpDel {
		if d.newest.tombstone() {
			d.last = &route{peer: p, path: e.Path, hops: e.Attrs.HopsLeft}
		}
		r.dropRoute(now, p, in.ref)
	} else {
		r.setRoute(now, p, d, e, in)
	}
	r.recompute(now, d)
	return nil
}

func (r *Replica) renew(now time.Time, d *dest, in *arrival) error {
	order := 1
	if d.newest != nil {
		order = in.data.version.Compare(d.newest.version)
	}
	switch {
	case order < 0:
	case order > 0:
		data := in.data
		d.newest, d.quarantined = &data, false
	case in.data.item.CHash != d.newest.item.CHash || in.data.tombstone() != d.newest.tombstone():
		r.quarantine(now, d)
		return frame.Errorf(frame.Equivocation, "another content has the same version")
	case in.data.batch.body.Expires > d.newest.batch.body.Expires:
		data := in.data
		d.newest = &data
	}
	return nil
}

// equivocalEvery bounds the alarms about one origin: each of its keys may say two things, and again in each version.
const equivocalEvery = time.Minute

// quarantine keeps a key from being passed on. The entry that shows why may come again and again; it is worth one alarm.
func (r *Replica) quarantine(now time.Time, d *dest) {
	last, alarmed := r.equivocal[d.ref.Origin]
	if !d.quarantined && (!alarmed || now.Sub(last) >= equivocalEvery) {
		r.equivocal[d.ref.Origin] = now
		r.alarm(d.ref.Origin, "origin says two things under one version of key %v", d.ref.Key)
	}
	d.quarantined = true
}

func (r *Replica) setRoute(now time.Time, p *peer, d *dest, e wire.Entry, in *arrival) {
	r.unpark(p, d.ref)
	r.keepRef(p, d.ref)
	rtt := time.Duration(0)
	if p.session != nil && !in.restored { // a kept metric has it already
		rtt = p.session.rtt
	}
	b := in.data.batch
	if newest := d.newest.batch; newest.hash == b.hash {
		b = newest // the same octets need not be kept twice
	}
	rt, since := p.in[d.ref], now
	switch {
	case rt == nil:
		rt = &route{peer: p}
		p.in[d.ref] = rt
		d.routes = append(d.routes, rt)
	default:
		p.hash.XOR(entryHash(d.ref, rt.version))
		if slices.Equal(rt.path, e.Path) {
			since = rt.since
		}
	}
	p.bytes += in.size - rt.size
	*rt = route{peer: p, version: in.data.version, path: e.Path, hops: e.Attrs.HopsLeft, size: in.size, batch: b, index: in.data.index, since: since,
		metric: e.Attrs.MetricMS + uint32(min(rtt, time.Minute)/time.Millisecond), farStale: e.Attrs.Stale, stale: in.restored, restored: in.restored}
	p.hash.XOR(entryHash(d.ref, rt.version))
}

// refuse nacks one entry and treats it as withdrawn by this neighbour.
func (r *Replica) refuse(now time.Time, s *session, in *arrival, err error) {
	p := s.peer
	p.nacked.add(frame.CodeOf(err))
	r.notedKey(Rejected, p, in.ref, frame.CodeOf(err))
	s.rx.nack(wire.Nack{Origin: in.ref.Origin, Key: in.ref.Key, Code: frame.CodeOf(err)})
	if in.ref.Origin != "" {
		r.dropRoute(now, p, in.ref)
	}
	if d := r.dests[in.ref]; d != nil && d.newest == nil && len(d.routes) == 0 {
		r.forget(d)
	}
	r.changed = true
}

// countForgery counts a batch that does not verify, within the minute and for ever.
func (p *peer) countForgery(now time.Time) {
	if now.Sub(p.badFrom) > time.Minute {
		p.badFrom, p.bad = now, 0
	}
	p.bad++
	p.badTotal++
}
