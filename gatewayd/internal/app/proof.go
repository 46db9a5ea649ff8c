package app

import (
	"slices"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// proven is a key of this gateway as its AMC takes it: with a proof, where this process has the private half. by names the gateway.
func proven(b identity.BundleKey, s frame.Signer, by arp.KeyProof) (arp.GatewayKey, error) {
	by.Use = uint8(b.Use)
	proof, err := by.Sign(s)
	return arp.GatewayKey{Use: uint8(b.Use), Public: b.Public, NotBefore: b.NotBefore, NotAfter: b.NotAfter, Proof: proof}, err
}

// shown is the keys that a bundle names as this gateway's. One that was replaced has no proof: the AMC has its proof from when it came.
func (k *keyring) shown(b *identity.Bundle) (out []arp.GatewayKey, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	by := arp.KeyProof{Owner: string(k.gateway)}
	for _, key := range b.Keys {
		if key.Owner != by.Owner {
			continue
		}
		shown := arp.GatewayKey{Use: uint8(key.Use), Public: key.Public, NotBefore: key.NotBefore, NotAfter: key.NotAfter}
		if s, ok := k.private(key); ok {
			if shown, err = proven(key, s, by); err != nil {
				return nil, err
			}
		}
		out = append(out, shown)
	}
	return out, nil
}

// private finds the private half of a key. Callers hold mu.
func (k *keyring) private(key identity.BundleKey) (frame.Signer, bool) {
	for _, held := range []map[identity.Use]frame.Signer{*k.current.Load(), k.next} {
		for use, s := range held {
			if wireUse(use) == key.Use && slices.Equal(s.Public(), key.Public) {
				return s, true
			}
		}
	}
	return frame.Signer{}, false
}
