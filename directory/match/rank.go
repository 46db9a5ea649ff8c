package match

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"agentgw/directory"
)

// Constants of BM25F; they are flat optima and not tuned per directory (MATCHING, section 1).
const (
	k1          = 1.2
	b           = .4
	bigramShare = .4
	maxQueryTF  = 2
	identWeight = 3 // an identifier counts as a word of the name

	stepShare = .25 // of what the best step of a request adds
	lexShare  = .5  // of the fused score; the rest is the dense part's
	leastLike = .3  // cosine from which a capability that shares no term with the request is a candidate at all
)

// queryTerm is one distinct term of a request.
type queryTerm struct {
	text  string
	count float64 // at most maxQueryTF
	bg    float64
}

// readTerms is the distinct terms of a list in order, with their background idf.
func readTerms(list []string, bg func(string) float64) []queryTerm {
	out := make([]queryTerm, 0, len(list))
	for _, t := range list {
		if i := indexTerm(out, t); i >= 0 {
			out[i].count = min(out[i].count+1, maxQueryTF)
		} else {
			out = append(out, queryTerm{t, 1, bg(t)})
		}
	}
	return out
}

func indexTerm(list []queryTerm, term string) int {
	return slices.IndexFunc(list, func(q queryTerm) bool { return q.text == term })
}

// Resolve is the best capabilities for a request, best first: by score, then by Capability Identifier. Everything is ranked
// before a limit is applied.
func (x *Index) Resolve(q Query) []directory.Candidate {
	return x.ResolvePrepared(prepare(q, x.tokens()))
}

// ResolvePrepared is [Index.Resolve] of a query that was prepared.
func (x *Index) ResolvePrepared(p *Prepared) []directory.Candidate {
	if p.Text == "" && len(p.Caps)+len(p.tags)+len(p.classes) == 0 && !p.All {
		return nil
	}
	v := x.view()
	r := &ranking{view: v, Prepared: p}
	r.average, r.averagePairs = float64(r.length)/10/float64(max(r.live, 1)), float64(r.bigrams)/float64(max(r.live, 1))
	if r.Text != "" {
		r.scratch = x.takeScratch(v.docs)
		defer x.giveBack(r.scratch)
		r.scoreSteps()
	}
	r.scoreClasses()
	return r.take()
}

// scoreSteps scores the whole request, and adds a share of what a capability scores in the step that it fits best. A step alone is no
// request: what another sentence says of the circumstances would be lost (by 5 points of nDCG on StableToolBench G1, where the share
// costs nothing; Seal-Tools dev gains 1).
func (r *ranking) scoreSteps() {
	for i := range r.steps {
		r.score(&r.steps[i])
		f := r.fusion()
		for at := range r.rank {
			if z := f.of(r, at); i == 0 || z > r.rank[at] {
				r.rank[at] = z
			}
		}
	}
	r.score(&r.step)
	if r.Without&Words == 0 {
		r.scoreIdentifiers()
		r.scoreTypos()
	}
	f, several := r.fusion(), len(r.steps) > 0
	for at := range r.rank {
		z := f.of(r, at)
		if several {
			z += stepShare * r.rank[at]
		}
		r.rank[at] = z
	}
}

func (r *ranking) score(s *step) {
	clear(r.lex)
	if r.Without&Words == 0 {
		r.scoreTerms(s)
	}
	if r.Without&(Words|Pairs) == 0 {
		r.scorePairs(s)
	}
	r.scoreDense(s)
}

type ranking struct {
	*view
	*Prepared
	*scratch
	average, averagePairs float64 // lengths
	meant                 []meant
	filed                 map[int]float64 // how well a document fits the classes asked for, where it does
	nearby                map[int]float64 // what a document's nearly met words are worth; nil until it is asked for
}

// doc is a document's place in a view.
type doc struct {
	part *part
	id   uint32
	at   int // in the scratch
}

func (d doc) document() *document { return &d.part.docs[d.id] }

func (r *ranking) idf(df int) float64 { return IDF(df, r.live) }

// IDF is how much a term says that df of n documents have.
func IDF(df, n int) float64 {
	f := float64(df)
	return math.Log(1 + (float64(n)-f+.5)/(f+.5))
}

// BM25 is one term's part, times its IDF: f occurrences in a document of some length, which is compared with the average.
func BM25(f, length, average float64) float64 { return f * (k1 + 1) / (f + k1*(1-b+b*length/average)) }

func (r *ranking) termScore(idf float64, t queryTerm, e posting, d *document) float64 {
	return t.count * idf * BM25(float64(e.weight)/10, float64(d.length)/10, r.average)
}

func (r *ranking) pairScore(idf float64, t queryTerm, e posting, d *document) float64 {
	return bigramShare * t.count * idf * BM25(float64(e.weight), float64(d.bigrams), r.averagePairs)
}

func (r *ranking) termIDF(t string) float64 {
	return r.idf(r.frequency(func(p *part) []posting { return p.terms[t] }))
}

func (r *ranking) pairIDF(t string) float64 {
	return r.idf(r.frequency(func(p *part) []posting { return p.pairs[t] }))
}

func (r *ranking) frequency(of func(*part) []posting) int {
	n := 0
	for _, p := range r.parts {
		n += p.alive(of(p))
	}
	return n
}

func (r *ranking) scoreTerms(s *step) {
	for _, t := range s.terms {
		idf := r.termIDF(t.text)
		for i, p := range r.parts {
			lex := r.lex[r.first[i]:]
			for _, e := range p.terms[t.text] {
				lex[e.doc] += r.termScore(idf, t, e, &p.docs[e.doc])
			}
		}
	}
}

func (r *ranking) scorePairs(s *step) {
	for _, t := range s.pairs {
		idf := r.pairIDF(t.text)
		for i, p := range r.parts {
			lex := r.lex[r.first[i]:]
			for _, e := range p.pairs[t.text] {
				lex[e.doc] += r.pairScore(idf, t, e, &p.docs[e.doc])
			}
		}
	}
}

// scoreIdentifiers adds what an exact raw name or skill id in the request is worth, whatever the length of the text around it.
func (r *ranking) scoreIdentifiers() {
	for _, raw := range r.idents {
		df := 0
		for _, p := range r.parts {
			df += len(p.idents[raw])
		}
		for i, p := range r.parts {
			for _, id := range p.idents[raw] {
				r.lex[r.first[i]+int(id)] += r.idf(min(df, r.live)) * identWeight * (k1 + 1) / (identWeight + k1)
			}
		}
	}
}

// scoreDense compares the request's embedding with every document's.
func (r *ranking) scoreDense(s *step) {
	if s.embedding.scale == 0 || r.Without&Dense != 0 {
		clear(r.cos)
		return
	}
	for i, p := range r.parts {
		cos, dim := r.cos[r.first[i]:], len(s.embedding.v)
		for id := range p.docs {
			cos[id] = float32(dot(s.embedding.v, p.vecs[id*dim:(id+1)*dim])) * s.embedding.scale * p.scales[id]
		}
	}
}

// fusion makes one score of both lists: each in standard deviations from its mean over all living documents. What a filter holds back
// counts in mean and deviation too: they are the directory's, the same for every asker.
type fusion struct{ lex, cos, mean float64 }

func (r *ranking) fusion() fusion {
	var lex, cos spread
	for i, p := range r.parts {
		l, c := r.lex[r.first[i]:], r.cos[r.first[i]:]
		for id := range p.docs {
			if p.dead == nil || !p.isDead(uint32(id)) {
				lex.add(l[id])
				cos.add(float64(c[id]) * cosUnits)
			}
		}
	}
	lm, ld := lex.meanAndDeviation()
	cm, cd := cos.meanAndDeviation()
	f := fusion{lex: lexShare / ld, cos: (1 - lexShare) * cosUnits / cd}
	f.mean = lexShare*lm/ld + (1-lexShare)*cm/cd
	return f
}

// cosUnits brings cosines to the size of the other scores, for the whole numbers that are summed.
const cosUnits = 16

func (f fusion) of(r *ranking, at int) float64 {
	return f.lex*r.lex[at] + f.cos*float64(r.cos[at]) - f.mean
}

// take walks the documents from the best one down, past those that a filter or a limit holds back, until there are enough.
func (r *ranking) take() []directory.Candidate {
	t := taken{r: r, perAIC: map[string]int{}, perProvider: map[string]int{}}
	if len(r.Caps) > 0 {
		t.walk(r.named(), 0)
		return t.list
	}
	for many, seen := firstLook, 0; ; many *= 4 {
		best := r.best(many)
		if t.walk(best[min(seen, len(best)):], tolerance) || len(best) < many {
			return t.list
		}
		seen = len(best)
	}
}

const (
	firstLook = 128 // documents that are put in order at first
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
func (t *taken) walk(docs []doc, tolerance int) (done bool) {
	r := t.r
	for _, d := range docs {
		c := &d.document().cap
		why := t.limit(c)
		if why == "" {
			why = r.refusal(d.document())
		}
		if why != "" {
			t.refused(d, why)
			continue
		}
		confidence := r.confidence(d)
		if confidence < r.MinScore {
			t.refused(d, r.say("its confidence is %d, at least %d was asked for", confidence, r.MinScore))
			if t.poor++; t.poor == tolerance {
				return true
			}
			continue
		}
		t.poor = 0
		t.perAIC[c.AIC]++
		t.perProvider[c.Provider]++
		if t.list = append(t.list, r.candidate(d, confidence)); len(t.list) >= r.limit() {
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

func (t *taken) refused(d doc, why string) {
	if t.r.Refused != nil {
		t.r.Refused(&d.document().cap, t.r.value(d), why)
	}
}

// named are the living documents that the request names, in order.
func (r *ranking) named() []doc {
	var out []doc
	for _, id := range r.Caps {
		for i, p := range r.parts {
			if at, ok := p.byCap[id]; ok && !p.isDead(at) {
				out = append(out, doc{p, at, r.first[i] + int(at)})
			}
		}
	}
	r.sort(out)
	return out
}

// better says whether x comes before y.
func (r *ranking) compare(x, y doc) int {
	if r.Text != "" {
		if c := cmp.Compare(r.rank[y.at], r.rank[x.at]); c != 0 {
			return c
		}
	} else if c := cmp.Compare(r.filed[y.at], r.filed[x.at]); c != 0 {
		return c
	}
	return strings.Compare(x.document().cap.CapID, y.document().cap.CapID)
}

func (r *ranking) sort(docs []doc) { slices.SortFunc(docs, r.compare) }

// best are the so many best living documents that have anything in common with the request, in order.
func (r *ranking) best(many int) []doc {
	h := worst{r: r, docs: make([]doc, 0, min(many, r.live))}
	for i, p := range r.parts {
		first := r.first[i]
		for id := range p.docs {
			d := doc{p, uint32(id), first + id}
			if p.isDead(d.id) || !r.related(d) {
				continue
			}
			h.offer(d, many)
		}
	}
	r.sort(h.docs)
	return h.docs
}

// related says whether a document has anything in common with the request, tags apart.
func (r *ranking) related(d doc) bool {
	if p := r.After; p != nil {
		if v := r.value(d); v > p.Score || v == p.Score && d.document().cap.CapID <= p.CapID {
			return false
		}
	}
	at := d.at
	if r.Text == "" {
		return len(r.classes) == 0 || r.filed[at] > 0
	}
	least := float32(leastLike)
	if r.Without&Words != 0 {
		least = 0
	}
	return r.lex[at] != 0 || r.cos[at] >= least || r.filed[at] > 0
}

// worst is a heap with the worst of the best so far on top.
type worst struct {
	r    *ranking
	docs []doc
}

func (h *worst) offer(d doc, many int) {
	if len(h.docs) < many {
		h.docs = append(h.docs, d)
		if len(h.docs) == many {
			for i := many/2 - 1; i >= 0; i-- {
				h.sink(i)
			}
		}
		return
	}
	if h.r.compare(d, h.docs[0]) < 0 {
		h.docs[0] = d
		h.sink(0)
	}
}

func (h *worst) sink(i int) {
	for {
		last := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(h.docs) && h.r.compare(h.docs[child], h.docs[last]) > 0 {
				last = child
			}
		}
		if last == i {
			return
		}
		h.docs[i], h.docs[last] = h.docs[last], h.docs[i]
		i = last
	}
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

func (r *ranking) candidate(d doc, confidence uint16) directory.Candidate {
	out := directory.Candidate{Capability: d.document().cap, Score: r.value(d), Confidence: confidence}
	e := &out.Evidence
	e.Matched, e.Structured = r.matched(d), r.structured(d)
	if r.Text != "" {
		e.Cosine = float64(r.cos[d.at])
	}
	found := 0.
	for _, t := range r.terms {
		if p, ok := postingOf(d.part.terms[t.text], d.id); ok {
			e.Text += r.termScore(r.termIDF(t.text), t, p, d.document())
			found += t.bg
		}
	}
	for _, t := range r.pairs {
		if p, ok := postingOf(d.part.pairs[t.text], d.id); ok {
			e.Bigram += r.pairScore(r.pairIDF(t.text), t, p, d.document())
		}
	}
	e.Coverage = myriad(found, r.total)
	return out
}

// value is a document's score: deviations from the mean where there is a text, else how well it fits.
func (r *ranking) value(d doc) float64 {
	switch {
	case r.Text != "":
		return r.rank[d.at]
	case len(r.classes) > 0:
		return r.filed[d.at]
	}
	return 1
}

// postingOf is a document's posting in a list.
func postingOf(list []posting, id uint32) (posting, bool) {
	i, ok := slices.BinarySearchFunc(list, id, func(e posting, id uint32) int { return int(e.doc) - int(id) })
	if !ok {
		return posting{}, false
	}
	return list[i], true
}

// matched lists the terms found, by field.
func (r *ranking) matched(d doc) []directory.FieldMatch {
	var byField [len(fieldNames)][]string
	for _, t := range r.terms {
		p, ok := postingOf(d.part.terms[t.text], d.id)
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
func (r *ranking) structured(at doc) []string {
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
