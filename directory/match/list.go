package match

import "slices"

// list makes candidates of the living documents that have anything in common with the request, tags apart.
func (c *comparison) list() {
	r := c.r
	if len(r.Caps) > 0 {
		r.listNamed()
		return
	}
	if r.list = slices.Grow(r.list, len(r.words.touched)); r.live == r.docs {
		for _, at := range r.words.touched {
			r.list = append(r.list, candidate{at: at})
		}
	} else {
		for _, at := range r.words.touched {
			r.enlist(at)
		}
	}
	for at := range r.filed {
		if r.words.of[at] == 0 {
			r.enlist(uint32(at))
		}
	}
	least := c.leastLike()
	if c.all == nil || c.all[0] == nil {
		for at := 0; least == 0 && at < r.docs; at++ {
			r.enlistUnfiled(at)
		}
		return
	}
	for at, v := range c.all[0] {
		if v >= least && r.words.of[at] == 0 {
			r.enlistUnfiled(at)
		}
	}
}

// leastLike is the likeness from which a capability that shares no term with the request is a candidate at all. Of an outside embedder
// nobody knows what its numbers say, so it is told by how they are spread.
func (c *comparison) leastLike() float32 {
	switch {
	case c.r.Without&Words != 0:
		return 0
	case c.r.dense && c.r.outside:
		mean, deviation := c.spreads[0].meanAndDeviation()
		return float32((mean + farOut*deviation) / cosUnits)
	}
	return leastLike
}

func (r *ranking) enlist(at uint32) {
	if !r.isDead(at) {
		r.scratch.list = append(r.scratch.list, candidate{at: at})
	}
}

func (r *ranking) enlistUnfiled(at int) {
	if _, filed := r.filed[at]; !filed {
		r.enlist(uint32(at))
	}
}

// listNamed makes candidates of the living documents that the request names.
func (r *ranking) listNamed() {
	for _, id := range distinct(r.Caps) {
		for i, p := range r.parts {
			if at, ok := p.byCap[id]; ok {
				r.enlist(uint32(r.first[i]) + at)
			}
		}
	}
}

// listBest makes candidates of the best denseBest documents by words and classes, of those that are offered: nobody who asks for agents that
// are there is answered that there are none because 2,000 others are better and away.
func (r *ranking) listBest() {
	if len(r.Caps) > 0 {
		r.listNamed()
		return
	}
	_, wordsDeviation := r.spreadOfAll(&r.words).meanAndDeviation()
	_, fitDeviation := r.filedSpread.meanAndDeviation()
	t := top{order: order{view: r.view}, many: r.denseBest, kept: r.list}
	offer := func(at uint32) {
		if r.isDead(at) {
			return
		}
		d := candidate{at: at, score: r.words.of[at] / wordsDeviation}
		if fit := r.filed[int(at)]; fit > 0 {
			d.score += fit / fitDeviation
		}
		if t.wants(&d) && (r.Offered == nil || r.Offered(r.capability(at))) {
			t.offer(&d)
		}
	}
	for _, at := range r.words.touched {
		offer(at)
	}
	for at := range r.filed {
		if r.words.of[at] == 0 {
			offer(uint32(at))
		}
	}
	r.list = t.kept
}
