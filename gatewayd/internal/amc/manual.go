package amc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// Bounds of the requests that wait for a person.
const (
	maxPending        = 1000
	maxPendingAddress = 10
	pendingLife       = 24 * time.Hour
	pendingRetry      = 10 * time.Second
)

// pending is one request that waits, or that a person has decided about.
type pending struct {
	SPKI       []byte         `cbor:"1,keyasint"`
	GW         string         `cbor:"2,keyasint"`
	Attributes arp.Attributes `cbor:"3,keyasint"`
	Scope      []string       `cbor:"4,keyasint,omitempty"` // asked for
	Skills     []string       `cbor:"5,keyasint,omitempty"`
	Asked      uint64         `cbor:"6,keyasint"`           // unix seconds
	Verdict    Kind           `cbor:"7,keyasint,omitempty"` // Allow, Deny, or none yet
	Granted    []string       `cbor:"8,keyasint,omitempty"`
	Why        string         `cbor:"9,keyasint,omitempty"`
	JTI        []byte         `cbor:"10,keyasint,omitempty"`
	Class      uint8          `cbor:"11,keyasint,omitempty"`
}

// Manual is the decider that leaves it to a person: a request without a token waits, at most a day, until an operator
// approves or denies it. A request is named by its key, so that asking again makes no second one; what was denied to one key may be asked
// anew with another.
type Manual struct {
	mu   sync.Mutex // guards open
	open map[string]waiting
}

// waiting is a request as the bounds see it. One that was denied waits no more, but counts against its address to its end: whoever is denied
// may ask anew with another key, and not without end.
type waiting struct {
	address string
	until   time.Time
	denied  bool
}

// NewManual makes the decider; OpenRequests tells it what waits already.
func NewManual() *Manual { return &Manual{open: map[string]waiting{}} }

const manualName = "manual"

// Name implements Decider.
func (*Manual) Name() string { return manualName }

func pendingID(q *arp.AuthzRequest) []byte {
	sum := sha256.Sum256(slices.Concat([]byte("pending\x00"), q.SPKI, []byte(q.GW)))
	return sum[:16]
}

func pendingName(id []byte) string { return prefixPending + hex.EncodeToString(id) }

// Decide implements Decider.
func (m *Manual) Decide(tx Tx, q *Question) (Verdict, error) {
	if q.Renewal || len(q.TokenHash) > 0 {
		return Verdict{}, nil
	}
	id := pendingID(q.AuthzRequest)
	if len(q.PendingID) > 0 && string(q.PendingID) != string(id) {
		return Verdict{}, frame.Errorf(frame.Binding, "the request that is asked about is another key's")
	}
	p, err := getPending(tx, id)
	if errors.Is(err, directory.ErrNotFound) || err == nil && q.Now.After(time.Unix(int64(p.Asked), 0).Add(pendingLife)) {
		return m.begin(tx, q, id)
	}
	if err != nil {
		return Verdict{}, err
	}
	if !p.same(q) {
		return Verdict{}, frame.Errorf(frame.Binding, "the request that waits, or was approved, is of the agent %q of %q with other skills or another provider: "+
			"enrol with what was asked for then, or with another key", p.Attributes.Name, p.Attributes.Organization)
	}
	switch p.Verdict {
	case Allow:
		v := Verdict{Kind: Allow, Scope: p.Granted, JTI: p.JTI}
		if p.JTI == nil {
			p.JTI = q.NewJTI
		}
		return v, put(tx, pendingName(id), p)
	case Deny:
		return Verdict{}, frame.Errorf(frame.PolicyDenied, "an operator has denied this registration (`agentd enrol` again makes a new request): %s", or(p.Why, "no reason was given"))
	}
	v := waitFor(id)
	v.Known = true
	return v, nil
}

// same says whether a request is still the one that a person sees, or has seen: an approval is of one provider with its skills. The
// address may change.
func (p *pending) same(q *Question) bool {
	was, is := p.Attributes, q.Attributes
	was.Address, is.Address = "", ""
	return was == is && p.Class == q.Class && !slices.ContainsFunc(q.Skills, func(id string) bool { return !slices.Contains(p.Skills, id) })
}

func waitFor(id []byte) Verdict {
	return Verdict{
		Kind: Wait, PendingID: id, RetryAfter: pendingRetry,
		Reason: fmt.Sprintf("an operator has to approve this registration: gatewayd agents approve %s", hex.EncodeToString(id)),
	}
}

func (m *Manual) begin(tx Tx, q *Question, id []byte) (Verdict, error) {
	if err := m.room(hex.EncodeToString(id), q.Attributes.Address, q.Now); err != nil {
		return Verdict{}, err
	}
	return waitFor(id), put(tx, pendingName(id), pending{
		SPKI: q.SPKI, GW: q.GW, Attributes: q.Attributes, Scope: q.Scope, Skills: q.Skills, Asked: uint64(q.Now.Unix()), Class: q.Class,
	})
}

func (m *Manual) room(id, address string, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	open, same := 0, 0
	for other, w := range m.open {
		if other == id || now.After(w.until) { // nobody has decided about it in time
			delete(m.open, other)
			continue
		}
		if !w.denied {
			open++
		}
		if w.address == address {
			same++
		}
	}
	if open >= maxPending || same >= maxPendingAddress {
		return frame.Errorf(frame.Overloaded, "%d requests wait for approval, and %d from %s wait or were denied within a day: try again later, or ask the operator", open, same, address)
	}
	m.open[id] = waiting{address: address, until: now.Add(pendingLife)}
	return nil
}

func (m *Manual) settled(id string, verdict Kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, ok := m.open[id]
	delete(m.open, id)
	if w.denied = verdict == Deny; ok && w.denied {
		m.open[id] = w
	}
}

func (m *Manual) set(open map[string]waiting) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = open
}

func getPending(tx Tx, id []byte) (*pending, error) {
	raw, err := tx.Get(pendingName(id))
	if err != nil {
		return nil, err
	}
	p := new(pending)
	if err := frame.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("stored request: %w", err)
	}
	return p, nil
}

// PendingRequest is one request that waits for a person.
type PendingRequest struct {
	ID         string         `json:"id"`
	Gateway    string         `json:"gateway"`
	SPKI       string         `json:"spki"`
	Attributes arp.Attributes `json:"attributes"`
	Scope      []string       `json:"scope,omitempty"`
	Skills     []string       `json:"skills,omitempty"`
	Asked      time.Time      `json:"asked"`
}

// OpenRequests are the requests that wait now.
func (a *AMC) OpenRequests() ([]PendingRequest, error) {
	var out []PendingRequest
	open := map[string]waiting{}
	now := a.cfg.Now()
	err := a.cfg.Store.Records(prefixPending, func(name string, value []byte) error {
		var p pending
		if err := frame.Unmarshal(value, &p); err != nil {
			return fmt.Errorf("record %s: %w", name, err)
		}
		asked := time.Unix(int64(p.Asked), 0)
		if p.Verdict == Allow || now.After(asked.Add(pendingLife)) {
			return nil
		}
		id := name[len(prefixPending):]
		open[id] = waiting{p.Attributes.Address, asked.Add(pendingLife), p.Verdict == Deny}
		if p.Verdict == Deny {
			return nil
		}
		out = append(out, PendingRequest{
			ID: id, Gateway: p.GW, SPKI: "sha256:" + hex.EncodeToString(p.SPKI), Attributes: p.Attributes, Scope: p.Scope, Skills: p.Skills, Asked: asked.UTC(),
		})
		return nil
	})
	for _, d := range a.cfg.Deciders {
		if m, ok := d.(*Manual); ok && err == nil {
			m.set(open)
		}
	}
	return out, err
}

// Approve decides a request that waits: the agent gets at most scope; empty means discover, and invoke what it has asked for.
func (a *AMC) Approve(ctx context.Context, id string, scope []string) error {
	if err := checkScope(scope); err != nil {
		return err
	}
	return a.settle(ctx, id, func(p *pending) {
		p.Verdict, p.Granted = Allow, scope
		if len(scope) == 0 {
			p.Granted = policy.Everyday()
		}
	})
}

// Refuse decides a request that waits the other way.
func (a *AMC) Refuse(ctx context.Context, id, why string) error {
	return a.settle(ctx, id, func(p *pending) { p.Verdict, p.Why = Deny, clip(why) })
}

func (a *AMC) settle(ctx context.Context, id string, decide func(*pending)) error {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != 16 {
		return frame.Errorf(frame.ReqInvalid, "request %q is not 32 hexadecimal digits: `gatewayd agents pending` lists them", id)
	}
	var p *pending
	err = a.transact(ctx, func(tx Tx) (err error) {
		if p, err = getPending(tx, raw); errors.Is(err, directory.ErrNotFound) {
			return frame.Errorf(frame.NotFound, "no request %s waits here", id)
		}
		if err != nil {
			return err
		}
		if p.Verdict != NoOpinion {
			return frame.Errorf(frame.State, "request %s has been decided already", id)
		}
		decide(p)
		return put(tx, pendingName(raw), p)
	})
	if err != nil {
		return err
	}
	for _, d := range a.cfg.Deciders {
		if m, ok := d.(*Manual); ok {
			m.settled(id, p.Verdict)
		}
	}
	kind := "request.approved"
	if p.Verdict == Deny {
		kind = "request.refused"
	}
	return a.cfg.Audit(ctx, kind, map[string]any{"pending": id, "spki": hex.EncodeToString(p.SPKI), "scope": p.Granted, "why": p.Why})
}
