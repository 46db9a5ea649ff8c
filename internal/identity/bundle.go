package identity

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
)

// Use is what a signing key of a bundle may sign.
type Use uint8

// Uses of Ed25519 keys (cdsp/PROTOCOL.md, "Identifiers and trust").
const (
	UseDigest Use = 1 // digest batches and resolution results; its owner is a gateway
	UseSAT    Use = 2 // session authorization tokens
	UseRAT    Use = 3 // request authorization tokens
	UseStatus Use = 4 // status lists, when an AMC owns it; checkpoints of an audit log, when a gateway does
	UseBundle Use = 5 // this bundle and its successors
	UseGrant  Use = 6 // authorization grants
)

const algEdDSA = -8

// Bounds of a bundle from outside.
const (
	MaxBundle      = 48 << 10
	maxBundleKeys  = 256
	maxBundleRoots = 4
	maxPrefixes    = 16
	MaxSiblings    = 7 // other issuers of a domain: with the own one as many as HELLO and ATTACH tell of
	maxDomain      = 253
)

// Bundle is what an issuer (AMC) says of its domain: the roots of its certificates, the AIC prefixes that it owns, the keys of
// its gateways, and which other issuers the domain has. It travels signed with a key of use 5 and replaces only a bundle of the same
// issuer and a smaller sequence.
type Bundle struct {
	Domain     string      `cbor:"1,keyasint"`
	Seq        uint64      `cbor:"2,keyasint"`
	Issued     uint64      `cbor:"3,keyasint"` // unix seconds
	RefreshS   uint64      `cbor:"4,keyasint"` // how long a copy may be used before it is asked for again
	Roots      [][]byte    `cbor:"5,keyasint"` // DER
	Keys       []BundleKey `cbor:"6,keyasint"`
	Prefixes   []string    `cbor:"8,keyasint"` // "prefix.version.arsp" of each AIC that is this domain's
	SketchKeys [][]byte    `cbor:"10,keyasint,omitempty"`
	Issuer     string      `cbor:"11,keyasint"` // AIC of the AMC
	Siblings   []Sibling   `cbor:"12,keyasint,omitempty"`
}

// BundleKey is one signing key.
type BundleKey struct {
	KeyID     []byte `cbor:"1,keyasint"`
	Alg       int    `cbor:"2,keyasint"`
	Public    []byte `cbor:"3,keyasint"`
	Owner     string `cbor:"4,keyasint"` // AIC
	NotBefore uint64 `cbor:"5,keyasint"`
	NotAfter  uint64 `cbor:"6,keyasint"`
	Use       Use    `cbor:"7,keyasint"`
}

// NewBundleKey describes a signer for a bundle.
func NewBundleKey(s frame.Signer, owner aic.AIC, use Use, now time.Time, life time.Duration) BundleKey {
	kid := s.KeyID()
	return BundleKey{
		KeyID: kid[:], Alg: algEdDSA, Public: s.Public(), Owner: string(owner), Use: use,
		NotBefore: uint64(now.Add(-NotBeforeSlack).Unix()), NotAfter: uint64(now.Add(life).Unix()),
	}
}

// BundleKeyOf describes a key that another host signs with.
func BundleKeyOf(public ed25519.PublicKey, owner aic.AIC, use Use, notBefore, notAfter uint64) BundleKey {
	kid := frame.KeyIDOf(public)
	return BundleKey{KeyID: kid[:], Alg: algEdDSA, Public: public, Owner: string(owner), Use: use, NotBefore: notBefore, NotAfter: notAfter}
}

// Sign makes the signed form.
func (b *Bundle) Sign(s frame.Signer) ([]byte, error) { return s.SignMessage(frame.AADBundle, "", b) }

// Accepted is a bundle that this side trusts, with how it came.
type Accepted struct {
	Bundle
	Raw         []byte   // as signed
	Fingerprint [32]byte // SHA-256 of the use-5 key that signed it
	Source      Source
	By          []string // domains that introduced it, when Source is Introduced; the issuer that names it, when Vouched
	root        [32]byte // SHA-256 of the operator's copy that it descends from, when Source is Configured
	pool        *x509.CertPool
}

// Source says how a bundle became trusted.
type Source uint8

// Sources, strongest first.
const (
	Own        Source = iota + 1 // this domain's
	Configured                   // given by the operator
	Introduced                   // relayed by a peer whose policy row lets it introduce
	Vouched                      // of another issuer of a domain, which the bundle that is trusted of the domain names
)

func (s Source) String() string {
	switch s {
	case Own:
		return "own"
	case Configured:
		return "configured"
	case Vouched:
		return "vouched"
	}
	return "introduced"
}

// FingerprintText is a fingerprint as people compare it.
func FingerprintText(fp [32]byte) string { return "sha256:" + hex.EncodeToString(fp[:]) }

// ParseFingerprint reads what [FingerprintText] wrote.
func ParseFingerprint(s string) (fp [32]byte, err error) {
	digits, ok := strings.CutPrefix(s, "sha256:")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != len(fp) {
		return fp, fmt.Errorf("fingerprint %q is not sha256: followed by 64 hexadecimal digits", s)
	}
	return [32]byte(raw), nil
}

// ParseBundle parses and checks a signed bundle on its own: its form, its limits, and that a use-5 key which it names
// itself has signed it. Whether it is trusted is [Trust]'s to say. Errors carry [frame.Malformed], [frame.BadSignature] or
// [frame.TrustDenied].
func ParseBundle(raw []byte) (*Accepted, error) {
	if len(raw) > MaxBundle {
		return nil, frame.Errorf(frame.FrameTooLarge, "bundle of %d bytes is over %d", len(raw), MaxBundle)
	}
	signed, err := frame.ParseSigned(raw)
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	a := &Accepted{Raw: slices.Clone(raw), pool: x509.NewCertPool()}
	if err := frame.Unmarshal(signed.Payload, &a.Bundle); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	key, ok := a.key(signed.KeyID, UseBundle)
	if !ok {
		return nil, frame.Errorf(frame.TrustDenied, "bundle of %s is signed by a key that it does not name for use 5", a.Domain)
	}
	if err := signed.Verify(frame.AADBundle, key.Public); err != nil {
		return nil, fmt.Errorf("bundle of %s: %w", a.Domain, err)
	}
	a.Fingerprint = sha256.Sum256(key.Public)
	return a, nil
}

var domainForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

// ValidDomain says whether s may name an Agent Autonomous Domain: a lower-case DNS name of A-labels, ≤ 253 octets.
func ValidDomain(s string) bool { return len(s) <= maxDomain && domainForm.MatchString(s) }

func (a *Accepted) check() error {
	bad := func(what string, args ...any) error {
		return frame.Errorf(frame.TrustDenied, "bundle of %q: "+what, append([]any{a.Domain}, args...)...)
	}
	switch {
	case !ValidDomain(a.Domain):
		return bad("not a domain name")
	case len(a.Roots) == 0 || len(a.Roots) > maxBundleRoots:
		return bad("%d roots, 1 to %d are accepted", len(a.Roots), maxBundleRoots)
	case len(a.Keys) == 0 || len(a.Keys) > maxBundleKeys:
		return bad("%d keys, 1 to %d are accepted", len(a.Keys), maxBundleKeys)
	case len(a.Prefixes) == 0 || len(a.Prefixes) > maxPrefixes:
		return bad("%d prefixes, 1 to %d are accepted", len(a.Prefixes), maxPrefixes)
	case a.ownedPrefix(a.Issuer) == "":
		return bad("its issuer is not under its own prefixes")
	}
	if err := a.checkSiblings(); err != nil {
		return err
	}
	for _, der := range a.Roots {
		root, err := x509.ParseCertificate(der)
		if err != nil || !root.IsCA {
			return bad("a root is not a CA certificate")
		}
		a.pool.AddCert(root)
	}
	for _, k := range a.Keys {
		if k.Alg != algEdDSA || len(k.Public) != ed25519.PublicKeySize || len(k.KeyID) != 8 ||
			frame.KeyID(k.KeyID) != frame.KeyIDOf(k.Public) {
			return bad("a key is not Ed25519 named by its own hash")
		}
		if a.ownedPrefix(k.Owner) == "" {
			return bad("key owner %s is not under its prefixes", k.Owner)
		}
	}
	for _, s := range a.SketchKeys {
		if len(s) != 32 {
			return bad("a sketch key is not 32 bytes")
		}
	}
	return nil
}

// ownedPrefix is the prefix of this bundle that owns an AIC, or "".
func (a *Accepted) ownedPrefix(id string) string {
	parsed, err := aic.Parse(id)
	if err != nil || !slices.Contains(a.Prefixes, parsed.ARSPKey()) {
		return ""
	}
	return parsed.ARSPKey()
}

// Owns says whether an AIC is under this domain's prefixes.
func (a *Accepted) Owns(id string) bool { return a.ownedPrefix(id) != "" }

// IsGateway says whether an AIC is a gateway of this domain: it owns a key for digests.
func (a *Accepted) IsGateway(id string) bool {
	return slices.ContainsFunc(a.Keys, func(k BundleKey) bool { return k.Use == UseDigest && k.Owner == id })
}

// Gateways lists the gateways of this domain.
func (a *Accepted) Gateways() []string {
	var out []string
	for _, k := range a.Keys {
		if k.Use == UseDigest && !slices.Contains(out, k.Owner) {
			out = append(out, k.Owner)
		}
	}
	return out
}

func (a *Accepted) key(kid frame.KeyID, use Use) (frame.VerifyKey, bool) {
	for _, k := range a.Keys {
		if k.Use == use && frame.KeyID(k.KeyID) == kid {
			return frame.VerifyKey{Public: k.Public, Owner: k.Owner, Domain: a.Domain}, true
		}
	}
	return frame.VerifyKey{}, false
}
