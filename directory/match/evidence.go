package match

import (
	"slices"
	"strings"

	"agentgw/directory"
)

func (r *ranking) candidate(d *doc, confidence uint16) directory.Candidate {
	out := directory.Candidate{Capability: d.document().cap, Score: d.score, Confidence: confidence}
	if r.Load != nil {
		out.Load = r.Load(&out.Capability)
	}
	e := &out.Evidence
	e.Matched, e.Structured = r.matched(d), r.structured(d)
	if d.cos == d.cos { // not missing
		e.Cosine = float64(d.cos)
	}
	found := 0.
	for i := range r.found {
		t := &r.found[i]
		if p, ok := postingOf(t.lists[d.n], d.id); ok {
			e.Text += r.termScore(t, p, d.part.sizes[d.id])
			found += t.bg
		}
	}
	for i := range r.foundPairs {
		t := &r.foundPairs[i]
		if p, ok := postingOf(t.lists[d.n], d.id); ok {
			e.Bigram += r.pairScore(t, p, d.part.sizes[d.id])
		}
	}
	e.Coverage = myriad(found, r.total)
	return out
}

// matched lists the terms found, by field.
func (r *ranking) matched(d *doc) []directory.FieldMatch {
	var byField [len(fieldNames)][]string
	for i := range r.found {
		t := &r.found[i]
		p, ok := postingOf(t.lists[d.n], d.id)
		if !ok {
			continue
		}
		for f := range fieldNames {
			if p.fields&(1<<f) != 0 {
				byField[f] = append(byField[f], t.text)
			}
		}
	}
	var out []directory.FieldMatch
	for f, terms := range byField {
		if len(terms) > 0 {
			out = append(out, directory.FieldMatch{Field: fieldNames[f], Terms: terms})
		}
	}
	return out
}

// structured lists what is no term of the text: the capability id, classes, tags, identifiers, and words that were nearly met.
func (r *ranking) structured(at *doc) []string {
	d, out := at.document(), []string(nil)
	if slices.Contains(r.Caps, d.cap.CapID) {
		out = append(out, "capability "+d.cap.CapID)
	}
	out = append(out, r.evidenceOfClasses(&d.cap)...)
	for _, t := range r.tags {
		out = append(out, "tag "+t)
	}
	for _, raw := range r.idents {
		if raw == strings.ToLower(d.cap.SkillID) || raw == strings.ToLower(d.cap.Name) {
			out = append(out, "identifier "+raw)
		}
	}
	for _, m := range r.meant {
		if _, has := postingOf(at.part.terms[m.term], at.id); has {
			out = append(out, m.term+" for "+m.word)
		}
	}
	return out
}
