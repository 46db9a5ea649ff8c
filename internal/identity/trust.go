package identity

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
)

const maxIntroduced = 1024 // domains that all introducers together may bring

// Trust is the set of accepted bundles.
type Trust struct {
	now  func() time.Time
	view atomic.Pointer[[]*Accepted] // immutable; replaced whole

	mu       sync.Mutex           // serialises writers; guards the rest
	disputed map[string][]string  // domain that two introducers describe differently -> who they are
	pins     map[string]pin       // of the domains that were ever introduced
	pending  map[string]*Accepted // introduced, and waiting for the operator's approval
	recalled map[string]*Accepted // further issuers of domains that were ever vouched for, by issuer
}

// NewTrust starts a set with the domain's own bundle.
func NewTrust(own []byte, now func() time.Time) (*Trust, error) {
	a, err := ParseBundle(own)
	if err != nil {
		return nil, fmt.Errorf("own bundle: %w", err)
	}
	a.Source = Own
	t := &Trust{now: now, disputed: map[string][]string{}, pins: map[string]pin{}, pending: map[string]*Accepted{}, recalled: map[string]*Accepted{}}
	t.view.Store(&[]*Accepted{a})
	return t, nil
}

// pin is what was last accepted of an introduced domain.
type pin struct {
	fingerprint [32]byte  // of its signer
	last        *Accepted // nil where only the signer is known
}

// Pin restores what an earlier run of this process last accepted of an introduced domain: who signed it and, unless raw is empty, the
// bundle, so that a domain whose key was replaced while this process was down is known again. It is believed only once a peer
// introduces it again; a bundle under another key that the last one does not name is refused.
func (t *Trust) Pin(domain string, fingerprint [32]byte, raw []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := pin{fingerprint: fingerprint}
	if a, err := ParseBundle(raw); err == nil && a.Domain == domain && a.Fingerprint == fingerprint {
		p.last = a
	}
	t.pins[domain] = p
}

// considered is the newer of the last bundle of a domain and of a that is introduced, or why a is none of its line.
func (p pin) considered(a *Accepted) (*Accepted, error) {
	switch {
	case p.last == nil && p.fingerprint == a.Fingerprint:
		return a, nil
	case p.last != nil && sameLine(p.last, a):
		if a.Seq > p.last.Seq {
			return a, nil
		}
		last := *p.last
		last.Source, last.By = a.Source, a.By
		return &last, nil
	}
	return nil, frame.Errorf(frame.TrustDenied, "bundle of %s is signed by %s, the last one was signed by %s, which does not vouch for it: configure it by hand",
		a.Domain, FingerprintText(a.Fingerprint), FingerprintText(p.fingerprint))
}

// All is the accepted bundles: own first, then in the order of their domains, in each the trusted one before those that it vouches
// for. Callers must not change them.
func (t *Trust) All() []*Accepted { return *t.view.Load() }

// Own is this domain's bundle, of the own issuer.
func (t *Trust) Own() *Accepted { return t.All()[0] }

// Of is the bundle that owns an AIC, nil when none does.
func (t *Trust) Of(id string) *Accepted {
	parsed, err := aic.Parse(id)
	if err != nil {
		return nil
	}
	return t.OwnerOf(parsed.ARSPKey())
}

// DomainOf is the domain of an AIC, "" when no accepted bundle owns it.
func (t *Trust) DomainOf(id string) string {
	if a := t.Of(id); a != nil {
		return a.Domain
	}
	return ""
}

// Domain is the trusted bundle of a domain, nil when there is none. Those that it vouches for are found by [Trust.Issuers].
func (t *Trust) Domain(name string) *Accepted {
	for _, a := range t.All() {
		if a.Domain == name && a.Source != Vouched {
			return a
		}
	}
	return nil
}

// Keys finds keys of one use that are valid now.
func (t *Trust) Keys(use Use) frame.KeyFunc {
	return func(kid frame.KeyID) (frame.VerifyKey, bool) {
		now := uint64(t.now().Unix())
		for _, a := range t.All() {
			for _, k := range a.Keys {
				if k.Use == use && frame.KeyID(k.KeyID) == kid && k.NotBefore <= now && now <= k.NotAfter {
					return frame.VerifyKey{Public: k.Public, Owner: k.Owner, Domain: a.Domain}, true
				}
			}
		}
		return frame.VerifyKey{}, false
	}
}

// Configure accepts a bundle that the operator gave, pinned by fingerprint where one is known (the zero value pins to the
// bundle's own signer). The operator's word replaces an introduced bundle of the same domain, and one under another key; an
// older copy of the bundle held changes nothing. Refusals carry [frame.TrustDenied].
func (t *Trust) Configure(raw []byte, pin [32]byte) (*Accepted, error) {
	a, err := ParseBundle(raw)
	if err != nil {
		return nil, err
	}
	if pin != ([32]byte{}) && a.Fingerprint != pin {
		return nil, frame.Errorf(frame.TrustDenied, "bundle of %s has the fingerprint %s, not %s", a.Domain, FingerprintText(a.Fingerprint), FingerprintText(pin))
	}
	a.Source, a.root = Configured, sha256.Sum256(raw)
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.Domain(a.Domain)
	switch {
	case held == t.Own():
		return nil, frame.Errorf(frame.TrustDenied, "bundle of %s: that is this gateway's own domain", a.Domain)
	case held != nil && held.Source == Configured:
		if held.root == sha256.Sum256(raw) || held.Fingerprint == a.Fingerprint && a.Seq <= held.Seq {
			return held, nil // the peer has renewed its bundle since the operator's copy was made
		}
	}
	if err := t.disjoint(a, Introduced); err != nil {
		return nil, err
	}
	delete(t.disputed, a.Domain)
	delete(t.pins, a.Domain)
	delete(t.pending, a.Domain)
	t.put(a)
	return a, nil
}

// Renew accepts a newer bundle of a domain that is configured already, sent by that domain itself.
func (t *Trust) Renew(raw []byte) (changed bool, err error) {
	a, err := ParseBundle(raw)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.Domain(a.Domain)
	if held == nil || held.Source != Configured {
		return false, frame.Errorf(frame.TrustDenied, "bundle of %s: no configured peer", a.Domain)
	}
	if a.Seq <= held.Seq {
		return false, nil
	}
	if err := succeeds(held, a); err != nil {
		return false, err
	}
	if err := t.disjoint(a, 0); err != nil {
		return false, err
	}
	a.Source, a.root = Configured, held.root
	t.put(a)
	return true, nil
}

// Root is the SHA-256 of the operator's copy that a configured bundle descends from.
func (a *Accepted) Root() [32]byte { return a.root }

// Restore believes again a newer bundle of a configured peer that an earlier run of this process accepted, provided that it
// descends (root) from the very copy that is configured now: after the peer has changed its keys twice that copy vouches for nothing
// that the peer signs. It says whether anything changed.
func (t *Trust) Restore(raw []byte, root [32]byte) bool {
	a, err := ParseBundle(raw)
	if err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.Domain(a.Domain)
	if held == nil || held.Source != Configured || held.root != root || a.Seq <= held.Seq || t.disjoint(a, 0) != nil {
		return false
	}
	a.Source, a.root = Configured, root
	t.put(a)
	return true
}

// Forget takes away the configured bundle of a domain. What it introduced goes with [Trust.Reconsider].
func (t *Trust) Forget(domain string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.Domain(domain); a != nil && a.Source == Configured {
		t.drop(domain)
	}
}

// succeeds checks that next may replace held: a larger sequence, signed under a use-5 key that held names.
func succeeds(held, next *Accepted) error {
	if next.Seq <= held.Seq {
		return frame.Errorf(frame.TrustDenied, "bundle of %s: sequence %d is not above the %d held", next.Domain, next.Seq, held.Seq)
	}
	signed, err := frame.ParseSigned(next.Raw)
	if err != nil {
		return err
	}
	key, ok := held.key(signed.KeyID, UseBundle)
	if !ok || signed.Verify(frame.AADBundle, key.Public) != nil {
		return frame.Errorf(frame.TrustDenied, "bundle of %s: sequence %d is not signed under a key of the bundle held", next.Domain, next.Seq)
	}
	return nil
}

// disjoint checks that no bundle that stays beside a owns one of a's prefixes or signing keys: the first decides whose an AIC is,
// the second who speaks, and a bundle proves neither by naming it. Bundles of source weaker may be displaced: what the operator
// configures outranks what a peer introduced.
func (t *Trust) disjoint(a *Accepted, weaker Source) error {
	var displaced []string // domains, once nothing refuses a
	for _, b := range t.All() {
		shared := a.sharedWith(b)
		if a.replaces(b) || shared == "" {
			continue
		}
		if lead := t.Domain(b.Domain); weaker == 0 || lead.Source != weaker || b.Domain == a.Domain {
			return frame.Errorf(frame.TrustDenied, "bundle of %s (issuer %s) claims the %s, which is that of %s (issuer %s)", a.Domain, a.Issuer, shared, b.Domain, b.Issuer)
		}
		displaced = append(displaced, b.Domain)
	}
	for _, domain := range displaced {
		t.drop(domain)
	}
	return nil
}

// replaces says whether b goes when a comes: it is the one before, or an issuer that a vouches for no more. Where the two claim the same
// the word of the one that is trusted for itself counts.
func (a *Accepted) replaces(b *Accepted) bool {
	if a.Domain != b.Domain {
		return false
	}
	_, named := a.names(b.Issuer)
	return a.Issuer == b.Issuer || a.Source != Vouched && (b.Source != Vouched || !named || a.sharedWith(b) != "")
}

// sharedWith names a prefix or a key that two bundles both claim, "" when there is none.
func (a *Accepted) sharedWith(b *Accepted) string {
	for _, p := range a.Prefixes {
		if slices.Contains(b.Prefixes, p) {
			return "prefix " + p
		}
	}
	for _, k := range a.Keys {
		if slices.ContainsFunc(b.Keys, func(other BundleKey) bool { return bytes.Equal(k.KeyID, other.KeyID) }) {
			return fmt.Sprintf("key %x", k.KeyID)
		}
	}
	return ""
}

// put makes a the trusted bundle of its domain, and forgets the issuers that the one before named and a does not, or not under a key that
// their bundles lead to; the caller holds the lock.
func (t *Trust) put(a *Accepted) {
	before := t.Domain(a.Domain)
	gone := func(b *Accepted) bool { return a.replaces(b) || a.rekeys(before, b) }
	for _, b := range t.All() {
		if b.Source == Vouched && gone(b) {
			delete(t.recalled, b.Issuer)
		}
	}
	t.insert(a, gone)
	t.rejoin(a)
}

// rekeys says whether a names another key for b, of another issuer of its domain, than the one before it did, and b knows nothing of that
// key. Where a only says again what the one before said it may lag behind b.
func (a *Accepted) rekeys(before, b *Accepted) bool {
	if before == nil || b.Source != Vouched || b.Domain != a.Domain {
		return false
	}
	was, _ := before.names(b.Issuer)
	is, _ := a.names(b.Issuer)
	return !bytes.Equal(was, is) && !b.leadsTo(is)
}

// insert puts a in the place of what is gone; the caller holds the lock.
func (t *Trust) insert(a *Accepted, gone func(*Accepted) bool) {
	next := slices.DeleteFunc(slices.Clone(t.All()), gone)
	next = append(next, a)
	slices.SortStableFunc(next, func(x, y *Accepted) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), strings.Compare(x.Domain, y.Domain), cmp.Compare(x.Source, y.Source), strings.Compare(x.Issuer, y.Issuer))
	})
	t.view.Store(&next)
}

// rank puts the own bundle first.
func rank(a *Accepted) int {
	if a.Source == Own {
		return 0
	}
	return 1
}

// drop takes a domain away, with all its issuers; the caller holds the lock.
func (t *Trust) drop(domain string) {
	next := slices.DeleteFunc(slices.Clone(t.All()), func(b *Accepted) bool { return b.Domain == domain })
	t.view.Store(&next)
	maps.DeleteFunc(t.recalled, func(_ string, b *Accepted) bool { return b.Domain == domain })
}

// Peer is a verified other side.
type Peer struct {
	AIC    aic.AIC
	Domain string
	Bundle *Accepted
	SPKI   [32]byte // SHA-256 of the DER SubjectPublicKeyInfo
	Serial []byte   // of the certificate, as status lists name it; nil where they cannot
}

// VerifyChain verifies a certificate chain by the AIC that it names, under the roots of the one domain that owns the AIC.
func (t *Trust) VerifyChain(chain []*x509.Certificate, usage x509.ExtKeyUsage) (Peer, error) {
	if err := checkChainSize(chain); err != nil {
		return Peer{}, err
	}
	leaf, now := chain[0], t.now()
	id, err := AICOf(leaf)
	if err != nil {
		return Peer{}, err
	}
	b := t.Of(string(id))
	if b == nil {
		return Peer{}, frame.Errorf(frame.TrustDenied, "no accepted bundle owns the AIC %s: add its domain with `gatewayd peer add`", id)
	}
	if err := checkLeaf(leaf, now); err != nil {
		return Peer{}, err
	}
	opts := x509.VerifyOptions{Roots: b.pool, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(opts); err != nil {
		return Peer{}, frame.Errorf(frame.TrustDenied, "certificate of %s is not of its domain %s: %w", id, b.Domain, err)
	}
	return Peer{AIC: id, Domain: b.Domain, Bundle: b, SPKI: sha256.Sum256(leaf.RawSubjectPublicKeyInfo), Serial: Serial(leaf)}, nil
}

// Verify makes the judgement of a handshake: the chain by AIC, then the role that the caller demands of the peer.
func (t *Trust) Verify(usage x509.ExtKeyUsage, role func(Peer) error) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		peer, err := t.VerifyChain(cs.PeerCertificates, usage)
		if err != nil {
			return err
		}
		return role(peer)
	}
}

// VerifyPinned is the judgement of a side that trusts one key and no root: an agent before its enrolment (pin from the
// token), or the initiator of a session (pin from its gateway).
func VerifyPinned(spki [32]byte, now func() time.Time) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		if err := checkChainSize(cs.PeerCertificates); err != nil {
			return err
		}
		leaf := cs.PeerCertificates[0]
		if sha256.Sum256(leaf.RawSubjectPublicKeyInfo) != spki {
			return frame.Errorf(frame.IdentityMismatch, "peer's key is not the one that was named")
		}
		return checkLeaf(leaf, now())
	}
}

// IsSelfSigned says whether a chain is a lone certificate signed by its own key, which proves possession of the key only.
func IsSelfSigned(chain []*x509.Certificate) bool {
	return len(chain) == 1 && len(chain[0].Raw) <= MaxChainBytes &&
		chain[0].CheckSignature(chain[0].SignatureAlgorithm, chain[0].RawTBSCertificate, chain[0].Signature) == nil
}
