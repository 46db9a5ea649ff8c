package main

import (
	"bytes"
	"fmt"
	"slices"

	"agentgw/cdsp/digest"
	"agentgw/cdsp/wire"
	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/toolset"
)

const (
	seeds    = 3
	gateways = 64
)

// readDealing is the gateway of each tool under each seed.
func readDealing(file string, set *toolset.Set) (map[string][seeds]int, error) {
	homes := map[string][seeds]int{}
	err := toolset.Lines(file, func(l *struct {
		ID      string     `json:"id"`
		Gateway [seeds]int `json:"gateway"`
	}) error {
		for _, g := range l.Gateway {
			if g < 0 || g >= gateways {
				return fmt.Errorf("tool %s: gateway %d of %d", l.ID, g, gateways)
			}
		}
		homes[l.ID] = l.Gateway
		return nil
	})
	for _, c := range set.Corpus {
		if _, ok := homes[c.AIC]; !ok && err == nil {
			err = fmt.Errorf("%s: tool %q has no gateway", file, c.AIC)
		}
	}
	return homes, err
}

// dealt is the digests of all gateways as another one holds them.
type dealt struct {
	origins digest.Origins
	homes   map[string]string // gateway of each tool
	octets  int
	keys    map[[8]byte][]byte
}

// build makes each gateway's sketch under a key of its own, and reads it back from its octets.
func build(set *toolset.Set, homes map[string][seeds]int, seed int) *dealt {
	d := &dealt{homes: map[string]string{}, keys: map[[8]byte][]byte{}}
	parts := make([][]digest.Capability, gateways)
	for _, c := range set.Corpus {
		g := homes[c.AIC][seed]
		d.homes[c.AIC] = gatewayName(g)
		parts[g] = append(parts[g], capability(c))
	}
	for g, caps := range parts {
		key := bytes.Repeat([]byte{byte(g + 1)}, 32)
		d.keys[digest.KeyID(key)] = key
		groups, err := digest.Build(slices.Values(caps), digest.Options{Key: key, Level: wire.LevelFull, MaxHops: wire.MaxHops, MaxLabels: 1000, Weight: match.Background, Embedder: match.DigestEmbedder()})
		if err != nil {
			panic(err) // it encodes what it has made itself
		}
		for _, group := range groups {
			for _, it := range group.Items {
				if it.NS == digest.NSSketch { // the set's categories are no tags that anybody asks for
					d.octets += len(it.Sketch)
					d.origins.Add(digest.Origin{Gateway: gatewayName(g)}, &it)
				}
			}
		}
	}
	return d
}

func gatewayName(g int) string { return fmt.Sprintf("%02d", g) }

func capability(c directory.Capability) digest.Capability {
	out := digest.Capability{Vector: match.DigestVector(c), Visibility: wire.VisibleAny}
	for _, t := range match.DigestTerms(c) {
		out.Terms = append(out.Terms, digest.Weighted(t))
	}
	return out
}

func (d *dealt) key(id [8]byte) ([]byte, bool) {
	k, ok := d.keys[id]
	return k, ok
}

// tally counts at which place the first gateway with an answer was.
type tally struct {
	places          [gateways + 1]int // the last: not in the list
	requests        int
	octets, digests int
}

func (d *dealt) count(into *tally, queries []toolset.Query) {
	into.octets, into.digests = into.octets+d.octets, into.digests+d.origins.Len()
	for _, q := range queries {
		ranked := d.origins.Rank(request(q.Text), d.key)
		place := slices.IndexFunc(ranked, func(r digest.Ranked) bool {
			return slices.ContainsFunc(q.Gold, func(id string) bool { return d.homes[id] == r.Gateway })
		})
		if place < 0 {
			place = gateways
		}
		into.places[place]++
		into.requests++
	}
}

func request(text string) digest.Query {
	q := digest.Query{Vector: match.RequestVector(text), Embedder: match.DigestEmbedder()}
	seen := map[string]bool{}
	for _, t := range match.Terms(text) {
		if !seen[t] {
			seen[t] = true
			q.Terms = append(q.Terms, digest.Term{Text: t, Weight: match.Background(t)})
		}
	}
	return q
}

// within is the share of requests, in percent, that find an answer at one of the n best gateways.
func (t *tally) within(n int) float64 {
	sum := 0
	for _, k := range t.places[:n] {
		sum += k
	}
	return 100 * float64(sum) / float64(t.requests)
}

func (t *tally) size() float64 { return float64(t.octets) / float64(t.digests) }
