package peering

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"agentgw/cdsp"
	"agentgw/cdsp/digest"
	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/registry"
	"agentgw/directory/semreq"
	"agentgw/directory/taxonomy"
	"agentgw/gatewayd/internal/relay"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// maxHops is how many domains an own digest may pass: to the neighbours of the neighbours, and further.
const maxHops = 7

// routes is what requests need of the digest table; it is replaced whole when the table changes.
type routes struct {
	snapshot *replica.Snapshot
	origins  digest.Origins
	content  uint64          // sum over the entries of others: the same entries have the same
	version  uint64          // +1 whenever content is another one
	closed   map[string]bool // gateways to which nothing new goes: lame, or drained here
}

// Version implements relay.Network.
func (p *Peering) Version() uint64 { return p.routes.Load().version }

func (p *Peering) newNode(epoch uint64) *cdsp.Node {
	boot := wire.ID16{}
	for i := range boot {
		boot[i] = byte(rand.Uint32())
	}
	kept := p.cfg.Kept
	p.cfg.Kept = nil // it is as much as the tables
	return cdsp.New(cdsp.Config{
		Gateway: p.cfg.Gateway, Domain: p.cfg.Domain, BootID: boot, OEpoch: epoch, Signer: p.cfg.Signer,
		Keys: p.digestKeys(), Bundles: p.bundlesFor, OnBundle: p.onBundle, Statuses: p.statusesFor, OnStatus: p.onStatus,
		OnTrustGet: p.onTrustGet, Trust: p.trustTold, OnTrustHeld: p.onTrustHeld, OnUnknownKey: p.onUnknownKey, Install: p.refresh,
		OnMoved: p.cfg.OnMoved, Moves: p.cfg.Moves, Kept: kept, Keep: p.cfg.Keep, Observe: p.cfg.Observe, Watched: p.cfg.Watched, Log: p.log,
	})
}

// bundlesFor are the bundles that a neighbour is told of: our own, and where its row says transit those of the peers
// that the operator configured. What was introduced to us is not handed on: its introducer vouches to us alone.
func (p *Peering) bundlesFor(domain string) [][]byte {
	var out [][]byte
	for _, a := range p.toldTo(domain) {
		out = append(out, a.Raw)
	}
	return out
}

// onBundle considers a bundle that a neighbour sent: its own newer one, or another domain's that it introduces.
func (p *Peering) onBundle(ctx context.Context, gateway, domain string, raw []byte) error {
	r := p.row(domain)
	if r == nil {
		return nil
	}
	b, err := identity.ParseBundle(raw)
	if err != nil {
		p.Penalise(gateway, err.Error())
		return err
	}
	if r.Role == roleInternal {
		if r = p.introducer(b.Domain); r == nil { // our own, which comes from the AMC; or the other gateway has a row that this one has not
			return nil
		}
	}
	if b.Domain == r.Domain {
		_, err := p.Renew(b.Domain, raw)
		return err
	}
	before := p.cfg.Trust.All()
	changed, err := p.introduce(r, raw, b)
	if changed { // a dispute, of which neither is believed, or issuers that a domain names no more
		p.Distrusted(before)
	}
	p.recordBundle(ctx, domain, b, changed, err)
	if changed {
		p.log.Info("bundle accepted", "from", domain, "of", b.Domain, "fingerprint", identity.FingerprintText(b.Fingerprint))
		p.news.broadcast()
		p.node.BundleAccepted()
	}
	return err
}

// refresh makes what requests need of a new digest table; the digest machine calls it, and nobody else.
func (p *Peering) refresh(s *replica.Snapshot) {
	r := &routes{snapshot: s, closed: map[string]bool{}}
	for _, n := range s.Neighbours {
		if n.Lame || n.Drained {
			r.closed[n.Gateway] = true
		}
	}
	r.origins.Alarm = func(gateway string, err error) { p.Penalise(gateway, err.Error()) }
	for _, e := range s.Entries {
		if !e.Own {
			r.origins.Add(digest.Origin{Gateway: e.Origin, Domain: e.Domain, Via: e.Via, Others: e.Others, Distance: len(e.Path), Stale: e.Stale, Level: e.Level}, e.Item)
			h := fnv.New64a()
			fmt.Fprintf(h, "%s %x %d %x %s %t %v", e.Origin, e.Item.Key, e.Item.OSeq, e.Item.CHash, e.Via, e.Stale, e.Others)
			r.content += h.Sum64()
		}
	}
	if was := p.routes.Load(); was != nil {
		if r.version = was.version; r.content != was.content {
			r.version++
		}
	}
	p.routes.Store(r)
}

// hashKey finds the hash key of a sketch among those that bundles publish.
func (p *Peering) hashKey(id [8]byte) ([]byte, bool) {
	for _, a := range p.cfg.Trust.All() {
		for _, k := range a.SketchKeys {
			if digest.KeyID(k) == id {
				return k, true
			}
		}
	}
	return nil, false
}

// Candidates implements relay.Network.
func (p *Peering) Candidates(q semreq.Query) []relay.Hop {
	var dq digest.Query
	for _, t := range distinct(match.Terms(q.Text)) {
		dq.Terms = append(dq.Terms, digest.Term{Text: t, Weight: match.Background(t)})
	}
	dq.Tags = q.Tags
	for _, c := range q.Classes {
		dq.Classes = append(dq.Classes, taxonomy.Path(c)) // it may be an id
	}
	if q.Text != "" {
		dq.Vector, dq.Embedder = match.RequestVector(q.Text), match.DigestEmbedder()
	}
	var out, away []relay.Hop
	var others []string // that know another way to something
	seen := map[string]bool{}
	instead := map[string]*relay.Hop{}
	for _, r := range p.routes.Load().origins.Rank(dq, p.hashKey) {
		others = p.otherWays(others, instead, r)
		if seen[r.Via] {
			continue
		}
		seen[r.Via] = true
		score := r.Score
		if r.Exact {
			score = math.Inf(1)
		}
		if l := p.linkTo(r.Via); l != nil {
			out = append(out, relay.Hop{Neighbour: l, Score: score})
		} else {
			away = append(away, relay.Hop{Neighbour: absent{p, r.Via}, Score: score, Away: true})
		}
	}
	out = append(out, away...)
	for _, c := range q.Caps { // an exact capability is where its AIC's domain is
		out = p.towards(out, seen, c)
	}
	out = p.lastResort(out, seen)
	for _, g := range others {
		if !seen[g] {
			out = append(out, *instead[g])
		}
	}
	return out
}

// otherWays notes the connected neighbours that know another way to an origin, in the order in which they come to be known.
func (p *Peering) otherWays(list []string, instead map[string]*relay.Hop, r digest.Ranked) []string {
	for _, g := range r.Others {
		h := instead[g]
		if h == nil {
			l := p.linkTo(g)
			if l == nil {
				continue
			}
			h = &relay.Hop{Neighbour: l, Score: r.Score}
			instead[g], list = h, append(list, g)
		}
		if !slices.Contains(h.InsteadOf, r.Via) {
			h.InsteadOf = append(h.InsteadOf, r.Via)
		}
	}
	return list
}

// towards puts the neighbours through which a capability's own gateways are reached in front.
func (p *Peering) towards(out []relay.Hop, seen map[string]bool, capID string) []relay.Hop {
	id, _, err := directory.ParseCapID(capID)
	if err != nil {
		return out
	}
	domain := p.cfg.Trust.DomainOf(id)
	for _, e := range p.routes.Load().snapshotEntries() {
		if e.Own || e.Domain != domain || seen[e.Via] {
			continue
		}
		seen[e.Via] = true
		if l := p.linkTo(e.Via); l != nil {
			out = append([]relay.Hop{{Neighbour: l, Score: math.Inf(1)}}, out...)
		} else {
			out = append(out, relay.Hop{Neighbour: absent{p, e.Via}, Away: true})
		}
	}
	return out
}

// absent is a neighbour whose digests are here and which is not connected.
type absent struct {
	p       *Peering
	gateway string
}

func (a absent) Gateway() string    { return a.gateway }
func (a absent) Domain() string     { return a.p.cfg.Trust.DomainOf(a.gateway) }
func (a absent) RTT() time.Duration { return 0 }
func (a absent) Number() uint64     { return 0 }

func (a absent) Explain() bool {
	r := a.p.row(a.Domain())
	return r != nil && r.Explain
}

func (a absent) MayQuery() []string {
	if r := a.p.row(a.Domain()); r != nil {
		return r.MayQuery
	}
	return nil
}

func (a absent) Ask(context.Context, *semreq.Request) (*semreq.Response, error) {
	return nil, frame.Errorf(frame.UpstreamFailed, "%s is not connected", a.gateway)
}

func (r *routes) snapshotEntries() []replica.Entry {
	if r.snapshot == nil {
		return nil
	}
	return r.snapshot.Entries
}

func (p *Peering) lastResort(out []relay.Hop, seen map[string]bool) []relay.Hop {
	p.mu.Lock()
	defer p.mu.Unlock()
	closed := p.routes.Load().closed
	for _, l := range p.links {
		if r := p.rows[l.domain]; r != nil && r.Upstream && !seen[l.gateway] {
			seen[l.gateway] = true
			out = append(out, relay.Hop{Neighbour: l, Upstream: true, Away: closed[l.gateway]})
		}
	}
	return out
}

// distinct keeps the first of each.
func distinct(list []string) (out []string) {
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s], out = true, append(out, s)
		}
	}
	return out
}

// visibility is a directory's visibility as digests spell it.
var visibility = map[directory.Visibility]wire.Visibility{
	directory.VisibleDomain: wire.VisibleDomain, directory.VisibleListed: wire.VisibleListed, directory.VisiblePublic: wire.VisibleAny,
}

// Ready is closed when digests can be published.
func (p *Peering) Ready() <-chan struct{} { return p.ready }

// Above this many public capabilities a sketch has room for their terms alone, and none for pairs of them: texts need not be read again, and of
// embeddings a sample is enough.
const (
	maxDescribed = 2_000
	maxEmbedded  = 4_000
)

// atLeast is how many capabilities have a term that a level tells.
var atLeast = map[wire.Level]int{wire.LevelClasses: 1, wire.LevelCoarse: digest.CoarseCaps, wire.LevelFull: 1}

// capabilities are offers, so many of them public, as digests take them.
func capabilities(offers iter.Seq[registry.Offer], public int) iter.Seq[digest.Capability] {
	return func(yield func(digest.Capability) bool) {
		nth := 0
		for o := range offers {
			c := digest.Capability{Classes: o.Classes, Tags: o.Tags, In: o.In, Out: o.Out, Visibility: visibility[o.Visibility], Allow: o.Allow}
			if o.Visibility == directory.VisiblePublic { // the sketch has nothing of others
				if public <= maxDescribed {
					for _, t := range match.DigestTerms(*o.Capability) {
						c.Terms = append(c.Terms, digest.Weighted(t))
					}
				}
				if public <= maxDescribed || nth%(1+public/maxEmbedded) == 0 {
					c.Vector = match.DigestVector(*o.Capability)
				}
				nth++
			}
			if !yield(c) {
				return
			}
		}
	}
}

// SetOwn makes this gateway's digest of what its directory offers, and tells the neighbours. terms are those that at least so many of the
// public capabilities have.
func (p *Peering) SetOwn(ctx context.Context, offers iter.Seq[registry.Offer], terms func(atLeast int) []string) {
	public := 0
	for o := range offers {
		if o.Visibility == directory.VisiblePublic {
			public++
		}
	}
	caps := capabilities(offers, public)
	if public <= maxDescribed {
		caps = slices.Values(slices.Collect(caps)) // read once for all levels
	}
	var groups []wire.Group
	o := digest.Options{
		Key: p.cfg.Trust.Own().SketchKeys[0], MaxHops: maxHops, Weight: match.Background, Embedder: match.DigestEmbedder(), Known: knownClass,
		MaxLabels: maxLabels,
	}
	for _, o.Level = range p.levels() {
		if public > maxDescribed {
			o.Terms = terms(atLeast[o.Level])
		}
		made, err := digest.Build(caps, o)
		if err != nil {
			p.log.Error("build digest", "level", o.Level, "err", err)
			return
		}
		for _, g := range made {
			o.MaxLabels -= len(g.Items)
		}
		groups = append(groups, made...)
	}
	select {
	case <-p.ready:
	case <-ctx.Done():
		return
	}
	if err := p.node.SetOwn(ctx, groups); err != nil && ctx.Err() == nil {
		p.log.Error("publish digest", "err", err)
	}
}

// knownClass says whether a path is of the taxonomy of this program: an agent may name any as one of a newer taxonomy.
func knownClass(path string) bool {
	_, ok := taxonomy.Find(path)
	return ok
}

// maxLabels bounds the class items of this gateway at all levels together: what neighbours would refuse is not said.
const maxLabels = 1900

// levels are those at which somebody gets digests, the least disclosing first: it has the fewest labels.
func (p *Peering) levels() []wire.Level {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []wire.Level
	for _, r := range p.rows {
		if !slices.Contains(out, r.Disclose) {
			out = append(out, r.Disclose)
		}
	}
	if len(out) == 0 { // nobody yet: what the operator is shown of the own digests
		out = append(out, wire.LevelFull)
	}
	slices.Sort(out)
	return out
}

// PeerStatus is how one neighbour stands.
type PeerStatus struct {
	Domain, Gateway, Role, State string
	Acked, Synced                bool
	Entries, Sent, Stale         int
	Since                        time.Time // of the state, while there is a session
	Accepted                     uint64
	Rejected, Refused            map[frame.Code]uint64 // entries of it that we refused, entries of ours that it refused; since the start
	LastAck                      time.Time
	Ended                        string // why its last session ended,
	EndedAt                      time.Time
	Lame                         bool // it says that it takes nothing new
	Drained                      bool // nothing new goes there, by this gateway's operator
	RTT                          time.Duration
	Skew                         time.Duration // how far its clock is ahead of ours, by its last HELLO
	HeldUntil                    time.Time     // none of its connections is accepted before,
	Held                         string        // for this reason
	Until                        time.Time     // when the certificates of the connection end
	Err                          string
}

// Status is how every policy row stands.
func (p *Peering) Status() []PeerStatus {
	var out []PeerStatus
	s := p.routes.Load().snapshot
	if s == nil {
		return nil
	}
	for _, n := range s.Neighbours {
		if n.Domain == p.cfg.Domain && n.Gateway == "" { // no other gateway of the own domain is there, and none need be
			continue
		}
		st := PeerStatus{
			Domain: n.Domain, Gateway: n.Gateway, Role: n.Role.String(), State: strings.ToLower(n.State.String()), Acked: n.Acked,
			Synced: n.Synced, Entries: n.Received, Sent: n.Sent, Stale: n.Stale, Since: n.Since, Accepted: n.Accepted, Rejected: n.NackedFor,
			Refused: n.RefusedFor, LastAck: n.LastAck, Ended: n.Ended, EndedAt: n.EndedAt, Lame: n.Lame, Drained: n.Drained, RTT: n.RTT, Skew: n.Skew, HeldUntil: n.HeldUntil, Held: n.Held,
		}
		if l := p.linkTo(n.Gateway); l != nil {
			st.Until = l.until
		}
		if r := p.row(n.Domain); r != nil {
			if err := r.lastErr.Load(); err != nil && n.State != replica.Established {
				st.Err = *err
			}
		}
		out = append(out, st)
	}
	return out
}

// Restored is how many digests were taken at the start from what was kept before it.
func (p *Peering) Restored() int {
	if s := p.routes.Load().snapshot; s != nil {
		return s.Restored
	}
	return 0
}

// Digests is the table, own entries included.
func (p *Peering) Digests() []replica.Entry { return p.routes.Load().snapshotEntries() }
