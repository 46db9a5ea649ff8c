package identity

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"agentgw/internal/frame"
)

// maxPending bounds the introductions that wait for the operator's word.
const maxPending = 256

// Hold considers a bundle that the peer domain by relays, like [Trust.Introduce], but believes it at first sight only where its
// domain is pinned already: else it waits for [Trust.Approve], and held says so. Refusals carry [frame.TrustDenied].
func (t *Trust) Hold(raw []byte, by string, patterns []string) (changed, held bool, err error) {
	return t.introduce(raw, by, patterns, true)
}

// hold keeps an introduction that waits; the caller holds the lock.
func (t *Trust) hold(a *Accepted) (held bool, err error) {
	if err := t.disjoint(a, 0); err != nil {
		return false, err
	}
	old, by := t.pending[a.Domain], a.By[0]
	switch {
	case old == nil && len(t.pending) >= maxPending:
		return false, frame.Errorf(frame.LimitExceeded, "bundle of %s: %d introductions wait for approval already", a.Domain, maxPending)
	case old == nil:
	case !sameLine(old, a), old.Seq == a.Seq && !bytes.Equal(old.Raw, a.Raw):
		return false, t.disagree(old, a)
	case a.Seq <= old.Seq:
		if !slices.Contains(old.By, by) {
			again := *old
			again.By = append(slices.Clone(old.By), by)
			t.pending[a.Domain] = &again
		}
		return true, nil
	default:
		if err := succeeds(old, a); err != nil {
			return false, err
		}
		if a.By = old.By; !slices.Contains(a.By, by) {
			a.By = append(slices.Clone(a.By), by)
		}
	}
	t.pending[a.Domain] = a
	return true, nil
}

// disagree is what comes of two bundles that say different things of one domain: one introducer's word against itself changes
// nothing, two introducers make a dispute. The caller holds the lock.
func (t *Trust) disagree(old, a *Accepted) error {
	if err := notNamedYet(old, a); err != nil {
		return err
	}
	by := a.By[0]
	if slices.Equal(old.By, a.By) {
		return frame.Errorf(frame.TrustDenied, "bundle of %s: %s contradicts itself", a.Domain, by)
	}
	who := slices.Clone(old.By)
	if !slices.Contains(who, by) {
		who = append(who, by)
	}
	t.disputed[a.Domain] = who
	t.waitsNoMore(a.Domain)
	return frame.Errorf(frame.TrustDenied, "bundle of %s: its introducers %s differ, none is believed: configure it by hand", a.Domain, strings.Join(who, ", "))
}

// Pending are the introductions that wait for approval, in the order of their domains.
func (t *Trust) Pending() []*Accepted {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*Accepted
	for _, domain := range slices.Sorted(maps.Keys(t.pending)) {
		out = append(out, t.pending[domain])
	}
	return out
}

// Waits says whether an introduction of a domain waits for approval.
func (t *Trust) Waits(domain string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[domain] != nil
}

// Approve accepts an introduction that waits, and pins its domain to the key that signed it. The fingerprint must be that key's:
// who approves has compared it with the domain's operator. Codes: 40 where none waits, 0D.
func (t *Trust) Approve(domain string, fingerprint [32]byte) (*Accepted, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.pending[domain]
	if a == nil {
		return nil, frame.Errorf(frame.NotFound, "no introduction of %s waits for approval", domain)
	}
	if a.Fingerprint != fingerprint {
		return nil, frame.Errorf(frame.TrustDenied, "bundle of %s that waits is signed by %s, not by %s: ask the domain's operator which it is",
			domain, FingerprintText(a.Fingerprint), FingerprintText(fingerprint))
	}
	if err := t.disjoint(a, 0); err != nil {
		return nil, err
	}
	delete(t.pending, domain)
	t.pins[domain] = pin{fingerprint, a}
	t.put(a)
	return a, nil
}

// Disputed names the introducers that differ about a domain, nil where none do.
func (t *Trust) Disputed(domain string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.disputed[domain])
}

// reconsiderPending drops the introductions that nobody may make any more; the caller holds the lock.
func (t *Trust) reconsiderPending(may func(by string) (patterns []string)) {
	for domain, a := range t.pending {
		left := slices.DeleteFunc(slices.Clone(a.By), func(by string) bool { return !MayIntroduce(may(by), domain) })
		if len(left) == 0 {
			t.waitsNoMore(domain)
			continue
		}
		again := *a
		again.By = left
		t.pending[domain] = &again
	}
}
