package rib

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentgw/cdsp"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// TestMain is also the gateway that is killed: the test starts itself again as that.
func TestMain(m *testing.M) {
	if dir := os.Getenv("RIB_TEST_DIR"); dir != "" {
		if err := victim(dir, os.Getenv("RIB_TEST_PEER")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const teller, victimName = "2.999.2", "2.999.1"

func keyOf(name string) frame.Signer {
	seed := make([]byte, 32)
	copy(seed, name)
	return frame.NewSigner(ed25519.NewKeyFromSeed(seed))
}

func domainOf(name string) string { return "d" + name + ".example" }

func keys(id frame.KeyID) (frame.VerifyKey, bool) {
	for _, name := range []string{teller, victimName} {
		if s := keyOf(name); s.KeyID() == id {
			return frame.VerifyKey{Public: s.Public(), Owner: name, Domain: domainOf(name)}, true
		}
	}
	return frame.VerifyKey{}, false
}

func nodeOf(name string, change func(*cdsp.Config)) *cdsp.Node {
	cfg := cdsp.Config{Gateway: name, Domain: domainOf(name), BootID: wire.ID16{byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())},
		OEpoch: uint64(time.Now().UnixMilli()), Signer: keyOf(name).Always(), Keys: keys, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	change(&cfg)
	return cdsp.New(cfg)
}

func rowFor(name string) []cdsp.Neighbour {
	return []cdsp.Neighbour{{Domain: domainOf(name), Role: wire.RolePeer, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse}}
}

// tcpLink is a connection of TCP connections, one a stream: the first is the control stream, and each digest stream is another one. Who dialled
// dials all of them; a first octet says what one is.
type tcpLink struct {
	gateway string
	control net.Conn
	dial    func() (net.Conn, error) // nil at the end that was dialled, which asks for one over spare
	spare   chan net.Conn            // digest streams of the dialled end
	in      chan net.Conn            // digest streams to be read
	closed  chan struct{}
	once    sync.Once
	fulls   *atomic.Int64
	deltas  *atomic.Int64
}

func (l *tcpLink) RemoteGateway() string { return l.gateway }
func (l *tcpLink) RTT() time.Duration    { return time.Millisecond }
func (l *tcpLink) Until() time.Time      { return time.Time{} }
func (l *tcpLink) Control(context.Context) (cdsp.Stream, error) {
	return l.stream(l.control), nil
}
func (l *tcpLink) stream(c net.Conn) cdsp.Stream {
	return &tcpStream{Conn: c, frames: frame.NewReader(c), link: l}
}

func (l *tcpLink) OpenDigest(ctx context.Context) (cdsp.Stream, error) {
	if l.dial != nil {
		c, err := l.dial()
		if err == nil {
			_, err = c.Write([]byte("d"))
		}
		if err != nil {
			return nil, err
		}
		return l.stream(c), nil
	}
	return l.take(ctx, l.spare)
}

func (l *tcpLink) AcceptDigest(ctx context.Context) (cdsp.Stream, error) { return l.take(ctx, l.in) }

func (l *tcpLink) take(ctx context.Context, from chan net.Conn) (cdsp.Stream, error) {
	select {
	case c := <-from:
		return l.stream(c), nil
	case <-l.closed:
		return nil, frame.Errorf(frame.UpstreamFailed, "closed")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *tcpLink) Close(frame.Code, string) {
	l.once.Do(func() {
		close(l.closed)
		l.control.Close()
	})
}

type tcpStream struct {
	net.Conn
	frames *frame.Reader
	link   *tcpLink
}

func (s *tcpStream) ReadFrame(time.Duration) (frame.Type, []byte, error) { return s.frames.Next() }
func (s *tcpStream) Reset(frame.Code)                                    { s.Close() }
func (s *tcpStream) WriteMessage(_ time.Duration, m frame.Message) error {
	if begin, ok := m.(*wire.SyncBegin); ok && s.link.fulls != nil {
		if begin.Mode == wire.ModeFull {
			s.link.fulls.Add(1)
		} else {
			s.link.deltas.Add(1)
		}
	}
	b, err := frame.AppendMessage(nil, m)
	if err == nil {
		_, err = s.Write(b)
	}
	return err
}

// victim is a gateway that keeps what it is told in dir, until it is killed. It says what it holds: how many entries, their hash, and how many of them it
// had at the start.
func victim(dir, peer string) error {
	db, kept, err := Open(dir, victimName, domainOf(victimName), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer db.Close()
	n := nodeOf(victimName, func(c *cdsp.Config) { c.Kept, c.Keep = kept, db.Keep })
	ctx := context.Background()
	go n.Run(ctx)
	if err := n.SetNeighbours(ctx, rowFor(teller)); err != nil {
		return err
	}
	dial := func() (net.Conn, error) { return net.Dial("tcp", peer) }
	l := &tcpLink{gateway: teller, dial: dial, in: make(chan net.Conn), closed: make(chan struct{})}
	if l.control, err = dial(); err != nil {
		return err
	}
	if _, err := l.control.Write([]byte("c")); err != nil {
		return err
	}
	go func() { // one spare connection at a time waits for the other end's next digest stream; its first octet comes with that
		for {
			c, err := dial()
			if err == nil {
				_, err = c.Write([]byte("s"))
			}
			first := make([]byte, 1)
			if err == nil {
				_, err = io.ReadFull(c, first)
			}
			if err != nil {
				return
			}
			select {
			case l.in <- &unread{Conn: c, first: first}:
			case <-l.closed:
				return
			}
		}
	}()
	s := n.Attach(ctx, l, domainOf(teller), true)
	for {
		changed := n.Changed()
		sn := n.Snapshot()
		for _, st := range sn.Neighbours {
			fmt.Println(st.Received, st.InHash, sn.Restored, st.Synced)
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // the other end may have heard of an acknowledgement only now
		case <-s.Done():
			return s.Err()
		}
	}
}

// unread is a connection of which the first octet was read already.
type unread struct {
	net.Conn
	first []byte
}

func (u *unread) Read(p []byte) (int, error) {
	if len(u.first) > 0 && len(p) > 0 {
		n := copy(p, u.first)
		u.first = u.first[n:]
		return n, nil
	}
	return u.Conn.Read(p)
}

// serveVictims attaches each victim that connects.
func serveVictims(t *testing.T, ctx context.Context, n *cdsp.Node, listener net.Listener, fulls, deltas *atomic.Int64) {
	var now *tcpLink
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		kind := make([]byte, 1)
		if _, err := io.ReadFull(c, kind); err != nil {
			continue // killed at this moment
		}
		if kind[0] == 'c' {
			now = &tcpLink{gateway: victimName, control: c, in: make(chan net.Conn), spare: make(chan net.Conn), closed: make(chan struct{}), fulls: fulls, deltas: deltas}
			n.Attach(ctx, now, domainOf(victimName), false)
			continue
		}
		l, to := now, now.in
		if kind[0] == 's' {
			to = now.spare
		}
		go func() {
			select {
			case to <- c:
			case <-l.closed:
				c.Close()
			}
		}()
	}
}

// stage is a teller whose digests change, and the victim that is killed and started again from dir.
type stage struct {
	t             *testing.T
	ctx           context.Context
	n             *cdsp.Node
	addr, dir     string
	rng           *rand.Rand
	fulls, deltas atomic.Int64 // that the teller has begun

	cmd   *exec.Cmd
	lines *bufio.Scanner
	log   strings.Builder
}

func newStage(t *testing.T) *stage {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &stage{t: t, ctx: ctx, n: nodeOf(teller, func(*cdsp.Config) {}), addr: listener.Addr().String(), dir: filepath.Join(t.TempDir(), "rib"), rng: rand.New(rand.NewPCG(rand.Uint64(), 1))}
	ran := make(chan struct{})
	go func() { defer close(ran); s.n.Run(ctx) }()
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
		listener.Close()
		cancel()
		<-ran
	})
	if err := s.n.SetNeighbours(ctx, rowFor(victimName)); err != nil {
		t.Fatal(err)
	}
	go serveVictims(t, ctx, s.n, listener, &s.fulls, &s.deltas)
	return s
}

func (s *stage) start() {
	s.t.Helper()
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), "RIB_TEST_DIR="+s.dir, "RIB_TEST_PEER="+s.addr)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.log.Reset()
	s.cmd.Stderr, s.lines = &s.log, bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// kill kills the victim, and wants it to have found nothing wrong.
func (s *stage) kill() {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGKILL)
	s.cmd.Wait()
	s.cmd = nil
	for _, bad := range []string{"moved aside", "tables differed", "not written down"} {
		if strings.Contains(s.log.String(), bad) {
			s.t.Errorf("the victim says: %s", s.log.String())
		}
	}
}

// change changes the teller's digests for so long, again and again.
func (s *stage) change(d time.Duration) {
	s.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		mustSetOwn(s.t, s.ctx, s.n, s.rng, true)
	}
}

// A gateway is killed at random moments while its neighbour's digests change all the time. Whatever it had written, after it is back its table is its
// neighbour's, to the hash; it goes on by delta nearly always, and no difference of tables is ever found, since that would be a cookie that spoke for too much.
func TestKilledUnderChanges(t *testing.T) {
	const kills = 22
	s := newStage(t)
	restored, kept := 0, int64(0) // entries, and starts with some: a slow machine is killed before it has written any
	for range kills {
		s.start()
		mustSetOwn(t, s.ctx, s.n, s.rng, false)
		n := mustEqual(t, s.n, s.lines, &s.log) // as it comes back
		if restored += n; n > 0 {
			kept++
		}
		s.change(time.Duration(s.rng.IntN(150)) * time.Millisecond)
		s.kill()
	}
	s.start()
	mustEqual(t, s.n, s.lines, &s.log)
	t.Logf("%d kills, %d fulls, %d deltas, %d entries restored", kills, s.fulls.Load(), s.deltas.Load(), restored)
	if s.deltas.Load() < (kept+1)/2 || kept == 0 {
		t.Errorf("%d fulls and %d deltas, %d entries restored: what is kept is of no use", s.fulls.Load(), s.deltas.Load(), restored)
	}
}

// Row 11 with the database itself: the power goes, and what is on the disk is a copy of the folder of some time ago. The neighbour goes on from there by delta, and
// in the end the tables are equal.
func TestCase11OlderCopyOfTheFolder(t *testing.T) {
	s := newStage(t)
	mustSetOwn(t, s.ctx, s.n, s.rng, true)
	s.start()
	mustEqual(t, s.n, s.lines, &s.log)
	early := int64(0) // kills that came before anything was written, after which there is nothing to go on from
	for good := 0; good < 3 && early < 10; {
		time.Sleep(time.Duration(early) * 200 * time.Millisecond) // the writer runs beside the session: a slow machine takes its time
		s.kill()
		older := filepath.Join(t.TempDir(), "older")
		if err := os.CopyFS(older, os.DirFS(s.dir)); err != nil {
			t.Fatal(err)
		}
		s.start()
		mustEqual(t, s.n, s.lines, &s.log)
		s.change(300 * time.Millisecond)
		mustEqual(t, s.n, s.lines, &s.log)
		s.kill()
		if err := errors.Join(os.RemoveAll(s.dir), os.Rename(older, s.dir)); err != nil {
			t.Fatal(err)
		}
		deltas, fulls := s.deltas.Load(), s.fulls.Load()
		s.start()
		switch restored := mustEqual(t, s.n, s.lines, &s.log); {
		case restored == 0 && s.fulls.Load() == fulls+1:
			early++
		case restored == 0 || s.deltas.Load() != deltas+1 || s.fulls.Load() != fulls:
			t.Fatalf("%d entries restored, %d deltas, %d full synchronisations", restored, s.deltas.Load()-deltas, s.fulls.Load()-fulls)
		default:
			good++
		}
	}
	if early == 10 {
		t.Error("nothing was ever written before it was killed")
	}
}

// mustSetOwn changes some of the teller's digests.
func mustSetOwn(t *testing.T, ctx context.Context, n *cdsp.Node, rng *rand.Rand, many bool) {
	t.Helper()
	g := wire.Group{Scope: wire.Scope{Visibility: wire.VisibleAny, MaxHops: wire.MaxHops, Level: wire.LevelCoarse}}
	for i := range 200 {
		if !many || rng.IntN(3) > 0 {
			l := fmt.Sprintf("l%03d", i)
			g.Items = append(g.Items, wire.Item{Key: wire.ItemKey(l, "tag", wire.LevelCoarse), NS: "tag", Label: l, Count: uint8(rng.IntN(3))})
		}
	}
	if err := n.SetOwn(ctx, []wire.Group{g}); err != nil {
		t.Fatal(err)
	}
}

// mustEqual waits until the victim holds what the teller has told it, all acknowledged. It says how many entries the victim had at its start.
func mustEqual(t *testing.T, n *cdsp.Node, lines *bufio.Scanner, log fmt.Stringer) (restored int) {
	t.Helper()
	for lines.Scan() {
		var count int
		var hash string
		var synced bool
		if _, err := fmt.Sscan(lines.Text(), &count, &hash, &restored, &synced); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		for _, st := range n.Snapshot().Neighbours {
			if synced && st.Acked && st.Sent == count && st.OutHash.String() == hash && st.State.String() == "UP" && count > 0 {
				return restored
			}
		}
	}
	t.Fatalf("it ended before its table was its neighbour's: %v\n%s", lines.Err(), log)
	return 0
}
