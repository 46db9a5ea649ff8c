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
	Terms      []Weighted // distinct, made by the matcher; asked of public capabilities only
	Vector     []float32  // embedding of length 1, at most MaxDim components; nil for none; asked of public ones only
	In, Out    []string   // media types
	Visibility wire.Visibility
	Private    bool     // in no digest
	Allow      []string // domains, with wire.VisibleListed: 1 to 64 names of 1 to 253 octets
}

// Weighted is a term of a capability with its frequency, weighted by the fields that have it.
type Weighted struct {
	Text  string
	Count float64
}

// Namespaces of labels.
const (
	NSTaxonomy = "oasf/1.1"
	NSTag      = "tag"
	NSSketch   = "sketch"
)

// Options of Build.
type Options struct {
	Key      []byte // hash key of the sketch, 32 octets
	Level    wire.Level
	MaxHops  uint8
	Weight   func(term string) float64 // background idf
	Embedder Embedder                  // of the capabilities' vectors
	// Known says whether the taxonomy has a class: below the level full no others are told, since anybody may name one. nil: it has all.
	Known func(class string) bool
	// MaxLabels bounds the class items: what neighbours would refuse is not said.
	MaxLabels int
	// Terms are those that public capabilities have which do not name theirs, at the level coarse those of at least two: a large directory
	// has them without its texts.
	Terms []string
}

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
	var described []Capability
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
		count(counted[id], c, o)
		if c.Visibility != wire.VisibleAny {
			continue
		}
		public++
		if len(c.Terms)+len(c.Vector) > 0 {
			described = append(described, c)
		}
	}
	groups := group(scopes, counted, o)
	if public == 0 || o.Level == wire.LevelClasses {
		return groups, nil
	}
	sketch, err := sketchGroup(described, public, o)
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

func count(into map[label]*tally, c Capability, o Options) {
	if o.Level < wire.LevelFull { // a media type may be a name too
		c.In, c.Out = nil, nil
	}
	for _, l := range labels(c, o) {
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

// classDepth is how deep the classes are that are told below the level full.
const classDepth = 2

// upTo is a class cut to so many steps.
func upTo(class string, depth int) string {
	parts := strings.SplitN(class, "/", depth+1)
	return strings.Join(parts[:min(len(parts), depth)], "/")
}

// labels are the distinct labels of a capability that fit an item and that a level discloses.
func labels(c Capability, o Options) []label {
	var out []label
	tags := c.Tags
	for _, s := range c.Classes {
		if o.Level < wire.LevelFull {
			if s = upTo(s, classDepth); o.Known != nil && !o.Known(s) {
				continue
			}
		}
		out = append(out, label{NSTaxonomy, s})
	}
	if o.Level < wire.LevelFull { // a tag may be a name
		tags = nil
	}
	for _, s := range tags {
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
		for _, l := range chosen(counted[id], told, o) {
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

// chosen are the labels of a scope that there is room for, in order: classes that the taxonomy has before others, then what most
// capabilities have.
func chosen(counted map[label]*tally, told map[label]bool, o Options) []label {
	list := slices.Collect(maps.Keys(counted))
	list = slices.DeleteFunc(list, func(l label) bool { return told[l] })
	after := func(l label) int { // 0 first
		if l.ns == NSTaxonomy && (o.Known == nil || o.Known(l.name)) {
			return 0
		}
		return 1
	}
	slices.SortFunc(list, func(a, b label) int {
		return cmp.Or(cmp.Compare(after(a), after(b)), cmp.Compare(counted[b].count, counted[a].count), compareLabels(a, b))
	})
	list = list[:min(len(list), max(o.MaxLabels-len(told), 0))]
	slices.SortFunc(list, compareLabels)
	return list
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

func sketchGroup(described []Capability, public int, o Options) (wire.Group, error) {
	raw, err := frame.Marshal(newSketch(described, public, o))
	if err != nil {
		return wire.Group{}, err
	}
	item := wire.Item{
		Key: wire.ItemKey("", NSSketch, o.Level), Kind: wire.KindDigest, NS: NSSketch, Sketch: raw, SketchAlg: Algorithm,
		Count: wire.Bucket(public),
	}
	scope := wire.Scope{Visibility: wire.VisibleAny, MaxHops: o.MaxHops, Level: o.Level}
	return wire.Group{Scope: scope, Items: []wire.Item{item}}, nil
}
