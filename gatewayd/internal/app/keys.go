package app

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// signers are the files of the Ed25519 keys, by use. While a key is being replaced the next one lies beside it, with the
// ending .next.
var signers = map[identity.Use]string{
	identity.UseDigest: "sign-digest.key", identity.UseSAT: "sign-sat.key", identity.UseRAT: "sign-rat.key",
	identity.UseStatus: "sign-status.key", identity.UseBundle: "sign-bundle.key", identity.UseGrant: "sign-grant.key",
	useAudit: "sign-audit.key",
}

// useAudit is the gateway's own key of use 4: it signs the checkpoints of its audit log. In a bundle it differs from the AMC's
// by its owner.
const useAudit identity.Use = 0x84

// auditUse is the use of the key that this process signs its audit log with: an AMC alone has one key of use 4 for all.
func (h *home) auditUse() identity.Use {
	if _, own := (*h.keys.current.Load())[useAudit]; own {
		return useAudit
	}
	return identity.UseStatus
}

// wireUse is a use as bundles spell it.
func wireUse(u identity.Use) identity.Use { return u &^ 0x80 }

// gatewayUses are the uses whose keys belong to the gateway; the others are the AMC's.
var gatewayUses = []identity.Use{identity.UseDigest, identity.UseSAT, identity.UseRAT, useAudit}

// amcUses are the uses of the AMC's keys.
var amcUses = []identity.Use{identity.UseStatus, identity.UseBundle, identity.UseGrant}

const (
	signerLife    = 365 * 24 * time.Hour // of a key in the bundle: it is replaced long before
	signingAge    = 30 * 24 * time.Hour
	overlap       = 2 * 24 * time.Hour // a replaced key still verifies what it has signed
	bundleRefresh = 5 * time.Minute
	nextEnding    = ".next"
)

// keyring is the signing keys of this process and the bundle that publishes them. A new key is published for three times as
// long as anybody may keep an old bundle before it signs anything; a replaced one stays published while anything that it has
// signed may still count.
type keyring struct {
	dir     string
	gateway aic.AIC
	issuer  aic.AIC
	refresh time.Duration
	age     time.Duration

	current atomic.Pointer[map[identity.Use]frame.Signer]

	mu   sync.Mutex // guards the rest
	next map[identity.Use]frame.Signer
}

// signer is the key of a use as of the moment that it is asked for.
func (k *keyring) signer(use identity.Use) func() frame.Signer {
	return func() frame.Signer { return (*k.current.Load())[use] }
}

func (k *keyring) file(use identity.Use, ending string) string {
	return filepath.Join(k.dir, signers[use]+ending)
}

// newSigner makes a key and keeps it.
func newSigner(file string) (frame.Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return frame.Signer{}, err
	}
	return frame.NewSigner(key), identity.SaveKey(file, key)
}

// load reads the keys of some uses. A use that this folder knew nothing of yet gets its first key, which is published next.
func (k *keyring) load(uses []identity.Use) error {
	current, next := map[identity.Use]frame.Signer{}, map[identity.Use]frame.Signer{}
	for _, use := range uses {
		s, err := identity.LoadSigner(k.file(use, ""))
		if errors.Is(err, fs.ErrNotExist) && (use == identity.UseStatus || use == useAudit) { // a folder of an older version
			s, err = newSigner(k.file(use, ""))
		}
		if err != nil {
			return err
		}
		current[use] = s
		switch s, err := identity.LoadSigner(k.file(use, nextEnding)); {
		case err == nil:
			next[use] = s
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	k.current.Store(&current)
	k.next = next
	return nil
}

func (k *keyring) owner(use identity.Use) aic.AIC {
	if slices.Contains(gatewayUses, use) {
		return k.gateway
	}
	return k.issuer
}

// published finds a key in a bundle.
func published(b *identity.Bundle, use identity.Use, s frame.Signer) *identity.BundleKey {
	kid := s.KeyID()
	for i := range b.Keys {
		if b.Keys[i].Use == wireUse(use) && string(b.Keys[i].KeyID) == string(kid[:]) {
			return &b.Keys[i]
		}
	}
	return nil
}

// turn does what is due: it publishes keys that are not, begins to replace those that are old (all, if now is asked for), and
// lets the next ones take over. It changes the bundle's keys and says whether.
func (k *keyring) turn(b *identity.Bundle, at time.Time, force bool) (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	current := map[identity.Use]frame.Signer{}
	for use, s := range *k.current.Load() {
		current[use] = s
	}
	for use := range current {
		c, err := k.turnOne(b, use, current, at, force)
		if err != nil {
			return changed, fmt.Errorf("replace signing key %s: %w", signers[use], err)
		}
		changed = changed || c
	}
	k.current.Store(&current)
	n := len(b.Keys)
	b.Keys = slices.DeleteFunc(b.Keys, func(key identity.BundleKey) bool { return key.NotAfter < uint64(at.Unix()) })
	return changed || len(b.Keys) != n, nil
}

func (k *keyring) turnOne(b *identity.Bundle, use identity.Use, current map[identity.Use]frame.Signer, at time.Time, force bool) (changed bool, err error) {
	publish := func(s frame.Signer) {
		b.Keys = append(b.Keys, identity.NewBundleKey(s, k.owner(use), wireUse(use), at, signerLife))
		changed = true
	}
	now := published(b, use, current[use])
	if now == nil {
		publish(current[use])
		return changed, nil
	}
	if at.After(time.Unix(int64(now.NotAfter), 0)) { // the gateway has rested for a year: its key goes on until the next one is known
		now.NotAfter, changed = uint64(at.Add(signerLife).Unix()), true
	}
	next, begun := k.next[use]
	if !begun {
		if !force && at.Sub(time.Unix(int64(now.NotBefore), 0)) < k.age {
			return changed, nil
		}
		if next, err = newSigner(k.file(use, nextEnding)); err != nil {
			return false, err
		}
		k.next[use] = next
	}
	out := published(b, use, next)
	if out == nil {
		publish(next)
		return changed, nil
	}
	if at.Sub(time.Unix(int64(out.NotBefore), 0)) < identity.NotBeforeSlack+3*k.refresh {
		return changed, nil
	}
	if err := os.Rename(k.file(use, nextEnding), k.file(use, "")); err != nil {
		return false, err
	}
	current[use] = next
	delete(k.next, use)
	if last := uint64(at.Add(max(overlap, 6*k.refresh)).Unix()); now.NotAfter > last {
		now.NotAfter = last
	}
	return true, nil
}

// renewBundle publishes what has changed of the keys: the next bundle, signed under a key of the one before, kept before
// anybody hears of it. nil when nothing has changed.
func (h *home) renewBundle(at time.Time, force bool) ([]byte, error) {
	return h.nextBundle(at, func(b *identity.Bundle) (bool, error) { return h.keys.turn(b, at, force) })
}

// nextBundle makes the bundle that follows the current one by a change.
func (h *home) nextBundle(at time.Time, change func(*identity.Bundle) (bool, error)) ([]byte, error) {
	b := h.bundle.Bundle
	b.Keys = slices.Clone(b.Keys)
	sign := h.keys.signer(identity.UseBundle)() // before it may be replaced: the bundle held by others names it
	changed, err := change(&b)
	if b.RefreshS != uint64(h.keys.refresh.Seconds()) {
		b.RefreshS, changed = uint64(h.keys.refresh.Seconds()), true
	}
	if roots := h.roots(); !slices.EqualFunc(roots, b.Roots, slices.Equal) {
		b.Roots, changed = roots, true
	}
	if h.siblings != nil {
		if s := h.siblings(); !slices.EqualFunc(s, b.Siblings, identity.Sibling.Equal) {
			b.Siblings, changed = s, true
		}
	}
	if err != nil || !changed {
		return nil, err
	}
	b.Seq, b.Issued = max(b.Seq+1, uint64(at.UnixMilli())), uint64(at.Unix())
	raw, err := b.Sign(sign)
	if err != nil {
		return nil, err
	}
	next, err := identity.ParseBundle(raw)
	if err != nil {
		return nil, fmt.Errorf("next bundle: %w", err)
	}
	if err := renameio.WriteFile(filepath.Join(h.keys.dir, fileBundle), raw, 0o644); err != nil {
		return nil, fmt.Errorf("keep the next bundle: %w", err)
	}
	h.bundle = next
	h.carried(b.Roots, at)
	return raw, nil
}
