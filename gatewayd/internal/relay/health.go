package relay

import (
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Bounds of what is remembered of neighbours that fail.
const (
	breakAfter   = 5  // failures one after the other
	breakWindow  = 20 // last requests, more than half of which failed
	breakMin     = 5 * time.Second
	breakMax     = time.Minute
	failureMin   = time.Second // a neighbour that failed is not asked the same again for so long
	failureMax   = 30 * time.Second
	failuresKept = 8192
	healthKept   = 1024 // neighbours
	resultsKept  = 200  // of a neighbour: older ones count half, again and again
	distrust     = 1.0  // what a neighbour loses of its place by digest of whose results none is accepted: a standard deviation
)

// health is how the neighbours have answered: a breaker each, and a pause for each question that one of them failed at.
type health struct {
	mu        sync.Mutex // guards the breakers and what is in the caches
	breakers  *lru.Cache[string, *breaker]
	questions *lru.Cache[question, pause]
}

// question is one query at one neighbour, over one connection.
type question struct {
	gateway string
	number  uint64
	qhash   string
}

// over is the connection that is asked.
func (q question) over() string { return fmt.Sprint(q.gateway, " ", q.number) }

// pause is until when not to ask, and how long that was.
type pause struct {
	until time.Time
	long  time.Duration
}

func newHealth() *health {
	breakers, _ := lru.New[string, *breaker](healthKept) // fails on a size below 1 only
	questions, _ := lru.New[question, pause](failuresKept)
	return &health{breakers: breakers, questions: questions}
}

func (h *health) breaker(gateway string) *breaker {
	b, ok := h.breakers.Get(gateway)
	if !ok {
		b = new(breaker)
		h.breakers.Add(gateway, b)
	}
	return b
}

// ready says whether a neighbour may be asked; it changes nothing. Another attempt at a request is what its origin has decided on: only
// the breaker stands against it.
func (h *health) ready(q question, attempt uint8, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, ok := h.questions.Get(q); ok && attempt == 0 && now.Before(p.until) {
		return false
	}
	return h.breaker(q.over()).ready(now)
}

// enter is called right before a neighbour is asked; false where another request is the one that tries whether it works again.
func (h *health) enter(q question, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.breaker(q.over()).enter(now)
}

// outcome is what became of one request at a neighbour.
type outcome uint8

const (
	answered  outcome = iota // whatever it said
	failed                   // it did not answer
	abandoned                // the asker did not wait
)

func (h *health) left(q question, how outcome, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.breaker(q.over()).left(how, now)
	switch how {
	case answered:
		h.questions.Remove(q)
	case failed:
		p, _ := h.questions.Get(q)
		p.long = min(max(2*p.long, failureMin), failureMax)
		p.until = now.Add(p.long)
		h.questions.Add(q, p)
	}
}

// rated counts the results that a neighbour has given, and those that could be verified and scored well enough.
func (h *health) rated(gateway string, given, accepted int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breaker(gateway)
	b.given, b.accepted = b.given+given, b.accepted+accepted
	if b.given > resultsKept {
		b.given, b.accepted = b.given/2, b.accepted/2
	}
}

// reputation is what a neighbour's place by digest gains: 0 for one of whose results all are accepted, or that has given none, down to
// -distrust.
func (h *health) reputation(gateway string) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.breaker(gateway)
	const doubt = 2 // results that everybody is taken to have given well
	return -distrust * float64(b.given-b.accepted) / float64(b.given+doubt)
}

// breaker lets nothing through to a neighbour that fails, and after a pause one request to try it.
type breaker struct {
	failures int // one after the other
	last     [breakWindow]bool
	seen     int // of last, which is a ring
	until    time.Time
	long     time.Duration // zero: closed
	trying   bool

	given, accepted int // results
}

func (b *breaker) ready(now time.Time) bool { return b.long == 0 || !now.Before(b.until) && !b.trying }

func (b *breaker) enter(now time.Time) bool {
	if !b.ready(now) {
		return false
	}
	b.trying = b.long > 0
	return true
}

func (b *breaker) left(how outcome, now time.Time) {
	was := b.trying
	b.trying = false
	switch {
	case how == abandoned:
		return
	case how == answered && was:
		*b = breaker{given: b.given, accepted: b.accepted}
		return
	case how == failed && was:
		b.open(now)
		return
	}
	b.last[b.seen%breakWindow] = how == failed
	b.seen++
	if how == answered {
		b.failures = 0
		return
	}
	if b.failures++; b.long == 0 && (b.failures >= breakAfter || b.mostFailed()) {
		b.open(now)
	}
}

func (b *breaker) mostFailed() bool {
	n := 0
	for _, f := range b.last {
		if f {
			n++
		}
	}
	return b.seen >= breakWindow && n > breakWindow/2
}

func (b *breaker) open(now time.Time) {
	b.long = min(max(2*b.long, breakMin), breakMax)
	b.until = now.Add(b.long)
}
