// Package monitor hands what happens in a running gateway to those who watch it: `gatewayd monitor`.
//
// The contract: publishing never waits and never fails. Where nobody listens it costs one atomic load, and whoever has to work for an event
// asks [Hub.Watched] first. A listener that reads slower than things happen loses the newest events and is told how many, in their place, by an
// event of the kind lost. At most [MaxListeners] listen at a time, each with [Queue] events waiting.
//
// A [Hub] is safe for concurrent use.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/internal/frame"
	"agentgw/internal/spelling"
)

// Bounds.
const (
	MaxListeners = 8
	Queue        = 1024
)

// Kinds are what may be asked for. Before the dot is what it is about: that alone asks for all of it.
var Kinds = []string{
	PeerUp, PeerDown, PeerLame, SyncBegun, SyncEnded, DigestAccepted, DigestRejected, DigestWithdrawn, RouteChanged, Alarm, MemberJoined, MemberLeft,
	AgentAttached, AgentDetached, AgentEnrolled, GatewayDrained, GatewayUndrained,
}

// The kinds of events.
const (
	PeerUp           = "peer.up"
	PeerDown         = "peer.down"
	PeerLame         = "peer.lame" // it takes nothing new; text says so, or that it does again
	SyncBegun        = "sync.begun"
	SyncEnded        = "sync.ended"
	DigestAccepted   = "digest.accepted"
	DigestRejected   = "digest.rejected"
	DigestWithdrawn  = "digest.withdrawn"
	RouteChanged     = "route.changed"
	Alarm            = "alarm"
	MemberJoined     = "member.joined"
	MemberLeft       = "member.left"
	AgentAttached    = "agent.attached"
	AgentDetached    = "agent.detached"
	AgentEnrolled    = "agent.enrolled"
	GatewayDrained   = "gateway.drained"
	GatewayUndrained = "gateway.undrained"

	Lost = "lost" // count events are missing here; it comes whatever was asked for
)

// Event is one thing that happened.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Domain  string    `json:"domain,omitempty"`  // of the neighbour
	Gateway string    `json:"gateway,omitempty"` // AIC of the neighbour, or of the member
	Agent   string    `json:"agent,omitempty"`   // AIC
	Origin  string    `json:"origin,omitempty"`  // of a digest: the AIC of its gateway,
	Of      string    `json:"of,omitempty"`      // and its domain
	NS      string    `json:"ns,omitempty"`
	Label   string    `json:"label,omitempty"`
	Code    string    `json:"code,omitempty"` // name of why
	From    string    `json:"from,omitempty"` // route.changed: AICs of the neighbours before and after; absent: none
	To      string    `json:"to,omitempty"`
	Count   int       `json:"count,omitempty"` // sync.ended: digests held; lost: events
	Text    string    `json:"text,omitempty"`
}

// ParseKinds checks what a listener asks for; nothing asks for all.
func ParseKinds(asked []string) (kinds []string, err error) {
	for _, a := range asked {
		n := len(kinds)
		for _, k := range Kinds {
			if k == a || strings.HasPrefix(k, a+".") {
				kinds = append(kinds, k)
			}
		}
		if len(kinds) > n {
			continue
		}
		hint := "kinds are " + strings.Join(Kinds, ", ")
		if best := spelling.Nearest(a, Kinds); best != "" {
			hint = "did you mean " + best + "?"
		}
		return nil, frame.Errorf(frame.ReqInvalid, "no event has the kind %q: %s", a, hint)
	}
	return kinds, nil
}

// Hub is where events are published.
type Hub struct {
	watched atomic.Int32 // len(listeners)

	mu        sync.Mutex // guards the rest
	listeners []*Listener
	closed    bool
}

// Watched says whether anybody listens.
func (h *Hub) Watched() bool { return h.watched.Load() > 0 }

// Publish hands an event to whoever asked for its kind. A time of zero is now.
func (h *Hub) Publish(e Event) {
	if !h.Watched() {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.listeners {
		l.put(e)
	}
}

// Listen begins to listen to some kinds, none is all of them, as ParseKinds gives them. Close it in the end. The error says that there are
// enough listeners (47), or that the gateway stops (02).
func (h *Hub) Listen(kinds []string) (*Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, errStopped
	}
	if len(h.listeners) >= MaxListeners {
		return nil, frame.Errorf(frame.Overloaded, "%d monitors run already, and no more may: end one", MaxListeners)
	}
	l := &Listener{hub: h, kinds: kinds, wake: make(chan struct{}, 1)}
	h.listeners = append(h.listeners, l)
	h.watched.Store(int32(len(h.listeners)))
	return l, nil
}

var errStopped = frame.Errorf(frame.Shutdown, "the gateway stops")

// Close ends every listener behind what it has queued, and takes no new one.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, l := range h.listeners {
		l.end()
	}
	h.listeners = nil
	h.watched.Store(0)
}

// Listener is one who watches. Its methods are for one goroutine.
type Listener struct {
	hub   *Hub
	kinds []string
	wake  chan struct{}

	mu    sync.Mutex // guards the rest; taken behind the hub's
	queue []Event
	lost  int // since the last event in queue
	ended bool
}

// put takes an event, or counts it as lost. After a loss there must be room for the event that tells of it too.
func (l *Listener) put(e Event) {
	if len(l.kinds) > 0 && !slices.Contains(l.kinds, e.Kind) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= Queue || l.lost > 0 && len(l.queue) >= Queue-1 {
		l.lost++
		return
	}
	l.tellLost(e.Time)
	l.queue = append(l.queue, e)
	l.signal()
}

func (l *Listener) tellLost(at time.Time) {
	if l.lost > 0 {
		l.queue = append(l.queue, Event{Time: at, Kind: Lost, Count: l.lost, Text: fmt.Sprintf("%d events were lost here: they came faster than they were read", l.lost)})
		l.lost = 0
	}
}

func (l *Listener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.signal()
}

// Next waits for the next event. The error is that of ctx, or says that the gateway stops (02).
func (l *Listener) Next(ctx context.Context) (Event, error) {
	for {
		e, ok, err := l.take()
		if ok || err != nil {
			return e, err
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

func (l *Listener) take() (e Event, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.tellLost(time.Now().UTC())
	}
	switch {
	case len(l.queue) > 0:
		e = l.queue[0]
		l.queue[0] = Event{}
		l.queue = l.queue[1:]
		return e, true, nil
	case l.ended:
		return e, false, errStopped
	}
	return e, false, nil
}

// Close ends listening; idempotent.
func (l *Listener) Close() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.hub.listeners = slices.DeleteFunc(l.hub.listeners, func(o *Listener) bool { return o == l })
	l.hub.watched.Store(int32(len(l.hub.listeners)))
}

// Stopped says whether an error of Next is that the gateway stops.
func Stopped(err error) bool { return errors.Is(err, errStopped) }
