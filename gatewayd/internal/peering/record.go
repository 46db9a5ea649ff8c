package peering

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Kinds of the audit records of trust.
const (
	kindAdded      = "peer.added" // a policy row; at the start of the gateway every row is
	kindChanged    = "peer.changed"
	kindRemoved    = "peer.removed"
	kindRenewed    = "trust.renewed"    // a configured peer's bundle, by that peer
	kindIntroduced = "trust.introduced" // another domain's, by a peer
	kindRefused    = "trust.refused"
	kindDropped    = "trust.dropped" // nobody may introduce the domain any more
)

// record keeps a record of trust. That it cannot be kept does not undo what the operator or a peer has changed.
func (p *Peering) record(ctx context.Context, kind string, data map[string]any) {
	if p.cfg.Audit == nil {
		return
	}
	if err := p.cfg.Audit(ctx, kind, data); err != nil {
		p.log.Error("a change of trust could not be recorded", "kind", kind, "domain", data["domain"], "err", err)
	}
}

// recordRows says how the policy rows differ from those before.
func (p *Peering) recordRows(ctx context.Context, before map[string]*peer, rows []Row) {
	now := map[string]bool{}
	for _, r := range rows {
		now[r.Domain] = true
		kind := kindAdded
		if old := before[r.Domain]; old != nil {
			if old.hash() == r.hash() {
				continue
			}
			kind = kindChanged
		}
		bundle := sha256.Sum256(r.Bundle)
		p.record(ctx, kind, map[string]any{"domain": r.Domain, "row": r.hash(), "bundle": hex.EncodeToString(bundle[:]), "role": r.Role})
	}
	for domain, old := range before {
		if !now[domain] && old.Role != roleInternal {
			p.record(ctx, kindRemoved, map[string]any{"domain": domain, "row": old.hash()})
		}
	}
}

// hash is of a row as CBOR, with its bundle.
func (r Row) hash() string {
	raw, err := frame.Marshal([]any{
		r.Domain, r.Role, r.Addresses, r.Bundle, r.Fingerprint[:], r.Gateways, r.MayQuery, r.Transit, r.Introduces, r.Upstream,
	})
	if err != nil { // strings, octets and truth values
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// recordBundle says what became of a bundle that a neighbour sent. What is refused is recorded as seldom as it is logged.
func (p *Peering) recordBundle(ctx context.Context, from string, b *identity.Accepted, changed bool, err error) {
	hash := sha256.Sum256(b.Raw)
	data := map[string]any{
		"domain": b.Domain, "from": from, "seq": b.Seq, "bundle": hex.EncodeToString(hash[:]), "fingerprint": identity.FingerprintText(b.Fingerprint),
	}
	switch {
	case err != nil && (changed || p.complaints.Allow()): // a dispute changes whom we believe
		data["code"], data["why"] = frame.CodeOf(err).Hex(), frame.Text(err)
		p.record(ctx, kindRefused, data)
	case err != nil || !changed:
	case b.Domain == from:
		p.record(ctx, kindRenewed, data)
	default:
		p.record(ctx, kindIntroduced, data)
	}
}
