// Package cdsptest runs many replicas of package replica over a simulated network in fake time: delays, reordering
// between streams, cuts and restarts, all from one seed. It has no goroutines and reads no clock; the same seed gives the
// same run. It is for tests and not safe for concurrent use. Times are offsets from [Epoch].
package cdsptest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Epoch is when every simulation starts.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Network is gateways and links between them.
type Network struct {
	Now      time.Time
	MaxDelay time.Duration                     // of one frame; the streams of a connection overtake each other
	Trace    func(node *Node, event string)    // told of transitions, alarms and closes; may be nil
	Tamper   func(from *Node, b []byte) []byte // may change the bytes of a frame under way; may be nil

	Limits replica.Limits // of gateways that start from now on
	Record bool           // gateways that start from now on can be rolled back
	Keep   bool           // gateways that start from now on write down what neighbours tell them

	Sent  map[frame.Type]int // frames put under way,
	Bytes map[frame.Type]int // and their octets
	Syncs map[wire.Mode]int  // synchronisations begun
	Asked map[frame.Code]int // RESYNC by their reasons
	Fulls map[string]int     // of each gateway, how many full synchronisations it had under way at once

	rng   *rand.Rand
	nodes map[string]*Node
	links []*link
	queue []delivery
	order int
	conns uint64
}

// Node is one gateway.
type Node struct {
	Name    string // also its AIC
	Domain  string
	Replica *replica.Replica
	Rows    []replica.Neighbour
	Unknown map[string]bool // origins whose keys it does not know

	key    frame.Signer
	groups []wire.Group
	disk   Disk
	net    *Network
	boots  uint64

	log   []logged // what the replica was handed since its start, and
	draws []uint64 // what it drew from the network's chance
	redo  []uint64 // draws that a replay hands out again
}

// logged is one event, or a Tick (nil), with how often the replica had drawn before and what it did not know then.
type logged struct {
	at      time.Time
	ev      replica.Event
	drawn   int
	unknown map[string]bool
}

type link struct {
	a, b *Node // a dials
	up   bool
	conn *conn // nil: not connected
	dial time.Time
}

// conn is one connection: an id at each end, and the times until which each stream's frames are ordered.
type conn struct {
	link    *link
	id      map[*Node]uint64
	last    map[streamOf]time.Time
	full    map[*Node]bool // that end is in the middle of a full synchronisation
	hello   map[*Node]bool // HELLO was handed in; digest frames wait for it
	waiting map[*Node][]wire.Message
	dead    bool
}

type streamOf struct {
	from   *Node
	digest bool
}

type delivery struct {
	at    time.Time
	order int
	conn  *conn
	to    *Node
	raw   []byte
}

// NewNetwork makes an empty network of one seed.
func NewNetwork(seed uint64) *Network {
	return &Network{Now: Epoch, MaxDelay: 20 * time.Millisecond, Sent: map[frame.Type]int{}, Bytes: map[frame.Type]int{},
		Syncs: map[wire.Mode]int{}, Asked: map[frame.Code]int{}, Fulls: map[string]int{}, rng: rand.New(rand.NewPCG(seed, 1)), nodes: map[string]*Node{}}
}

// AddNode starts a gateway of a domain.
func (n *Network) AddNode(name, domain string) *Node {
	seed := sha256.Sum256([]byte(name))
	node := &Node{Name: name, Domain: domain, net: n, Unknown: map[string]bool{}, disk: Disk{}, key: frame.NewSigner(ed25519.NewKeyFromSeed(seed[:]))}
	n.nodes[name] = node
	node.start()
	return node
}

// Node finds a gateway by name.
func (n *Network) Node(name string) *Node { return n.nodes[name] }

// Nodes are all gateways by name.
func (n *Network) Nodes() []*Node {
	var out []*Node
	for _, node := range n.nodes {
		out = append(out, node)
	}
	slices.SortFunc(out, func(a, b *Node) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out
}

func (node *Node) start() {
	node.boots++
	node.log, node.draws = nil, nil
	node.make()
	node.step(replica.SetNeighbours{Rows: node.Rows})
	for _, k := range node.disk.Kept() {
		node.step(replica.Restored{Kept: k})
	}
	node.step(replica.SetOwn{Groups: node.groups})
}

// make makes the replica of this start.
func (node *Node) make() {
	n := node.net
	boot := sha256.Sum256(fmt.Appendf(nil, "%s %d", node.Name, node.boots))
	epoch := uint64(n.Now.UnixMilli()) + node.boots
	node.Replica = replica.New(replica.Config{
		Gateway: node.Name, Domain: node.Domain, BootID: wire.ID16(boot[:16]), OEpoch: epoch,
		Signer: node.key.Always(), Keys: node.keys, Random: node.random, Keep: n.Keep, Limits: n.Limits,
	}, n.Now)
}

func (node *Node) random() uint64 {
	if len(node.redo) > 0 {
		v := node.redo[0]
		node.redo = node.redo[1:]
		return v
	}
	v := node.net.rng.Uint64()
	if node.net.Record {
		node.draws = append(node.draws, v)
	}
	return v
}

// hand hands one event, or a Tick, to the replica.
func (node *Node) hand(ev replica.Event) {
	n := node.net
	if n.Record {
		node.log = append(node.log, logged{at: n.Now, ev: ev, drawn: len(node.draws), unknown: maps.Clone(node.Unknown)})
	}
	if ev == nil {
		node.Replica.Tick(n.Now)
		return
	}
	if err := node.Replica.Step(n.Now, ev); err != nil {
		panic(fmt.Sprintf("%s: %T: %v", node.Name, ev, err))
	}
}

// RollBack puts a gateway back to what it was at some moment since its own digests and policy rows were last set, as when the machine that it runs
// on is restored from a snapshot: it goes on with the same names and numbers. Its connections are gone.
func (n *Network) RollBack(name string) {
	node := n.nodes[name]
	for _, l := range n.links {
		if l.a == node || l.b == node {
			n.drop(l, "rolled back", node)
		}
	}
	var first int
	for i, l := range node.log {
		switch l.ev.(type) {
		case replica.SetOwn, replica.SetNeighbours:
			first = i + 1
		}
	}
	keep := node.log[:first+n.rng.IntN(len(node.log)-first+1)]
	if len(keep) < len(node.log) {
		node.draws = node.draws[:node.log[len(keep)].drawn]
	}
	node.redo, node.log = slices.Clone(node.draws), nil
	now, draws := n.Now, node.draws
	n.Now, n.Record = keep[0].at, false
	node.make()
	for _, l := range keep {
		n.Now, node.Unknown = l.at, maps.Clone(l.unknown)
		node.hand(l.ev)
		node.Replica.Ready()
	}
	n.Now, n.Record = now, true
	node.log, node.draws = keep, draws
	for conn := uint64(1); conn <= n.conns; conn++ {
		node.step(replica.Disconnected{Conn: conn, Reason: "rolled back"})
	}
	if n.Keep { // it does not know what it has written since
		for name := range n.nodes {
			node.hand(replica.KeepFailed{Gateway: name})
		}
	}
}

func (node *Node) keys(id frame.KeyID) (frame.VerifyKey, bool) {
	for _, o := range node.net.nodes {
		if o.key.KeyID() == id && !node.Unknown[o.Name] {
			return frame.VerifyKey{Public: o.key.Public(), Owner: o.Name, Domain: o.Domain}, true
		}
	}
	return frame.VerifyKey{}, false
}

// SetRows replaces the policy rows.
func (node *Node) SetRows(rows ...replica.Neighbour) {
	node.Rows = rows
	node.step(replica.SetNeighbours{Rows: rows})
}

// SetOwn replaces the own digests by one item a label, visible to any.
func (node *Node) SetOwn(labels ...string) {
	g := wire.Group{Scope: wire.Scope{Visibility: wire.VisibleAny, MaxHops: wire.MaxHops, Level: wire.LevelCoarse}}
	for _, l := range labels {
		g.Items = append(g.Items, wire.Item{Key: wire.ItemKey(l, "tag", wire.LevelCoarse), NS: "tag", Label: l})
	}
	node.SetGroups(g)
}

// SetGroups replaces the own digests.
func (node *Node) SetGroups(groups ...wire.Group) {
	node.groups = groups
	node.step(replica.SetOwn{Groups: groups})
}

// KeysChanged tells the gateway that Unknown was changed.
func (node *Node) KeysChanged() { node.step(replica.KeysChanged{}) }

// Restart stops a gateway, politely or not, and starts it with empty tables.
func (n *Network) Restart(name string, polite bool) {
	n.RestartFrom(name, polite, func(Disk) Disk { return nil })
}

func (n *Network) stop(node *Node, polite bool) {
	if polite {
		node.step(replica.Shutdown{})
		n.Run(n.MaxDelay * 2)
	}
	for _, l := range n.links {
		if l.a == node || l.b == node {
			n.drop(l, "restart", node)
		}
	}
}

// Link connects two gateways from now on; a dials.
func (n *Network) Link(a, b string) {
	n.links = append(n.links, &link{a: n.nodes[a], b: n.nodes[b], up: true, dial: n.Now})
}

// Cut breaks a link until Heal.
func (n *Network) Cut(a, b string) {
	if l := n.find(a, b); l != nil {
		l.up = false
		n.drop(l, "cut", nil)
	}
}

// Heal mends a link.
func (n *Network) Heal(a, b string) {
	if l := n.find(a, b); l != nil {
		l.up, l.dial = true, n.Now
	}
}

// Silence makes a link swallow everything without telling anybody, as a dead host does; Heal ends it.
func (n *Network) Silence(a, b string) {
	if l := n.find(a, b); l != nil {
		l.up = false
	}
}

func (n *Network) find(a, b string) *link {
	for _, l := range n.links {
		if l.a.Name == a && l.b.Name == b || l.a.Name == b && l.b.Name == a {
			return l
		}
	}
	return nil
}

// drop ends a link's connection; both ends hear of it but the one that is itself gone.
func (n *Network) drop(l *link, reason string, gone *Node) {
	c := l.conn
	if c == nil {
		return
	}
	l.conn, c.dead, l.dial = nil, true, n.Now.Add(500*time.Millisecond)
	for _, end := range []*Node{l.a, l.b} {
		if end != gone {
			end.step(replica.Disconnected{Conn: c.id[end], Reason: reason})
		}
	}
}

func (n *Network) connect(l *link) {
	c := &conn{link: l, id: map[*Node]uint64{}, last: map[streamOf]time.Time{}, full: map[*Node]bool{}, hello: map[*Node]bool{}, waiting: map[*Node][]wire.Message{}}
	l.conn = c
	n.conns++
	c.id[l.a], c.id[l.b] = n.conns, n.conns
	l.a.step(replica.Connected{Conn: n.conns, Gateway: l.b.Name, Domain: l.b.Domain, Dialled: true})
	if c.dead {
		return
	}
	l.b.step(replica.Connected{Conn: n.conns, Gateway: l.a.Name, Domain: l.a.Domain})
}

// maxSpins bounds what may happen at one instant.
const maxSpins = 100_000

// Run lets time pass. It panics where a replica asks for a Tick that changes nothing.
func (n *Network) Run(d time.Duration) {
	end := n.Now.Add(d)
	for spins := 0; ; spins++ {
		at := n.nextAt()
		if spins > maxSpins {
			panic(fmt.Sprintf("something is due for ever at %v", n.Now.Sub(Epoch)))
		}
		if at.After(end) {
			n.Now = end
			return
		}
		if at.After(n.Now) {
			n.Now, spins = at, 0
		}
		n.due()
	}
}

func (n *Network) nextAt() time.Time {
	at := n.Now.Add(time.Hour)
	earlier := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	for _, d := range n.queue {
		earlier(d.at)
	}
	for _, node := range n.nodes {
		earlier(node.Replica.Next())
	}
	for _, l := range n.links {
		if l.up && l.conn == nil {
			earlier(l.dial)
		}
	}
	return at
}

// due does everything whose time has come, deliveries first.
func (n *Network) due() {
	for _, l := range n.links {
		if l.up && l.conn == nil && !l.dial.After(n.Now) {
			n.connect(l)
		}
	}
	for {
		i := n.firstDue()
		if i < 0 {
			break
		}
		d := n.queue[i]
		n.queue = slices.Delete(n.queue, i, i+1)
		n.deliver(d)
	}
	for _, node := range n.Nodes() {
		if !node.Replica.Next().After(n.Now) {
			node.hand(nil)
			node.carryOut()
			node.write()
		}
	}
}

func (n *Network) firstDue() int {
	best := -1
	for i, d := range n.queue {
		if !d.at.After(n.Now) && (best < 0 || d.at.Before(n.queue[best].at) || d.at.Equal(n.queue[best].at) && d.order < n.queue[best].order) {
			best = i
		}
	}
	return best
}

func (n *Network) deliver(d delivery) {
	c, to := d.conn, d.to
	if c.dead || !c.link.up {
		return
	}
	t, payload, err := frame.NewReader(bytes.NewReader(d.raw)).Next()
	var m wire.Message
	if err == nil {
		m, err = wire.Parse(t, payload)
	}
	if err != nil {
		to.step(replica.Undecodable{Conn: c.id[to], Err: err})
		return
	}
	if wire.OnDigestStream(t) && !c.hello[to] {
		c.waiting[to] = append(c.waiting[to], m)
		return
	}
	to.step(replica.Received{Conn: c.id[to], Msg: m, RTT: n.MaxDelay})
	if t == frame.Hello {
		c.hello[to] = true
		for _, m := range c.waiting[to] {
			to.step(replica.Received{Conn: c.id[to], Msg: m, RTT: n.MaxDelay})
		}
	}
}

func (node *Node) step(ev replica.Event) {
	node.hand(ev)
	node.carryOut()
	node.write()
}

func (node *Node) carryOut() {
	for _, e := range node.Replica.Ready() {
		switch e := e.(type) {
		case replica.Send:
			node.send(e)
		case replica.Close:
			node.trace(fmt.Sprintf("close %v: %s", e.Code, e.Reason))
			if l := node.linkOf(e.Conn); l != nil {
				node.net.drop(l, "closed "+e.Code.String(), node)
			}
		case replica.Retire:
			if l := node.linkOf(e.Conn); l != nil {
				node.net.drop(l, "retired", node)
			}
		case replica.Alarm:
			node.trace("alarm " + e.Gateway + ": " + e.Text)
		case replica.Transition:
			node.trace(fmt.Sprintf("%s %v > %v: %s", e.Gateway, e.From, e.To, e.Reason))
		}
	}
}

func (node *Node) trace(s string) {
	if node.net.Trace != nil {
		node.net.Trace(node, s)
	}
}

func (node *Node) linkOf(id uint64) *link {
	for _, l := range node.net.links {
		if l.conn != nil && l.conn.id[node] == id {
			return l
		}
	}
	return nil
}

// send puts a frame under way. Frames of one stream keep their order; the two streams overtake each other.
func (node *Node) send(e replica.Send) {
	n, l := node.net, node.linkOf(e.Conn)
	if l == nil {
		return
	}
	raw, err := wire.Append(nil, e.Msg)
	if err != nil {
		panic(fmt.Sprintf("%s sends what cannot be encoded: %v", node.Name, err))
	}
	n.Sent[e.Msg.FrameType()]++
	n.Bytes[e.Msg.FrameType()] += len(raw)
	switch m := e.Msg.(type) {
	case *wire.SyncBegin:
		n.Syncs[m.Mode]++
		l.conn.full[node] = m.Mode == wire.ModeFull
		n.Fulls[node.Name] = max(n.Fulls[node.Name], n.fullsNow(node))
	case *wire.SyncEnd:
		l.conn.full[node] = false
	case *wire.Resync:
		n.Asked[m.Reason]++
	}
	if n.Tamper != nil {
		raw = n.Tamper(node, raw)
	}
	to, stream := l.a, streamOf{from: node, digest: wire.OnDigestStream(e.Msg.FrameType())}
	if to == node {
		to = l.b
	}
	at := n.Now.Add(time.Duration(n.rng.Int64N(int64(n.MaxDelay) + 1)))
	if at.Before(l.conn.last[stream]) {
		at = l.conn.last[stream]
	}
	l.conn.last[stream] = at
	n.order++
	n.queue = append(n.queue, delivery{at: at, order: n.order, conn: l.conn, to: to, raw: raw})
}

// fullsNow counts the full synchronisations that a gateway has under way.
func (n *Network) fullsNow(node *Node) (now int) {
	for _, l := range n.links {
		if l.conn != nil && l.conn.full[node] {
			now++
		}
	}
	return now
}

// Rand is the network's source of chance, for tests that make their own choices.
func (n *Network) Rand() *rand.Rand { return n.rng }
