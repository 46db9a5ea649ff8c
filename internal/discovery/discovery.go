package discovery

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/miekg/dns"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Bounds of what a lookup may cost, and of how long its answer counts.
const (
	queryTime    = 2 * time.Second  // one question to one server
	lookupTime   = 10 * time.Second // all questions of one lookup
	attempts     = 2                // of a question: the first server, then the second
	maxAliases   = 8
	maxGateways  = 8  // of a domain; those of a lower rank are left out
	maxAddresses = 8  // of one host and family
	maxStrays    = 32 // packets that are no answer to a question, before its server is given up
	udpSize      = 1232

	minTTL      = 30 * time.Second
	maxTTL      = time.Hour
	negativeTTL = time.Minute
	failureTTL  = 5 * time.Second
	lastGoodFor = 24 * time.Hour
	patience    = 1800 * time.Millisecond // for a fresh answer where there is a last good one (RFC 8767, section 5)
	maxDomains  = 1024
)

// DefaultPort is where a gateway listens whose SVCB record names no port.
const DefaultPort = 4433

// DNSSEC says what is made of the AD bit of a resolver on this machine's loopback. That of any other could be anybody's.
type DNSSEC uint8

// The modes: not asked for, reported, or without it an answer does not count.
const (
	Off DNSSEC = iota
	Prefer
	Require
)

// ParseDNSSEC reads off, prefer or require; "" is off.
func ParseDNSSEC(s string) (DNSSEC, bool) {
	m, ok := map[string]DNSSEC{"": Off, "off": Off, "prefer": Prefer, "require": Require}[s]
	return m, ok
}

// Validated is whether a resolver on this machine has validated what it answered.
type Validated uint8

// Unknown is what remains where nobody was asked, or nobody who could be believed.
const (
	Unknown Validated = iota
	No
	Yes
)

func (v Validated) String() string { return [...]string{"unknown", "no", "yes"}[v] }

// with is the word for two answers that count together: the worse one, and what is not known is not said.
func (v Validated) with(o Validated) Validated {
	if v == Unknown || o == Unknown {
		return Unknown
	}
	return min(v, o)
}

// Config of a resolver.
type Config struct {
	ALPN    string   // that a gateway must speak
	Servers []string // ip:port, at most two are asked; none: those of ResolvConf
	// ResolvConf is the system's list of servers, read at each lookup; "" is /etc/resolv.conf.
	ResolvConf string
	DNSSEC     DNSSEC
	// Admit refuses addresses that are not to be dialled; nil admits all.
	Admit func(netip.Addr) error
}

// Gateway is one gateway that a domain's records name.
type Gateway struct {
	Host      string // a DNS name without the last dot
	Port      uint16
	Priority  uint16 // the lowest is dialled first
	Weight    uint16 // of SRV: its share among equals
	Addresses []netip.Addr
	Hints     bool // Addresses are the record's own hints: its host's could not be asked for
}

// Answer is what DNS says of a domain. It belongs to the resolver: callers read it.
type Answer struct {
	Domain   string
	Gateways []Gateway // in the order to dial: by priority, equals shuffled
	Source   string    // SVCB or SRV
	TTL      time.Duration
	DNSSEC   Validated
	At       time.Time // of the lookup
	// Err says why there is nothing newer, where this is the last good answer and its time is over. Its code is [frame.NotFound] where
	// the domain has no records any more.
	Err error
}

// Addresses are those of all gateways, ip:port, in the order to dial.
func (a *Answer) Addresses() []string {
	var out []string
	for _, g := range a.Gateways {
		for _, ip := range g.Addresses {
			out = append(out, netip.AddrPortFrom(ip, g.Port).String())
		}
	}
	return out
}

// Resolver finds gateways and remembers what it found. Create it with [New].
type Resolver struct {
	cfg Config
	// connect makes the way to ask for one lookup; tests have another.
	connect func(Config) (asker, error)

	ctx    context.Context // of every lookup: who asked may leave, the others still wait
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu    sync.Mutex // guards the rest
	known *simplelru.LRU[string, *entry]
}

// entry is what is known of one domain.
type entry struct {
	good   *Answer
	err    error         // of the last lookup
	until  time.Time     // from then on it is asked for anew
	flight chan struct{} // closed when the lookup that runs has ended; nil for none
}

// New makes a resolver; it asks nothing before [Resolver.Find], and ends with [Resolver.Close].
func New(cfg Config) *Resolver {
	r := &Resolver{cfg: cfg, connect: connect}
	r.known, _ = simplelru.NewLRU[string, *entry](maxDomains, nil) // fails on a size below 1 only
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Close ends the lookups that run.
func (r *Resolver) Close() {
	r.mu.Lock() // no Find is about to begin one
	r.cancel()
	r.mu.Unlock()
	r.tasks.Wait()
}

// Find is what DNS says of a domain: what was found before while its time lasts, else what is found now, else the last good answer, with
// the reason in Err. It waits for a lookup 10 s at most, and 1.8 s where it has a last good answer. Without any answer the error's code is
// [frame.NotFound] where the domain has no records, [frame.ReqInvalid] where it is no domain, [frame.Cancelled] where ctx has ended,
// and another where nobody could say.
func (r *Resolver) Find(ctx context.Context, domain string) (*Answer, error) {
	if _, ok := dns.IsDomainName(srvPrefix + domain); !ok || !identity.ValidDomain(domain) {
		return nil, frame.Errorf(frame.ReqInvalid, "%q is no lower-case DNS name that can have records of gateways", domain)
	}
	e, flight := r.begin(domain)
	if flight != nil {
		var enough <-chan time.Time
		if r.answered(e) {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			enough = timer.C
		}
		select {
		case <-flight:
		case <-enough:
		case <-ctx.Done():
			return nil, frame.Errorf(frame.Cancelled, "find the gateways of %s: %w", domain, context.Cause(ctx))
		}
	}
	return r.report(e)
}

// Forget has the next [Resolver.Find] ask anew; the last good answer stays one.
func (r *Resolver) Forget(domain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.known.Get(domain); ok {
		e.until = time.Time{}
	}
}

// begin is what is known of a domain, and the lookup to wait for, nil where what is known counts still.
func (r *Resolver) begin(domain string) (*entry, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.known.Get(domain)
	if !ok {
		e = &entry{}
		r.known.Add(domain, e)
	}
	switch {
	case e.flight != nil:
		return e, e.flight
	case time.Now().Before(e.until):
		return e, nil
	case r.ctx.Err() != nil:
		e.err = frame.Errorf(frame.Shutdown, "find the gateways of %s: this daemon is stopping", domain)
		return e, nil
	}
	flight := make(chan struct{})
	e.flight = flight
	r.tasks.Go(func() {
		answer, err := r.lookup(domain)
		r.mu.Lock()
		defer r.mu.Unlock()
		e.become(answer, err, time.Now())
		close(flight)
	})
	return e, flight
}

// become takes the outcome of a lookup that has ended.
func (e *entry) become(a *Answer, err error, now time.Time) {
	e.flight, e.err = nil, err
	switch {
	case err == nil:
		a.At = now
		e.good, e.until = a, now.Add(a.TTL)
	case frame.CodeOf(err) == frame.NotFound:
		e.until = now.Add(negativeTTL)
	default:
		e.until = now.Add(failureTTL)
	}
}

func (r *Resolver) lookup(domain string) (*Answer, error) {
	ctx, cancel := context.WithTimeout(r.ctx, lookupTime)
	defer cancel()
	ask, err := r.connect(r.cfg)
	if err != nil {
		return nil, err
	}
	l := &lookup{ask: ask, alpn: r.cfg.ALPN, admit: r.cfg.Admit, validated: Yes}
	if r.cfg.DNSSEC == Off {
		l.validated = Unknown
	}
	return l.domain(ctx, domain)
}

// answered says whether there is a last good answer to fall back to.
func (r *Resolver) answered(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.usable(time.Now())
}

func (e *entry) usable(now time.Time) bool {
	return e.good != nil && now.Before(e.good.At.Add(e.good.TTL+lastGoodFor))
}

func (r *Resolver) report(e *entry) (*Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case !e.usable(now):
		if e.err == nil { // its last good answer has grown too old while the lookup hangs
			return nil, frame.Errorf(frame.UpstreamFailed, "no name server has answered yet")
		}
		return nil, e.err
	case e.err == nil && now.Before(e.good.At.Add(e.good.TTL)):
		return e.good, nil
	}
	stale := *e.good
	if stale.Err = e.err; stale.Err == nil {
		stale.Err = errSlow
	}
	return &stale, nil
}

// errSlow is why a last good answer is given while the lookup for the next one runs.
var errSlow error = frame.Errorf(frame.Deadline, "the name servers have not answered yet: is one of them down?")

var errUnvalidated = errors.New("the answer is not validated by DNSSEC")
