package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"agentgw/internal/control"
)

// Directory is what an operator does with the directory as a whole.
type Directory interface {
	// CheckDirectory compares what the gateway has at hand with its store.
	CheckDirectory(ctx context.Context) (*DirectoryCheck, error)
	// Import takes entries that an export has written.
	Import(ctx context.Context, r ImportRequest) (*Imported, error)
}

// DirectoryCheck is what a check has found.
type DirectoryCheck struct {
	Entries      int      `json:"entries"`
	Capabilities int      `json:"capabilities"`
	Sequence     uint64   `json:"sequence"` // of the last change
	Problems     []string `json:"problems"` // none: the index is equal to the store
	Loaded       string   `json:"loaded"`   // what this process started from: snapshot, entries
}

// Bounds on an import.
const (
	MaxImportLine  = 192 << 10 // octets: an ACS may have 64 KiB, what stands beside it up to 112
	MaxImportBatch = 1000      // lines of one call, and
	ImportBatch    = 512 << 10 // octets, after which a call is full
)

// ImportRequest is some lines of a file.
type ImportRequest struct {
	File   string       `json:"file"`   // for the audit log: its base name
	Update bool         `json:"update"` // replace what is there with other content
	Lines  []ImportLine `json:"lines"`
}

// ImportLine is one entry as [ExportedEntry] has it.
type ImportLine struct {
	Line  int             `json:"line"` // from 1
	Entry json.RawMessage `json:"entry"`
}

// Imported is what became of them.
type Imported struct {
	Registered int            `json:"registered"`
	Updated    int            `json:"updated"`
	Unchanged  int            `json:"unchanged"` // there already, with this content
	Rejected   []RejectedLine `json:"rejected"`
	Warnings   []WarnedLine   `json:"warnings"` // of lines that were not rejected
}

// WarnedLine says what is probably a mistake in a line, where, and what may have been meant.
type WarnedLine struct {
	Line int    `json:"line"`
	AIC  string `json:"aic"`
	What string `json:"what"`
}

// RejectedLine says what is wrong with a line, where, and what to do.
type RejectedLine struct {
	Line int    `json:"line"`
	AIC  string `json:"aic,omitempty"`
	Why  string `json:"why"`
}

func handleDirectory(mux *http.ServeMux, g Directory) {
	mux.HandleFunc("POST /v1/agents/check", control.Handle(func(ctx context.Context, _ None) (*DirectoryCheck, error) { return g.CheckDirectory(ctx) }))
	mux.HandleFunc("POST /v1/agents/import", control.Handle(g.Import))
}
