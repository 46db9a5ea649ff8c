package identity

import (
	"slices"
	"sync"
	"time"

	"agentgw/internal/frame"
)

// Statuses is the newest status list of every issuer whose bundle is accepted. It is safe for concurrent use. What is not
// known fails closed for other domains ([Statuses.Fresh]) and open at home, where credentials live a day.
type Statuses struct {
	trust *Trust
	now   func() time.Time

	mu      sync.RWMutex // guards the rest
	issuers map[string]*issuerStatus
	entries int // of all issuers
}

// issuerStatus is one issuer's whole list.
type issuerStatus struct {
	domain string
	seq    uint64
	next   time.Time
	life   time.Duration          // from its making to next
	bad    map[string]StatusEntry // by AIC, or by the 16 bytes of a serial number
	raw    [][]byte               // the full list and the deltas since, as signed
	parts  []*StatusList          // of a newer full list, while some are missing
	signed [][]byte               // the same, as signed
}

// Standing is one change that a list brought.
type Standing struct {
	AIC   string
	State State
	Since uint64
}

// StatusChange is what a list has changed.
type StatusChange struct {
	Domain, Issuer string
	New            bool       // a newer list counts now
	Old            bool       // it is no newer than the one held
	Changed        []Standing // agents whose state is another one than before
}

// maxDeltas is how many deltas are kept behind a full list, to be handed on with it.
const maxDeltas = 32

// NewStatuses starts without any list.
func NewStatuses(trust *Trust, now func() time.Time) *Statuses {
	return &Statuses{trust: trust, now: now, issuers: map[string]*issuerStatus{}}
}

// Open verifies a list as [Statuses.Apply] would, and takes nothing.
func (s *Statuses) Open(raw []byte) (*StatusList, error) { return OpenStatus(raw, s.trust, s.now()) }

// Due says whether a newer list of an issuer should be here by now, or none ever was.
func (s *Statuses) Due(issuer string) bool {
	seq, next := s.Held(issuer)
	return seq == 0 || s.now().After(next)
}

// Apply takes one signed list, or a part of one. An older one changes nothing and is no error. A delta over a list that is
// not held is refused with 21: ask for the full one. Other codes are those of [OpenStatus], and 10 when too much is known.
func (s *Statuses) Apply(raw []byte) (StatusChange, error) {
	l, err := OpenStatus(raw, s.trust, s.now())
	if err != nil {
		return StatusChange{}, err
	}
	out := StatusChange{Domain: l.Domain, Issuer: l.Issuer}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.issuers[l.Issuer]
	if held == nil {
		held = &issuerStatus{domain: l.Domain, bad: map[string]StatusEntry{}}
	}
	if out.Old = l.Seq <= held.seq; out.Old {
		return out, nil
	}
	var next map[string]StatusEntry
	switch {
	case l.Base != 0 && (held.seq < l.Base || len(held.raw) > maxDeltas):
		return out, frame.Errorf(frame.SeqGap, "status list %d of %s changes list %d, %d is held", l.Seq, l.Issuer, l.Base, held.seq)
	case l.Base != 0:
		next = changed(held.bad, l.Entries)
	default:
		if !held.gather(l, raw) {
			s.issuers[l.Issuer] = held
			return out, nil
		}
		next = map[string]StatusEntry{}
		for _, p := range held.parts {
			next = changed(next, p.Entries)
		}
	}
	total := s.entries - len(held.bad) + len(next)
	if total > maxStatusesOfForeign && len(next) > max(statusShare, len(held.bad)) && s.trust.DomainOf(l.Issuer) != s.trust.Own().Domain {
		held.parts, held.signed = nil, nil
		return out, frame.Errorf(frame.LimitExceeded, "%d status entries of all domains, %d are kept", total, maxStatusesOfForeign)
	}
	out.New, out.Changed = true, difference(held.bad, next)
	s.entries = total
	held.become(l, next, raw)
	s.issuers[l.Issuer] = held
	return out, nil
}

// gather keeps the parts of a full list until all are there.
func (h *issuerStatus) gather(l *StatusList, raw []byte) (whole bool) {
	if l.Of == 0 {
		h.parts, h.signed = []*StatusList{l}, [][]byte{raw}
		return true
	}
	if len(h.parts) != int(l.Of) || h.seqOfParts() != l.Seq {
		h.parts, h.signed = make([]*StatusList, l.Of), make([][]byte, l.Of)
	}
	h.parts[l.Part-1], h.signed[l.Part-1] = l, slices.Clone(raw)
	return !slices.Contains(h.parts, nil)
}

func (h *issuerStatus) seqOfParts() uint64 {
	for _, p := range h.parts {
		if p != nil {
			return p.Seq
		}
	}
	return 0
}

// become makes a newer list the one that counts.
func (h *issuerStatus) become(l *StatusList, bad map[string]StatusEntry, raw []byte) {
	if l.Base != 0 {
		h.raw = append(slices.Clone(h.raw), slices.Clone(raw))
	} else {
		h.raw = h.signed
	}
	h.seq, h.next, h.bad, h.parts, h.signed = l.Seq, time.Unix(int64(l.Next), 0), bad, nil, nil
	h.life = time.Duration(l.Next-l.Issued) * time.Second
}

func subject(e StatusEntry) string {
	if b, ok := e.Subject.([]byte); ok {
		return string(b)
	}
	return e.Subject.(string) // [StatusList.check] saw to it
}

// changed is a list with the entries of a delta.
func changed(bad map[string]StatusEntry, entries []StatusEntry) map[string]StatusEntry {
	out := make(map[string]StatusEntry, len(bad)+len(entries))
	for k, e := range bad {
		out[k] = e
	}
	for _, e := range entries {
		if e.State == Good {
			delete(out, subject(e))
		} else {
			out[subject(e)] = e
		}
	}
	return out
}

// difference names the agents whose state differs between two lists.
func difference(before, after map[string]StatusEntry) []Standing {
	var out []Standing
	for k, e := range after {
		if id, ok := e.Subject.(string); ok && before[k].State != e.State {
			out = append(out, Standing{id, e.State, e.Since})
		}
	}
	for k, e := range before {
		if _, still := after[k]; !still {
			if id, ok := e.Subject.(string); ok {
				out = append(out, Standing{AIC: id, State: Good})
			}
		}
	}
	return out
}

// Of is what the issuer of an AIC says of it by the newest list; whether that list is fresh enough is [Statuses.Fresh]'s.
func (s *Statuses) Of(id string) State {
	b := s.trust.Of(id)
	if b == nil {
		return Good
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if held := s.issuers[b.Issuer]; held != nil {
		return held.bad[id].State
	}
	return Good
}

// Check says whether an AIC, and the certificate with this serial number (nil: any), is in good standing as far as is known
// here. The error carries [frame.CertStatus].
func (s *Statuses) Check(id string, serial []byte) error {
	state := s.Of(id)
	if state == Good && serial != nil {
		if b := s.trust.Of(id); b != nil {
			s.mu.RLock()
			if held := s.issuers[b.Issuer]; held != nil {
				state = held.bad[string(serial)].State
			}
			s.mu.RUnlock()
		}
	}
	if state != Good {
		return frame.Errorf(frame.CertStatus, "%s is %v by its domain's status list", id, state)
	}
	return nil
}

// Fresh says whether what is known of an AIC's issuer may still be relied on: the newest list and its grace, five minutes for other
// domains, four hours at home. The error carries [frame.CertStatus] and names the domain and since when.
func (s *Statuses) Fresh(id string) error {
	b := s.trust.Of(id)
	if b == nil {
		return frame.Errorf(frame.TrustDenied, "no accepted bundle owns the AIC %s", id)
	}
	home := s.trust.Home(b)
	seq, next := s.Held(b.Issuer)
	grace := s.grace(b.Issuer, home)
	switch {
	case seq == 0 && home:
		return nil
	case seq == 0:
		return frame.Errorf(frame.CertStatus, "no status list of %s (issuer %s) has arrived: who is revoked there is not known", b.Domain, b.Issuer)
	case s.now().After(next.Add(grace)):
		return frame.Errorf(frame.CertStatus, "the status list of %s (issuer %s) was due anew at %s: who is revoked there is not known",
			b.Domain, b.Issuer, next.UTC().Format(time.RFC3339))
	}
	return nil
}

// grace is for how long a list counts beyond its time: five minutes for other domains and four hours at home, of a list that counts a
// quarter of an hour; of one that counts less the same share of its life.
func (s *Statuses) grace(issuer string, home bool) time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	life := MaxStatusLife
	if held := s.issuers[issuer]; held != nil {
		life = min(life, held.life)
	}
	whole := StatusGrace
	if home {
		whole = StatusHomeGrace
	}
	return time.Duration(float64(whole) * life.Seconds() / MaxStatusLife.Seconds())
}

// Raw is the newest whole list of an issuer as signed, to be handed on: the full list, then the deltas since.
func (s *Statuses) Raw(issuer string) [][]byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if held := s.issuers[issuer]; held != nil {
		return slices.Clone(held.raw)
	}
	return nil
}

// Held is the sequence number of an issuer's list, and when a newer one is due; 0 without a list.
func (s *Statuses) Held(issuer string) (seq uint64, next time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if held := s.issuers[issuer]; held != nil {
		return held.seq, held.next
	}
	return 0, time.Time{}
}

// Forget drops the lists of issuers whose bundles are no longer accepted.
func (s *Statuses) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	accepted := map[string]bool{}
	for _, b := range s.trust.All() {
		accepted[b.Issuer] = true
	}
	for issuer, held := range s.issuers {
		if !accepted[issuer] {
			s.entries -= len(held.bad)
			delete(s.issuers, issuer)
		}
	}
}
