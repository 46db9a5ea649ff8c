package identity

import "agentgw/internal/frame"

// RenewOwn replaces the own bundle by a newer one that is signed under a key of it. An older or the same one changes nothing.
func (t *Trust) RenewOwn(raw []byte) (changed bool, err error) {
	a, err := ParseBundle(raw)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.Own()
	if a.Domain != own.Domain || a.Issuer != own.Issuer {
		return false, frame.Errorf(frame.TrustDenied, "bundle of %s (issuer %s) is not the next of %s (issuer %s)", a.Domain, a.Issuer, own.Domain, own.Issuer)
	}
	if a.Seq <= own.Seq {
		return false, nil
	}
	if err := succeeds(own, a); err != nil {
		return false, err
	}
	a.Source = Own
	if err := t.disjoint(a, Introduced); err != nil {
		return false, err
	}
	t.put(a)
	return true, nil
}
