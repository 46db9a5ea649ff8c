package match

import (
	"container/heap"
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

// account is what a document has gathered.
type account struct {
	text, bigram float64
	conf, found  float64 // sums of background idf: saturated, and of terms found at all
	structured   float64
}

// hit is one ranked document.
type hit struct {
	part *part
	doc  uint32
	account
}

func (h *hit) score() float64 { return h.text + h.bigram + h.structured }

// Resolve is the best capabilities for a request, best first: by score, then by Capability Identifier. Everything is ranked
// before a limit is applied.
func (x *Index) Resolve(q Query) []directory.Candidate {
	r := &ranking{view: x.view(), Prepared: Prepare(q)}
	r.board = x.takeBoard(r.docs)
	defer x.giveBack(r.board)
	if r.Text != "" || len(r.Caps) > 0 {
		r.idents = identifiers(r.Text)
		r.scoreTerms()
		r.scorePairs()
		r.scoreIdentifiers()
		r.takeNamed()
	} else if len(r.Tags) > 0 {
		r.takeAll()
	}
	return r.candidates()
}

type ranking struct {
	*view
	*Prepared
	*board
	idents []string
}

// takeAll answers a request of tags only: what passes the filters fits, all alike.
func (r *ranking) takeAll() {
	for i, p := range r.parts {
		for id := range p.docs {
			if a := r.open(i, uint32(id)); a != nil {
				a.structured = 1
			}
		}
	}
}

// takeNamed makes every capability that the request names a hit; the text then only orders them.
func (r *ranking) takeNamed() {
	for _, id := range r.Caps {
		for i, p := range r.parts {
			if doc, ok := p.byCap[id]; ok {
				if a := r.open(i, doc); a != nil {
					a.structured++
				}
			}
		}
	}
}

// open is the account of a document that may be scored, nil for one that a filter holds back.
func (r *ranking) open(part int, doc uint32) *account {
	s := &r.slots[r.first[part]+int(doc)]
	if s.round != r.round {
		*s = slot{round: r.round, hit: refused}
		if p := r.parts[part]; !p.isDead(doc) && r.fits(&p.docs[doc]) {
			s.hit = int32(len(r.hits))
			r.hits = append(r.hits, hit{part: p, doc: doc})
		}
	}
	if s.hit == refused {
		return nil
	}
	return &r.hits[s.hit].account
}

func (r *ranking) idf(df int) float64 {
	n, f := float64(r.live), float64(df)
	return math.Log(1 + (n-f+.5)/(f+.5))
}

// bm25 is one term's part: f occurrences in a document of some length relative to the average.
func bm25(f, length, average float64) float64 { return f * (k1 + 1) / (f + k1*(1-b+b*length/average)) }

func (r *ranking) scoreTerms() {
	average := float64(r.length) / 10 / float64(max(r.live, 1))
	for _, t := range r.terms {
		idf := r.idf(r.frequency(t.text, func(p *part) []posting { return p.terms[t.text] }))
		for i, p := range r.parts {
			for _, e := range p.terms[t.text] {
				a := r.open(i, e.doc)
				if a == nil {
					continue
				}
				a.text += t.count * idf * bm25(float64(e.weight)/10, float64(p.docs[e.doc].length)/10, average)
				a.conf += t.bg * saturate(int(e.weight), p.docs[e.doc].length)
				a.found += t.bg
			}
		}
	}
}

func (r *ranking) frequency(term string, of func(*part) []posting) int {
	n := 0
	for _, p := range r.parts {
		n += p.alive(of(p))
	}
	return n
}

func (r *ranking) scorePairs() {
	average := float64(r.bigrams) / float64(max(r.live, 1))
	for _, t := range r.pairs {
		idf := r.idf(r.frequency(t.text, func(p *part) []posting { return p.pairs[t.text] }))
		for i, p := range r.parts {
			for _, e := range p.pairs[t.text] {
				if a := r.open(i, e.doc); a != nil {
					a.bigram += bigramShare * t.count * idf * bm25(float64(e.weight), float64(p.docs[e.doc].bigrams), average)
					a.conf += r.pairFactor * t.bg
				}
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
			for _, doc := range p.idents[raw] {
				if a := r.open(i, doc); a != nil {
					a.structured += r.idf(min(df, r.live)) * identWeight * (k1 + 1) / (identWeight + k1)
				}
			}
		}
	}
}

// candidates takes the best hits, applies the limits and writes the evidence.
func (r *ranking) candidates() []directory.Candidate {
	left := byRank(slices.DeleteFunc(r.hits, func(h hit) bool { return r.confidence(&h) < r.MinScore }))
	heap.Init(&left)
	var out []directory.Candidate
	perAIC, perProvider := map[string]int{}, map[string]int{}
	for ; len(left) > 0 && len(out) < r.limit(); heap.Pop(&left) {
		c := &left[0].part.docs[left[0].doc].cap
		if len(r.Caps) == 0 && (perAIC[c.AIC] == r.perAIC() || perProvider[c.Provider] == max(PerProvider, r.perAIC())) {
			continue
		}
		perAIC[c.AIC]++
		perProvider[c.Provider]++
		out = append(out, r.candidate(&left[0]))
	}
	return out
}

// byRank is a heap of hits, the best first: a few are wanted of many.
type byRank []hit

func (l byRank) Len() int { return len(l) }

func (l byRank) Less(i, j int) bool {
	if s, t := l[i].score(), l[j].score(); s != t {
		return s > t
	}
	return l[i].part.docs[l[i].doc].cap.CapID < l[j].part.docs[l[j].doc].cap.CapID
}

func (l byRank) Swap(i, j int) { l[i], l[j] = l[j], l[i] }

// Push is there for heap.Interface.
func (l *byRank) Push(h any) { *l = append(*l, h.(hit)) }

// Pop drops the last one, which [heap.Pop] has made the best.
func (l *byRank) Pop() any {
	*l = (*l)[:len(*l)-1]
	return nil
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

func (r *ranking) candidate(h *hit) directory.Candidate {
	d := &h.part.docs[h.doc]
	return directory.Candidate{
		Capability: d.cap, Score: h.score(), Confidence: r.confidence(h),
		Evidence: directory.Evidence{
			Matched: r.matched(h), Structured: r.structured(d), Text: h.text, Bigram: h.bigram, Coverage: myriad(h.found, r.total),
		},
	}
}

// matched lists the terms found, by field.
func (r *ranking) matched(h *hit) []directory.FieldMatch {
	var byField [len(fieldNames)][]string
	for _, t := range r.terms {
		list := h.part.terms[t.text]
		i, ok := slices.BinarySearchFunc(list, h.doc, func(e posting, doc uint32) int { return int(e.doc) - int(doc) })
		if !ok {
			continue
		}
		for f := range fieldNames {
			if list[i].fields&(1<<f) != 0 {
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

// structured lists the exact matches: capability id, tags, identifiers of the text.
func (r *ranking) structured(d *document) []string {
	var out []string
	if slices.Contains(r.Caps, d.cap.CapID) {
		out = append(out, "capability "+d.cap.CapID)
	}
	for _, t := range r.tags {
		out = append(out, "tag "+t)
	}
	for _, raw := range r.idents {
		if raw == strings.ToLower(d.cap.SkillID) || raw == strings.ToLower(d.cap.Name) {
			out = append(out, "identifier "+raw)
		}
	}
	return out
}
