// Package admin is gatewayd's control socket: what its verbs ask of a running gateway, as JSON calls. The calls are the
// operator's; whoever may open the socket may do all of them.
package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/amc"
	"agentgw/internal/control"
)

// Gateway is what the socket shows and changes.
type Gateway interface {
	Status() Status
	Agents(r AgentsRequest) (*AgentsPage, error)
	ExportAgents(r AgentsRequest) (*ExportPage, error)
	Agent(r AgentRequest) (AgentDetail, error)
	AgentHistory(r AgentRequest) (*AgentHistory, error)
	AgentDiff(r DiffRequest) (*AgentDiff, error)
	Peers() []PeerRow
	Digests() []DigestRow
	// Members are the gateways of the own domain that are alive.
	Members() ([]Member, error)
	CreateToken(ctx context.Context, r TokenRequest) (TokenAnswer, error)
	Resolve(ctx context.Context, ask semreq.Ask) (*semreq.Outcome, error)
	Match(ctx context.Context, r MatchRequest) (*Match, error)
	ReloadPeers(ctx context.Context) error
	DNS(ctx context.Context, r DNSRequest) (*DNSReport, error)
	Withdraw(ctx context.Context, r WithdrawRequest) error
	Deprecate(ctx context.Context, r DeprecateRequest) error
	Trust
	Directory
	Operator
	SetStanding(ctx context.Context, r StandingRequest) error
	Pending() ([]amc.PendingRequest, error)
	Decide(ctx context.Context, r DecideRequest) error
	RotateKeys(ctx context.Context) error
	Keys() []KeyRow
	AuditState() AuditState
	Backup(ctx context.Context, r BackupRequest) (BackupAnswer, error)
	ReloadCA(ctx context.Context) error
	ReplaceCA(ctx context.Context) ([]CAEvent, error)
}

// Status is `gatewayd status`.
type Status struct {
	Gateway  string     `json:"gateway"` // AIC
	Domain   string     `json:"domain"`
	Version  string     `json:"version"`
	Listen   string     `json:"listen"`
	Pin      string     `json:"pin"` // of this gateway's key, for enrolment without a token
	UptimeS  int64      `json:"uptime_s"`
	Agents   int        `json:"agents"`   // registered and offered
	Attached int        `json:"attached"` // of these, here now
	Peers    []PeerRow  `json:"peers"`
	Restored int        `json:"restored"` // digests of peers that this start took from what was kept before it
	Requests Requests   `json:"requests"`
	Domains  []TrustRow `json:"domains"`           // whose word this gateway takes
	Pending  []TrustRow `json:"pending,omitempty"` // introduced domains that wait for approval
	Audit    string     `json:"audit"`             // ok (and perhaps when it was begun anew), being verified, or what is wrong with the log
	AMC      string     `json:"amc"`               // here, attached, or why the one on another host is not reached
	Gateways []string   `json:"gateways"`          // on other hosts, attached to the AMC here
	Waiting  int        `json:"waiting"`           // registrations that wait for an operator here
	Drained  *time.Time `json:"drained,omitempty"` // since then it is a lame duck: it takes nothing new
	// Siblings are the other AMCs of the domain, where one is here
	Siblings []SiblingRow `json:"siblings,omitempty"`
	// Embedder is the embeddings endpoint, where one is configured
	Embedder *EmbedderStatus `json:"embedder,omitempty"`
}

// EmbedderStatus is how an embeddings endpoint does. Whatever its state is, requests are answered: without vectors they are ranked by their words.
type EmbedderStatus struct {
	Endpoint string     `json:"endpoint"` // without credentials
	Model    string     `json:"model"`
	State    string     `json:"state"`           // ready; filling: entries wait for their vectors; failing: the endpoint does not answer
	Vectors  int        `json:"vectors"`         // of entries, that there are
	Of       int        `json:"of"`              // that there will be
	Since    *time.Time `json:"since,omitempty"` // failing: from then on
	Tried    *time.Time `json:"tried,omitempty"` // failing: last
	Error    string     `json:"error,omitempty"` // failing: the last one; filling: why the last round left entries out
}

// SiblingRow is another AMC of the domain, as the one here is attached to it.
type SiblingRow struct {
	Issuer   string   `json:"issuer"` // AIC
	Address  string   `json:"address"`
	State    string   `json:"state"` // attached, connecting, or why not
	Prefixes []string `json:"prefixes,omitempty"`
	Seq      uint64   `json:"seq,omitempty"` // of its bundle
}

// Requests counts since the start.
type Requests struct {
	Answered  uint64 `json:"answered"`
	Forwarded uint64 `json:"forwarded"`
}

// TrustRow is one accepted bundle.
type TrustRow struct {
	Domain      string   `json:"domain"`
	Issuer      string   `json:"issuer,omitempty"` // AIC of the AMC
	Source      string   `json:"source"`           // own, configured, introduced, vouched (by the bundle of another issuer of the domain)
	By          []string `json:"by,omitempty"`
	Fingerprint string   `json:"fingerprint"`
	Seq         uint64   `json:"seq"`
}

// PeerRow is one neighbour.
type PeerRow struct {
	Domain  string     `json:"domain"`
	Gateway string     `json:"gateway,omitempty"`
	Role    string     `json:"role"`
	State   string     `json:"state"`           // idle, connect, open, up, stale
	Acked   bool       `json:"acked"`           // the peer has applied all that we have for it
	Since   *time.Time `json:"since,omitempty"` // of the state, while there is a session
	Entries int        `json:"entries"`         // digests held from it
	Stale   int        `json:"stale,omitempty"` // of these, not confirmed since it was lost or began to tell all anew
	Sent    int        `json:"sent"`            // digests that it holds from us
	// Since this gateway's start: entries of it that we took, each time that they came; that we refused, and of ours that it refused, by reason
	Accepted uint64            `json:"accepted"`
	Rejected map[string]uint64 `json:"rejected,omitempty"`
	Refused  map[string]uint64 `json:"refused,omitempty"`
	LastAck  *time.Time        `json:"last_ack,omitempty"` // it acknowledged something of ours
	Ended    string            `json:"ended,omitempty"`    // why its last session ended,
	EndedAt  *time.Time        `json:"ended_at,omitempty"` // and when
	Lame     bool              `json:"lame,omitempty"`     // it says that it takes nothing new
	Drained  bool              `json:"drained,omitempty"`  // nothing new goes there: `gatewayd peer drain`
	RTTMS    int64             `json:"rtt_ms,omitempty"`
	ClockS   int64             `json:"clock_ahead_s"`   // how far its clock is ahead of ours, by its last HELLO
	Until    *time.Time        `json:"until,omitempty"` // when the certificates of the connection end
	Error    string            `json:"error,omitempty"`
}

// Member is a gateway of the own domain that is alive by the gossip, and how the session with it stands.
type Member struct {
	Gateway   string   `json:"gateway"`
	Addresses []string `json:"addresses"`
	Self      bool     `json:"self,omitempty"`
	Lame      bool     `json:"lame,omitempty"` // it is drained or about to stop
	Session   string   `json:"session,omitempty"`
	Entries   int      `json:"entries"` // digests that it has told
}

// AgentRow is one agent of the directory; at an AMC alone one agent or gateway that it has issued credentials to.
type AgentRow struct {
	AIC          string    `json:"aic"`
	Name         string    `json:"name"`
	State        string    `json:"state"`
	Attached     bool      `json:"attached"`
	MovedTo      string    `json:"moved_to,omitempty"` // the gateway of the domain that is its home now
	Imported     bool      `json:"imported,omitempty"` // by `gatewayd import`: it has no credential, and cannot attach
	Visibility   string    `json:"visibility"`
	Bound        string    `json:"bound,omitempty"` // the widest visibility that the operator leaves the agent
	Version      uint64    `json:"version"`
	Skills       []string  `json:"skills"`
	LastModified time.Time `json:"last_modified"`
}

// AgentsRequest asks for one page of the agents, in the order of their AICs.
type AgentsRequest struct {
	After  string `json:"after,omitempty"`  // the AIC at which the last page ended
	Limit  int    `json:"limit,omitempty"`  // default 1000, at most that
	State  string `json:"state,omitempty"`  // only those in one state, such as ACTIVE
	Vendor string `json:"vendor,omitempty"` // only those of one vendor code
}

// MaxPage is the most rows of a page.
const MaxPage = 1000

// AgentsPage is one page.
type AgentsPage struct {
	Agents []AgentRow `json:"agents"`
	Next   string     `json:"next,omitempty"` // where the next page begins; absent at the end
}

// ExportPage is one page of whole entries.
type ExportPage struct {
	Entries []ExportedEntry `json:"entries"`
	Next    string          `json:"next,omitempty"`
}

// ExportedEntry is what the directory has of one agent: its authoritative ACS, and what the gateway keeps beside it.
type ExportedEntry struct {
	ACS   json.RawMessage `json:"acs"`
	Entry EntryView       `json:"entry"`
	Card  string          `json:"card,omitempty"` // the Agent Card that the ACS was made of, byte for byte
}

// EntryView is the part of an entry that the agent cannot write.
type EntryView struct {
	CapabilityIDs    []string  `json:"capabilityIds"`
	Domain           string    `json:"aad"`
	Gateway          string    `json:"gateway"`
	State            string    `json:"state"`
	Version          uint64    `json:"version"`
	RegisteredAt     time.Time `json:"registeredAt"`
	LastModified     time.Time `json:"lastModifiedTime"`
	ExpiresAt        time.Time `json:"expiresAt,omitzero"`
	Visibility       string    `json:"visibility"`
	Allow            []string  `json:"allow,omitempty"`
	AuthorizedSkills []string  `json:"authorizedSkills"`
	Provider         string    `json:"provider"`
	ACSSHA256        string    `json:"acsSha256"` // of its canonical form (RFC 8785), base64url
	Taxonomy         string    `json:"taxonomy"`  // that its classes are of
	Alive            bool      `json:"alive"`
	MovedTo          string    `json:"movedTo,omitempty"` // the gateway of the domain that is its home now
	LastSeen         time.Time `json:"lastSeenAt,omitzero"`
}

// DeprecateRequest marks an agent as on its way out, or takes that back.
type DeprecateRequest struct {
	AIC  string `json:"aic"`
	Undo bool   `json:"undo,omitempty"`
}

// AgentRequest names an agent.
type AgentRequest struct {
	AIC string `json:"aic"`
}

// AgentDetail is one agent as the directory and the AMC know it.
type AgentDetail struct {
	AIC      string    `json:"aic"`
	Entry    *AgentRow `json:"entry,omitempty"`
	Ended    *Ended    `json:"ended,omitempty"`
	Standing *Standing `json:"standing,omitempty"` // where the AMC is in this process
}

// Ended is what remains of an entry.
type Ended struct {
	State  string    `json:"state"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// Standing is an agent in the records of the AMC.
type Standing struct {
	State            string    `json:"state"`
	Since            time.Time `json:"since"`
	Reason           uint8     `json:"reason"` // RFC 5280
	Why              string    `json:"why,omitempty"`
	Gateway          string    `json:"gateway"`
	Decider          string    `json:"decider"`
	Scope            []string  `json:"scope"`
	GrantUntil       time.Time `json:"grant_until"`
	CertificateUntil time.Time `json:"certificate_until"`
}

// DigestRow is one digest entry of the table.
type DigestRow struct {
	Origin string   `json:"origin"` // gateway AIC
	Domain string   `json:"domain"`
	NS     string   `json:"ns"`
	Label  string   `json:"label"`
	Level  string   `json:"level"` // of disclosure
	Path   []string `json:"path,omitempty"`
	Via    string   `json:"via,omitempty"` // neighbour; empty for our own
	Stale  bool     `json:"stale,omitempty"`
}

// TokenRequest asks for an enrolment token.
type TokenRequest struct {
	LifeS   int64    `json:"life_s,omitempty"`
	Scope   []string `json:"scope,omitempty"`
	Note    string   `json:"note,omitempty"`
	For     string   `json:"for,omitempty"`     // agent (default) or gateway
	Gateway string   `json:"gateway,omitempty"` // AIC of the one that an agent shall enrol at; default this one
	// Vendor and Ontology fix these codes of the AIC that it brings; empty leaves them to the gateway.
	Vendor   string `json:"vendor,omitempty"`
	Ontology string `json:"ontology,omitempty"`
}

// TokenAnswer holds the token: a secret, shown once.
type TokenAnswer struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// WithdrawRequest takes an agent out of the directory for good.
type WithdrawRequest struct {
	AIC    string `json:"aic"`
	Reason string `json:"reason,omitempty"`
}

// StandingRequest suspends (suspended), resumes (good) or revokes (revoked) an agent.
type StandingRequest struct {
	AIC            string `json:"aic"`
	State          string `json:"state"`
	Reason         string `json:"reason,omitempty"`
	KeyCompromised bool   `json:"key_compromised,omitempty"`
}

// DecideRequest approves or denies a registration that waits.
type DecideRequest struct {
	Request string   `json:"request"`
	Approve bool     `json:"approve"`
	Scope   []string `json:"scope,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// AuditState is what the running gateway knows of its audit log.
type AuditState struct {
	Count uint64 `json:"count"`          // lines on the disk
	Hash  string `json:"hash"`           // of the last one, hexadecimal
	Kept  []byte `json:"kept,omitempty"` // the newest signed checkpoint in the directory database
}

// BackupRequest has the gateway write a backup of its directory.
type BackupRequest struct {
	File string `json:"file"` // absolute; must not be there
}

// BackupAnswer is what was written.
type BackupAnswer struct {
	File       string    `json:"file"`
	Octets     int64     `json:"octets"`
	SHA256     string    `json:"sha256"`
	Created    time.Time `json:"created"`
	AuditCount uint64    `json:"audit_count"` // lines of the audit log that it covers
}

// KeyRow is one signing key of this process as the own bundle publishes it.
type KeyRow struct {
	Use       string     `json:"use"`
	Key       string     `json:"key"`                 // id, hexadecimal
	State     string     `json:"state"`               // signs, next, replaced
	Published *time.Time `json:"published,omitempty"` // since when bundles carry it; of a next key absent until the AMC has taken it
	Then      *time.Time `json:"then,omitempty"`      // signs: its successor is made; next: it takes over; replaced: what it has signed ends to count
}

// CAEvent is one step of the domain's CA.
type CAEvent struct {
	Action string    `json:"action"` // prepared, activated, signature wanted
	Name   string    `json:"name"`
	File   string    `json:"file,omitempty"` // to be signed by the root's owner
	Until  time.Time `json:"until"`
}

// None is an empty body.
type None struct{}

// Handler is the socket's calls.
func Handler(g Gateway) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/status", control.Handle(func(context.Context, None) (Status, error) { return g.Status(), nil }))
	mux.HandleFunc("POST /v1/agents", control.Handle(func(_ context.Context, r AgentsRequest) (*AgentsPage, error) { return g.Agents(r) }))
	mux.HandleFunc("POST /v1/agents/export", control.Handle(func(_ context.Context, r AgentsRequest) (*ExportPage, error) { return g.ExportAgents(r) }))
	mux.HandleFunc("POST /v1/agents/show", control.Handle(func(_ context.Context, r AgentRequest) (AgentDetail, error) { return g.Agent(r) }))
	mux.HandleFunc("POST /v1/agents/history", control.Handle(func(_ context.Context, r AgentRequest) (*AgentHistory, error) { return g.AgentHistory(r) }))
	mux.HandleFunc("POST /v1/agents/diff", control.Handle(func(_ context.Context, r DiffRequest) (*AgentDiff, error) { return g.AgentDiff(r) }))
	mux.HandleFunc("POST /v1/peers", control.Handle(func(context.Context, None) ([]PeerRow, error) { return List(g.Peers()), nil }))
	mux.HandleFunc("POST /v1/members", control.Handle(func(context.Context, None) ([]Member, error) { return g.Members() }))
	mux.HandleFunc("POST /v1/digests", control.Handle(func(context.Context, None) ([]DigestRow, error) { return List(g.Digests()), nil }))
	mux.HandleFunc("POST /v1/token", control.Handle(g.CreateToken))
	mux.HandleFunc("POST /v1/resolve", control.Handle(g.Resolve))
	mux.HandleFunc("POST /v1/match", control.Handle(g.Match))
	mux.HandleFunc("POST /v1/peers/reload", control.Handle(func(ctx context.Context, _ None) (None, error) { return None{}, g.ReloadPeers(ctx) }))
	mux.HandleFunc("POST /v1/agents/withdraw", control.Handle(func(ctx context.Context, r WithdrawRequest) (None, error) {
		return None{}, g.Withdraw(ctx, r)
	}))
	mux.HandleFunc("POST /v1/agents/deprecate", control.Handle(func(ctx context.Context, r DeprecateRequest) (None, error) {
		return None{}, g.Deprecate(ctx, r)
	}))
	mux.HandleFunc("POST /v1/dns", control.Handle(g.DNS))
	handleTrust(mux, g)
	handleDirectory(mux, g)
	handleOperator(mux, g)
	mux.HandleFunc("POST /v1/agents/standing", control.Handle(func(ctx context.Context, r StandingRequest) (None, error) {
		return None{}, g.SetStanding(ctx, r)
	}))
	mux.HandleFunc("POST /v1/agents/pending", control.Handle(func(context.Context, None) ([]amc.PendingRequest, error) {
		l, err := g.Pending()
		return List(l), err
	}))
	mux.HandleFunc("POST /v1/ca/rotate", control.Handle(func(ctx context.Context, _ None) ([]CAEvent, error) { return g.ReplaceCA(ctx) }))
	mux.HandleFunc("POST /v1/ca/reload", control.Handle(func(ctx context.Context, _ None) (None, error) { return None{}, g.ReloadCA(ctx) }))
	mux.HandleFunc("POST /v1/keys/rotate", control.Handle(func(ctx context.Context, _ None) (None, error) { return None{}, g.RotateKeys(ctx) }))
	mux.HandleFunc("POST /v1/keys", control.Handle(func(context.Context, None) ([]KeyRow, error) { return List(g.Keys()), nil }))
	mux.HandleFunc("POST /v1/audit", control.Handle(func(context.Context, None) (AuditState, error) { return g.AuditState(), nil }))
	mux.HandleFunc("POST /v1/backup", control.Handle(g.Backup))
	mux.HandleFunc("POST /v1/agents/decide", control.Handle(func(ctx context.Context, r DecideRequest) (None, error) {
		return None{}, g.Decide(ctx, r)
	}))
	return mux
}

// List makes JSON say [] and not null.
func List[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
