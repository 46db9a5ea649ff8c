package match

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"agentgw/directory"

	"github.com/google/go-cmp/cmp"
)

func sample(n int, words string) directory.Capability {
	id := fmt.Sprintf("2.999.1.1.1.A.1.1.%d.0000", n)
	return directory.Capability{AIC: id, CapID: directory.CapID(id, "s"), SkillID: "s", Name: "Skill " + words, Description: words + " described",
		Tags: []string{"tag " + words}, Examples: []string{"do " + words}, AgentName: "Agent", EntryVersion: 1}
}

// What several builders have read is found as if one had.
func TestBuildersMakeOneIndex(t *testing.T) {
	var one, two Builder
	var whole, parts Index
	var caps []directory.Capability
	for n := range 200 {
		c := sample(n, []string{"kite", "boat", "train", "plane"}[n%4])
		caps = append(caps, c)
		[]*Builder{&one, &two}[n/2%2].Add(c)
	}
	whole.Load(caps)
	parts.LoadBuilt(&one, &two)
	if parts.Len() != 200 || parts.Agents() != 200 || len(parts.view().parts) != 2 {
		t.Fatalf("%d capabilities of %d agents in %d parts", parts.Len(), parts.Agents(), len(parts.view().parts))
	}
	q := Query{Text: "a boat, described", Limit: 20}
	if diff := cmp.Diff(whole.Resolve(q), parts.Resolve(q)); diff != "" {
		t.Error(diff)
	}
	parts.Apply(Change{AIC: caps[3].AIC})
	if got := parts.Of(caps[4].AIC); !cmp.Equal(got, caps[4:5]) || parts.Of(caps[3].AIC) != nil {
		t.Errorf("of one agent %+v", got)
	}
	n := 0
	parts.Each(func(*directory.Capability) bool { n++; return n < 150 })
	if n != 150 {
		t.Errorf("visited %d", n)
	}
}

func TestVocabularyIsThatOfTheTexts(t *testing.T) {
	var x Index
	having := map[string]int{}
	for n := range 20 {
		c := sample(n, fmt.Sprintf("word%d", n))
		if c.Parameters = "parameter"; n == 7 {
			c.Description = "only of a private one"
		} else if n != 9 {
			for _, t := range DigestTerms(c) {
				having[t.Text]++
			}
		}
		x.Apply(Change{AIC: c.AIC, Caps: []directory.Capability{c}})
	}
	x.Apply(Change{AIC: sample(9, "").AIC})
	private := sample(7, "").AIC
	for _, atLeast := range []int{1, 2, 18} {
		var want []string
		for term, n := range having {
			if n >= atLeast {
				want = append(want, term)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, x.Vocabulary(atLeast, func(c *directory.Capability) bool { return c.AIC != private })); diff != "" {
			t.Errorf("of %d capabilities: %s", atLeast, diff)
		}
	}
}

// Ties are broken by the whole identifier, however much of it many have in common.
func TestOrderIsThatOfTheIdentifiers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, prefix := range []string{"", "acps://2.999.1.", "acps://2.999.1.SAMEIGHT"} {
		ids := map[string]bool{prefix: true, prefix + "\x00": true, prefix + "a": true, prefix + "a\x00": true}
		for range 500 {
			id := []byte(prefix)
			for range random.IntN(14) {
				id = append(id, "\x00ab\xff"[random.IntN(4)])
			}
			ids[string(id)] = true
		}
		s := newSegment()
		for id := range ids {
			s.docs = append(s.docs, document{cap: directory.Capability{CapID: id}})
		}
		s.putInOrder()
		for place, id := range slices.Sorted(maps.Keys(ids)) {
			at := slices.Index(s.order, uint32(place))
			if at < 0 || s.docs[at].cap.CapID != id {
				t.Fatalf("prefix %q: place %d is not %q's", prefix, place, id)
			}
		}
	}
	newSegment().putInOrder()
}
