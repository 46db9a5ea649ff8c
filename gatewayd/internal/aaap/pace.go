package aaap

import (
	"time"

	"golang.org/x/time/rate"

	"agentgw/internal/frame"
)

// What one gateway may have its AMC do. Each change of its keys is a new bundle, which every gateway, agent and peer of the domain takes; a
// rotation needs two in a month, a rotation by hand two in a minute. A gateway that comes and goes connects six times a minute.
const (
	keysBurst    = 20
	keysEvery    = 10 * time.Second
	connectBurst = 30
	connectEvery = 2 * time.Second
	complainAt   = time.Minute // once in so long; a flood of connections shall not be a flood of lines
)

// pace bounds one gateway.
type pace struct {
	keys, connects *rate.Limiter
	complaint      rate.Sometimes
}

func newPace() *pace {
	return &pace{
		keys: rate.NewLimiter(rate.Every(keysEvery), keysBurst), connects: rate.NewLimiter(rate.Every(connectEvery), connectBurst),
		complaint: rate.Sometimes{Interval: complainAt},
	}
}

// allow takes one turn, or says when there is one again. what is done too often, burst and every its bounds.
func allow(l *rate.Limiter, now time.Time, what string) error {
	turn := l.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	turn.CancelAt(now)
	every := time.Duration(float64(time.Second) / float64(l.Limit())).Round(time.Millisecond)
	return frame.Errorf(frame.RateLimited, "this gateway %s too often: %d times at once and once in %v are allowed, try again in %v", what, l.Burst(), every, max(wait.Round(time.Second), time.Second))
}

// paceOf is the pace of a gateway or another AMC, which the handshake has verified. Gateways that have left the domain are forgotten, so that there are never
// many more than the bundle names.
func (s *Server) paceOf(gateway string) *pace {
	place := s.placeOf(gateway)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.paces[place]
	if p != nil {
		return p
	}
	if own := s.cfg.Trust.Own(); len(s.paces) >= 2*maxGateways {
		for id := range s.paces {
			if !own.IsGateway(id) {
				delete(s.paces, id)
			}
		}
	}
	p = newPace()
	s.paces[place] = p
	return p
}
