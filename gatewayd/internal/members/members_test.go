package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// network carries the gossip of a test: packets and connections between addresses, unless it is told to lose them.
type network struct {
	mu    sync.Mutex
	nodes map[string]*transport
	apart func(from, to string) bool // nil: nobody
}

type transport struct {
	net     *network
	addr    *net.UDPAddr
	packets chan *memberlist.Packet
	conns   chan net.Conn
	down    chan struct{}
	once    sync.Once
}

func (n *network) at(addr string) *transport {
	n.mu.Lock()
	defer n.mu.Unlock()
	ip, port, _ := hostPort(addr)
	t := &transport{net: n, addr: &net.UDPAddr{IP: net.ParseIP(ip), Port: port}, packets: make(chan *memberlist.Packet, 256), conns: make(chan net.Conn, 16), down: make(chan struct{})}
	if n.nodes == nil {
		n.nodes = map[string]*transport{}
	}
	n.nodes[addr] = t
	return t
}

func (n *network) split(apart func(from, to string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.apart = apart
}

func (t *transport) peer(addr string) *transport {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.net.apart != nil && t.net.apart(t.addr.String(), addr) {
		return nil
	}
	return t.net.nodes[addr]
}

func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.IP, t.addr.Port, nil
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	if to := t.peer(addr); to != nil {
		select {
		case to.packets <- &memberlist.Packet{Buf: slices.Clone(b), From: t.addr, Timestamp: now}:
		default: // as UDP does
		}
	}
	return now, nil
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *transport) StreamCh() <-chan net.Conn           { return t.conns }

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to := t.peer(addr)
	if to == nil {
		time.Sleep(timeout)
		return nil, errors.New("no answer")
	}
	near, far := net.Pipe()
	select {
	case to.conns <- far:
		return near, nil
	case <-to.down:
		return nil, errors.New("refused")
	}
}

func (t *transport) Shutdown() error {
	t.once.Do(func() { close(t.down) })
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.net.nodes[t.addr.String()] == t {
		delete(t.net.nodes, t.addr.String())
	}
	return nil
}

var key = bytes.Repeat([]byte{7}, 32)

// domain is the gateways of one domain in a bubble.
type domain struct {
	t    *testing.T
	net  network
	logs bytes.Buffer
	mu   sync.Mutex
}

func (d *domain) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.logs.Write(b)
}

// open starts a gateway; it joins by the address of the first.
func (d *domain) open(name, addr string, change func(*Config)) *List {
	d.t.Helper()
	c := Config{
		Gateway: name, Domain: "home.example", Listen: addr, Keys: [][]byte{key}, Addresses: []string{strings.Replace(addr, ":7946", ":4433", 1)},
		Seeds: seeds, Known: func(g string) bool { return !strings.HasPrefix(g, "stranger") }, transport: d.net.at(addr),
		Log: slog.New(slog.NewTextHandler(d, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if change != nil {
		change(&c)
	}
	l, err := Open(c)
	if err != nil {
		d.t.Fatal(err)
	}
	return l
}

func seeds(context.Context) []string { return []string{"10.0.0.1:7946"} }

func at(n int) string { return "10.0.0." + strconv.Itoa(n) + ":7946" }

func names(l *List) string {
	var out []string
	for _, m := range l.Alive() {
		out = append(out, m.Gateway)
	}
	return strings.Join(out, " ")
}

// sees waits, in fake time, until a list has these members.
func sees(t *testing.T, l *List, want string, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	deadline := time.After(limit)
	for {
		changed := l.Changed()
		if names(l) == want {
			return time.Since(began)
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("sees %q after %v, want %q", names(l), limit, want)
		}
	}
}

func closeAll(t *testing.T, lists ...*List) {
	for _, l := range lists {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(time.Minute) // what the library has left running ends
}

// The members of a domain find each other and carry their addresses; one that dies is missed within two seconds, one that leaves at once.
func TestMembersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &domain{t: t}
		a, b, c := d.open("A", at(1), nil), d.open("B", at(2), nil), d.open("C", at(3), nil)
		for _, l := range []*List{a, b, c} {
			sees(t, l, "A B C", 10*time.Second)
		}
		if m := a.Alive()[1]; !slices.Equal(m.Addresses, []string{"10.0.0.2:4433"}) || m.Self || m.Lame || !a.Alive()[0].Self {
			t.Errorf("%+v", a.Alive())
		}
		if err := b.SetLame(true); err != nil {
			t.Fatal(err)
		}
		deadline := time.After(5 * time.Second)
		for !a.Alive()[1].Lame {
			changed := a.Changed()
			select {
			case <-changed:
			case <-deadline:
				t.Fatal("nobody hears that B is about to stop")
			}
		}
		d.net.split(func(from, to string) bool { return from == at(3) || to == at(3) }) // C is dead
		if took := sees(t, a, "A B", 10*time.Second); took > 2*time.Second {
			t.Errorf("C was missed after %v", took)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if took := sees(t, a, "A", 5*time.Second); took > time.Second {
			t.Errorf("B was missed after %v", took)
		}
		closeAll(t, a, c)
	})
}

// Two halves of a domain go on each for itself, longer than the library remembers the other half, and are one again within a minute of
// healing.
func TestCase43MemberlistPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &domain{t: t}
		var lists []*List
		for n, name := range []string{"A", "B", "C", "D"} {
			lists = append(lists, d.open(name, at(n+1), nil))
		}
		for _, l := range lists {
			sees(t, l, "A B C D", time.Minute)
		}
		left := func(a string) bool { return a == at(1) || a == at(2) }
		d.net.split(func(from, to string) bool { return left(from) != left(to) })
		for n, l := range lists {
			sees(t, l, []string{"A B", "A B", "C D", "C D"}[n], 15*time.Second)
		}
		time.Sleep(20 * time.Minute)
		d.net.split(nil)
		for _, l := range lists {
			if took := sees(t, l, "A B C D", 2*time.Minute); took > time.Minute {
				t.Errorf("healed after %v", took)
			}
		}
		closeAll(t, lists...)
	})
}

// Who has another key, is of another domain, or is no gateway by the bundle, is not let in, and brings nobody.
func TestCase44ForeignGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &domain{t: t}
		a, b := d.open("A", at(1), nil), d.open("B", at(2), nil)
		sees(t, a, "A B", time.Minute)
		otherKey := d.open("C", at(3), func(c *Config) { c.Keys = [][]byte{bytes.Repeat([]byte{8}, 32)} })
		otherDomain := d.open("D", at(4), func(c *Config) { c.Domain = "away.example" })
		stranger := d.open("stranger", at(5), nil)
		time.Sleep(3 * time.Minute)
		for l, want := range map[*List]string{a: "A B", b: "A B", otherKey: "C", otherDomain: "D"} {
			if got := names(l); got != want {
				t.Errorf("%s sees %q, want %q", l.cfg.Gateway, got, want)
			}
		}
		closeAll(t, a, b, otherKey, otherDomain, stranger)
	})
}

// A gateway that comes back at another address, before the others have missed it, is taken for itself within half a minute; meanwhile there is
// an alarm, since a copied state folder looks the same.
func TestCase45RestartAtAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &domain{t: t}
		a, b := d.open("A", at(1), nil), d.open("B", at(2), nil)
		sees(t, a, "A B", time.Minute)
		d.net.split(func(from, to string) bool { return from == at(2) || to == at(2) }) // killed
		again := d.open("B", at(9), nil)
		deadline := time.After(30 * time.Second)
		for began := time.Now(); ; {
			changed := a.Changed()
			if m := a.Alive(); len(m) == 2 && slices.Equal(m[1].Addresses, []string{"10.0.0.9:4433"}) {
				t.Logf("taken after %v", time.Since(began))
				break
			}
			select {
			case <-changed:
			case <-deadline:
				t.Fatalf("never taken: %+v", a.Alive())
			}
		}
		if a.Conflicts.Load() == 0 || !strings.Contains(d.logs.String(), "two gateways of one name") {
			t.Error("no alarm")
		}
		closeAll(t, a, again, b)
	})
}

// A key is replaced without a gap: first all know the new one, then all use it.
func TestKeysAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &domain{t: t}
		next := bytes.Repeat([]byte{9}, 32)
		a := d.open("A", at(1), func(c *Config) { c.Keys = [][]byte{key, next} })
		b := d.open("B", at(2), func(c *Config) { c.Keys = [][]byte{next, key} })
		sees(t, a, "A B", time.Minute)
		sees(t, b, "A B", time.Minute)
		closeAll(t, a, b)
	})
}

func TestBadConfigurationIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"key":     func(c *Config) { c.Keys = nil },
		"16, 24":  func(c *Config) { c.Keys = [][]byte{{1, 2, 3}} },
		"listen":  func(c *Config) { c.Listen = "nowhere" },
		"network": func(c *Config) { c.Allow = []string{"10.0.0.0/99"} },
		"carries": func(c *Config) { c.Addresses = make([]string, 7) },
	} {
		c := Config{Gateway: "A", Domain: "home.example", Listen: "127.0.0.1:0", Keys: [][]byte{key}}
		change(&c)
		if l, err := Open(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
			if l != nil {
				l.Close()
			}
		}
	}
}

// Each peer domain is held by two gateways; when one goes, only what it held moves.
func TestHolders(t *testing.T) {
	var alive []Member
	for n := range 9 {
		alive = append(alive, Member{Gateway: fmt.Sprint("G", n)})
	}
	held := func(domain string, alive []Member) (out []string) {
		for _, m := range alive {
			if Holds(m.Gateway, domain, alive) {
				out = append(out, m.Gateway)
			}
		}
		return out
	}
	load := map[string]int{}
	for n := range 900 {
		domain := fmt.Sprintf("d%d.example", n)
		before := held(domain, alive)
		if len(before) != Holders {
			t.Fatalf("%s is held by %v", domain, before)
		}
		for _, g := range before {
			load[g]++
		}
		after := held(domain, alive[1:])
		if slices.Contains(before, "G0") {
			before = before[1:]
			after = slices.DeleteFunc(after, func(g string) bool { return !slices.Contains(before, g) })
		}
		if !slices.Equal(before, after) {
			t.Errorf("%s moved from %v to %v though G0 did not hold it", domain, before, after)
		}
	}
	for g, n := range load {
		if n < 120 || n > 280 {
			t.Errorf("%s holds %d of 1800", g, n)
		}
	}
	alive[0].Lame = true
	for n := range 50 {
		if Holds("G0", fmt.Sprintf("d%d.example", n), alive) {
			t.Error("who is about to stop holds a peer")
		}
	}
	if alone := []Member{{Gateway: "G0", Lame: true}}; !Holds("G0", "x.example", alone) {
		t.Error("the only gateway holds nothing")
	}
}

// real opens a gateway with sockets of this machine.
func real(t *testing.T, c Config) (*List, error) {
	t.Helper()
	c.Gateway, c.Domain, c.Keys, c.Known = "A", "home.example", [][]byte{key}, func(string) bool { return true }
	l, err := Open(c)
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return l, err
}

// An address that means any is none to reach a gateway at, by gossip or by QUIC.
func TestOthersAreToldARealAddress(t *testing.T) {
	for _, listen := range []string{"[::]:0", "0.0.0.0:0", ":0"} {
		l, err := real(t, Config{Listen: listen, Addresses: []string{"[::]:4433", ":4434", "gw.home.example:4433"}})
		if err != nil {
			t.Skip("this machine has the loopback alone: ", err)
		}
		if n := l.ml.LocalNode(); n.Addr.IsUnspecified() {
			t.Errorf("%s: it tells the others to reach it at %v", listen, n.Address())
		}
		own := l.ml.LocalNode().Addr.String()
		if got, want := l.Alive()[0].Addresses, []string{net.JoinHostPort(own, "4433"), net.JoinHostPort(own, "4434"), "gw.home.example:4433"}; !slices.Equal(got, want) {
			t.Errorf("%s: its addresses are %v, want %v", listen, got, want)
		}
	}
}

// A gateway that is outside of the networks that members may be in says so at the start.
func TestOwnAddressOutsideOfTheNetworks(t *testing.T) {
	_, err := real(t, Config{Listen: "127.0.0.1:0", Allow: []string{"10.0.0.0/8"}, Addresses: []string{"10.0.0.1:4433"}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1") || !strings.Contains(err.Error(), "10.0.0.0/8") {
		t.Error(err)
	}
}

// A seed that takes the connection and says nothing does not hold up a stop.
func TestCloseDoesNotWaitForASeed(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	l, err := real(t, Config{Listen: "127.0.0.1:0", Addresses: []string{"10.0.0.1:4433"}, Seeds: func(context.Context) []string { return []string{mute.Addr().String()} }})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// Packets of strangers are not a line of the log each.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	d := &domain{t: t}
	l, err := real(t, Config{Listen: "127.0.0.1:0", Addresses: []string{"10.0.0.1:4433"}, Log: slog.New(slog.NewTextHandler(d, nil))})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp", l.ml.LocalNode().Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 300 {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond)
	}
	time.Sleep(200 * time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := strings.Count(d.logs.String(), "\n"); n == 0 || n > 20 {
		t.Errorf("%d lines for 300 packets of a stranger", n)
	}
}
