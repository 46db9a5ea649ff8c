package match

import "agentgw/directory"

const (
	stepShare = .25 // of what the best step of a request adds
	leastLike = .3  // by the built-in table; see [comparison.leastLike]
	farOut    = 1   // deviations above the mean, by another embedder: a third of a small directory may be what is meant
)

// Resolve is the best capabilities for a request, best first: by score, then by [Query.Load], then by Capability Identifier. Everything is ranked
// before a limit is applied.
func (x *Index) Resolve(q Query) []directory.Candidate {
	return x.ResolvePrepared(prepare(q, x.tokens()))
}

// ResolvePrepared is [Index.Resolve] of a query that was prepared.
func (x *Index) ResolvePrepared(p *Prepared) []directory.Candidate {
	if p.Text == "" && len(p.Caps)+len(p.tags)+len(p.classes) == 0 && !p.All {
		return nil
	}
	r := &ranking{view: x.view(), Prepared: p, scratch: x.takeScratch(), denseAll: x.denseAll(), denseBest: x.denseBest()}
	r.chooseVectors(x)
	defer x.giveBack(r.scratch)
	r.list = r.list[:0]
	r.findClasses()
	if r.Text != "" {
		r.average, r.averagePairs, r.norms = r.averageLength(), r.averageBigrams(), r.termNorms()
		r.scoreText()
		r.blendClasses()
	} else {
		r.listWithoutText()
	}
	return r.take()
}

type ranking struct {
	*view
	*Prepared
	*scratch
	denseAll, denseBest   int
	dense                 bool    // embeddings are compared
	outside               bool    // and they are not the built-in table's
	average, averagePairs float64 // lengths
	norms                 *norms
	found, foundPairs     []located // of the whole request
	meant                 []meant
	nearTerms             [][]nearTerm    // of each unknown word, once it was looked for
	filed                 map[int]float64 // how well a document fits the classes asked for, where it does
	filedSpread           spread
}

// chooseVectors decides which vectors the request is ranked by.
func (r *ranking) chooseVectors(x *Index) {
	e := &r.Embedded
	r.outside = len(e.Vectors) > 0 || e.ID != ""
	r.dense = r.Without&Dense == 0 && (!r.outside || e.fits(1+len(r.steps), x.embedder, x.dim))
}

// candidate is a document that has anything in common with the request.
type candidate struct {
	at    uint32  // its place in the view
	cos   float32 // its embedding and the whole request's
	score float64
	step  float64 // score of the step that it fits best
}

// scoreText scores the whole request, and adds a share of what a capability scores in the step that it fits best. A step alone is no
// request: what another sentence says of the circumstances would be lost (by 5 points of nDCG on StableToolBench G1, where the share
// costs nothing; Seal-Tools dev gains 1).
func (r *ranking) scoreText() {
	r.words.sized(r.docs)
	r.found, r.foundPairs = r.locateAll(&r.step)
	r.scoreWords(&r.words, r.found, r.foundPairs)
	if r.Without&Words == 0 {
		r.scoreIdentifiers(&r.words)
		r.scoreTypos()
	}
	c := r.compareEmbeddings()
	f, compared := fuse(c.words(&r.words), c.spreads[0]), c.compared(0)
	for i := range r.list {
		d := &r.list[i]
		if compared {
			d.cos = c.cosine(0, d.at)
		}
		d.score = f.of(r.words.of[d.at], d.cos)
	}
	if len(r.steps) == 0 {
		return
	}
	for n := range r.steps {
		r.scoreStep(n, c)
	}
	for i := range r.list {
		r.list[i].score += stepShare * r.list[i].step
	}
}

func (r *ranking) scoreStep(n int, c *comparison) {
	r.stepWords.sized(r.docs)
	r.stepWords.clear()
	terms, pairs := r.locateAll(&r.steps[n])
	r.scoreWords(&r.stepWords, terms, pairs)
	f := fuse(c.words(&r.stepWords), c.spreads[n+1])
	for i := range r.list {
		d := &r.list[i]
		if z := f.of(r.stepWords.of[d.at], c.cosine(n+1, d.at)); n == 0 || z > d.step {
			d.step = z
		}
	}
}

// listWithoutText makes a candidate of every document that is named or fits a class, or of every one where none is asked for.
func (r *ranking) listWithoutText() {
	if len(r.Caps) > 0 {
		r.listNamed()
		for i := range r.list {
			r.list[i].score = 1
			if len(r.classes) > 0 {
				r.list[i].score = r.filed[int(r.list[i].at)]
			}
		}
		return
	}
	if len(r.classes) > 0 {
		for at, fit := range r.filed {
			r.list = append(r.list, candidate{at: uint32(at), score: fit})
		}
		return
	}
	for i, p := range r.parts {
		for id := range p.docs {
			if !p.isDead(uint32(id)) {
				r.list = append(r.list, candidate{at: uint32(r.first[i] + id), score: 1})
			}
		}
	}
}

// doc is a document's place in a view.
type doc struct {
	candidate
	part *part
	n    int // of the part
	id   uint32
}

func (d *doc) document() *document { return &d.part.docs[d.id] }

// place is the part that has a document, and its number there.
func (v *view) place(at uint32) (n int, id uint32) {
	for n = len(v.first) - 1; v.first[n] > int(at); n-- { // few, and the largest ones first
	}
	return n, at - uint32(v.first[n])
}

func (v *view) capability(at uint32) *directory.Capability {
	n, id := v.place(at)
	return &v.parts[n].docs[id].cap
}

func (v *view) capID(at uint32) string { return v.capability(at).CapID }

// before says whether a document's Capability Identifier comes before another's.
func (v *view) before(x, y uint32) bool {
	xn, xid := v.place(x)
	yn, yid := v.place(y)
	if xn == yn {
		return v.parts[xn].order[xid] < v.parts[xn].order[yid]
	}
	return v.parts[xn].docs[xid].cap.CapID < v.parts[yn].docs[yid].cap.CapID
}

// isDead says whether a document of the view is gone.
func (v *view) isDead(at uint32) bool {
	if v.live == v.docs {
		return false
	}
	n, id := v.place(at)
	return v.parts[n].isDead(id)
}

// order is the total order of candidates: by score, then by the load of their agents, then by Capability Identifier.
type order struct {
	view *view
	load func(*directory.Capability) uint16 // nil: all are alike
}

// better says whether x comes before y.
func (o *order) better(x, y *candidate) bool {
	if x.score != y.score {
		return x.score > y.score
	}
	if o.load != nil {
		if a, b := o.loadOf(x), o.loadOf(y); a != b {
			return a < b
		}
	}
	return o.view.before(x.at, y.at)
}

func (o *order) loadOf(d *candidate) uint16 {
	if o.load == nil {
		return 0
	}
	n, id := o.view.place(d.at)
	return o.load(&o.view.parts[n].docs[id].cap)
}
