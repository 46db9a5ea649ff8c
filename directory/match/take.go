package match

import "agentgw/directory"

// take walks the documents from the best one down, past those that a filter or a limit holds back, until there are enough.
func (r *ranking) take() []directory.Candidate {
	t := taken{r: r, perAIC: map[string]int{}, perProvider: map[string]int{}}
	if len(r.Caps) > 0 {
		t.walk(r.top(len(r.list)), 0)
		return t.list
	}
	for many, seen := max(firstLook, 2*r.limit()), 0; ; many *= 4 {
		best := r.top(many)
		if t.walk(best[min(seen, len(best)):], tolerance) || len(best) < many {
			return t.list
		}
		seen = len(best)
	}
}

const (
	firstLook = 32  // documents that are put in order at first
	tolerance = 512 // documents below the asked confidence in a row, after which no better one is expected
)

// taken is the list of candidates while it grows.
type taken struct {
	r                   *ranking
	list                []directory.Candidate
	perAIC, perProvider map[string]int
	poor                int
}

// walk says whether the list is complete.
func (t *taken) walk(docs []candidate, tolerance int) (done bool) {
	r := t.r
	for i := range docs {
		d := r.doc(&docs[i])
		c := &d.document().cap
		why := t.limit(c)
		if why == "" {
			why = r.refusal(d.document())
		}
		if why != "" {
			t.refused(&d, why)
			continue
		}
		confidence := r.confidence(&d)
		if confidence < r.MinScore {
			t.refused(&d, r.say("its confidence is %d, at least %d was asked for", confidence, r.MinScore))
			if t.poor++; t.poor == tolerance {
				return true
			}
			continue
		}
		t.poor = 0
		t.perAIC[c.AIC]++
		t.perProvider[c.Provider]++
		if t.list = append(t.list, r.candidate(&d, confidence)); len(t.list) >= r.limit() {
			return true
		}
	}
	return false
}

// limit says which limit of one list a capability is beyond, "" where none.
func (t *taken) limit(c *directory.Capability) string {
	switch {
	case len(t.r.Caps) > 0:
	case t.perAIC[c.AIC] == t.r.perAIC():
		return t.r.say("%d of its agent's are in the list already", t.r.perAIC())
	case t.perProvider[c.Provider] == max(PerProvider, t.r.perAIC()):
		return t.r.say("%d of its provider's are in the list already", max(PerProvider, t.r.perAIC()))
	}
	return ""
}

func (t *taken) refused(d *doc, why string) {
	if t.r.Refused != nil {
		t.r.Refused(&d.document().cap, d.score, why)
	}
}

// top is the so many best candidates behind the place where the list goes on, in order.
func (r *ranking) top(many int) []candidate {
	t := top{order: order{r.view, r.Load}, many: many, kept: r.best[:0]}
	for i := range r.list {
		d := &r.list[i]
		switch {
		case len(t.kept) == many && d.score < t.kept[0].score: // nearly all
		case r.After == nil || r.isAfter(&t.order, d):
			t.offer(d)
		}
	}
	r.best = t.kept
	return t.inOrder()
}

// isAfter says whether a candidate comes behind the place where the list goes on.
func (r *ranking) isAfter(o *order, d *candidate) bool {
	if d.score != r.After.Score {
		return d.score < r.After.Score
	}
	if load := o.loadOf(d); load != r.After.Load {
		return load > r.After.Load
	}
	return r.capID(d.at) > r.After.CapID
}

func (r *ranking) doc(d *candidate) doc {
	n, id := r.place(d.at)
	return doc{*d, r.parts[n], n, id}
}

func (r *ranking) limit() int {
	if r.Limit > 0 {
		return r.Limit
	}
	return DefaultLimit
}

func (r *ranking) perAIC() int {
	if r.PerAIC > 0 {
		return r.PerAIC
	}
	return PerAIC
}
