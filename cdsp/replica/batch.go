package replica

import (
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// batch is one signed batch, kept once however many neighbours carry it. It is immutable but for what is known of it.
type batch struct {
	hash   wire.ID16
	raw    []byte
	signed *frame.Signed // nil once verified: raw holds all that is passed on
	body   *wire.Batch
	form   error // it cannot be read
	kid    frame.KeyID
	key    frame.VerifyKey
	ok     bool  // signature and owner are right
	bad    error // they are not; never tried again
	refs   int   // digest streams that carry it
}

func newBatch(raw []byte) *batch {
	b := &batch{hash: wire.BatchHash(raw), raw: raw}
	b.signed, b.form = frame.ParseSigned(raw)
	if b.form != nil {
		return b
	}
	b.kid = b.signed.KeyID
	b.body, b.form = wire.ParseBatch(b.signed.Payload)
	return b
}

func (b *batch) expires() time.Time { return unix(b.body.Expires) }

func unix(s uint64) time.Time { return time.Unix(int64(min(s, 1<<40)), 0) }

// verify checks the signature and that the key's owner is the origin that the payload names. Codes: [frame.UnknownKey],
// which may pass later; [frame.BadSignature] and [frame.IdentityMismatch], which stay.
func (b *batch) verify(keys frame.KeyFunc) error {
	if b.ok || b.bad != nil {
		return b.bad
	}
	key, known := keys(b.kid)
	if !known {
		return frame.Errorf(frame.UnknownKey, "no accepted key has the id %x", b.kid)
	}
	if b.bad = b.judge(key); b.bad == nil {
		b.ok, b.key, b.signed = true, key, nil
	}
	return b.bad
}

func (b *batch) judge(key frame.VerifyKey) (err error) {
	if b.signed == nil { // it verified once, under a key that went and came back
		if b.signed, err = frame.ParseSigned(b.raw); err != nil {
			return err
		}
	}
	if err := b.signed.Verify(frame.AADDigest, key.Public); err != nil {
		return err
	}
	if key.Owner != b.body.Origin || key.Domain != b.body.Domain {
		return frame.Errorf(frame.IdentityMismatch, "key of %s signs a batch of %s", key.Owner, b.body.Origin)
	}
	return nil
}

// stillKnown says whether the key that verified the batch still counts for its origin.
func (b *batch) stillKnown(keys frame.KeyFunc) bool {
	key, ok := keys(b.kid)
	return ok && key.Owner == b.body.Origin && key.Domain == b.body.Domain && key.Public.Equal(b.key.Public)
}

// carry notes the batches that one frame brings. A batch that would be over the neighbour's bytes is not kept, and the
// entries that use it are refused with it.
func (r *Replica) carry(s *session, raws [][]byte) {
	rx := &s.rx
	for _, raw := range raws {
		hash := wire.BatchHash(raw)
		if rx.carried[hash] != nil {
			continue
		}
		if rx.bytes+len(raw) > r.cfg.Limits.PeerBytes {
			rx.full = true
			continue
		}
		b := r.batches[hash]
		if b == nil {
			b = newBatch(raw)
			r.batches[hash] = b
		}
		b.refs++
		rx.carried[hash] = b
		rx.bytes += len(raw)
	}
}

func (r *Replica) uncarry(s *session, b *batch) {
	delete(s.rx.carried, b.hash)
	s.rx.bytes -= len(b.raw)
	if b.refs--; b.refs == 0 {
		delete(r.batches, b.hash)
	}
}

// dropCarried forgets the batches of a digest stream that ended.
func (r *Replica) dropCarried(s *session) {
	for _, b := range s.rx.carried {
		r.uncarry(s, b)
	}
}

// sweepCarried forgets batches that nobody may refer to any more.
func (r *Replica) sweepCarried(now time.Time, s *session) {
	for _, b := range s.rx.carried {
		if b.form == nil && now.After(b.expires().Add(2*r.cfg.Timers.ClockSkew)) {
			r.uncarry(s, b)
		}
	}
}
