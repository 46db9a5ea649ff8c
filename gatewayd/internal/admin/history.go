package admin

import (
	"time"

	"agentgw/directory/acs"
)

// AgentHistory is what an agent's entry has said, as far as the directory keeps it.
type AgentHistory struct {
	AIC      string       `json:"aic"`
	Editions []EditionRow `json:"editions"` // oldest first; the last one is in force, unless the entry has ended
	Ended    *Ended       `json:"ended,omitempty"`
}

// EditionRow is the versions of an entry, one after the other, that say the same: they differ by credentials at most.
type EditionRow struct {
	First      uint64    `json:"first"` // version
	Last       uint64    `json:"last"`
	Since      time.Time `json:"since"`
	State      string    `json:"state"`
	Visibility string    `json:"visibility"`
	Skills     []string  `json:"skills"`
	Changed    []string  `json:"changed"` // paths at which it differs from the edition before, at most [MaxChanged]; none for the oldest kept
}

// MaxChanged is how many changed paths a row of a history names.
const MaxChanged = 20

// DiffRequest asks what differs between two versions of an agent's entry.
type DiffRequest struct {
	AIC  string `json:"aic"`
	From uint64 `json:"from,omitempty"` // version; default: the edition before the last
	To   uint64 `json:"to,omitempty"`   // version; default: the last
}

// AgentDiff is the answer.
type AgentDiff struct {
	AIC     string           `json:"aic"`
	From    uint64           `json:"from"` // versions that were compared: the last of their editions
	To      uint64           `json:"to"`
	Changes []acs.Difference `json:"changes"`
}
