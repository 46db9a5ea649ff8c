package revocation

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"agentgw/internal/bounded"
)

// Bounds of the server. A customer of a network has an IPv4 address or an IPv6 /64; a proxy in front is one address to us.
const (
	headerTime   = 5 * time.Second
	requestTime  = 10 * time.Second
	answerTime   = 30 * time.Second // a full CRL of a big domain has 3 MB
	idleTime     = 15 * time.Second
	stopTime     = 2 * time.Second
	maxHeader    = 8 << 10
	maxConns     = 256
	connsAddress = 32   // of one address
	addressRate  = 50   // requests a second of one address
	totalRate    = 1000 // requests a second in all
	limitersKept = 4096
)

// serve serves the site until ctx ends.
func (s *Service) serve(ctx context.Context) {
	server := &http.Server{
		Handler: newLimits(s.site), ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if server.Shutdown(stop) != nil {
			_ = server.Close() // whoever is still reading has had its time
		}
	}()
	err := server.Serve(bounded.Listen(s.listen, maxConns, connsAddress, func(a net.Addr) netip.Prefix { return customer(a.String()) }))
	if !errors.Is(err, http.ErrServerClosed) {
		s.cfg.Log.Error("serve CRLs and OCSP: outsiders are told nothing until the next start", "err", err)
	}
	<-ended
}

// limits answers 429 to who asks too often.
type limits struct {
	next  http.Handler
	total *rate.Limiter

	mu sync.Mutex // guards by as pairs of get and add
	by *lru.Cache[netip.Prefix, *rate.Limiter]
}

func newLimits(next http.Handler) *limits {
	by, _ := lru.New[netip.Prefix, *rate.Limiter](limitersKept) // fails on a size below 1 only
	return &limits{next: next, total: rate.NewLimiter(totalRate, 2*totalRate), by: by}
}

func (l *limits) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !l.limiter(customer(r.RemoteAddr)).Allow() || !l.total.Allow() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	l.next.ServeHTTP(w, r)
}

func (l *limits) limiter(p netip.Prefix) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	lim, ok := l.by.Get(p)
	if !ok {
		lim = rate.NewLimiter(addressRate, 2*addressRate)
		l.by.Add(p, lim)
	}
	return lim
}

// customer is the unit that a network operator gives to one customer.
func customer(remote string) netip.Prefix {
	at, _ := netip.ParseAddrPort(remote) // what is no address counts as one and the same
	ip := at.Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
