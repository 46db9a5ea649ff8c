package directory

// Capability is one skill of one agent as the matcher ranks it.
type Capability struct {
	AIC         string
	CapID       string // Capability Identifier
	SkillID     string
	Name        string
	Description string
	Tags        []string
	Classes     []string // of the taxonomy, paths
	Examples    []string
	Parameters  string   // what the skill takes, in words; "" if it does not say
	In, Out     []string // MIME types taken and given; the skill's own, else the agent's defaults

	// Context of the skill.
	AgentName        string
	AgentDescription string
	Provider         string // the provider's organisation as declared, else its vendor part of the AIC; bounds one list

	ACSVersion   string // the agent's own version text
	EntryVersion uint64
}

// Candidate is one capability that answers a request, with how well and why.
type Candidate struct {
	Capability
	Score      float64 // ranks within one directory only; not comparable between directories
	Confidence uint16  // per ten thousand; comparable between directories
	Load       uint16  // how busy the agent was when it was ranked, 0 idle; breaks ties of the score and is no part of it
	Offline    bool    // the agent is not attached now
	Evidence   Evidence
}

// Evidence is why a candidate was ranked where it is. A score is relevance and never trust.
type Evidence struct {
	Matched    []FieldMatch // by field, in the order name, description, tags, examples, agent
	Structured []string     // exact matches: a capability id, a tag
	Text       float64      // BM25F part of the score
	Bigram     float64      // word-pair part of the score, weight included
	Cosine     float64      // similarity of the request's and the capability's embeddings, -1 to 1
	Coverage   uint16       // share of the request's terms found at all, per ten thousand, weighted by their rarity
}

// FieldMatch is one field of a capability and the terms of the request that it has, in the request's order. The terms are in
// the form in which the matcher compares them (lower case, stemmed).
type FieldMatch struct {
	Field string
	Terms []string
}
