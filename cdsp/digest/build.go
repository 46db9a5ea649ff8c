package digest

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Capability is what a digest is told of one capability.
type Capability struct {
	Classes    []string // paths of the taxonomy that NSTaxonomy names
	Tags       []string
	Terms      []string // distinct, made by the matcher; asked of public capabilities only
	In, Out    []string // media types
	Visibility wire.Visibility
	Private    bool     // in no digest
	Allow      []string // domains, with wire.VisibleListed: 1 to 64 names of 1 to 253 octets
}

// Namespaces of labels.
const (
	NSTaxonomy = "oasf/1.1"
	NSTag      = "tag"
	NSSketch   = "sketch"
)

// Options of Build.
type Options struct {
	Key     []byte // hash key of the sketch, 32 octets
	Level   wire.Level
	MaxHops uint8
	Weight  func(term string) float64 // background idf
	// Terms are those of public capabilities that do not name them themselves: a large directory has them without its texts.
	Terms []string
}

// maxLabels bounds the class items of one gateway: what its neighbours would refuse is not said.
const maxLabels = 1900

// label is one class or tag as it is counted.
type label struct{ ns, name string }

// tally is what is known of a label within one scope.
type tally struct {
	count   int
	in, out map[string]bool
}

// Build makes the digest items of a directory, in groups of one scope each. A label that capabilities of several scopes
// have is told in the widest of them, and counts those only. The same capabilities give the same groups in any order.
//
// What neighbours would refuse is not said: a label or media type that fits no item is left out, and a list of domains that
// fits no batch, or names nobody, reaches nobody outside: its capabilities are told within the own domain.
func Build(caps iter.Seq[Capability], o Options) ([]wire.Group, error) {
	scopes := map[string]wire.Scope{}
	counted := map[string]map[label]*tally{}
	terms := slices.Clone(o.Terms)
	public := 0
	for c := range caps {
		if c.Private {
			continue
		}
		scope := scopeOf(c, o)
		id := scopeID(scope)
		scopes[id] = scope
		if counted[id] == nil {
			counted[id] = map[label]*tally{}
		}
		count(counted[id], c)
		if c.Visibility == wire.VisibleAny {
			terms = append(terms, c.Terms...)
			public++
		}
	}
	groups := group(scopes, counted, o)
	if public == 0 {
		return groups, nil
	}
	slices.Sort(terms)
	sketch, err := sketchGroup(slices.Compact(terms), public, o)
	return append(groups, sketch), err
}

func scopeOf(c Capability, o Options) wire.Scope {
	scope := wire.Scope{Visibility: c.Visibility, MaxHops: o.MaxHops, Level: o.Level}
	if c.Visibility != wire.VisibleListed {
		return scope
	}
	scope.Allow = slices.Compact(slices.Sorted(slices.Values(c.Allow)))
	if scope.Check() != nil {
		scope.Visibility, scope.Allow = wire.VisibleDomain, nil
	}
	return scope
}

// scopeID orders scopes widest first.
func scopeID(s wire.Scope) string {
	return fmt.Sprintf("%c%q", '9'-rune(s.Visibility), s.Allow)
}

func count(into map[label]*tally, c Capability) {
	for _, l := range labels(c) {
		t := into[l]
		if t == nil {
			t = &tally{in: map[string]bool{}, out: map[string]bool{}}
			into[l] = t
		}
		t.count++
		for _, m := range c.In {
			t.in[m] = true
		}
		for _, m := range c.Out {
			t.out[m] = true
		}
	}
}

// labels are the distinct labels of a capability that fit an item.
func labels(c Capability) []label {
	var out []label
	for _, s := range c.Classes {
		out = append(out, label{NSTaxonomy, s})
	}
	for _, s := range c.Tags {
		if utf8.ValidString(s) { // lower case would make it valid, and a label of its own
			out = append(out, label{NSTag, strings.ToLower(strings.TrimSpace(s))})
		}
	}
	out = slices.DeleteFunc(out, func(l label) bool { return l.name == "" || len(l.name) > wire.MaxLabel || !utf8.ValidString(l.name) })
	slices.SortFunc(out, compareLabels)
	return slices.Compact(out)
}

func compareLabels(a, b label) int {
	return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.name, b.name))
}

func group(scopes map[string]wire.Scope, counted map[string]map[label]*tally, o Options) []wire.Group {
	var groups []wire.Group
	told := map[label]bool{}
	for _, id := range slices.Sorted(maps.Keys(scopes)) {
		g := wire.Group{Scope: scopes[id]}
		for _, l := range slices.SortedFunc(maps.Keys(counted[id]), compareLabels) {
			if told[l] || len(told) == maxLabels {
				continue
			}
			told[l] = true
			t := counted[id][l]
			g.Items = append(g.Items, wire.Item{
				Key: wire.ItemKey(l.name, l.ns, o.Level), Kind: wire.KindDigest, NS: l.ns, Label: l.name,
				Modes: modes(t), Count: wire.Bucket(t.count),
			})
		}
		if len(g.Items) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

func modes(t *tally) *wire.Modes {
	if len(t.in)+len(t.out) == 0 {
		return nil
	}
	return &wire.Modes{In: some(t.in), Out: some(t.out)}
}

// some is at most as many media types as an item may name, in order; those too long are left out.
func some(set map[string]bool) []string {
	out := slices.Sorted(maps.Keys(set))
	out = slices.DeleteFunc(out, func(m string) bool { return m == "" || len(m) > wire.MaxMode || !utf8.ValidString(m) })
	return out[:min(len(out), wire.MaxModes)]
}

func sketchGroup(terms []string, nCaps int, o Options) (wire.Group, error) {
	raw, err := frame.Marshal(newSketch(terms, nCaps, o.Key, o.Level, o.Weight))
	if err != nil {
		return wire.Group{}, err
	}
	item := wire.Item{
		Key: wire.ItemKey("", NSSketch, o.Level), Kind: wire.KindDigest, NS: NSSketch, Sketch: raw, SketchAlg: Algorithm,
		Count: wire.Bucket(nCaps),
	}
	scope := wire.Scope{Visibility: wire.VisibleAny, MaxHops: o.MaxHops, Level: o.Level}
	return wire.Group{Scope: scope, Items: []wire.Item{item}}, nil
}
