package endpoint

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"
)

const (
	knownFor      = 10 * time.Minute // an address with a completed handshake this recent may hurry
	knownRate     = 200
	knownBurst    = 400
	limitersKept  = 8192
	defaultConns  = 4096
	defaultRate   = 20
	defaultBurst  = 40
	tokensPerPeer = 4
	tokenPeers    = 256
)

var (
	errTooMany = errors.New("too many connections")
	errTooFast = errors.New("too many handshakes from this address")
)

// admission bounds who may begin a handshake before any of it is computed.
type admission struct {
	limit    int64
	rate     rate.Limit
	burst    int
	open     atomic.Int64
	tokens   quic.TokenStore
	mu       sync.Mutex // guards limiters and known as pairs of get and add
	limiters *lru.Cache[netip.Prefix, *rate.Limiter]
	known    *lru.Cache[netip.Prefix, time.Time]
}

func newAdmission(cfg Config) *admission {
	a := &admission{limit: int64(cfg.MaxConns), rate: rate.Limit(cfg.HandshakeRate), burst: cfg.HandshakeBurst}
	if a.limit == 0 {
		a.limit = defaultConns
	}
	if a.rate == 0 {
		a.rate, a.burst = defaultRate, defaultBurst
	}
	a.tokens = quic.NewLRUTokenStore(tokenPeers, tokensPerPeer)
	a.limiters, _ = lru.New[netip.Prefix, *rate.Limiter](limitersKept) // fails on a size below 1 only
	a.known, _ = lru.New[netip.Prefix, time.Time](limitersKept)
	return a
}

// connContext is asked for each incoming connection; an error answers CONNECTION_REFUSED. The slot it takes is given back
// when the handshake fails, or by release when an accepted connection ends.
func (a *admission) connContext(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	if !a.limiter(prefix(info.RemoteAddr)).Allow() {
		return nil, errTooFast
	}
	if a.open.Load() >= a.limit {
		return nil, errTooMany
	}
	return ctx, nil
}

func (a *admission) limiter(p netip.Prefix) *rate.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.known.Get(p); ok && time.Since(at) < knownFor {
		l, ok := a.limiters.Get(p)
		if !ok || l.Burst() < knownBurst {
			l = rate.NewLimiter(knownRate, knownBurst)
			a.limiters.Add(p, l)
		}
		return l
	}
	l, ok := a.limiters.Get(p)
	if !ok {
		l = rate.NewLimiter(a.rate, a.burst)
		a.limiters.Add(p, l)
	}
	return l
}

func (a *admission) completed(addr net.Addr) {
	a.open.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.Add(prefix(addr), time.Now())
}

func (a *admission) release() { a.open.Add(-1) }

// prefix is the unit that one network operator hands to one customer: an IPv4 address, an IPv6 /64.
func prefix(addr net.Addr) netip.Prefix {
	ip := addrPort(addr).Addr()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
