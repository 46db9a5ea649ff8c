package app

import (
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Keys implements admin.Gateway: how far the replacement of each signing key is.
func (a *app) Keys() []admin.KeyRow { return a.home.keys.list(&a.trust.Own().Bundle) }

// list is the keys of this process by use: the one that signs, the next one, and those of before that still verify.
func (k *keyring) list(b *identity.Bundle) []admin.KeyRow {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []admin.KeyRow
	current := *k.current.Load()
	for _, use := range slices.Sorted(maps.Keys(current)) {
		next, begun := k.next[use]
		now := k.row(b, use, current[use], "signs")
		if !begun && now.Published != nil {
			now.Then = later(*now.Published, k.age-identity.NotBeforeSlack)
		}
		out = append(out, now)
		if begun {
			row := k.row(b, use, next, "next")
			if row.Published != nil {
				row.Then = later(*row.Published, 3*k.refresh)
			}
			out = append(out, row)
		}
		for _, key := range b.Keys {
			if key.Use == wireUse(use) && key.Owner == string(k.owner(use)) && !is(current[use], key) && (!begun || !is(next, key)) {
				out = append(out, admin.KeyRow{
					Use: useName(use), Key: hex.EncodeToString(key.KeyID), State: "replaced", Published: publishedAt(key), Then: later(unix(key.NotAfter), 0),
				})
			}
		}
	}
	return out
}

func (k *keyring) row(b *identity.Bundle, use identity.Use, s frame.Signer, state string) admin.KeyRow {
	kid := s.KeyID()
	row := admin.KeyRow{Use: useName(use), Key: hex.EncodeToString(kid[:]), State: state}
	if key := published(b, use, s); key != nil {
		row.Published = publishedAt(*key)
	}
	return row
}

func useName(use identity.Use) string {
	if use == useAudit {
		return "audit log"
	}
	return useNames[use]
}

func is(s frame.Signer, key identity.BundleKey) bool {
	kid := s.KeyID()
	return string(kid[:]) == string(key.KeyID)
}

// publishedAt is when a bundle has carried a key first: it counts from a little before.
func publishedAt(key identity.BundleKey) *time.Time {
	return later(unix(key.NotBefore), identity.NotBeforeSlack)
}

func later(t time.Time, d time.Duration) *time.Time {
	t = t.Add(d).UTC()
	return &t
}
