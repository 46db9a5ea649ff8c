package nameserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"agentgw/internal/bounded"
)

// Bounds of what strangers may cost.
const (
	answerRate   = 50 // a second over UDP, of one network
	answerBurst  = 100
	networksKept = 8192
	connTime     = 2 * time.Second // to read a question, or write an answer
	connIdle     = 5 * time.Second
	connQueries  = 64 // of one connection
	maxConns     = 64
	connsNetwork = 8 // of one network
	stopTime     = 2 * time.Second
)

// Config of a server.
type Config struct {
	Apex
	// Members are the gateways that are live now. It is called for each question, at once from several goroutines, and must not wait.
	Members func() []Member
	Rate    float64 // answers a second over UDP to one network, 50
	Log     *slog.Logger
}

// Server answers. Create it with [New], run it with Serve.
type Server struct {
	cfg    Config
	zone   atomic.Pointer[zone]
	limits *limits
	stats  struct{ answered, cut, dropped atomic.Uint64 }

	renew sync.Mutex // one at a time makes the next zone
}

// Stats counts since the start.
type Stats struct {
	Answered uint64
	Cut      uint64 // told to come back over TCP, since their network asks too often
	Dropped  uint64 // not answered for the same reason
}

// New makes a server. Domain, Zone, Servers and TTL must be set.
func New(cfg Config) *Server {
	if cfg.Rate == 0 {
		cfg.Rate = answerRate
	}
	s := &Server{cfg: cfg, limits: newLimits(cfg.Rate)}
	s.zone.Store(newZone(cfg.Apex, cfg.Members(), uint32(time.Now().Unix())))
	return s
}

// current is the zone of the members that are live now.
func (s *Server) current() *zone {
	members, z := s.cfg.Members(), s.zone.Load()
	if slices.EqualFunc(members, z.members, Member.equal) {
		return z
	}
	s.renew.Lock()
	defer s.renew.Unlock()
	z = s.zone.Load()
	next := newZone(s.cfg.Apex, members, max(z.soa.Serial+1, uint32(time.Now().Unix())))
	s.zone.Store(next)
	return next
}

// Records are what it serves now, in the form of zone files, sorted.
func (s *Server) Records() []string { return s.current().records() }

// Stats counts since the start.
func (s *Server) Stats() Stats {
	return Stats{Answered: s.stats.answered.Load(), Cut: s.stats.cut.Load(), Dropped: s.stats.dropped.Load()}
}

// Listen opens the two sockets of one address.
func Listen(addr string) (net.PacketConn, net.Listener, error) {
	packets, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("dns.listen: bind UDP %s: %w; is another name server using the port, or does it need a privilege (CAP_NET_BIND_SERVICE below 1024)?", addr, err)
	}
	listener, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("dns.listen: bind TCP %s: %w; answers that are too long for UDP need it", addr, err), packets.Close())
	}
	return packets, listener, nil
}

// Serve answers on both sockets until ctx ends, and closes them. An error is of a socket that has failed.
func (s *Server) Serve(ctx context.Context, packets net.PacketConn, listener net.Listener) error {
	servers := []*dns.Server{
		{PacketConn: packets, UDPSize: maxUDP, Handler: dns.HandlerFunc(s.udp)},
		{
			Listener: bounded.Listen(listener, maxConns, connsNetwork, network), Handler: dns.HandlerFunc(s.tcp), ReadTimeout: connTime, WriteTimeout: connTime,
			IdleTimeout: func() time.Duration { return connIdle }, MaxTCPQueries: connQueries,
		},
	}
	errs := make([]error, len(servers))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for i, srv := range servers {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		running.Go(func() {
			defer cancel() // one without the other would answer by half
			errs[i] = srv.ActivateAndServe()
		})
		running.Go(func() {
			<-ctx.Done()
			select {
			case <-started:
			case <-time.After(stopTime): // it has failed before
				return
			}
			stop, done := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
			defer done()
			_ = srv.ShutdownContext(stop) // whoever still reads has had its time
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (s *Server) udp(w dns.ResponseWriter, q *dns.Msg) {
	switch s.limits.judge(network(w.RemoteAddr())) {
	case drop:
		s.stats.dropped.Add(1)
		return
	case cut:
		s.stats.cut.Add(1)
		m := &dns.Msg{Question: q.Question}
		m.Id, m.Response, m.Opcode, m.RecursionDesired, m.Truncated = q.Id, true, q.Opcode, q.RecursionDesired, true
		_ = w.WriteMsg(m) // who is not there asks again
		return
	}
	s.reply(w, q, maxUDP)
}

func (s *Server) tcp(w dns.ResponseWriter, q *dns.Msg) { s.reply(w, q, dns.MaxMsgSize) }

func (s *Server) reply(w dns.ResponseWriter, q *dns.Msg, limit int) {
	if len(q.Question) != 1 { // the library has seen to it
		return
	}
	s.stats.answered.Add(1)
	_ = w.WriteMsg(s.current().answer(q, limit)) // who is not there asks again
}

// Verdicts on one more answer to a network.
type verdict uint8

const (
	pass verdict = iota
	cut
	drop
)

// limits bounds the answers to each network. A forged sender is whom an attack is aimed at.
type limits struct {
	rate rate.Limit

	mu sync.Mutex // guards by
	by *simplelru.LRU[netip.Prefix, *budget]
}

type budget struct {
	limiter *rate.Limiter
	over    uint32 // answers that were too many
}

func newLimits(perSecond float64) *limits {
	l := &limits{rate: rate.Limit(perSecond)}
	l.by, _ = simplelru.NewLRU[netip.Prefix, *budget](networksKept, nil) // fails on a size below 1 only
	return l
}

// judge counts one answer. Of those that are too many every second is an empty one with TC: who really asks comes back over TCP.
func (l *limits) judge(p netip.Prefix) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.by.Get(p)
	if !ok {
		b = &budget{limiter: rate.NewLimiter(l.rate, max(answerBurst, int(l.rate)))}
		l.by.Add(p, b)
	}
	if b.limiter.Allow() {
		return pass
	}
	if b.over++; b.over%2 == 1 {
		return cut
	}
	return drop
}

// network is the unit that answers are bounded by: an IPv4 /24, an IPv6 /56.
func network(a net.Addr) netip.Prefix { return bounded.Network(a, 24, 56) }
