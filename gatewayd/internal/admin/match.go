package admin

import (
	"agentgw/directory/semreq"
)

// MatchRequest asks how the gateway's own directory answers a request, and why.
type MatchRequest struct {
	Ask     semreq.Ask `json:"ask"`
	Offline bool       `json:"offline,omitempty"` // agents that are not attached too
	After   string     `json:"after,omitempty"`   // where an earlier answer ended (Match.Next)
	Domain  string     `json:"domain,omitempty"`  // as if it came from there; default: the own domain
}

// Match is the answer: the candidates, best first, and the best of those that were held back.
type Match struct {
	Terms      []string    `json:"terms"` // stems of the request's text that are looked for; stop words are none
	Taxonomy   string      `json:"taxonomy"`
	Embedder   string      `json:"embedder"`          // whose vectors rank; the confidence is always the built-in table's
	Reduced    string      `json:"reduced,omitempty"` // why the request was ranked by less
	Bar        uint16      `json:"bar"`               // confidence from which the gateway answers itself, per ten thousand
	Candidates []Candidate `json:"candidates"`
	Refused    []Refused   `json:"refused"`
	Next       string      `json:"next,omitempty"` // continues the list; absent at its end
}

// Candidate is one capability with its evidence. A confidence is relevance and never trust.
type Candidate struct {
	Capability string    `json:"capability"`
	Name       string    `json:"name"`
	Agent      string    `json:"agent"`
	Provider   string    `json:"provider"` // as the agent declares it, and whether anybody has proved it
	Confidence uint16    `json:"confidence"`
	Score      float64   `json:"score"`   // orders this list only
	Matched    []Matched `json:"matched"` // terms of the request, as they are compared, by field
	Exact      []string  `json:"exact"`   // capability, class, tag, identifier
	Words      float64   `json:"words"`   // part of the words, and of their neighbouring pairs
	Pairs      float64   `json:"pairs"`
	Cosine     float64   `json:"cosine"`   // likeness of the meanings by the embedder
	Coverage   uint16    `json:"coverage"` // of the request's terms, by their rarity, per ten thousand
	Offline    bool      `json:"offline,omitempty"`
	Imported   bool      `json:"imported,omitempty"` // its agent has no credential, and cannot attach
}

// Matched is one field and the terms found there.
type Matched struct {
	Field string   `json:"field"`
	Terms []string `json:"terms"`
}

// Refused is a capability that was held back, and why.
type Refused struct {
	Capability string  `json:"capability"`
	Name       string  `json:"name"`
	Score      float64 `json:"score"`
	Why        string  `json:"why"`
}
