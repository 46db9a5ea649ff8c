package match

import "slices"

// comparison is what a request's embeddings, the whole one's first and then those of its steps, are to the documents.
type comparison struct {
	r       *ranking
	probes  []*vector
	spreads []spread    // of each probe
	all     [][]float32 // of each probe, by document; nil where only the candidates are compared
}

// compareEmbeddings compares the request with the documents and lists the candidates: in a directory of up to denseAll capabilities all
// that share a term with it or are alike enough, in a larger one the best of the text part alone.
func (r *ranking) compareEmbeddings() *comparison {
	c := &comparison{r: r, probes: []*vector{&r.embedding}}
	for i := range r.steps {
		c.probes = append(c.probes, &r.steps[i].embedding)
	}
	if r.dense && r.outside {
		for i := range c.probes {
			c.probes[i] = &r.Prepared.outside[i]
		}
	}
	c.spreads = make([]spread, len(c.probes))
	switch {
	case r.live > r.denseAll && r.Without&Words == 0:
		r.listBest()
		c.compareListed()
	default:
		c.compareAll()
		c.list()
	}
	return c
}

// scanned is how many documents are compared with all probes before the next ones: their vectors stay in the nearest cache meanwhile.
const scanned = 128

func (c *comparison) compareAll() {
	r := c.r
	if !r.dense {
		return
	}
	c.all = r.cosines(len(c.probes), r.docs)
	for n, q := range c.probes {
		if q.scale == 0 {
			c.all[n] = nil
		}
	}
	bundles := c.inBundles()
	for i, p := range r.parts {
		for from := 0; from < len(p.docs); from += scanned {
			c.scan(bundles, p, r.first[i], from, min(from+scanned, len(p.docs)))
		}
	}
}

// bundled are the numbers of the probes that are compared, in groups: three or four at once, or one alone.
type bundled struct {
	probes []int
	bundle *bundle // nil: one alone
}

// leastBundled probes are worth a bundle.
const leastBundled = 3

func (c *comparison) inBundles() (out []bundled) {
	var all []int
	for n := range c.probes {
		if c.all[n] != nil {
			all = append(all, n)
		}
	}
	for group := range slices.Chunk(all, 4) {
		if len(group) < leastBundled {
			for i := range group {
				out = append(out, bundled{probes: group[i : i+1]})
			}
			continue
		}
		var of []*vector
		for _, n := range group {
			of = append(of, c.probes[n])
		}
		out = append(out, bundled{group, newBundle(of)})
	}
	return out
}

// scan compares some documents of a part with all probes: a request of several steps reads the vectors once.
func (c *comparison) scan(bundles []bundled, p *part, first, from, to int) {
	v := &p.vecs
	if c.r.outside {
		v = &p.outside
	}
	for _, b := range bundles {
		switch {
		case v.dim == 0:
		case b.bundle == nil:
			v.cosines(c.probes[b.probes[0]], from, c.all[b.probes[0]][first+from:first+to])
		default:
			var out [4][]float32
			for i, n := range b.probes {
				out[i] = c.all[n][first+from : first+to]
			}
			b.bundle.cosines(v, from, out[:len(b.probes)])
		}
	}
	for n, all := range c.all {
		if all == nil {
			continue
		}
		if c.r.outside {
			v.markMissing(from, all[first+from:first+to])
		}
		c.count(n, p, uint32(from), all[first+from:first+to])
	}
}

// count adds the living of some documents to a probe's spread.
func (c *comparison) count(n int, p *part, from uint32, cos []float32) {
	s := &c.spreads[n]
	for i, v := range cos {
		if (p.dead == nil || !p.isDead(from+uint32(i))) && v == v {
			s.add(float64(v) * cosUnits)
		}
	}
}

// compareListed compares the candidates alone.
func (c *comparison) compareListed() {
	for n := range c.probes {
		for i := range c.r.list {
			if cos := c.cosine(n, c.r.list[i].at); c.compared(n) && cos == cos {
				c.spreads[n].add(float64(cos) * cosUnits)
			}
		}
	}
}

// compared says whether a probe was compared with anything.
func (c *comparison) compared(n int) bool { return c.probes[n].scale != 0 && c.r.dense }

// cosine is how like a document is to a probe; 0 where nothing was compared.
func (c *comparison) cosine(n int, at uint32) float32 {
	switch {
	case !c.compared(n):
		return 0
	case c.all != nil:
		return c.all[n][at]
	}
	i, id := c.r.place(at)
	if !c.r.outside {
		return c.r.parts[i].vecs.cosine(c.probes[n], id)
	}
	return c.r.parts[i].outside.likeness(c.probes[n], id)
}

// words is the spread of the word scores over the documents whose embeddings were compared.
func (c *comparison) words(s *sparse) spread {
	if c.all != nil || c.r.live <= c.r.denseAll || c.r.Without&Words != 0 {
		return c.r.spreadOfAll(s)
	}
	var out spread
	for i := range c.r.list {
		out.add(s.of[c.r.list[i].at])
	}
	return out
}

// spreadOfAll is the spread over all living documents, most of whose scores are 0.
func (r *ranking) spreadOfAll(s *sparse) spread {
	var out spread
	if r.live == r.docs {
		for _, at := range s.touched {
			out.add(s.of[at])
		}
	} else {
		for _, at := range s.touched {
			if !r.isDead(at) {
				out.add(s.of[at])
			}
		}
	}
	out.n = int64(r.live)
	return out
}
