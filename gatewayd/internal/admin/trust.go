package admin

import (
	"context"
	"net/http"
	"time"

	"agentgw/internal/control"
)

// Trust is what the socket does about trust between domains.
type Trust interface {
	ApprovePeer(ctx context.Context, r ApproveRequest) error
	ExplainPeer(ctx context.Context, r ExplainRequest) (*Explanation, error)
}

// ApproveRequest believes an introduced domain that waits.
type ApproveRequest struct {
	Domain      string `json:"domain"`
	Fingerprint string `json:"fingerprint"` // sha256:… of the key that signed its bundle
}

// ExplainRequest names a domain: a neighbour, an introduced one, or one that is not known.
type ExplainRequest struct {
	Domain string `json:"domain"`
}

// Explanation is `gatewayd peer explain`: facts, then what would pass.
type Explanation struct {
	Domain      string       `json:"domain"`
	Kind        string       `json:"kind"`              // own, neighbour, introduced, pending, disputed, unknown
	Missing     string       `json:"missing,omitempty"` // which bundle is missing, and what would bring it
	Row         *RowView     `json:"row,omitempty"`
	Bundle      *BundleState `json:"bundle,omitempty"`
	Status      *StatusState `json:"status,omitempty"`
	Further     []Further    `json:"further,omitempty"` // issuers of the domain that its bundle names
	Links       []PeerRow    `json:"links,omitempty"`
	HoldsOfOurs *HeldState   `json:"holds_of_ours,omitempty"` // what it says that it holds of this domain
	Pending     []TrustRow   `json:"pending,omitempty"`       // itself, or what it has introduced
	DisputedBy  []string     `json:"disputed_by,omitempty"`
	Verdicts    []Verdict    `json:"verdicts,omitempty"`
}

// RowView is a policy row.
type RowView struct {
	Role       string   `json:"role"`
	Export     string   `json:"export"`
	Disclose   string   `json:"disclose"`
	MayQuery   []string `json:"may_query"`
	Addresses  []string `json:"addresses,omitempty"`
	Discover   bool     `json:"discover,omitempty"` // what DNS names is dialled too
	Gateways   []string `json:"gateways,omitempty"`
	Introduces []string `json:"introduces,omitempty"`
	FirstUse   string   `json:"first_use"`
	Upstream   bool     `json:"upstream,omitempty"`
}

// BundleState is the accepted bundle of a domain.
type BundleState struct {
	TrustRow
	Issued     time.Time  `json:"issued"`
	URL        string     `json:"url,omitempty"` // where newer ones are fetched
	FetchedAt  *time.Time `json:"fetched_at,omitempty"`
	FetchError string     `json:"fetch_error,omitempty"`
}

// StatusState is the newest status list of a domain.
type StatusState struct {
	State string     `json:"state"` // fresh, stale, none, unchecked
	Seq   uint64     `json:"seq,omitempty"`
	Next  *time.Time `json:"next,omitempty"` // a newer one is due by then
	Why   string     `json:"why,omitempty"`
}

// Further is another issuer (AMC) of a domain.
type Further struct {
	Issuer   string       `json:"issuer"` // AIC
	Prefixes []string     `json:"prefixes,omitempty"`
	Seq      uint64       `json:"seq,omitempty"` // of its bundle; 0: it has not come yet
	Status   *StatusState `json:"status,omitempty"`
}

// HeldState is what a neighbour holds of us.
type HeldState struct {
	BundleSeq    uint64 `json:"bundle_seq"`
	StatusSeq    uint64 `json:"status_seq"`
	BundleBehind bool   `json:"bundle_behind,omitempty"` // ours is newer
	StatusBehind bool   `json:"status_behind,omitempty"`
}

// Verdict says of one thing whether it would pass.
type Verdict struct {
	What   string `json:"what"`
	Passes bool   `json:"passes"`
	Why    string `json:"why"`
}

func handleTrust(mux *http.ServeMux, g Trust) {
	mux.HandleFunc("POST /v1/peers/approve", control.Handle(func(ctx context.Context, r ApproveRequest) (None, error) {
		return None{}, g.ApprovePeer(ctx, r)
	}))
	mux.HandleFunc("POST /v1/peers/explain", control.Handle(g.ExplainPeer))
}
