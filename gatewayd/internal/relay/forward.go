package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"agentgw/a2a/token"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// branch is one neighbour that the request is handed to, with its share of the leaves.
type branch struct {
	hop     Hop
	breadth uint8
}

// spares are the neighbours beyond a request's breadth, the best first: where one that was asked fails, the next takes its share.
type spares struct {
	mu   sync.Mutex // guards hops
	hops []Hop
}

// next takes the one that is asked where some gateways have failed for a branch: another way to the same, else one that leads elsewhere.
func (s *spares) next(failed []string) (Hop, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instead(failed...)
	if i < 0 {
		i = slices.IndexFunc(s.hops, func(h Hop) bool { return len(h.InsteadOf) == 0 })
	}
	if i < 0 {
		return Hop{}, false
	}
	h := s.hops[i]
	s.hops = slices.Delete(s.hops, i, i+1)
	return h, true
}

func (s *spares) instead(of ...string) int {
	return slices.IndexFunc(s.hops, func(h Hop) bool {
		return slices.ContainsFunc(h.InsteadOf, func(g string) bool { return slices.Contains(of, g) })
	})
}

// time is how long a gateway may take: a quarter less than there is where there is another way to the same.
func (s *spares) time(gateway string, left time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instead(gateway) >= 0 {
		return left - left/4
	}
	return left
}

// verdict is what one branch came to.
type verdict struct {
	hop  Hop
	resp *semreq.Response
	err  error
	best []scored   // of resp, as this gateway rates them
	why  frame.Code // of the last result that was dropped
}

// scored is a result as this gateway rates it.
type scored struct {
	signed []byte
	cap    string
	own    uint16 // by this gateway's matcher
	said   uint16 // by the resolving gateway's; breaks ties only
}

// forward hands the request on and merges what comes back into out. won says that out holds an own match already.
func (r *Relay) forward(ctx context.Context, j *job, out *semreq.Response, won bool) {
	branches, spare, left := r.choose(j, out)
	if len(branches) == 0 {
		out.Definitive = !left
		return
	}
	if j.origin {
		if err := r.authorise(j); err != nil {
			r.log.Error("sign request token", "err", err)
			out.Status = frame.Internal
			return
		}
	}
	r.Forwarded.Add(1)
	var got []verdict
	if j.parallel() {
		got = r.askAll(ctx, j, branches, spare, won)
	} else {
		got = r.askInTurn(ctx, j, branches, spare)
	}
	r.merge(j, out, got, left)
}

// choose picks the neighbours to ask. left says that one was left out which might have known: then NOT_FOUND is not final.
func (r *Relay) choose(j *job, out *semreq.Response) (list []branch, spare *spares, left bool) {
	switch {
	case j.req.Flags&semreq.FlagNoForward != 0:
		return nil, nil, true
	case j.req.HopLimit == 0:
		out.AddReason(r.cfg.Gateway, frame.HopLimit)
		out.Status = worse(out.Status, frame.HopLimit)
		return nil, nil, true
	case time.Until(j.deadline) < minForward:
		out.Status = frame.Deadline
		return nil, nil, true
	}
	var hops, upstream, others []Hop
	gone := map[string]bool{} // that cannot be asked, and for which no other way is taken yet
	now, version := time.Now(), r.cfg.Network.Version()
	for _, h := range r.cfg.Network.Candidates(j.query) {
		switch {
		case h.Gateway() == j.from, slices.Contains(j.req.Via, h.Gateway()):
			left = left || h.Gateway() != j.from
		case !j.limits.Allows(h.Domain()) && !r.transits(j.limits, h), j.req.Flags&semreq.FlagLocalDomain != 0 && h.Domain() != r.cfg.Domain:
			left = true
		case !policy.Covers(policy.Intersect(j.scope, h.MayQuery()), []string{policy.ScopeDiscover}):
			left = true
		case r.nothing.has(j, h.Gateway(), version, now): // it has said so a moment ago
			out.AddReason(h.Gateway(), frame.NotFound)
		case h.Away, !r.health.ready(questionOf(j, h), j.req.Attempt, now):
			// That it cannot be asked now is an answer, not "not found"; it takes nothing from those that can.
			left = true
			gone[h.Gateway()] = true
			out.AddReason(h.Gateway(), frame.UpstreamFailed)
			out.Status = worse(out.Status, frame.UpstreamFailed)
		case h.Upstream:
			upstream = append(upstream, h)
		case len(h.InsteadOf) > 0 && !slices.ContainsFunc(h.InsteadOf, func(g string) bool { return gone[g] }):
			others = append(others, h)
		default:
			for _, g := range h.InsteadOf { // one takes its place
				delete(gone, g)
			}
			h.Score += r.health.reputation(h.Gateway())
			hops = append(hops, h)
		}
	}
	slices.SortStableFunc(hops, func(a, b Hop) int { return cmp.Compare(b.Score, a.Score) })
	hops = append(hops, upstream...)
	shares := share(j.req.Breadth, len(hops))
	for i, s := range shares {
		list = append(list, branch{hop: hops[i], breadth: s})
	}
	return list, &spares{hops: append(others, hops[len(shares):]...)}, left || len(shares) < len(hops)
}

// transits says that a neighbour may be passed through although its own domain may not answer: an allow list names who
// answers, a deny list who must not even see the request.
func (r *Relay) transits(c semreq.Constraints, h Hop) bool {
	return !slices.Contains(c.DenyDomains, h.Domain()) && len(c.AllowDomains) > 0
}

// share splits b leaves over n candidates: one gets all; of more the best gets ⌈b/2⌉, the others one each while any is left.
func share(b uint8, n int) []uint8 {
	switch {
	case n == 0 || b == 0:
		return nil
	case n == 1:
		return []uint8{b}
	}
	out := []uint8{(b + 1) / 2}
	for left := b - out[0]; left > 0 && len(out) < n; left-- {
		out = append(out, 1)
	}
	return out
}

// authorise signs the token that speaks for the asker at every further gateway.
func (r *Relay) authorise(j *job) error {
	cti := make([]byte, 16)
	if _, err := rand.Read(cti); err != nil {
		return err
	}
	spki := make([]byte, 32)
	if j.provision != nil {
		spki = j.provision.ISPKI
	}
	rat, err := token.MintRAT(r.cfg.RAT(), token.RAT{
		Issuer: r.cfg.Gateway, Subject: j.asker.AIC, Issued: uint64(time.Now().Unix()), ID: cti, Scope: j.scope,
		QHash: j.req.QHash, ReqID: j.req.ReqID, SPKI: spki, MaxHops: uint64(j.req.HopLimit),
		Bind: token.Bind(j.req.Constraints, j.req.Provision, uint64(j.req.Flags)),
	})
	j.req.RAT, j.req.OriginGW = rat, r.cfg.Gateway
	return err
}

// next is the request as the neighbour of b gets it.
func (r *Relay) next(j *job, b branch, budget time.Duration) *semreq.Request {
	n := *j.req
	n.HopLimit--
	n.Via = append(slices.Clone(j.req.Via), r.cfg.Gateway)
	n.HopVia = slices.Clone(j.req.HopVia)
	if len(n.HopVia) == 0 || n.HopVia[len(n.HopVia)-1] != r.cfg.Domain {
		n.HopVia = append(n.HopVia, r.cfg.Domain)
	}
	n.Breadth = b.breadth
	n.Scope = policy.Intersect(j.scope, b.hop.MayQuery())
	n.BudgetMS = uint64(max(budget-max(hopReserve, b.hop.RTT()/2), time.Millisecond).Milliseconds())
	return &n
}

// ask has a branch's neighbour answer within the budget. Where one fails, the next spare one takes its place for what is left.
func (r *Relay) ask(ctx context.Context, j *job, b branch, spare *spares, budget time.Duration) verdict {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	end := time.Now().Add(budget)
	failed := slices.Clone(b.hop.InsteadOf) // it may be in the place of one that cannot be asked
	for {
		limit := time.Until(end)
		if j.origin { // further on it would be a quarter of what is left, again and again
			limit = spare.time(b.hop.Gateway(), limit)
		}
		trying, done := context.WithTimeout(ctx, limit)
		v := r.askOne(trying, j, b, limit)
		done()
		if v.err == nil || ctx.Err() != nil || time.Until(end) < minForward {
			return v
		}
		failed = append(failed, b.hop.Gateway())
		hop, more := spare.next(failed)
		if !more {
			return v
		}
		r.log.Info("neighbour did not answer, the next one is asked", "neighbour", b.hop.Gateway(), "next", hop.Gateway(), "err", v.err)
		b.hop = hop
	}
}

func questionOf(j *job, h Hop) question {
	return question{h.Gateway(), h.Number(), string(j.req.QHash)}
}

func (r *Relay) askOne(ctx context.Context, j *job, b branch, budget time.Duration) verdict {
	v := verdict{hop: b.hop}
	q := questionOf(j, b.hop)
	if !r.health.enter(q, time.Now()) {
		v.err = frame.Errorf(frame.UpstreamFailed, "%s has failed again and again: another request tries it now", q.gateway)
		return v
	}
	version := r.cfg.Network.Version()
	v.resp, v.err = b.hop.Ask(ctx, r.next(j, b, budget))
	how := answered
	switch {
	case v.err == nil:
		r.nothing.note(j, q.gateway, v.resp, version, time.Now())
		v.best, v.why = r.rate(ctx, j, b.hop, v.resp)
	case errors.Is(ctx.Err(), context.Canceled): // somebody else has won, or the asker has gone
		how = abandoned
	default:
		how = failed
	}
	r.health.left(q, how, time.Now())
	return v
}

// askInTurn asks one neighbour after the other; a branch gets half of what is left while others wait behind it.
func (r *Relay) askInTurn(ctx context.Context, j *job, branches []branch, spare *spares) (got []verdict) {
	for i, b := range branches {
		budget := time.Until(j.deadline)
		if i < len(branches)-1 {
			budget /= 2
		}
		if budget < minForward || ctx.Err() != nil {
			return append(got, verdict{hop: b.hop, err: frame.Errorf(frame.Deadline, "no time left for this neighbour")})
		}
		v := r.ask(ctx, j, b, spare, budget)
		got = append(got, v)
		if r.wins(j, v) {
			return got
		}
	}
	return got
}

// askAll asks every neighbour at once. After the first branch has won, the others have a moment more; then they are
// cancelled.
func (r *Relay) askAll(ctx context.Context, j *job, branches []branch, spare *spares, won bool) (got []verdict) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan verdict, len(branches))
	for _, b := range branches {
		go func() { answers <- r.ask(ctx, j, b, spare, time.Until(j.deadline)) }()
	}
	var grace <-chan time.Time
	for range branches {
		if won && grace == nil {
			grace = time.After(parallelGrace)
		}
		select {
		case v := <-answers:
			got = append(got, v)
			won = won || r.wins(j, v)
		case <-grace:
			cancel() // the rest end at once now, and are counted as they are
			grace = make(chan time.Time)
			got = append(got, <-answers)
		}
	}
	return got
}

func (r *Relay) wins(j *job, v verdict) bool {
	return len(v.best) > 0 && v.best[0].own >= j.minScore(r.cfg.AnswerBar)
}

// rate verifies the results of a response and scores them with this gateway's own matcher. At the origin every binding of a
// result is checked; a hop between cannot edit a result, and only drops what it cannot verify or may not pass.
func (r *Relay) rate(ctx context.Context, j *job, from Hop, resp *semreq.Response) (out []scored, why frame.Code) {
	for _, signed := range resp.Results {
		res, err := r.believe(j, signed)
		if domain := r.foreign(signed); domain != "" && frame.CodeOf(err) == frame.UnknownKey {
			r.cfg.Network.Refresh(ctx, domain, func() bool {
				res, err = r.believe(j, signed)
				return frame.CodeOf(err) != frame.UnknownKey
			})
		}
		if err == nil && j.origin {
			err = r.inGoodStanding(ctx, res)
		}
		if err != nil {
			if why = frame.CodeOf(err); why != frame.CertStatus { // a list that is late is no lie of this neighbour's
				r.cfg.Network.Penalise(from.Gateway(), err.Error())
			}
			r.log.Warn("result dropped", "neighbour", from.Gateway(), "err", err)
			continue
		}
		own := r.cfg.Directory.Score(j.query, res)
		if own < j.minScore(r.cfg.AnswerBar)/foreignShare {
			r.log.Debug("result below the bar left out", "neighbour", from.Gateway(), "cap", res.Cap, "own", own, "said", res.Score)
			continue
		}
		out = append(out, scored{signed: signed, cap: res.Cap, own: own, said: res.Score})
	}
	r.health.rated(from.Gateway(), len(resp.Results), len(out))
	slices.SortStableFunc(out, better)
	return out, why
}

// believe verifies a result and holds it against what was asked for.
func (r *Relay) believe(j *job, signed []byte) (*semreq.Result, error) {
	res, err := semreq.OpenResult(signed, j.req.ReqID, j.req.QHash, r.cfg.Network.ResultKeys(), r.cfg.Network.DomainOf, time.Now())
	if err != nil {
		return nil, err
	}
	return res, r.permitted(j, res)
}

// foreign is the other domain that a result says it is of, "" for none: its key may be a newer one than is known here.
func (r *Relay) foreign(signed []byte) string {
	res, err := semreq.PeekResult(signed)
	if err != nil {
		return ""
	}
	if domain := r.cfg.Network.DomainOf(res.GW); domain != r.cfg.Domain {
		return domain
	}
	return ""
}

// inGoodStanding holds both who resolved and what was found against their domain's status list: the origin answers for what its
// agent is sent to.
func (r *Relay) inGoodStanding(ctx context.Context, res *semreq.Result) error {
	for _, id := range []string{res.GW, res.AIC} {
		if r.cfg.Network.DomainOf(id) == r.cfg.Domain {
			continue
		}
		if err := r.cfg.Network.Standing(ctx, id, nil); err != nil {
			return err
		}
	}
	return nil
}

// permitted holds a verified result against what the request names, its constraints and, where it brings a session, what the
// asker may hold.
func (r *Relay) permitted(j *job, res *semreq.Result) error {
	domain := r.cfg.Network.DomainOf(res.AIC)
	if !j.limits.Allows(domain) || slices.Contains(j.limits.Exclude, res.AIC) {
		return frame.Errorf(frame.PolicyDenied, "result of %s is outside the request's constraints", domain)
	}
	if len(j.query.Caps) > 0 && !slices.Contains(j.query.Caps, res.Cap) { // whoever is asked would else answer with his own
		return frame.Errorf(frame.Binding, "result names %s, which was not asked for", res.Cap)
	}
	if !j.origin || len(res.SAT) == 0 {
		return nil
	}
	if !r.cfg.Lab && domain != r.cfg.Domain && !public(res.Endpoints) {
		return frame.Errorf(frame.PolicyDenied, "result of %s sends the asker to an address that is not public", domain)
	}
	sat, err := token.VerifySAT(res.SAT, r.cfg.Network.SATKeys(), r.cfg.Network.DomainOf)
	if err != nil {
		return err
	}
	if err := sat.CheckScope(j.scope); err != nil {
		return err
	}
	switch {
	case j.provision == nil || string(j.provision.SID) != string(sat.Sid[:]) || string(j.provision.ISPKI) != string(sat.Confirm.SPKI[:]):
		return frame.Errorf(frame.Binding, "session token is for another session or key than was asked for")
	case sat.Subject != j.asker.AIC || sat.Audience != res.AIC || sat.Cap != res.Cap || string(sat.TargetSPKI[:]) != string(res.TSPKI):
		return frame.Errorf(frame.Binding, "session token and result name different agents or capabilities")
	}
	return sat.CheckTime(time.Now())
}

// public says whether every endpoint of another domain is an address of the public network: nobody abroad chooses which machines
// behind our own border our agents call.
func public(list []semreq.Endpoint) bool {
	for _, e := range list {
		ap, _ := e.AddrPort()
		if ip := ap.Addr().Unmap(); !ip.IsGlobalUnicast() || ip.IsPrivate() {
			return false
		}
	}
	return true
}

func better(a, b scored) int {
	return cmp.Or(cmp.Compare(b.own, a.own), cmp.Compare(b.said, a.said))
}

// merge joins the branches' results with the own ones in out, best first by this gateway's own matcher.
func (r *Relay) merge(j *job, out *semreq.Response, got []verdict, left bool) {
	all := r.rateOwn(j, out.Results)
	definitive := !left
	for _, v := range got {
		code := frame.CodeOf(v.err)
		if v.err == nil {
			code = v.resp.Status
			if code != frame.Shutdown { // one that is being drained is no reason to wait for the others
				out.RetryAfterMS = max(out.RetryAfterMS, v.resp.RetryAfterMS)
			}
			definitive = definitive && v.resp.Definitive
			for _, reason := range v.resp.Reasons {
				gw := reason.GW
				if v.hop.Domain() != r.cfg.Domain {
					gw = "" // which gateway of another domain it was is not ours to pass on
				}
				out.AddReason(gw, r.told(v.hop, reason.Code))
			}
		} else {
			r.log.Info("neighbour did not answer", "neighbour", v.hop.Gateway(), "err", v.err)
			definitive = false
		}
		if len(v.best) == 0 {
			out.Status = worse(out.Status, outward(r.told(v.hop, code)))
			if code == frame.OK { // it answered, and why that was not taken says more
				code = v.why
			}
			out.AddReason(v.hop.Gateway(), r.told(v.hop, code))
			continue
		}
		if len(all) == 0 || better(v.best[0], slices.MinFunc(all, better)) < 0 {
			out.Route = v.resp.Route
		}
		all = append(all, v.best...)
	}
	slices.SortStableFunc(all, better)
	out.Results = pick(all, int(j.req.Want))
	out.Definitive = definitive && len(all) == 0
}

// pick takes the best results, each capability once, as many as were asked for and fit a response.
func pick(all []scored, want int) (out [][]byte) {
	room := frame.MaxRequest - 16<<10 // for everything else in the response
	seen := map[string]bool{}
	for _, s := range all {
		if len(out) < want && !seen[s.cap] && len(s.signed) <= room {
			seen[s.cap] = true
			room -= len(s.signed)
			out = append(out, s.signed)
		}
	}
	return out
}

// told is a code of a neighbour as the asker hears it: of a refusal by another domain's policy nothing but that nothing was found,
// unless its row says explain. Else who may see what there could be learned by asking.
func (r *Relay) told(h Hop, c frame.Code) frame.Code {
	switch c {
	case frame.ScopeDenied, frame.PolicyDenied, frame.TrustDenied:
		if h.Domain() != r.cfg.Domain && !h.Explain() {
			return frame.NotFound
		}
	}
	return c
}

// outward is a neighbour's status as it counts for the whole request: a neighbour that refused to be asked does not know.
func outward(c frame.Code) frame.Code {
	switch c {
	case frame.OK: // it answered, and none of its results could be believed
		return frame.NotFound
	case frame.Loop, frame.HopLimit, frame.Duplicate, frame.Cancelled, frame.CertStatus: // another attempt would change nothing
		return frame.NotFound
	case frame.Overloaded, frame.Deadline, frame.NotFound, frame.ScopeDenied, frame.PolicyDenied:
		return c
	}
	return frame.UpstreamFailed
}

// rateOwn scores this gateway's own results like the foreign ones, so that one list has one measure.
func (r *Relay) rateOwn(j *job, signed [][]byte) []scored {
	var out []scored
	for _, s := range signed {
		res, err := semreq.PeekResult(s)
		if err != nil {
			continue // our own signature over our own bytes
		}
		out = append(out, scored{signed: s, cap: res.Cap, own: r.cfg.Directory.Score(j.query, res), said: res.Score})
	}
	return out
}
