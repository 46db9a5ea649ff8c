package directory

import "slices"

// Reach is whom an entry is shown to.
type Reach struct {
	Visibility Visibility
	Allow      []string // domains, for VisibleListed
}

// width puts the visibilities in order: each shows an entry to whom the one before does, and to others.
func (v Visibility) width() int {
	return map[Visibility]int{VisiblePrivate: 0, VisibleDomain: 1, VisibleListed: 2, VisiblePublic: 3}[v]
}

// Within is whom both r and the bound show an entry to; a bound of nil shows it to everybody. Of two lists that is the domains of both, or the
// own domain where they have none in common.
func (r Reach) Within(bound *Reach) Reach {
	switch {
	case bound == nil || r.Visibility.width() < bound.Visibility.width():
		return r
	case r.Visibility != VisibleListed || bound.Visibility != VisibleListed:
		return *bound
	}
	both := slices.DeleteFunc(slices.Clone(r.Allow), func(d string) bool { return !slices.Contains(bound.Allow, d) })
	if len(both) == 0 {
		return Reach{Visibility: VisibleDomain}
	}
	return Reach{VisibleListed, both}
}
