// Package semreq is the messages of semantic resolution: what an agent asks (Query), how it travels from gateway to gateway
// (Request, Response), and what the resolving gateway signs (Result). It is pure: messages, their limits and their checks.
//
// A query is normalised once, by the origin gateway, and no hop alters its bytes: their SHA-256 is what tokens and results are
// bound to. Durations are milliseconds, times unix seconds, ids 16 bytes, AICs upper-cased text.
// Source: seed 002, section 5.3; cdsp/PROTOCOL.md, "Semantic requests".
package semreq

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"agentgw/directory"
	"agentgw/directory/filter"
	"agentgw/internal/frame"
)

// Limits of what an agent may ask.
const (
	MaxQuery    = 32 << 10 // an encoded query
	MaxText     = 1024     // bytes of Query.Text
	MaxWant     = 20       // results of one request
	MaxHops     = 12
	MaxBreadth  = 8
	MaxBudgetMS = 30_000
	maxList     = 64  // entries of any list of a query
	maxWord     = 512 // bytes of one entry: a capability identifier
)

// Defaults of what an agent leaves open.
const (
	DefaultWant     = 5
	DefaultHops     = 6
	DefaultBreadth  = 4
	DefaultBudgetMS = 5_000
)

// Query is a semantic request: text, or structure, or both.
type Query struct {
	Text    string   `cbor:"1,keyasint,omitempty" json:"text,omitempty"`
	Caps    []string `cbor:"2,keyasint,omitempty" json:"caps,omitempty"`    // exact Capability Identifiers
	Classes []string `cbor:"3,keyasint,omitempty" json:"classes,omitempty"` // of the taxonomy
	Tags    []string `cbor:"4,keyasint,omitempty" json:"tags,omitempty"`
	In      []string `cbor:"5,keyasint,omitempty" json:"in,omitempty"`  // media types that the asker can send
	Out     []string `cbor:"6,keyasint,omitempty" json:"out,omitempty"` // media types that the asker accepts
	// Filter is an ADP filter expression, JSON; see package filter.
	Filter   json.RawMessage `cbor:"7,keyasint,omitempty" json:"filter,omitempty"`
	Lang     string          `cbor:"8,keyasint,omitempty" json:"lang,omitempty"`
	Taxonomy string          `cbor:"9,keyasint,omitempty" json:"taxonomy,omitempty"`
}

// Normalise is the query's one form: text in NFC, trimmed, runs of white space made one space; lists sorted without repeats.
func (q Query) Normalise() Query {
	q.Text = strings.Join(strings.Fields(norm.NFC.String(q.Text)), " ")
	for _, list := range []*[]string{&q.Caps, &q.Classes, &q.Tags, &q.In, &q.Out} {
		l := slices.Clone(*list)
		slices.Sort(l)
		*list = slices.Compact(l)
	}
	return q
}

// Validate says what is wrong with a query, with [frame.ReqInvalid].
func (q Query) Validate() error {
	if q.Text == "" && len(q.Caps)+len(q.Classes)+len(q.Tags)+len(q.Filter) == 0 {
		return frame.Errorf(frame.ReqInvalid, "request is empty: give a text, a capability, a class, a tag or a filter")
	}
	if len(q.Text) > MaxText {
		return frame.Errorf(frame.ReqInvalid, "request text of %d bytes is over %d: say it shorter", len(q.Text), MaxText)
	}
	for name, list := range map[string][]string{"caps": q.Caps, "classes": q.Classes, "tags": q.Tags, "in": q.In, "out": q.Out} {
		if len(list) > maxList {
			return frame.Errorf(frame.ReqInvalid, "request has %d %s, at most %d are accepted", len(list), name, maxList)
		}
		for _, s := range list {
			if s == "" || len(s) > maxWord {
				return frame.Errorf(frame.ReqInvalid, "request has an entry of %d bytes among %s: 1 to %d are accepted", len(s), name, maxWord)
			}
		}
	}
	if len(q.Filter) > 0 {
		if _, err := filter.Parse(q.Filter); err != nil {
			return frame.Errorf(frame.ReqInvalid, "request filter: %w", err)
		}
	}
	for _, c := range q.Caps {
		if _, _, err := directory.ParseCapID(c); err != nil {
			return frame.Errorf(frame.ReqInvalid, "request: %w", err)
		}
	}
	return nil
}

// ParsedFilter is the filter of a query that was validated, nil without one.
func (q Query) ParsedFilter() *filter.Filter {
	if len(q.Filter) == 0 {
		return nil
	}
	f, err := filter.Parse(q.Filter)
	if err != nil { // not validated: nothing passes
		return filter.Nothing
	}
	return f
}

// Encode is the query's bytes, as SREQ carries them.
func (q Query) Encode() ([]byte, error) { return frame.Marshal(q) }

// ParseQuery reads the bytes of key 4.
func ParseQuery(b []byte) (Query, error) {
	var q Query
	if len(b) > MaxQuery {
		return q, frame.Errorf(frame.ReqInvalid, "request of %d bytes is over %d", len(b), MaxQuery)
	}
	if err := frame.Unmarshal(b, &q); err != nil {
		return q, err
	}
	return q, q.Validate()
}

// Hash is what tokens and results are bound to.
func Hash(encoded []byte) [32]byte { return sha256.Sum256(encoded) }
