package identity

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
)

// Sibling is another issuer of a domain, as a bundle of that domain names it: a domain may have several AMCs, each with prefixes,
// roots, keys and status lists of its own.
type Sibling struct {
	_      struct{} `cbor:",toarray"`
	Issuer string   // AIC of the AMC
	Signer []byte   // fingerprint of its bundle: SHA-256 of the key that signs it
}

// Equal says whether two say the same.
func (s Sibling) Equal(o Sibling) bool {
	return s.Issuer == o.Issuer && bytes.Equal(s.Signer, o.Signer)
}

func (a *Accepted) checkSiblings() error {
	bad := func(what string, args ...any) error {
		return frame.Errorf(frame.TrustDenied, "bundle of %q: "+what, append([]any{a.Domain}, args...)...)
	}
	if len(a.Siblings) > MaxSiblings {
		return bad("%d other issuers, at most %d are accepted", len(a.Siblings), MaxSiblings)
	}
	for i, s := range a.Siblings {
		id, err := aic.Parse(s.Issuer)
		switch {
		case err != nil || string(id) != s.Issuer || len(s.Signer) != sha256.Size:
			return bad("another issuer %.64q is no AIC with a fingerprint", s.Issuer)
		case a.ownedPrefix(s.Issuer) != "":
			return bad("another issuer, %s, is under its own prefixes", s.Issuer)
		case slices.ContainsFunc(a.Siblings[:i], func(o Sibling) bool { return o.Issuer == s.Issuer }):
			return bad("it names the issuer %s twice", s.Issuer)
		}
	}
	return nil
}

// names says whether a bundle names another issuer of its domain, and the key that signs that issuer's bundle.
func (a *Accepted) names(issuer string) (signer []byte, ok bool) {
	for _, s := range a.Siblings {
		if s.Issuer == issuer {
			return s.Signer, true
		}
	}
	return nil, false
}

// Issuer is the accepted bundle of an issuer, nil when there is none.
func (t *Trust) Issuer(id string) *Accepted {
	for _, a := range t.All() {
		if a.Issuer == id {
			return a
		}
	}
	return nil
}

// Issuers are the accepted bundles of a domain: the one that is trusted for itself, then those that it vouches for.
func (t *Trust) Issuers(domain string) (out []*Accepted) {
	for _, a := range t.All() {
		if a.Domain == domain {
			out = append(out, a)
		}
	}
	return out
}

// OwnerOf is the accepted bundle that owns a prefix (prefix.version.arsp), nil when none does.
func (t *Trust) OwnerOf(prefix string) *Accepted {
	for _, a := range t.All() {
		if slices.Contains(a.Prefixes, prefix) {
			return a
		}
	}
	return nil
}

// Home says whether a bundle is the own domain's, of whatever issuer.
func (t *Trust) Home(a *Accepted) bool { return a.Domain == t.Own().Domain }

// Missing are the issuers that the trusted bundle of a domain names and whose bundles are not here yet.
func (t *Trust) Missing(domain string) (issuers []string) {
	lead := t.Domain(domain)
	if lead == nil {
		return nil
	}
	for _, s := range lead.Siblings {
		if t.Issuer(s.Issuer) == nil {
			issuers = append(issuers, s.Issuer)
		}
	}
	return issuers
}

func (a *Accepted) signedBy(fingerprint []byte) bool {
	return bytes.Equal(a.Fingerprint[:], fingerprint)
}

// Vouch takes the bundle of another issuer of a domain that is trusted: the domain's trusted bundle names the issuer and the key that
// signs for it, or a bundle of that issuer that is held already does. It goes when the domain's bundle names the issuer no more, or is
// trusted no more. Refusals carry [frame.TrustDenied].
func (t *Trust) Vouch(raw []byte) (changed bool, err error) {
	a, err := ParseBundle(raw)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	lead := t.Domain(a.Domain)
	if lead == nil {
		return false, frame.Errorf(frame.TrustDenied, "bundle of %s (issuer %s): no bundle of the domain is trusted that could vouch for it", a.Domain, a.Issuer)
	}
	return t.vouch(lead, a)
}

// vouch judges a by lead, the trusted bundle of its domain; the caller holds the lock.
func (t *Trust) vouch(lead, a *Accepted) (changed bool, err error) {
	held, waits := t.Issuer(a.Issuer), t.recalled[a.Issuer]
	if err := vouches(lead, held, a); err != nil {
		return false, err
	}
	if held != nil && a.Seq <= held.Seq || waits != nil && a.Seq <= waits.Seq && sameLine(waits, a) {
		return false, nil
	}
	a.Source, a.By = Vouched, []string{lead.Issuer}
	if err := t.disjoint(a, weaker(lead)); err != nil {
		return false, err
	}
	introduced := lead.Source != Own && lead.Source != Configured // the operator has bounded the others
	if introduced && waits == nil && len(t.recalled) >= maxIntroduced {
		return false, frame.Errorf(frame.LimitExceeded, "more than %d further issuers are known", maxIntroduced)
	}
	t.recalled[a.Issuer] = a
	if t.Domain(lead.Domain) == lead { // else it waits for approval
		t.insert(a, a.replaces)
		return true, nil
	}
	return false, nil
}

// vouches says why nobody vouches for a bundle of another issuer of lead's domain.
func vouches(lead, held, a *Accepted) error {
	signer, named := lead.names(a.Issuer)
	switch {
	case !named:
		return frame.Errorf(frame.TrustDenied, "bundle of %s: its issuer %s is none that the bundle of %s names: the operator there says `gatewayd sibling add`",
			a.Domain, a.Issuer, lead.Issuer)
	case a.signedBy(signer), held != nil && (sameLine(held, a)):
		return nil
	}
	return frame.Errorf(frame.TrustDenied, "bundle of %s (issuer %s) is signed by %s, not by the key that the bundle of %s names: if it is the issuer's next one, the operator there says `gatewayd sibling remove` and `sibling add`",
		a.Domain, a.Issuer, FingerprintText(a.Fingerprint), lead.Issuer)
}

// introducedLead is what is known of an introduced domain, believed or not yet, when a is of another issuer that it names; the caller
// holds the lock. The own domain's other issuers, and those of a configured one, are as far out of an introducer's reach as its first.
func (t *Trust) introducedLead(a *Accepted) *Accepted {
	lead := t.Domain(a.Domain)
	if lead == nil {
		lead = cmp.Or(t.pending[a.Domain], t.pins[a.Domain].last)
	}
	if lead == nil || lead.Source == Own || lead.Source == Configured {
		return nil
	}
	if _, named := lead.names(a.Issuer); !named {
		return nil
	}
	return lead
}

// notNamedYet refuses a, which another introducer brings of a domain that is known by held, where it is of another issuer that names held's:
// the two know each other, and held's next bundle may name it. That is no dispute.
func notNamedYet(held, a *Accepted) error {
	if signer, named := a.names(held.Issuer); !named || !held.leadsTo(signer) {
		return nil
	}
	return vouches(held, nil, a)
}

// leadsTo says whether a bundle, or the next ones after it, are signed by the key of a fingerprint.
func (a *Accepted) leadsTo(fingerprint []byte) bool {
	return a.signedBy(fingerprint) || slices.ContainsFunc(a.Keys, func(k BundleKey) bool {
		sum := sha256.Sum256(k.Public)
		return k.Use == UseBundle && bytes.Equal(sum[:], fingerprint)
	})
}

// weaker is what a bundle of an issuer that lead names may displace: at home the operator's word outranks what a peer introduced. A peer
// displaces nothing by whom it names.
func weaker(lead *Accepted) Source {
	if lead.Source == Own {
		return Introduced
	}
	return 0
}

// waitsNoMore drops an introduction that waits for approval, with the further issuers that wait with it; the caller holds the lock.
func (t *Trust) waitsNoMore(domain string) {
	delete(t.pending, domain)
	if t.Domain(domain) == nil {
		maps.DeleteFunc(t.recalled, func(_ string, a *Accepted) bool { return a.Domain == domain })
	}
}

// Recall restores the bundles of further issuers that an earlier run of this process accepted: each counts again while the trusted
// bundle of its domain names its issuer.
func (t *Trust) Recall(list [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, raw := range list {
		a, err := ParseBundle(raw)
		if err != nil {
			continue
		}
		if held := t.recalled[a.Issuer]; held == nil || held.Seq < a.Seq {
			a.Source = Vouched
			t.recalled[a.Issuer] = a
		}
	}
	for _, lead := range t.All() {
		if lead.Source != Vouched {
			t.rejoin(lead)
		}
	}
}

// rejoin gives a trusted bundle the further issuers that it names and that were accepted before; the caller holds the lock. Others wait
// on: the operator's copy of a bundle may be older than the last one.
func (t *Trust) rejoin(lead *Accepted) {
	for issuer, a := range t.recalled {
		signer, named := lead.names(issuer)
		if a.Domain == lead.Domain && t.Issuer(issuer) == nil && named && a.signedBy(signer) && t.disjoint(a, weaker(lead)) == nil {
			again := *a
			again.By = []string{lead.Issuer}
			t.insert(&again, again.replaces)
		}
	}
}
