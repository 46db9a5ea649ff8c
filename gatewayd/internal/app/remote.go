package app

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/registry"
	"agentgw/gatewayd/internal/aaap"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// joinAMC makes the AMC of this gateway the one on another host.
func (a *app) joinAMC() {
	a.remote = aaap.NewClient(aaap.ClientConfig{
		Address: a.cfg.AMC.Address, Gateway: string(a.home.gateway), Issuer: string(a.home.issuer), AMC: a.cfg.AMC.AIC, Certificate: a.home.current, Trust: a.trust, Statuses: a.statuses,
		Addresses: hostPorts(a.cfg.Advertise), Status: func(ctx context.Context, raw []byte) { a.takeStatus(ctx, [][]byte{raw}) },
		Bundle: func(ctx context.Context, raw []byte) {
			if err := a.takeBundle(ctx, raw); err != nil {
				a.log.Error("bundle of the AMC", "err", err)
			}
		},
		Log: a.log,
	})
	a.center = center{a.remote, a}
}

// takeBundle takes the next bundle of the own domain from its AMC, or through it that of another one.
func (a *app) takeBundle(ctx context.Context, raw []byte) error {
	a.turning.Lock()
	defer a.turning.Unlock()
	next, err := identity.ParseBundle(raw)
	if err != nil {
		return err
	}
	if next.Issuer != string(a.home.issuer) {
		return a.takeSibling(ctx, next)
	}
	before := a.trust.All()
	changed, err := a.trust.RenewOwn(raw)
	if err != nil || !changed {
		return err
	}
	a.peers.Distrusted(before) // issuers that it names no more
	if err := renameio.WriteFile(filepath.Join(a.cfg.StateDir, fileBundle), raw, 0o644); err != nil {
		return fmt.Errorf("keep the next bundle: %w", err)
	}
	a.home.bundle = next
	return a.bundleRenewed(ctx, raw)
}

// bundleRenewed tells everybody of the own bundle, which is another one than before.
func (a *app) bundleRenewed(ctx context.Context, raw []byte) error {
	own := a.trust.Own()
	a.log.Info("own bundle renewed", "seq", own.Seq, "keys", len(own.Keys))
	a.announce(&arp.Bundle{Bundle: raw}, own.Issuer)
	a.peers.TrustChanged()
	return a.audit(ctx, kindBundle, map[string]any{"seq": own.Seq, "keys": len(own.Keys)})
}

// announce tells the agents and the gateways of this process of something of an issuer; other AMCs hear what is of this one.
func (a *app) announce(m frame.Message, issuer string) {
	a.agents.Announce(m)
	if a.members != nil {
		a.members.Announce(m, issuer == string(a.home.issuer))
	}
}

// renewOwn takes the next own bundle, which this process has made.
func (a *app) renewOwn(ctx context.Context, raw []byte) error {
	before := a.trust.All()
	if _, err := a.trust.RenewOwn(raw); err != nil {
		return err
	}
	a.peers.Distrusted(before)
	a.members.Review()
	return a.bundleRenewed(ctx, raw)
}

// publishKeys puts the keys of a gateway on another host into the bundle.
func (a *app) publishKeys(ctx context.Context, gateway aic.AIC, keys []identity.BundleKey) ([]byte, error) {
	a.turning.Lock()
	defer a.turning.Unlock()
	if len(keys) > 0 { // its list may have come since the gateway was let in, and its keys may be out already
		if err := a.statuses.Check(string(gateway), nil); err != nil {
			return nil, err
		}
	}
	if err := a.nobodyElses(gateway, keys); err != nil {
		return nil, err
	}
	raw, err := a.home.nextBundle(now(), func(b *identity.Bundle) (bool, error) {
		before := len(b.Keys)
		b.Keys = slices.DeleteFunc(b.Keys, func(k identity.BundleKey) bool { return k.Owner == string(gateway) })
		b.Keys = append(b.Keys, keys...)
		return before != 0, nil
	})
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return a.trust.Own().Raw, nil
	}
	return raw, a.renewOwn(ctx, raw)
}

// nobodyElses holds that the keys that a gateway shows are no other member's and no other domain's: a bundle with such a key would
// be refused by everybody, here too.
func (a *app) nobodyElses(gateway aic.AIC, keys []identity.BundleKey) error {
	for _, b := range a.trust.All() {
		for _, held := range b.Keys {
			same := func(k identity.BundleKey) bool { return slices.Equal(k.KeyID, held.KeyID) }
			if held.Owner != string(gateway) && slices.ContainsFunc(keys, same) {
				return frame.Errorf(frame.Binding, "the key %x is one of %s in %s", held.KeyID, held.Owner, b.Domain)
			}
		}
	}
	return nil
}

// turnRemote does what is due with this gateway's keys, which the AMC's bundle publishes.
func (a *app) turnRemote(ctx context.Context, at time.Time, force bool) error {
	b := a.trust.Own().Bundle
	b.Keys = slices.Clone(b.Keys)
	changed, err := a.home.keys.turn(&b, at, force)
	if err != nil || !changed {
		return err
	}
	keys, err := a.home.keys.shown(&b)
	if err != nil {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	raw, err := a.remote.PutKeys(ask, keys)
	if err != nil {
		return fmt.Errorf("publish the keys of this gateway: %w", err)
	}
	return a.takeBundle(ctx, raw)
}

// renewRemote has the AMC issue this gateway's next certificate when half of the life of the current one is over; after its end
// with nothing but the key.
func (a *app) renewRemote(ctx context.Context, at time.Time) error {
	leaf := a.home.current().Leaf
	if at.Before(identity.HalfLife(leaf)) {
		return nil
	}
	key, err := a.home.key(a.cfg)
	if err != nil {
		return err
	}
	csr, err := identity.NewCSR(key)
	if err != nil {
		return err
	}
	m := &arp.Renew{AIC: string(a.home.gateway), CSR: csr}
	ask, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var issued *arp.Credential
	if at.After(leaf.NotAfter) {
		issued, err = a.remote.RenewLate(ask, key, m)
	} else {
		issued, err = a.remote.Issue(ask, "", m)
	}
	if err != nil {
		return fmt.Errorf("the certificate of this gateway ends at %s: %w", leaf.NotAfter.UTC().Format(time.RFC3339), err)
	}
	a.log.Info("own certificate renewed by the AMC")
	return a.home.keep(a.cfg, issued.Chain, key)
}

// lift gives the entries back that were suspended when this gateway last heard of its AMC, and are not any more.
func (a *app) lift(ctx context.Context) {
	for _, id := range a.registry.Marked(func(m registry.Mark) bool { return m.State == directory.Suspended }) {
		if a.statuses.Of(id) == identity.Good {
			a.mirrorStanding(ctx, identity.Standing{AIC: id, State: identity.Good})
			if err := a.registry.SetState(ctx, id, directory.Active, now()); err != nil {
				a.log.Error("directory does not follow the status list", "aic", id, "err", err)
			}
		}
	}
}
