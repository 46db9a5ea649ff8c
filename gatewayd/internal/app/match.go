package app

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/registry"
	"agentgw/directory/semreq"
	"agentgw/directory/taxonomy"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/relay"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Match implements admin.Gateway: how the own directory answers a request, with the evidence, and what it holds back.
func (a *app) Match(ctx context.Context, r admin.MatchRequest) (*admin.Match, error) {
	req, err := r.Ask.Request()
	if err != nil {
		return nil, err
	}
	q, err := semreq.ParseQuery(req.Query)
	if err != nil {
		return nil, err
	}
	asker := relay.Asker{AIC: string(a.home.gateway), Domain: or(r.Domain, a.cfg.Domain)}
	if !identity.ValidDomain(asker.Domain) {
		return nil, frame.Errorf(frame.ReqInvalid, "%q is no lower-case DNS name of a domain", asker.Domain)
	}
	asker.Home = asker.Domain == a.cfg.Domain
	search := registryRequest(q, r.Ask.Constraints, asker, int(req.Want), r.Ask.Constraints.MinScore)
	search.IncludeOffline = r.Offline
	if search.After, err = parsePlace(r.After); err != nil {
		return nil, err
	}
	reduced := embedRequest(ctx, a.meanings, &search.Query)
	found, refused, err := a.registry.Explain(ctx, search, now())
	if err != nil {
		return nil, frame.Errorf(frame.Deadline, "%w", err)
	}
	terms := match.Terms(q.Text)
	slices.Sort(terms)
	out := &admin.Match{Terms: admin.List(slices.Compact(terms)), Taxonomy: taxonomy.Version, Embedder: match.Builtin.ID(), Bar: match.AnswerBar, Candidates: []admin.Candidate{}, Refused: []admin.Refused{}}
	if a.meanings != nil {
		out.Embedder = a.meanings.ID()
	}
	if reduced != nil {
		out.Reduced = "ranked by its words alone: " + reduced.Error()
	}
	for _, c := range found {
		v := candidateView(c)
		if e, err := a.registry.Get(c.AIC); err == nil { // else it went at this moment
			v.Imported = e.Provenance.Imported()
		}
		out.Candidates = append(out.Candidates, v)
	}
	if len(found) == int(req.Want) {
		last := found[len(found)-1]
		out.Next = placeText(match.Place{Score: last.Score, Load: last.Load, CapID: last.CapID})
	}
	for _, f := range refused {
		out.Refused = append(out.Refused, refusedView(f))
	}
	return out, nil
}

// placeText is a place of a list as its reader hands it back: the score's bits, the load, then the capability, in base64url.
func placeText(p match.Place) string {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, math.Float64bits(p.Score)), p.Load)
	return base64.RawURLEncoding.EncodeToString(append(b, p.CapID...))
}

func parsePlace(text string) (*match.Place, error) {
	if text == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < 10 || math.IsNaN(math.Float64frombits(binary.BigEndian.Uint64(raw))) {
		return nil, frame.Errorf(frame.ReqInvalid, "%.40q is not where an answer ended: hand back what it said", text)
	}
	return &match.Place{Score: math.Float64frombits(binary.BigEndian.Uint64(raw)), Load: binary.BigEndian.Uint16(raw[8:]), CapID: string(raw[10:])}, nil
}

func candidateView(c directory.Candidate) admin.Candidate {
	e := c.Evidence
	v := admin.Candidate{
		Capability: c.CapID, Name: c.Name, Agent: c.AgentName, Provider: c.Provider + " (" + directory.ProviderUnverified + ")", Confidence: c.Confidence,
		Score: c.Score, Matched: []admin.Matched{}, Exact: e.Structured, Words: e.Text, Pairs: e.Bigram, Cosine: e.Cosine, Coverage: e.Coverage, Offline: c.Offline,
	}
	for _, m := range e.Matched {
		v.Matched = append(v.Matched, admin.Matched{Field: m.Field, Terms: m.Terms})
	}
	if v.Exact == nil {
		v.Exact = []string{}
	}
	return v
}

func refusedView(f registry.Refused) admin.Refused {
	return admin.Refused{Capability: f.CapID, Name: f.Name, Score: f.Score, Why: f.Why}
}
