package relay

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"agentgw/directory/semreq"
	"agentgw/internal/frame"
)

// overloaded is a refusal that says when to come again.
type overloaded struct{ wait time.Duration }

func overload(wait time.Duration) error { return &overloaded{wait} }

func (o *overloaded) Error() string {
	return "over its rate, again in " + o.wait.Round(time.Millisecond).String()
}

func (o *overloaded) Unwrap() error { return frame.Errorf(frame.Overloaded, "over its rate") }

const limitersKept = 8192

// limiters is one token bucket a key: the least recently used go first when there are too many keys.
type limiters struct {
	rate rate.Limit
	mu   sync.Mutex // guards get-and-add
	keys *lru.Cache[string, *rate.Limiter]
}

func newLimiters(r rate.Limit) *limiters {
	keys, _ := lru.New[string, *rate.Limiter](limitersKept) // fails on a size below 1 only
	return &limiters{rate: r, keys: keys}
}

// allow takes one token; when there is none it says after how long there will be.
func (l *limiters) allow(key string) (ok bool, wait time.Duration) {
	l.mu.Lock()
	lim, found := l.keys.Get(key)
	if !found {
		lim = rate.NewLimiter(l.rate, max(1, int(2*l.rate)))
		l.keys.Add(key, lim)
	}
	l.mu.Unlock()
	if lim.Allow() {
		return true, 0
	}
	return false, time.Duration(float64(time.Second) / float64(l.rate))
}

// Bounds of the table of requests seen (cdsp/PROTOCOL.md, "Semantic requests", step 3).
const (
	maxSeen         = 100_000
	maxSeenNeighbor = 20_000
	seenAfter       = 30 * time.Second
)

type dupKey struct {
	origin, req string
	attempt     uint8
}

// dupEntry is a request that runs or has run.
type dupEntry struct {
	key    dupKey
	from   string
	until  time.Time
	flight *flight // nil once it has been answered: what comes then is a duplicate
}

// flight is a request that is being worked on; those who repeat it wait for the same answer.
type flight struct {
	ready  chan struct{} // closed when answer is set
	answer *semreq.Response
}

// dupTable remembers requests, so that one that comes twice is worked on once. When it is full the oldest are forgotten;
// when one neighbour has filled its share, its own new requests are refused as duplicates of a storm.
type dupTable struct {
	mu      sync.Mutex
	entries map[dupKey]*dupEntry
	order   []*dupEntry // by insertion: expiry times differ by at most the largest budget
	perFrom map[string]int
}

func newDupTable() *dupTable {
	return &dupTable{entries: map[dupKey]*dupEntry{}, perFrom: map[string]int{}}
}

// find looks a request up: the flight to join when the same neighbour repeats one that still runs; known when it has come before.
func (t *dupTable) find(key dupKey, from string) (running *flight, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[key]
	if ok && e.from == from {
		return e.flight, true
	}
	return nil, ok
}

// begin inserts a request. It returns the new entry, or the flight to join when the same neighbour repeats one that still
// runs, or neither when the request is a duplicate.
func (t *dupTable) begin(key dupKey, from string, deadline time.Time) (fresh *dupEntry, running *flight) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	if old, ok := t.entries[key]; ok {
		if old.from == from {
			return nil, old.flight
		}
		return nil, nil
	}
	if t.perFrom[from] >= maxSeenNeighbor {
		return nil, nil
	}
	e := &dupEntry{
		key: key, from: from, until: deadline.Add(max(seenAfter, 2*deadline.Sub(now))),
		flight: &flight{ready: make(chan struct{})},
	}
	t.entries[key] = e
	t.order = append(t.order, e)
	t.perFrom[from]++
	return e, nil
}

func (t *dupTable) done(e *dupEntry, answer *semreq.Response) {
	t.mu.Lock()
	f := e.flight
	e.flight = nil
	t.mu.Unlock()
	f.answer = answer
	close(f.ready)
}

func (t *dupTable) expire(now time.Time) {
	for len(t.order) > 0 && (now.After(t.order[0].until) || len(t.order) >= maxSeen) {
		e := t.order[0]
		t.order[0] = nil
		t.order = t.order[1:]
		delete(t.entries, e.key)
		if t.perFrom[e.from]--; t.perFrom[e.from] == 0 {
			delete(t.perFrom, e.from)
		}
	}
}
