package relay

import (
	"context"
	"slices"
	"time"

	"agentgw/a2a/token"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// FromNeighbour answers a request that a neighbour forwarded. Its response tells another domain codes only.
func (r *Relay) FromNeighbour(ctx context.Context, n Neighbour, req *semreq.Request) *semreq.Response {
	j := &job{req: req, from: n.Gateway(), start: time.Now()}
	err := r.admitNeighbour(j, n)
	if err == nil {
		if again, known := r.seen.find(dupKey{req.OriginGW, string(req.ReqID), req.Attempt}, n.Gateway()); again != nil {
			return r.joined(ctx, j, again)
		} else if known {
			return r.strip(r.refuse(j, errDuplicate))
		}
		if r.cfg.Lame(n.Domain(), n.Gateway()) { // behind the look for one that runs: a repetition of that is answered with it
			err = errLame
		} else {
			err = r.checkAsker(ctx, j, n)
		}
	}
	if err != nil {
		if code := frame.CodeOf(err); code == frame.IdentityMismatch || code == frame.ReqInvalid || code == frame.BadSignature {
			r.cfg.Network.Penalise(n.Gateway(), err.Error())
		}
		out := r.strip(r.refuse(j, err))
		if out.Status != frame.Overloaded { // what is over the limit shall not fill the log
			r.record(kindAnswered, j, originOf(req), n.Domain(), out)
		}
		return out
	}
	entry, again := r.seen.begin(dupKey{req.OriginGW, string(req.ReqID), req.Attempt}, n.Gateway(), j.deadline)
	if again != nil {
		return r.joined(ctx, j, again)
	}
	if entry == nil {
		return r.strip(r.refuse(j, errDuplicate))
	}
	answer := r.strip(r.resolve(ctx, j, func(ctx context.Context, out *semreq.Response) { r.once(ctx, j, out) }))
	r.seen.done(entry, answer)
	r.record(kindAnswered, j, originOf(req), n.Domain(), answer)
	return answer
}

var errLame = frame.Errorf(frame.Shutdown, "this gateway is drained: it takes nothing new")

var errDuplicate = frame.Errorf(frame.Duplicate, "the request came by another way, or was answered already")

// joined waits for the answer to a request that the same neighbour has sent before.
func (r *Relay) joined(ctx context.Context, j *job, running *flight) *semreq.Response {
	select {
	case <-running.ready:
		return running.answer
	case <-ctx.Done():
	case <-time.After(time.Until(j.deadline)):
	}
	return r.strip(r.refuse(j, frame.Errorf(frame.Deadline, "the request that this one repeats is still running")))
}

// admitNeighbour holds a forwarded request against everything that costs nothing to check (cdsp/PROTOCOL.md, "Semantic
// requests"). The bucket comes first: what is malformed counts too.
func (r *Relay) admitNeighbour(j *job, n Neighbour) error {
	if ok, wait := r.peers.allow(n.Gateway()); !ok {
		return overload(wait)
	}
	if err := j.req.Validate(); err != nil {
		return err
	}
	if err := j.decode(); err != nil {
		return err
	}
	if len(n.MayQuery()) == 0 {
		return frame.Errorf(frame.PolicyDenied, "policy row of %s lets it ask nothing", n.Domain())
	}
	return r.checkPath(j.req, n)
}

func (r *Relay) checkPath(req *semreq.Request, n Neighbour) error {
	own := 0
	for _, d := range req.HopVia {
		if d == r.cfg.Domain {
			own++
		}
	}
	switch {
	case slices.Contains(req.Via, r.cfg.Gateway), own > 0 && req.HopVia[len(req.HopVia)-1] != r.cfg.Domain:
		return frame.Errorf(frame.Loop, "the request has been here")
	case len(req.Via) == 0 || req.Via[len(req.Via)-1] != n.Gateway():
		return frame.Errorf(frame.ReqInvalid, "the last gateway on the way is not the one that sent it")
	case len(req.HopVia) == 0 || req.HopVia[len(req.HopVia)-1] != n.Domain():
		return frame.Errorf(frame.ReqInvalid, "the last domain on the way is not the sender's")
	case len(req.RAT) == 0 || req.OriginGW != req.Via[0]:
		return frame.Errorf(frame.ReqInvalid, "a forwarded request carries its origin's token")
	}
	return nil
}

// checkAsker verifies who asks, and that both the asker and the gateway that vouches for it are in good standing at home.
func (r *Relay) checkAsker(ctx context.Context, j *job, n Neighbour) error {
	ctx, cancel := context.WithDeadline(ctx, j.deadline)
	defer cancel()
	err := r.checkRAT(j, n)
	if frame.CodeOf(err) == frame.UnknownKey {
		r.cfg.Network.Refresh(ctx, j.req.HopVia[0], func() bool {
			err = r.checkRAT(j, n)
			return frame.CodeOf(err) != frame.UnknownKey
		})
	}
	if err != nil || j.asker.Home {
		return err
	}
	if err := r.cfg.Network.Standing(ctx, j.req.OriginGW, nil); err != nil {
		return err
	}
	return r.cfg.Network.Standing(ctx, j.asker.AIC, nil)
}

// checkRAT verifies who asks and for what, and narrows the scope by this gateway's own policy.
func (r *Relay) checkRAT(j *job, n Neighbour) error {
	req := j.req
	rat, err := token.VerifyRAT(req.RAT, r.cfg.Network.RATKeys(), r.cfg.Network.DomainOf, token.RATExpect{
		OriginDomain: req.HopVia[0], QHash: req.QHash, ReqID: req.ReqID,
		Bind: token.Bind(req.Constraints, req.Provision, uint64(req.Flags)),
	}, j.start)
	if err != nil {
		return err
	}
	switch {
	case rat.Issuer != req.OriginGW:
		return frame.Errorf(frame.IdentityMismatch, "the token is %s's, the request says that it began at %s", rat.Issuer, req.OriginGW)
	case uint64(req.HopLimit)+uint64(len(req.Via)) > rat.MaxHops:
		return frame.Errorf(frame.ReqInvalid, "the hop limit was raised on the way")
	case j.provision != nil && string(j.provision.ISPKI) != string(rat.SPKI):
		return frame.Errorf(frame.Binding, "the session asked for is another key's")
	}
	if ok, wait := r.domains.allow(req.HopVia[0]); !ok {
		return overload(wait)
	}
	if err := rat.CheckScope(req.Scope); err != nil {
		return err
	}
	j.scope = policy.Intersect(policy.Intersect(req.Scope, n.MayQuery()), r.cfg.Network.MayQuery(req.HopVia[0]))
	if !policy.Covers(j.scope, []string{policy.ScopeDiscover}) {
		return frame.Errorf(frame.ScopeDenied, "policy of this gateway leaves %s nothing to ask", req.HopVia[0])
	}
	j.asker = Asker{AIC: rat.Subject, Domain: req.HopVia[0], Home: req.HopVia[0] == r.cfg.Domain}
	return nil
}

// strip takes out what other domains shall not read: which gateway refused, and refusals of policy.
func (r *Relay) strip(out *semreq.Response) *semreq.Response {
	for i := range out.Reasons {
		if out.Reasons[i].GW != "" {
			out.Reasons[i].GW = ""
		}
	}
	return out
}
