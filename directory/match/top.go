package match

import "slices"

// top keeps the so many best candidates of those that it is offered, without putting the others in order. It is a heap with the worst of
// the kept on top.
type top struct {
	order
	many int
	kept []candidate
}

// wants says whether a candidate would be kept.
func (t *top) wants(c *candidate) bool { return len(t.kept) < t.many || t.better(c, &t.kept[0]) }

func (t *top) offer(c *candidate) {
	if len(t.kept) < t.many {
		t.kept = append(t.kept, *c)
		if len(t.kept) == t.many {
			for i := t.many/2 - 1; i >= 0; i-- {
				t.sink(i)
			}
		}
		return
	}
	if t.better(c, &t.kept[0]) {
		t.kept[0] = *c
		t.sink(0)
	}
}

func (t *top) sink(i int) {
	for {
		last := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(t.kept) && t.better(&t.kept[last], &t.kept[child]) {
				last = child
			}
		}
		if last == i {
			return
		}
		t.kept[i], t.kept[last] = t.kept[last], t.kept[i]
		i = last
	}
}

// inOrder is what is kept, best first.
func (t *top) inOrder() []candidate {
	slices.SortFunc(t.kept, func(x, y candidate) int {
		switch {
		case t.better(&x, &y):
			return -1
		case t.better(&y, &x):
			return 1
		}
		return 0
	})
	return t.kept
}
