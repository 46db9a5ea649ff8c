package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// skill is one capability of the synthetic corpus, as an ACS writes it.
type skill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

func (s skill) text() string { return s.Name + " " + s.Description + " " + strings.Join(s.Tags, " ") }

const (
	vocabulary = 4000
	nameWords  = 3
	proseWords = 20
	corpusSeed = 20240623
)

// corpus is the same in each process and each run: names of words as they come, descriptions of words as frequent as in a
// language (Zipf).
func corpus() [][]skill {
	r := rand.New(rand.NewPCG(corpusSeed, 1))
	words := make([]string, vocabulary)
	for i := range words {
		words[i] = pseudoWord(r)
	}
	zipf := rand.NewZipf(r, 1.1, 10, vocabulary-1)
	out := make([][]skill, capOrigin)
	for a := range out {
		for s := range capSkills {
			out[a] = append(out[a], skill{
				ID: fmt.Sprintf("skill-%d-%d", a, s), Tags: []string{words[zipf.Uint64()]},
				Name:        phrase(nameWords, func() string { return words[r.IntN(vocabulary)] }),
				Description: phrase(proseWords, func() string { return words[zipf.Uint64()] }),
			})
		}
	}
	return out
}

func phrase(n int, word func() string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = word()
	}
	return strings.Join(list, " ")
}

// pseudoWord is three syllables that no stemmer shortens.
func pseudoWord(r *rand.Rand) string {
	var b strings.Builder
	for range 3 {
		b.WriteByte("bdfgkmnprtvz"[r.IntN(12)])
		b.WriteByte("aou"[r.IntN(3)])
	}
	b.WriteByte("kmnprt"[r.IntN(6)])
	return b.String()
}

// draft is the draft Agent Capability Specification of an agent with these skills.
func draft(name string, skills []skill) ([]byte, error) {
	return json.Marshal(map[string]any{
		"protocolVersion": "02.02", "name": name, "description": "An agent of the bench.", "version": "1.0.0",
		"provider":           map[string]string{"organization": name},
		"securitySchemes":    map[string]any{"mtls": map[string]string{"type": "mutualTLS"}},
		"endPoints":          []any{},
		"capabilities":       map[string]bool{"streaming": false, "notification": false},
		"defaultInputModes":  []string{"application/json"},
		"defaultOutputModes": []string{"application/json"},
		"skills":             skills,
	})
}
