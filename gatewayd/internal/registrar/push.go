package registrar

import (
	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// everybody is the attachments as of now, without those that linger.
func (r *Registrar) everybody() []*attachment {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*attachment, 0, len(r.attached))
	for _, a := range r.attached {
		out = append(out, a)
	}
	return out
}

// RevokePeer has every attached agent end its sessions with an AIC. Who has none is not disturbed by it.
func (r *Registrar) RevokePeer(id string, code frame.Code) {
	r.Announce(&arp.SessionRevoke{Kind: arp.RevokePeer, Value: id, Code: code})
}

// RevokePeers has every attached agent end its sessions with some AICs, at most [arp.MaxRevoked].
func (r *Registrar) RevokePeers(ids []string, code frame.Code) {
	list := make([]any, len(ids))
	for i, id := range ids {
		list[i] = id
	}
	r.Announce(&arp.SessionRevoke{Kind: arp.RevokePeer, Value: list, Code: code})
}

// RevokeUnder has every attached agent end its sessions with the agents of a prefix.
func (r *Registrar) RevokeUnder(prefix string, code frame.Code) {
	r.Announce(&arp.SessionRevoke{Kind: arp.RevokeUnder, Value: prefix, Code: code})
}

// Announce sends every attached agent a frame. One that does not read loses its connection, as ever.
func (r *Registrar) Announce(m frame.Message) {
	for _, a := range r.everybody() {
		a.send(m)
	}
}

// greet sends a newly attached agent what it lacks of its own domain's trust.
func (r *Registrar) greet(a *attachment, held []arp.TrustHeld) {
	for _, b := range r.cfg.Trust.Issuers(r.cfg.Domain) {
		seq, _ := r.cfg.Statuses.Held(b.Issuer)
		newest := arp.TrustHeld{Issuer: b.Issuer, BundleSeq: b.Seq, StatusSeq: seq}
		for _, m := range arp.Lacking(held, newest, b.Raw, r.cfg.Statuses.Raw(b.Issuer)) {
			a.send(m)
		}
	}
}
