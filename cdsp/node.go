package cdsp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Config is what a Node is made of. Everything but Timers, Limits, the callbacks about trust and Log is needed.
type Config struct {
	Gateway string              // AIC of this gateway
	Domain  string              // its Agent Autonomous Domain
	BootID  wire.ID16           // random, new at every start
	OEpoch  uint64              // epoch of the own digests, unix milliseconds: larger than any before and persisted already
	Signer  func() frame.Signer // key of use 1, as of now
	Keys    frame.KeyFunc       // keys of use 1 of all accepted bundles; called by Run's goroutine
	Timers  replica.Timers
	Limits  replica.Limits

	// OnBundle takes a trust bundle that a neighbour sent: its own, or one that it introduces. It may be slow; only that
	// neighbour waits. An error is logged. After an accepted one call BundleAccepted.
	OnBundle func(ctx context.Context, gateway, domain string, bundle []byte) error
	// Bundles are the signed bundles to send to a neighbouring domain: our own, and those that we introduce to it. It is
	// asked when a session is up, and again after BundleAccepted; each bundle is sent once a session.
	Bundles func(domain string) [][]byte
	// OnStatus takes a signed status list that a neighbour sent, like OnBundle. After an accepted one call StatusChanged.
	OnStatus func(ctx context.Context, gateway, domain string, list []byte) error
	// Statuses are the signed lists to send to a neighbouring domain: our own issuer's, and those of the domains that we
	// introduce to it. It is asked when a session is up, and again after StatusChanged; each list is sent once a session.
	Statuses func(domain string) [][]byte
	// OnTrustGet answers a TRUST_GET with what may be told to the neighbour and is newer than it holds.
	OnTrustGet func(gateway, domain string, get *wire.TrustGet) (bundles, statuses [][]byte)
	// Trust is what the neighbours of a domain are told of what is held here, the own issuer's and theirs; it may not block.
	Trust func(domain string) []wire.TrustVersion
	// OnTrustHeld hears what a neighbour says that it holds.
	OnTrustHeld func(gateway, domain string, held []wire.TrustVersion)
	// OnUnknownKey hears that digests of a domain came with a key that no accepted bundle names; it may not block.
	OnUnknownKey func(gateway, domain string)
	// OnMoved hears from another gateway of the own domain that an agent is at home there. It may be slow; only that neighbour waits. nil: not
	// wanted.
	OnMoved func(gateway string, m *wire.Moved)
	// Moves is what every other gateway of the own domain is told of agents when it has connected; nil: nothing.
	Moves func() []wire.Moved
	// Install takes each new snapshot into use, before a neighbour is told of anything in it: who hears of a digest from us may
	// ask us for it at once. It is called by Run's goroutine, and must not wait for the node.
	Install func(*Snapshot)
	// Kept is what was written down before this start; it is judged under the first policy rows. Keep writes down what neighbours tell: it is called by one
	// goroutine, for one part after the other, and the machine does not wait for it. After an error everything of that neighbour is written again, some time
	// later. Run calls it for what is left before it returns. nil keeps nothing.
	Kept []replica.Kept
	Keep func(replica.Learned) error
	// Observe hears of what a person who watches may want to see: [replica.Transition], [replica.Alarm] and, while Watched says so,
	// [replica.Noted]. It is called by Run's goroutine and may not block. Both may be nil.
	Observe func(replica.Effect)
	Watched func() bool
	Log     *slog.Logger
}

// Names that callers of this package need from the machine.
type (
	Neighbour       = replica.Neighbour
	Snapshot        = replica.Snapshot
	NeighbourStatus = replica.NeighbourStatus
	Entry           = replica.Entry
)

// KeepsDialled says whether, of two connections between the gateways local and remote, the one that local dialled is kept.
func KeepsDialled(local, remote string) bool { return replica.KeepsDialled(local, remote) }

// Node is one gateway's end of the protocol.
type Node struct {
	cfg   Config
	log   *slog.Logger
	inbox chan func() // run by the owner; senders wait while it is full
	done  chan struct{}
	conns atomic.Uint64

	// Owned by Run's goroutine.
	machine  *replica.Replica
	sessions map[uint64]*Session
	stopping bool
	dirty    bool          // the tables differ from the snapshot
	shown    time.Time     // when the snapshot was installed,
	took     time.Duration // and how long that took
	keeper   keeper
	held     []replica.Send // what tells of digests that are not in the snapshot yet, and what follows it on its connection

	snapshot atomic.Pointer[Snapshot]

	mu      sync.Mutex // guards changed
	changed chan struct{}
}

// maxInbox is how many inputs wait for the owner.
const maxInbox = 64

// New makes a Node; nothing happens before Run.
func New(cfg Config) *Node {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n := &Node{cfg: cfg, log: cfg.Log, inbox: make(chan func(), maxInbox), done: make(chan struct{}),
		sessions: map[uint64]*Session{}, changed: make(chan struct{})}
	n.machine = replica.New(replica.Config{Gateway: cfg.Gateway, Domain: cfg.Domain, BootID: cfg.BootID,
		OEpoch: cfg.OEpoch, Signer: cfg.Signer, Keys: cfg.Keys, Trust: cfg.Trust, Watched: cfg.Watched, Random: random, Keep: cfg.Keep != nil,
		Timers: cfg.Timers, Limits: cfg.Limits}, time.Now())
	n.snapshot.Store(n.machine.Snapshot())
	return n
}

func random() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand
	return binary.BigEndian.Uint64(b[:])
}

// Run runs the node until ctx ends; then it says goodbye to every neighbour, waits until they can have heard it, closes the
// sessions and returns after the last of them has ended. Run may be called once.
func (n *Node) Run(ctx context.Context) error {
	defer close(n.done)
	n.startKeeper()
	defer n.keepRest()
	stop := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !n.stopping || len(n.sessions) > 0 {
		timer.Reset(time.Until(n.nextWake()))
		select {
		case f := <-n.inbox:
			f()
		case err := <-n.keeper.kept:
			n.keptOne(err)
		case <-timer.C:
			n.machine.Tick(time.Now())
		case <-stop:
			stop, n.stopping = nil, true
			n.release(nil)
			n.step(replica.Shutdown{})
			n.leaveAll()
		}
		n.carryOut()
		n.publish()
		n.keepNext()
	}
	return nil
}

// showEvery bounds how often the tables are copied while no message waits for that.
const showEvery = 20 * time.Millisecond

func (n *Node) nextWake() time.Time {
	next := n.machine.Next()
	if at := n.nextShow(); n.dirty && at.Before(next) {
		next = at
	}
	if at := n.keeper.again; !at.IsZero() && at.Before(next) {
		next = at
	}
	return next
}

// nextShow is when the tables may be copied again: that takes a third of the owner's time at most.
func (n *Node) nextShow() time.Time {
	wait := 2 * n.took
	if len(n.held) == 0 {
		wait = max(wait, showEvery)
	}
	return n.shown.Add(wait)
}

// publish makes and installs a new snapshot where something changed, and sends what waited for it.
func (n *Node) publish() {
	began := time.Now()
	if !n.dirty || began.Before(n.nextShow()) {
		return
	}
	n.dirty = false
	s := n.machine.Snapshot()
	n.snapshot.Store(s)
	if n.cfg.Install != nil {
		n.cfg.Install(s)
	}
	n.shown = time.Now()
	n.took = n.shown.Sub(began)
	n.release(nil)
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// send hands a message to its session. Entries are held until the tables that they are of are installed here, and with them what
// follows them on their stream.
func (n *Node) send(e replica.Send) {
	_, tells := e.Msg.(*wire.Entries)
	waits := wire.OnDigestStream(e.Msg.FrameType()) && slices.ContainsFunc(n.held, func(h replica.Send) bool { return h.Conn == e.Conn })
	if waits || tells && n.dirty && !n.stopping {
		n.held = append(n.held, e)
		return
	}
	n.with(e.Conn, func(s *Session) { s.queue(e.Msg) })
}

// release sends what is held, of one session or (nil) of all.
func (n *Node) release(of *Session) {
	held := n.held
	n.held = nil
	for _, e := range held {
		if of != nil && e.Conn != of.conn {
			n.held = append(n.held, e)
			continue
		}
		n.with(e.Conn, func(s *Session) { s.queue(e.Msg) })
	}
}

// Snapshot is the tables as they were a moment ago: 20 ms, or twice what copying them takes. It is shared: do not change it.
func (n *Node) Snapshot() *Snapshot { return n.snapshot.Load() }

// Changed is closed when a newer snapshot is there. Take the channel before the snapshot, else a change may be missed.
func (n *Node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// SetNeighbours replaces the policy rows while sessions run. It waits for Run. The error names a row that is wrong; then
// nothing changes.
func (n *Node) SetNeighbours(ctx context.Context, rows []Neighbour) error {
	return n.askFor(ctx, func() error {
		err := n.machine.Step(time.Now(), replica.SetNeighbours{Rows: rows})
		if err == nil {
			n.restore()
		}
		return err
	})
}

// SetOwn replaces the own digests; neighbours hear only what differs. It waits for Run. The error names what breaks the protocol
// and is left out, or withdrawn where it was told before; the others are told all the same. More digests than neighbours take
// of one origin are refused together.
func (n *Node) SetOwn(ctx context.Context, groups []wire.Group) error {
	return n.ask(ctx, replica.SetOwn{Groups: groups})
}

// BundleAccepted says that Config.Keys or Config.Bundles answer differently than before: entries whose keys are known now
// are asked for again, entries whose keys are gone are dropped, and bundles are passed on. It may be called from OnBundle.
func (n *Node) BundleAccepted() {
	n.post(context.Background(), func() {
		n.step(replica.KeysChanged{})
		for _, s := range n.sessions {
			s.relaySoon()
		}
	})
}

func (n *Node) ask(ctx context.Context, ev replica.Event) error {
	return n.askFor(ctx, func() error { return n.machine.Step(time.Now(), ev) })
}

// askFor has the owner run f.
func (n *Node) askFor(ctx context.Context, f func() error) error {
	refused, err := ask(ctx, n, f)
	return cmp.Or(err, refused)
}

var errStopped = frame.Errorf(frame.Shutdown, "digest synchronisation has stopped")

// post hands f to the owner.
func (n *Node) post(ctx context.Context, f func()) error {
	select {
	case <-n.done: // else a free place in the inbox might be taken
		return errStopped
	default:
	}
	select {
	case n.inbox <- f:
		return nil
	case <-n.done:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// step is for events whose error cannot be: those that come from sessions.
func (n *Node) step(ev replica.Event) {
	if err := n.machine.Step(time.Now(), ev); err != nil {
		n.log.Error("digest synchronisation refused an event of its own", "error", err)
	}
}

// carryOut does what the machine asks for. It never waits for a neighbour.
func (n *Node) carryOut() {
	ready := n.machine.Ready()
	n.dirty = n.dirty || slices.ContainsFunc(ready, func(e replica.Effect) bool { _, is := e.(replica.Changed); return is })
	for _, e := range ready {
		n.observe(e)
		switch e := e.(type) {
		case replica.Send:
			n.send(e)
		case replica.StopDigest:
			n.with(e.Conn, func(s *Session) { s.stopDigest(e.Code) })
		case replica.Close:
			n.with(e.Conn, func(s *Session) { s.end(frame.Errorf(e.Code, "%s", e.Reason)) })
		case replica.Retire:
			n.with(e.Conn, func(s *Session) { s.retire() })
		case replica.Up:
			n.with(e.Conn, func(s *Session) { close(s.up); s.relaySoon() })
		case replica.Transition:
			n.log.Info("digest session", "peer", e.Gateway, "from", e.From.String(), "to", e.To.String(), "reason", e.Reason)
		case replica.Alarm:
			n.log.Warn("digest alarm", "peer", e.Gateway, "text", e.Text)
		case replica.UnknownKey:
			if n.cfg.OnUnknownKey != nil {
				n.cfg.OnUnknownKey(e.Gateway, e.Domain)
			}
		}
	}
}

func (n *Node) with(conn uint64, f func(*Session)) {
	if s := n.sessions[conn]; s != nil {
		f(s)
	}
}

// leaveAll ends every session after what is queued for it, its GOODBYE last, was written.
func (n *Node) leaveAll() {
	n.carryOut()
	for _, s := range n.sessions {
		s.queue(nil)
	}
}

// leave ends one session that its caller no longer wants. why is told the neighbour, where it is not empty.
func (n *Node) leave(s *Session, why string) {
	if n.stopping {
		return
	}
	if why != "" {
		s.farewell.Store(&why)
	}
	n.step(replica.Leave{Conn: s.conn, Msg: why})
	n.carryOut()
	n.release(s)
	s.queue(nil)
}
