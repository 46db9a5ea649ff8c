package directory

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"agentgw/directory/acs"
	"agentgw/internal/frame"
)

// Bounds on an entry.
const (
	MaxACS      = acs.MaxSize // octets of the authoritative ACS
	MaxEntry    = 256 << 10   // octets of a stored record: the store keeps values in the tree up to here and far beyond
	MaxAllow    = 64          // domains in an allow list
	MaxSkills   = acs.MaxSkills
	entryFormat = 1 // version of the storage encoding
)

// Entry is what the directory keeps for one agent. Everything but the ACS is set by the gateway and never by the agent.
type Entry struct {
	AIC          string
	ACS          []byte // the authoritative ACS, JSON, at most MaxACS; unknown members of the draft are preserved
	ACSHash      [32]byte
	Card         []byte // the Agent Card that the ACS was made of, byte for byte, at most MaxACS; none if the draft was an ACS
	State        State
	Version      uint64 // 1 at registration, +1 on each change; what compare-and-set compares
	RegisteredAt time.Time
	LastModified time.Time
	ExpiresAt    time.Time // zero: it does not expire
	Visibility   Visibility
	Allow        []string // domains, for VisibleListed
	Bound        *Reach   // the widest that the agent may make visibility and allow list, on the operator's word; nil: as wide as it likes
	Skills       []string // skill ids that the Agent Management Center authorised; the ACS has no others
	Provenance   Provenance
	Taxonomy     string // version that the classes of its skills are of; "" in entries of before there were any
	Edition      Edition
}

// Edition numbers what an entry says: versions that differ by credentials alone, as renewals leave them, are of one edition. The store
// keeps the last version of each of the last editions.
type Edition struct {
	Number uint64    // 0 at registration, +1 with each change of what is said
	Since  time.Time // zero: since registration, or since before there were editions
}

// SameContent says whether two versions of an entry tell their readers the same.
func (e Entry) SameContent(o Entry) bool {
	return e.ACSHash == o.ACSHash && bytes.Equal(e.Card, o.Card) && e.State == o.State && e.Visibility == o.Visibility && slices.Equal(e.Allow, o.Allow) &&
		slices.Equal(e.Skills, o.Skills) && e.Provenance.Provider == o.Provenance.Provider
}

// Provenance is how an entry came to be.
type Provenance struct {
	SubmittedBy string   // AIC or description of who submitted the draft
	CertSHA256  [32]byte // of the agent's certificate
	SPKI        [32]byte // SHA-256 of the agent's SubjectPublicKeyInfo: survives a renewal over the same key
	Grant       string   // id of the Agent Management Center's grant, or of the enrolment token
	Provider    string   // "unverified" until somebody has proved who the provider is
	From        string   // AIC of the gateway of the domain that the agent was at home at before; "" for one that has registered here
	Base        uint64   // of one with From: the highest version of its entry that was known when it came
}

// SubmittedByImport is who submits what an operator imports. No agent and no grant has such a name.
const SubmittedByImport = "import"

// Imported says that no agent has registered the entry: nobody holds a credential under its AIC, so nobody can attach.
func (p Provenance) Imported() bool { return p.SubmittedBy == SubmittedByImport }

// ProviderUnverified is the provenance of a provider that only says its own name.
const ProviderUnverified = "unverified"

// Offered says whether the entry may be resolved to at the time now, liveness apart.
func (e Entry) Offered(now time.Time) bool {
	return e.State.Offered() && (e.ExpiresAt.IsZero() || now.Before(e.ExpiresAt))
}

// VisibleTo says whether a requester of the domain `asker` may learn of the entry; home says that it is the entry's own domain.
func (e Entry) VisibleTo(asker string, home bool) bool {
	switch e.Visibility {
	case VisiblePublic:
		return true
	case VisibleListed:
		return home || slices.Contains(e.Allow, asker)
	case VisibleDomain:
		return home
	}
	return false
}

// storedEntry is the storage encoding: one CBOR map in core deterministic encoding. Key 1 is the format's version. A change of
// meaning takes a new version and a new golden test; new optional keys do not. Times are Unix milliseconds, 0 for none.
type storedEntry struct {
	Format       uint64   `cbor:"1,keyasint"`
	AIC          string   `cbor:"2,keyasint"`
	ACS          []byte   `cbor:"3,keyasint,omitempty"`
	ACSHash      []byte   `cbor:"4,keyasint,omitempty"`
	State        uint8    `cbor:"5,keyasint"`
	Version      uint64   `cbor:"6,keyasint"`
	RegisteredAt int64    `cbor:"7,keyasint,omitempty"`
	LastModified int64    `cbor:"8,keyasint,omitempty"`
	ExpiresAt    int64    `cbor:"9,keyasint,omitempty"`
	Visibility   uint8    `cbor:"10,keyasint,omitempty"`
	Allow        []string `cbor:"11,keyasint,omitempty"`
	Skills       []string `cbor:"12,keyasint,omitempty"`
	SubmittedBy  string   `cbor:"13,keyasint,omitempty"`
	CertSHA256   []byte   `cbor:"14,keyasint,omitempty"`
	SPKI         []byte   `cbor:"15,keyasint,omitempty"`
	Grant        string   `cbor:"16,keyasint,omitempty"`
	Provider     string   `cbor:"17,keyasint,omitempty"`
	Taxonomy     string   `cbor:"18,keyasint,omitempty"`
	Edition      uint64   `cbor:"19,keyasint,omitempty"`
	EditionSince int64    `cbor:"20,keyasint,omitempty"`
	Card         []byte   `cbor:"21,keyasint,omitempty"`

	Bound *storedReach `cbor:"22,keyasint,omitempty"` // a program of before there were bounds passes it by, and drops it with its next change of the entry
	From  string       `cbor:"23,keyasint,omitempty"`
	Base  uint64       `cbor:"24,keyasint,omitempty"`
}

type storedReach struct {
	Visibility uint8    `cbor:"1,keyasint"`
	Allow      []string `cbor:"2,keyasint,omitempty"`
}

// EncodeEntry is the record that a store keeps. An entry over a limit is an error.
func EncodeEntry(e Entry) ([]byte, error) {
	if err := checkEntry(e); err != nil {
		return nil, err
	}
	var bound *storedReach
	if e.Bound != nil {
		bound = &storedReach{uint8(e.Bound.Visibility), e.Bound.Allow}
	}
	b, err := frame.Marshal(storedEntry{
		Format: entryFormat, AIC: e.AIC, ACS: e.ACS, ACSHash: hashBytes(e.ACSHash), State: uint8(e.State), Version: e.Version,
		RegisteredAt: milli(e.RegisteredAt), LastModified: milli(e.LastModified), ExpiresAt: milli(e.ExpiresAt),
		Visibility: uint8(e.Visibility), Allow: e.Allow, Skills: e.Skills,
		SubmittedBy: e.Provenance.SubmittedBy, CertSHA256: hashBytes(e.Provenance.CertSHA256), SPKI: hashBytes(e.Provenance.SPKI),
		Grant: e.Provenance.Grant, Provider: e.Provenance.Provider, Taxonomy: e.Taxonomy,
		Edition: e.Edition.Number, EditionSince: milli(e.Edition.Since), Card: e.Card, Bound: bound, From: e.Provenance.From, Base: e.Provenance.Base,
	})
	if err != nil {
		return nil, fmt.Errorf("encode entry %s: %w", e.AIC, err)
	}
	if len(b) > MaxEntry {
		return nil, fmt.Errorf("entry %s takes %d octets, the limit is %d", e.AIC, len(b), MaxEntry)
	}
	return b, nil
}

func checkEntry(e Entry) error {
	switch {
	case e.AIC == "":
		return fmt.Errorf("entry without an AIC")
	case len(e.ACS) > MaxACS:
		return fmt.Errorf("entry %s: ACS of %d octets, the limit is %d", e.AIC, len(e.ACS), MaxACS)
	case len(e.Card) > MaxACS:
		return fmt.Errorf("entry %s: Agent Card of %d octets, the limit is %d", e.AIC, len(e.Card), MaxACS)
	case len(e.Allow) > MaxAllow:
		return fmt.Errorf("entry %s: %d domains in its allow list, the limit is %d", e.AIC, len(e.Allow), MaxAllow)
	case len(e.Skills) > MaxSkills:
		return fmt.Errorf("entry %s: %d authorised skills, the limit is %d", e.AIC, len(e.Skills), MaxSkills)
	case e.Bound != nil && (e.Bound.Visibility > VisiblePrivate || len(e.Bound.Allow) > MaxAllow):
		return fmt.Errorf("entry %s: its bound is visibility %v with %d domains, which does not exist", e.AIC, e.Bound.Visibility, len(e.Bound.Allow))
	case e.State > Expired || e.Visibility > VisiblePrivate:
		return fmt.Errorf("entry %s: state %v or visibility %v does not exist", e.AIC, e.State, e.Visibility)
	}
	return nil
}

// DecodeEntry reads a stored record. A record of a newer format is an error: this program must not guess.
func DecodeEntry(b []byte) (Entry, error) {
	var s storedEntry
	if err := frame.Unmarshal(b, &s); err != nil {
		return Entry{}, fmt.Errorf("decode entry: %w", err)
	}
	if s.Format != entryFormat {
		return Entry{}, fmt.Errorf("decode entry %s: format %d, this program reads %d", s.AIC, s.Format, entryFormat)
	}
	e := Entry{
		AIC: s.AIC, ACS: s.ACS, Card: s.Card, State: State(s.State), Version: s.Version,
		RegisteredAt: fromMilli(s.RegisteredAt), LastModified: fromMilli(s.LastModified), ExpiresAt: fromMilli(s.ExpiresAt),
		Visibility: Visibility(s.Visibility), Allow: s.Allow, Skills: s.Skills, Taxonomy: s.Taxonomy,
		Edition:    Edition{s.Edition, fromMilli(s.EditionSince)},
		Provenance: Provenance{SubmittedBy: s.SubmittedBy, Grant: s.Grant, Provider: s.Provider, From: s.From, Base: s.Base},
	}
	if s.Bound != nil {
		e.Bound = &Reach{Visibility(s.Bound.Visibility), s.Bound.Allow}
	}
	for _, h := range []struct {
		to   *[32]byte
		from []byte
	}{{&e.ACSHash, s.ACSHash}, {&e.Provenance.CertSHA256, s.CertSHA256}, {&e.Provenance.SPKI, s.SPKI}} {
		if len(h.from) != 0 && len(h.from) != 32 {
			return Entry{}, fmt.Errorf("decode entry %s: hash of %d octets", s.AIC, len(h.from))
		}
		copy(h.to[:], h.from)
	}
	return e, checkEntry(e)
}

// Head is what a store compares of a stored record before it writes.
type Head struct {
	Version   uint64
	Edition   uint64
	ExpiresAt time.Time
}

// DecodeHead reads no more of a stored record than its head.
func DecodeHead(b []byte) (Head, error) {
	var s struct {
		Format    uint64 `cbor:"1,keyasint"`
		Version   uint64 `cbor:"6,keyasint"`
		ExpiresAt int64  `cbor:"9,keyasint"`
		Edition   uint64 `cbor:"19,keyasint"`
	}
	if err := frame.Unmarshal(b, &s); err != nil {
		return Head{}, fmt.Errorf("decode entry: %w", err)
	}
	if s.Format != entryFormat {
		return Head{}, fmt.Errorf("decode entry: format %d, this program reads %d", s.Format, entryFormat)
	}
	return Head{s.Version, s.Edition, fromMilli(s.ExpiresAt)}, nil
}

func hashBytes(h [32]byte) []byte {
	if h == ([32]byte{}) {
		return nil
	}
	return h[:]
}

func milli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
