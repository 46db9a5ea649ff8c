package session

import (
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

// Remote is the verified TLS peer.
type Remote struct {
	AIC  string
	SPKI wire.Hash
}

// CheckInitToken is the part of the target's checks on a SESSION_INIT that needs the token alone, in the order of the
// specification: signature and kid; aud = me; sub = the TLS peer's AIC; cnf = its key; sid and cap equal; times.
// No state is kept before all checks, these and those of the shell, have passed.
func CheckInitToken(
	m *wire.SessionInit, me string, remote Remote, keys frame.KeyFunc, domainOf token.DomainOf, now time.Time,
) (token.SAT, token.Presented, error) {
	p := token.Presented{Target: me, Initiator: remote.AIC, SPKI: remote.SPKI, Sid: m.Sid, Cap: m.Cap}
	sat, err := token.VerifySAT(m.SAT, keys, domainOf)
	if err != nil {
		return sat, p, err
	}
	if m.Target != me {
		return sat, p, frame.Errorf(frame.Audience, "SESSION_INIT is for %s, this is %s", m.Target, me)
	}
	if m.Initiator != remote.AIC {
		return sat, p, frame.Errorf(frame.Binding, "SESSION_INIT names %s, the certificate names %s", m.Initiator, remote.AIC)
	}
	if err := sat.CheckPresented(p); err != nil {
		return sat, p, err
	}
	return sat, p, sat.CheckTime(now)
}

// CheckHeld is what an initiator holds a SAT against before it dials: the token is its own, for its own key, and it is time.
func CheckHeld(sat token.SAT, me string, spki wire.Hash, now time.Time) error {
	p := token.Presented{Target: sat.Audience, Initiator: me, SPKI: spki, Sid: sat.Sid, Cap: sat.Cap}
	if err := sat.CheckPresented(p); err != nil {
		return err
	}
	return sat.CheckTime(now)
}

// RejectCode is the code that a target tells a peer. A peer of its own domain gets the code itself; any other learns its class
// only, so that a REJECT does not tell which check failed: 0F rate, 47 load, 61 time, and 60 for all else.
func RejectCode(code frame.Code, sameDomain bool) frame.Code {
	if sameDomain {
		return code
	}
	switch code {
	case frame.RateLimited, frame.TokenExpired, frame.Version:
		return code
	case frame.Overloaded, frame.LimitExceeded, frame.Internal, frame.Shutdown:
		return frame.Overloaded
	}
	return frame.TokenInvalid
}
