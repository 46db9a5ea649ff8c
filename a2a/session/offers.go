package session

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

// Bounds of a target's memory of offers (a2a/PROTOCOL.md, "Offers"). Both count outstanding offers; a gateway asks [Offers.Room]
// of its own copy before it mints.
const (
	MaxOffers       = 64   // a target
	MaxOriginOffers = 16   // a target and origin domain
	maxUsed         = 4096 // used offers remembered; a forgotten one is refused as unknown
)

// Offers are the sessions that a target's gateway announced and nobody has opened yet. They are the replay protection of the
// SAT: the first valid INIT uses its offer up, and without an offer there is no session. They live in memory alone, so that
// after a restart a token has no offer and the initiator asks again.
type Offers struct {
	target string
	open   map[wire.ID]offer // by cti
	used   map[wire.ID]offer
}

type offer struct {
	sat    token.SAT
	origin string
}

// NewOffers makes the memory of one target.
func NewOffers(target string) *Offers {
	return &Offers{target: target, open: make(map[wire.ID]offer), used: make(map[wire.ID]offer)}
}

// Room says whether one more offer from a domain has room (47).
func (o *Offers) Room(origin string, now time.Time) error {
	o.expire(now)
	if len(o.open) >= MaxOffers {
		return frame.Errorf(frame.Overloaded, "%d offers are outstanding at %s", len(o.open), o.target)
	}
	n := 0
	for _, of := range o.open {
		if of.origin == origin {
			n++
		}
	}
	if n >= MaxOriginOffers {
		return frame.Errorf(frame.Overloaded, "%d offers to domain %q are outstanding at %s", n, origin, o.target)
	}
	return nil
}

// Add remembers an offer until exp + 30 s. sat is verified already; origin is the domain of its initiator. Codes: 64 for
// another target, 61 for a token of the past, 47 where there is no room. The same offer twice is one offer.
func (o *Offers) Add(sat token.SAT, origin string, now time.Time) error {
	if sat.Audience != o.target {
		return frame.Errorf(frame.Audience, "offer for %s came to %s", sat.Audience, o.target)
	}
	if err := sat.CheckTime(now); err != nil {
		return err
	}
	if _, ok := o.open[sat.ID]; ok {
		return nil
	}
	if _, ok := o.used[sat.ID]; ok {
		return frame.Errorf(frame.TokenReplayed, "offer was used already")
	}
	if err := o.Room(origin, now); err != nil {
		return err
	}
	o.open[sat.ID] = offer{sat: sat, origin: origin}
	return nil
}

// Outstanding says whether the offer of a presented SAT is there and fits: 60 unknown, 64 another target, 63 another key, sid or
// capability, 62 used already.
func (o *Offers) Outstanding(cti wire.ID, p token.Presented, now time.Time) error {
	o.expire(now)
	of, open := o.open[cti]
	if !open {
		var used bool
		if of, used = o.used[cti]; !used {
			return frame.Errorf(frame.TokenInvalid, "no offer of this token is outstanding")
		}
	}
	if err := of.sat.CheckPresented(p); err != nil {
		return err
	}
	if !open {
		return frame.Errorf(frame.TokenReplayed, "the offer of this token is used")
	}
	return nil
}

// Consume uses an offer up. Whoever comes second gets 62.
func (o *Offers) Consume(cti wire.ID, p token.Presented, now time.Time) error {
	if err := o.Outstanding(cti, p, now); err != nil {
		return err
	}
	if len(o.used) >= maxUsed {
		dropExpired(o.used, now)
	}
	if len(o.used) < maxUsed {
		o.used[cti] = o.open[cti]
	}
	delete(o.open, cti)
	return nil
}

// Admits says whether a peer may finish a handshake because an outstanding offer names it and its key.
func (o *Offers) Admits(remote Remote, now time.Time) bool {
	o.expire(now)
	for _, of := range o.open {
		if of.sat.Confirm.SPKI == remote.SPKI && of.sat.Subject == remote.AIC {
			return true
		}
	}
	return false
}

// Drop forgets the outstanding offers that match.
func (o *Offers) Drop(match func(token.SAT) bool) {
	for id, of := range o.open {
		if match(of.sat) {
			delete(o.open, id)
		}
	}
}

// Find is the outstanding offer whose session has this server name.
func (o *Offers) Find(serverName string, now time.Time) (token.SAT, bool) {
	o.expire(now)
	for _, of := range o.open {
		if ServerName(of.sat.Sid) == serverName {
			return of.sat, true
		}
	}
	return token.SAT{}, false
}

func (o *Offers) expire(now time.Time) { dropExpired(o.open, now) }

func dropExpired(m map[wire.ID]offer, now time.Time) {
	for id, of := range m {
		if now.After(of.sat.Started()) {
			delete(m, id)
		}
	}
}

const serverNameSuffix = ".a2a.invalid"

// ServerName is what an initiator sends as SNI: 16 hexadecimal digits, the first 8 bytes of the SHA-256 of the sid, under
// a2a.invalid. It tells the agents that share one socket apart, is another in each session, and names no AIC.
func ServerName(sid wire.ID) string {
	sum := sha256.Sum256(sid[:])
	return hex.EncodeToString(sum[:8]) + serverNameSuffix
}

// IsServerName says whether a name has the form of [ServerName].
func IsServerName(name string) bool {
	label, ok := strings.CutSuffix(name, serverNameSuffix)
	if !ok || len(label) != 16 {
		return false
	}
	_, err := hex.DecodeString(label)
	return err == nil
}
