package cdsp

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// memConn is one connection in memory: two links with pipes for streams.
type memConn struct {
	ends   [2]*memLink
	closed chan struct{}
	once   sync.Once
	err    error
}

type memLink struct {
	conn    *memConn
	gateway string // of the other side
	control *memStream
	digests chan *memStream
	other   *memLink
}

func connectMem(dialler, acceptor string) (a, b *memLink) {
	c := &memConn{closed: make(chan struct{})}
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	a = &memLink{conn: c, gateway: acceptor, control: newMemStream(c, r1, w2), digests: make(chan *memStream)}
	b = &memLink{conn: c, gateway: dialler, control: newMemStream(c, r2, w1), digests: make(chan *memStream)}
	a.other, b.other = b, a
	c.ends = [2]*memLink{a, b}
	return a, b
}

func (l *memLink) RemoteGateway() string                   { return l.gateway }
func (l *memLink) Control(context.Context) (Stream, error) { return l.control, nil }
func (l *memLink) RTT() time.Duration                      { return 10 * time.Millisecond }
func (l *memLink) Until() time.Time                        { return time.Time{} }

func (l *memLink) OpenDigest(ctx context.Context) (Stream, error) {
	r, w := io.Pipe()
	mine, theirs := newMemStream(l.conn, nil, w), newMemStream(l.conn, r, nil)
	select {
	case l.other.digests <- theirs:
		return mine, nil
	case <-l.conn.closed:
		return nil, l.conn.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memLink) AcceptDigest(ctx context.Context) (Stream, error) {
	select {
	case s := <-l.digests:
		return s, nil
	case <-l.conn.closed:
		return nil, l.conn.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memLink) Close(code frame.Code, reason string) {
	c := l.conn
	c.once.Do(func() {
		c.err = frame.Errorf(code, "closed: %s", reason)
		close(c.closed)
		for _, end := range c.ends {
			end.control.Reset(code)
		}
	})
}

type memStream struct {
	conn   *memConn
	r      *io.PipeReader
	w      *io.PipeWriter
	frames *frame.Reader
}

func newMemStream(c *memConn, r *io.PipeReader, w *io.PipeWriter) *memStream {
	s := &memStream{conn: c, r: r, w: w}
	if r != nil {
		s.frames = frame.NewReader(r)
		context.AfterFunc(closedContext{c}, func() { r.CloseWithError(c.err) })
	}
	if w != nil {
		context.AfterFunc(closedContext{c}, func() { w.CloseWithError(c.err) })
	}
	return s
}

// closedContext is a context that ends with the connection.
type closedContext struct{ c *memConn }

func (x closedContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (x closedContext) Done() <-chan struct{}       { return x.c.closed }
func (x closedContext) Value(any) any               { return nil }
func (x closedContext) Err() error {
	select {
	case <-x.c.closed:
		return context.Canceled
	default:
		return nil
	}
}

func (s *memStream) ReadFrame(time.Duration) (frame.Type, []byte, error) {
	t, payload, err := s.frames.Next()
	return t, payload, s.explain(err)
}

// explain gives an error of a closed connection the code that it was closed with, as a real transport does.
func (s *memStream) explain(err error) error {
	select {
	case <-s.conn.closed:
		if err != nil {
			return s.conn.err
		}
	default:
	}
	return err
}

func (s *memStream) WriteMessage(_ time.Duration, m frame.Message) error {
	b, err := frame.AppendMessage(nil, m)
	if err == nil {
		_, err = s.w.Write(b)
	}
	return s.explain(err)
}

func (s *memStream) Reset(code frame.Code) {
	err := frame.Errorf(code, "stream was reset")
	if s.r != nil {
		s.r.CloseWithError(err)
	}
	if s.w != nil {
		s.w.CloseWithError(err)
	}
}

// world is some nodes whose keys all know but those that hidden names.
type world struct {
	mu     sync.Mutex
	hidden map[string]bool
	names  map[string]string // gateway to domain
}

func signerOf(name string) frame.Signer {
	seed := sha256.Sum256([]byte(name))
	return frame.NewSigner(ed25519.NewKeyFromSeed(seed[:]))
}

func (w *world) keys(id frame.KeyID) (frame.VerifyKey, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, domain := range w.names {
		if s := signerOf(name); s.KeyID() == id && !w.hidden[name] {
			return frame.VerifyKey{Public: s.Public(), Owner: name, Domain: domain}, true
		}
	}
	return frame.VerifyKey{}, false
}

func (w *world) node(name string, change func(*Config)) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	domain := strings.ToLower(name) + ".example"
	w.names[name] = domain
	now := uint64(time.Now().UnixMilli())
	boot := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, now))
	cfg := Config{Gateway: name, Domain: domain, BootID: wire.ID16(boot[:16]), OEpoch: now, Signer: signerOf(name).Always(), Keys: w.keys}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func newWorld() *world { return &world{hidden: map[string]bool{}, names: map[string]string{}} }

// start runs a node until the test cancels it.
func start(t *testing.T, n *Node) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

func setup(t *testing.T, n *Node, role wire.Role, domain string, labels ...string) {
	t.Helper()
	row := Neighbour{Domain: domain, Role: role, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse}
	if err := n.SetNeighbours(t.Context(), []Neighbour{row}); err != nil {
		t.Fatal(err)
	}
	g := wire.Group{Scope: wire.Scope{Visibility: wire.VisibleAny, MaxHops: 7, Level: wire.LevelCoarse}}
	for _, l := range labels {
		g.Items = append(g.Items, wire.Item{Key: wire.ItemKey(l, "tag", wire.LevelCoarse), NS: "tag", Label: l})
	}
	if err := n.SetOwn(t.Context(), []wire.Group{g}); err != nil {
		t.Fatal(err)
	}
}

// knows waits, at most 30 s of fake time, until the node holds these labels of an origin.
func knows(t *testing.T, n *Node, origin string, want ...string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		changed := n.Changed()
		got := labelsOf(n.Snapshot(), origin)
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("holds %v of %s, want %v", got, origin, want)
		}
	}
}

func labelsOf(sn *Snapshot, origin string) (out []string) {
	for _, e := range sn.Entries {
		if e.Origin == origin {
			out = append(out, e.Item.Label)
		}
	}
	slices.Sort(out)
	return out
}

func TestTwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one, two := w.node("ONE", nil), w.node("TWO", nil)
		stopOne, stopTwo := start(t, one), start(t, two)
		setup(t, one, wire.RolePeer, "two.example", "x")
		setup(t, two, wire.RolePeer, "one.example", "y", "z")
		a, b := connectMem("ONE", "TWO")
		s1 := one.Attach(t.Context(), a, "two.example", true)
		s2 := two.Attach(t.Context(), b, "one.example", false)
		<-s1.Up()
		<-s2.Up()
		knows(t, one, "TWO", "y", "z")
		knows(t, two, "ONE", "x")
		time.Sleep(time.Minute) // keepalives carry it over two hold times
		if st := one.Snapshot().Neighbours[0]; st.State != replica.Established || !st.Acked || !st.Synced || st.RTT == 0 {
			t.Errorf("status %+v", st)
		}
		setup(t, two, wire.RolePeer, "one.example", "y")
		knows(t, one, "TWO", "y")

		stopTwo()
		<-s1.Done()
		<-s2.Done()
		if code := frame.CodeOf(s1.Err()); code != frame.Shutdown {
			t.Errorf("the other side ends with %v", s1.Err())
		}
		time.Sleep(time.Second)
		if st := one.Snapshot().Neighbours[0]; st.State != replica.Stale || !one.Snapshot().Entries[1].Stale {
			t.Errorf("after GOODBYE: %+v", st)
		}
		knows(t, one, "TWO", "y") // stale, but there
		stopOne()
		if err := one.SetOwn(t.Context(), nil); frame.CodeOf(err) != frame.Shutdown {
			t.Errorf("a stopped node answers %v", err)
		}
		c, _ := connectMem("ONE", "TWO")
		s3 := one.Attach(t.Context(), c, "two.example", true)
		<-s3.Done()
		if frame.CodeOf(s3.Err()) != frame.Shutdown {
			t.Errorf("a stopped node attaches: %v", s3.Err())
		}
	})
}

// Whatever a neighbour hears of, the gateway that tells it can be asked for already: also while its tables change too often to be
// copied each time.
func TestTablesAreInstalledBeforeNeighboursAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var mu sync.Mutex
		installed := map[string]bool{} // labels at the hub
		hub := w.node("HUB", func(c *Config) {
			c.Install = func(s *Snapshot) {
				time.Sleep(3 * time.Millisecond) // a large table
				mu.Lock()
				defer mu.Unlock()
				for _, l := range labelsOf(s, "ONE") {
					installed[l] = true
				}
			}
		})
		one := w.node("ONE", nil)
		seen := map[string]bool{}
		two := w.node("TWO", func(c *Config) {
			c.Install = func(s *Snapshot) {
				mu.Lock()
				defer mu.Unlock()
				for _, l := range labelsOf(s, "ONE") {
					if seen[l] = true; !installed[l] {
						t.Errorf("the neighbour has heard of %s, which is not installed at who told it", l)
					}
				}
			}
		})
		for _, n := range []*Node{hub, one, two} {
			defer start(t, n)()
		}
		rows := []Neighbour{
			{Domain: "one.example", Role: wire.RoleCustomer, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse},
			{Domain: "two.example", Role: wire.RoleCustomer, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse},
		}
		if err := hub.SetNeighbours(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		labels := []string{"a"}
		setup(t, one, wire.RoleProvider, "hub.example", labels...)
		setup(t, two, wire.RoleProvider, "hub.example")
		for _, s := range []struct {
			name string
			n    *Node
		}{{"ONE", one}, {"TWO", two}} {
			a, b := connectMem(s.name, "HUB")
			s.n.Attach(t.Context(), a, "hub.example", true)
			<-hub.Attach(t.Context(), b, strings.ToLower(s.name)+".example", false).Up()
		}
		knows(t, two, "ONE", labels...)
		for i := range 40 {
			labels = append(labels, fmt.Sprintf("b%02d", i))
			setup(t, one, wire.RoleProvider, "hub.example", labels...)
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
		}
		knows(t, two, "ONE", labels...)
		mu.Lock()
		defer mu.Unlock()
		if len(seen) != len(labels) {
			t.Errorf("saw %d of %d", len(seen), len(labels))
		}
	})
}

func TestAttachEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one, two := w.node("ONE", nil), w.node("TWO", nil)
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RolePeer, "two.example", "x")
		setup(t, two, wire.RolePeer, "one.example", "y")
		a, b := connectMem("ONE", "TWO")
		ctx, cancel := context.WithCancel(t.Context())
		s1 := one.Attach(ctx, a, "two.example", true)
		s2 := two.Attach(t.Context(), b, "one.example", false)
		knows(t, two, "ONE", "x")
		cancel()
		<-s1.Done()
		<-s2.Done()
		if st := two.Snapshot().Neighbours[0]; frame.CodeOf(s2.Err()) != frame.Shutdown || len(two.Snapshot().Entries) != 2 {
			t.Errorf("the other side: %v, %+v", s2.Err(), st)
		}
	})
}

// A bundle is relayed once a session, the store accepts it, and what was refused for its key is asked for again.
func TestBundlesTravelAndBringKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var got []string
		var one *Node
		one = w.node("ONE", func(c *Config) {
			c.OnBundle = func(_ context.Context, gateway, domain string, bundle []byte) error {
				got = append(got, gateway+" "+domain+" "+string(bundle))
				if string(bundle) != "bundle of TWO" {
					return errors.New("not wanted")
				}
				w.mu.Lock()
				w.hidden["TWO"] = false
				w.mu.Unlock()
				one.BundleAccepted()
				return nil
			}
		})
		release := make(chan struct{})
		bundles := [][]byte{[]byte("other")}
		var mu sync.Mutex
		two := w.node("TWO", func(c *Config) {
			c.Bundles = func(domain string) [][]byte {
				mu.Lock()
				defer mu.Unlock()
				return bundles
			}
		})
		w.hidden["TWO"] = true
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RolePeer, "two.example", "x")
		setup(t, two, wire.RolePeer, "one.example", "y")
		a, b := connectMem("ONE", "TWO")
		one.Attach(t.Context(), a, "two.example", true)
		two.Attach(t.Context(), b, "one.example", false)
		knows(t, two, "ONE", "x")
		time.Sleep(5 * time.Second)
		if sn := one.Snapshot(); len(labelsOf(sn, "TWO")) != 0 || sn.Neighbours[0].Nacked == 0 {
			t.Fatalf("without its key: %+v", sn.Neighbours[0])
		}
		if st := two.Snapshot().Neighbours[0]; st.LastRefusal != frame.UnknownKey || st.Refused != 1 {
			t.Errorf("the sender's side: %+v", st)
		}
		close(release)
		mu.Lock()
		bundles = append(bundles, []byte("bundle of TWO"))
		mu.Unlock()
		two.BundleAccepted()
		knows(t, one, "TWO", "y")
		if want := []string{"TWO two.example other", "TWO two.example bundle of TWO"}; !slices.Equal(got, want) {
			t.Errorf("bundles %q", got)
		}
	})
}

// byHand plays a neighbour against one node.
type byHand struct {
	t    *testing.T
	link *memLink
	s    *Session
}

func playPeer(t *testing.T, w *world) (*Node, *byHand) {
	one := w.node("ONE", nil)
	w.names["TWO"] = "two.example"
	t.Cleanup(start(t, one))
	setup(t, one, wire.RolePeer, "two.example", "x")
	a, b := connectMem("ONE", "TWO")
	h := &byHand{t: t, link: b, s: one.Attach(t.Context(), a, "two.example", true)}
	return one, h
}

func (h *byHand) expect(t frame.Type) wire.Message {
	h.t.Helper()
	typ, payload, err := h.link.control.ReadFrame(0)
	if err != nil || typ != t {
		h.t.Fatalf("got %v, %v, want %v", typ, err, t)
	}
	m, err := wire.Parse(typ, payload)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

func (h *byHand) write(m wire.Message) {
	h.t.Helper()
	if err := h.link.control.WriteMessage(0, m); err != nil {
		h.t.Fatal(err)
	}
}

func (h *byHand) hello() {
	h.t.Helper()
	h.expect(frame.Hello)
	h.write(&wire.Hello{Versions: wire.VersionRange{Min: 1, Max: 1}, Gateway: "TWO", Domain: "two.example", HoldMS: 30000,
		Role: wire.RolePeer, Limits: wire.Limits{MaxEntries: 100, MaxEntry: wire.MaxItem, MaxInflight: 64}, Now: uint64(time.Now().Unix())})
	<-h.s.Up()
	go io.Copy(io.Discard, h.link.control.r)
}

func (h *byHand) mustEnd(code frame.Code) {
	h.t.Helper()
	select {
	case <-h.s.Done():
	case <-time.After(time.Minute):
		h.t.Fatal("the session does not end")
	}
	if got := frame.CodeOf(h.s.Err()); got != code {
		h.t.Errorf("ended with %v, want %v", h.s.Err(), code)
	}
}

func TestCase20UndecodableFramesCloseTheConnection(t *testing.T) {
	control := func(b []byte) func(*byHand) { return func(h *byHand) { h.link.control.w.Write(b) } }
	digest := func(frames ...[]byte) func(*byHand) {
		return func(h *byHand) {
			s, err := h.link.OpenDigest(h.t.Context())
			if err != nil {
				h.t.Fatal(err)
			}
			for _, b := range frames {
				s.(*memStream).w.Write(b)
			}
		}
	}
	begin, _ := wire.Append(nil, &wire.SyncBegin{Mode: wire.ModeFull})
	for name, tt := range map[string]struct {
		send func(*byHand)
		code frame.Code
	}{
		"bad CBOR":                  {control([]byte{0x02, 0x01, 0xff}), frame.Malformed},
		"cut varint":                {control([]byte{0x40, 0x02, 0x00}), frame.Malformed},
		"too large":                 {control([]byte{0x02, 0x80, 0x10, 0x00, 0x00}), frame.FrameTooLarge},
		"critical key":              {control([]byte{0x02, 0x04, 0xa1, 0x18, 0x80, 0x00}), frame.CriticalUnknown},
		"unknown even type":         {control([]byte{0x08, 0x01, 0xa0}), frame.UnexpectedFrame},
		"digest frame on control":   {control(begin), frame.UnexpectedFrame},
		"no SYNC_BEGIN":             {digest([]byte{0x22, 0x05, 0xa2, 0x01, 0x01, 0x02, 0x00}), frame.UnexpectedFrame},
		"two SYNC_BEGIN":            {digest(begin, begin), frame.UnexpectedFrame},
		"control frame in digest":   {digest(begin, []byte{0x02, 0x01, 0xa0}), frame.UnexpectedFrame},
		"bad CBOR in digest stream": {digest(begin, []byte{0x22, 0x01, 0xff}), frame.Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, h := playPeer(t, newWorld())
				h.hello()
				tt.send(h)
				h.mustEnd(tt.code)
			})
		})
	}
}

func TestOddTypesAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, h := playPeer(t, newWorld())
		h.hello()
		h.link.control.w.Write([]byte{0x03, 0x01, 0xa0})
		h.write(&wire.Keepalive{})
		time.Sleep(time.Second)
		if st := one.Snapshot().Neighbours[0]; st.State != replica.Established {
			t.Errorf("state %v", st.State)
		}
		h.link.Close(frame.OK, "")
		h.mustEnd(frame.OK)
	})
}

// Up is the neighbour's HELLO, not the connection.
func TestNoHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h := playPeer(t, newWorld())
		h.expect(frame.Hello)
		select {
		case <-h.s.Up():
			t.Fatal("up without HELLO")
		case <-time.After(4 * time.Second):
		}
		h.mustEnd(frame.HelloTimeout)
	})
}

func TestNeighbourWithoutPolicyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newWorld().node("ONE", nil)
		defer start(t, one)()
		a, _ := connectMem("ONE", "TWO")
		s := one.Attach(t.Context(), a, "two.example", true)
		<-s.Done()
		if frame.CodeOf(s.Err()) != frame.TrustDenied {
			t.Errorf("ended with %v", s.Err())
		}
	})
}

// A neighbour that does not read is cut off; it does not hold the node up.
func TestNeighbourThatDoesNotReadIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, h := playPeer(t, newWorld())
		h.expect(frame.Hello)
		h.write(&wire.Hello{Versions: wire.VersionRange{Min: 1, Max: 1}, Gateway: "TWO", Domain: "two.example", HoldMS: 3_600_000,
			Role: wire.RolePeer, Limits: wire.Limits{MaxEntries: 100, MaxEntry: wire.MaxItem, MaxInflight: 64}, Now: uint64(time.Now().Unix())})
		<-h.s.Up()
		alive := make(chan struct{})
		go func() {
			defer close(alive)
			for h.link.control.WriteMessage(0, &wire.Keepalive{}) == nil {
				time.Sleep(5 * time.Second)
			}
		}()
		h.mustEnd(frame.SendStalled)
		<-alive
		if sn := one.Snapshot(); len(sn.Entries) != 1 {
			t.Errorf("entries %+v", sn.Entries)
		}
	})
}
