package relay

import (
	"context"
	"crypto/rand"
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/directory"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// answerHere matches the own directory and appends signed results. It reports whether one of them is above the bar,
// and fails only when ctx has ended.
func (r *Relay) answerHere(ctx context.Context, j *job, out *semreq.Response) (bool, error) {
	if !j.limits.Allows(r.cfg.Domain) {
		return false, nil
	}
	bar := j.minScore(r.cfg.AnswerBar)
	found, err := r.cfg.Directory.Match(ctx, j.query, j.limits, j.asker, int(j.req.Want), bar)
	if err != nil {
		return false, err
	}
	provisioned := j.provision == nil
	for _, c := range found {
		res := r.describe(j, c)
		if !provisioned {
			err := r.provision(ctx, j, c, res)
			if err != nil {
				r.log.Info("candidate passed over", "aic", c.AIC, "cap", c.CapID, "err", err)
				out.AddReason(r.cfg.Gateway, frame.CodeOf(err))
				out.Status = worse(out.Status, frame.CodeOf(err))
				continue
			}
			provisioned = true
		}
		signed, err := res.Sign(r.cfg.Result())
		if err != nil {
			r.log.Error("sign result", "err", err)
			out.Status = frame.Internal
			return false, nil
		}
		out.Results = append(out.Results, signed)
	}
	if len(out.Results) == 0 {
		return false, nil
	}
	r.Answered.Add(1)
	return true, nil
}

// describe is a candidate as a result, not provisioned.
func (r *Relay) describe(j *job, c directory.Candidate) *semreq.Result {
	return &semreq.Result{
		ReqID: j.req.ReqID, QHash: j.req.QHash, AIC: c.AIC, Cap: c.CapID, Score: c.Confidence, GW: r.cfg.Gateway,
		Exp: uint64(time.Now().Add(resultLife).Unix()), ACSVer: c.EntryVersion,
		Skill: semreq.Skill{Name: c.Name, Description: c.Description, Tags: c.Tags, In: c.In, Out: c.Out}.Clip(),
	}
}

// provision mints the one session token of a request, shows it to the target, and completes the result when the target has
// acknowledged the offer.
func (r *Relay) provision(ctx context.Context, j *job, c directory.Candidate, res *semreq.Result) error {
	want := policy.ScopeSkillInvoke + c.SkillID
	scope := []string{want}
	if !policy.Covers(j.scope, scope) {
		return frame.Errorf(frame.ScopeDenied, "scope of %s from %s does not cover %s", j.asker.AIC, j.asker.Domain, want)
	}
	if len(j.provision.WantScope) > 0 && !policy.Covers(j.provision.WantScope, scope) {
		return frame.Errorf(frame.ScopeDenied, "the session asked for would not cover %s", want)
	}
	if !j.asker.Home { // it may have changed since the request came
		if err := r.cfg.Network.Standing(ctx, j.asker.AIC, nil); err != nil {
			return err
		}
	}
	spki, ok := r.cfg.Agents.Key(c.AIC)
	if !ok {
		return frame.Errorf(frame.UpstreamFailed, "%s is not attached now", c.AIC)
	}
	var sat []byte
	var used [16]byte
	mint := func() (cti [16]byte, token []byte, err error) {
		if _, err = rand.Read(cti[:]); err == nil {
			used = cti
			sat, err = r.mint(j, c, cti, spki, scope)
		}
		return cti, sat, err
	}
	ctx, cancel := context.WithTimeout(ctx, offerWait)
	defer cancel()
	endpoints, err := r.cfg.Agents.Offer(ctx, c.AIC, j.asker, mint)
	if err != nil {
		return err
	}
	if len(endpoints) == 0 {
		return frame.Errorf(frame.UpstreamFailed, "%s listens nowhere that the asker could reach", c.AIC)
	}
	res.SAT, res.TSPKI, res.Endpoints = sat, spki[:], endpoints
	r.recordSession(j, c, used, scope)
	return nil
}

func (r *Relay) mint(j *job, c directory.Candidate, cti [16]byte, spki [32]byte, scope []string) ([]byte, error) {
	now := time.Now()
	return token.MintSAT(r.cfg.SAT(), token.SAT{
		Issuer: r.cfg.Gateway, Subject: j.asker.AIC, Audience: c.AIC, Issued: uint64(now.Unix()), ID: wire.ID(cti),
		Confirm: token.Confirm{SPKI: wire.Hash(j.provision.ISPKI)}, Scope: scope, TargetSPKI: wire.Hash(spki),
		Sid: wire.ID(j.provision.SID), Cap: c.CapID, SessExp: uint64(now.Add(r.cfg.SessionLife).Unix()),
		Txn: wire.ID(j.req.ReqID), Limits: token.Limits{MaxBytes: sessionBytes, MaxMessages: sessionMessages},
		Update: true, // asking for the next one is judged anew
	})
}

// worse keeps the status that says most about why there is no answer: what may pass soon before what will not.
func worse(a, b frame.Code) frame.Code {
	rank := func(c frame.Code) int {
		switch c {
		case frame.Overloaded:
			return 5
		case frame.Deadline:
			return 4
		case frame.UpstreamFailed:
			return 3
		case frame.NotFound, frame.OK:
			return 0
		case frame.ScopeDenied, frame.PolicyDenied, frame.TrustDenied:
			return 2
		}
		return 1
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}
