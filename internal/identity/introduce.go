package identity

import (
	"bytes"
	"slices"
	"strings"

	"agentgw/internal/frame"
)

// Introduce considers a bundle that the peer domain by relays. patterns is what by may introduce (`*.example`, or one whole
// name; `*` alone is no pattern). An own, configured or disputed domain and a known prefix are out of its reach. When two
// introducers describe one domain differently, neither is believed. Refusals carry [frame.TrustDenied].
func (t *Trust) Introduce(raw []byte, by string, patterns []string) (changed bool, err error) {
	changed, _, err = t.introduce(raw, by, patterns, false)
	return changed, err
}

func (t *Trust) introduce(raw []byte, by string, patterns []string, ask bool) (changed, held bool, err error) {
	a, err := ParseBundle(raw)
	if err != nil {
		return false, false, err
	}
	if !MayIntroduce(patterns, a.Domain) {
		return false, false, frame.Errorf(frame.TrustDenied, "%s may not introduce %s: its policy row does not say so", by, a.Domain)
	}
	a.Source, a.By = Introduced, []string{by}
	t.mu.Lock()
	defer t.mu.Unlock()
	if who, ok := t.disputed[a.Domain]; ok {
		return false, false, frame.Errorf(frame.TrustDenied, "bundle of %s is disputed by its introducers %s: configure it by hand", a.Domain, strings.Join(who, ", "))
	}
	if lead := t.introducedLead(a); lead != nil {
		changed, err = t.vouch(lead, a)
		return changed, false, err
	}
	if known := t.Domain(a.Domain); known != nil {
		changed, err = t.introduceAgain(known, a)
		return changed, false, err
	}
	switch last, pinned := t.pins[a.Domain]; {
	case pinned:
		if a, err = last.considered(a); err != nil {
			return false, false, err
		}
	case len(t.All())+len(t.disputed)+len(t.pins) > 2*maxIntroduced:
		return false, false, frame.Errorf(frame.LimitExceeded, "more than %d domains are known", maxIntroduced)
	case ask:
		held, err = t.hold(a)
		return false, held, err
	}
	if waits := t.pending[a.Domain]; waits != nil && !sameLine(waits, a) {
		return false, false, t.disagree(waits, a)
	}
	changed, err = t.accept(a)
	return changed, false, err
}

// introduceAgain considers an introduction of a domain that is believed already; the caller holds the lock.
func (t *Trust) introduceAgain(held, a *Accepted) (changed bool, err error) {
	if held.Source != Introduced {
		return false, nil // own and configured bundles are the operator's word
	}
	if err := notNamedYet(held, a); err != nil {
		return false, err
	}
	by := a.By[0]
	switch {
	case slices.Equal(held.By, a.By) && held.Seq == a.Seq && !bytes.Equal(held.Raw, a.Raw):
		return false, frame.Errorf(frame.TrustDenied, "bundle of %s: %s contradicts itself", a.Domain, by)
	case !sameLine(held, a) && !slices.Contains(held.By, by), held.Seq == a.Seq && !bytes.Equal(held.Raw, a.Raw):
		t.disputed[a.Domain] = append(slices.Clone(held.By), by)
		t.drop(a.Domain)
		return true, frame.Errorf(frame.TrustDenied, "bundle of %s: %s and %s differ, neither is believed: configure it by hand", a.Domain, strings.Join(held.By, ", "), by)
	case a.Seq <= held.Seq:
		if !slices.Contains(held.By, by) {
			again := *held
			again.By = append(slices.Clone(held.By), by)
			t.put(&again)
		}
		return false, nil
	}
	if err := succeeds(held, a); err != nil {
		return false, err
	}
	a.By = held.By
	if !slices.Contains(a.By, by) {
		a.By = append(slices.Clone(held.By), by)
	}
	return t.accept(a)
}

// sameLine says whether two bundles of one domain are of one signer, or the younger is signed under a key that the older names: keys
// are replaced every month, and introducers do not hear of it at one moment.
func sameLine(x, y *Accepted) bool {
	if y.Seq < x.Seq {
		x, y = y, x
	}
	return x.Fingerprint == y.Fingerprint || succeeds(x, y) == nil
}

// accept believes an introduction; the caller holds the lock.
func (t *Trust) accept(a *Accepted) (changed bool, err error) {
	if err := t.disjoint(a, 0); err != nil {
		return false, err
	}
	t.pins[a.Domain] = pin{a.Fingerprint, a}
	delete(t.pending, a.Domain)
	t.put(a)
	return true, nil
}

// Reconsider drops what nobody may introduce any more: may says what a domain may introduce now. It names what is gone.
func (t *Trust) Reconsider(may func(by string) (patterns []string)) (gone []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reconsiderPending(may)
	for _, a := range t.All() {
		if a.Source != Introduced {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(a.By), func(by string) bool { return !MayIntroduce(may(by), a.Domain) })
		switch {
		case len(left) == 0:
			t.drop(a.Domain)
			delete(t.pins, a.Domain)
			gone = append(gone, a.Domain)
		case len(left) < len(a.By):
			again := *a
			again.By = left
			t.put(&again)
		}
	}
	return gone
}

// MayIntroduce says whether the patterns of a policy row cover a domain.
func MayIntroduce(patterns []string, domain string) bool {
	for _, p := range patterns {
		if p == domain {
			return true
		}
		if suffix, ok := strings.CutPrefix(p, "*."); ok && suffix != "" && strings.HasSuffix(domain, "."+suffix) {
			return true
		}
	}
	return false
}
