package replica

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func signerOf(name string) frame.Signer {
	return frame.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte(name[len(name)-1:]), 32)))
}

// bench is one replica, "ME" of me.example, and neighbours that the test plays by hand.
type bench struct {
	t       *testing.T
	r       *Replica
	now     time.Time
	effects []Effect
	keys    map[string]string // owner to domain: whose keys are known
	seq     map[uint64]uint64
}

func newBench(t *testing.T, rows ...Neighbour) *bench {
	b := &bench{t: t, now: start, keys: map[string]string{"A": "a.example", "B": "b.example", "O": "o.example"}, seq: map[uint64]uint64{}}
	counter := uint64(0)
	b.r = New(Config{Gateway: "ME", Domain: "me.example", OEpoch: uint64(start.UnixMilli()), Signer: signerOf("ME").Always(), Keys: b.key,
		Random: func() uint64 { counter++; return counter }}, start)
	if rows == nil {
		rows = []Neighbour{
			{Domain: "a.example", Role: wire.RoleCustomer, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse},
			{Domain: "b.example", Role: wire.RoleCustomer, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse},
		}
	}
	b.step(SetNeighbours{Rows: rows})
	return b
}

func (b *bench) key(id frame.KeyID) (frame.VerifyKey, bool) {
	for owner, domain := range b.keys {
		if s := signerOf(owner); s.KeyID() == id {
			return frame.VerifyKey{Public: s.Public(), Owner: owner, Domain: domain}, true
		}
	}
	return frame.VerifyKey{}, false
}

func (b *bench) step(ev Event) {
	b.t.Helper()
	if err := b.r.Step(b.now, ev); err != nil {
		b.t.Fatal(err)
	}
	b.effects = append(b.effects, b.r.Ready()...)
}

// wait lets time pass, ticking when the replica asks for it.
func (b *bench) wait(d time.Duration) {
	end := b.now.Add(d)
	for spins := 0; !b.r.Next().After(end); spins++ {
		if spins > 100_000 {
			b.t.Fatal("a Tick that changes nothing is due for ever")
		}
		if next := b.r.Next(); next.After(b.now) {
			b.now = next
		}
		b.r.Tick(b.now)
		b.effects = append(b.effects, b.r.Ready()...)
	}
	b.now = end
}

func (b *bench) hello(gw, domain string) *wire.Hello {
	return &wire.Hello{Versions: wire.VersionRange{Min: 1, Max: 1}, Gateway: gw, Domain: domain, HoldMS: 30000, RestartMS: 120000,
		Role: wire.RoleCustomer, Limits: wire.Limits{MaxEntries: 100, MaxBytes: 1 << 20, MaxEntry: wire.MaxItem, MaxInflight: 64},
		Now: uint64(b.now.Unix()), Sess: wire.ID8{gw[0]}}
}

// connect brings a neighbour up and begins its digest stream.
func (b *bench) connect(conn uint64, gw, domain string) {
	b.t.Helper()
	b.step(Connected{Conn: conn, Gateway: gw, Domain: domain})
	b.receive(conn, b.hello(gw, domain))
	b.begin(conn)
	b.ack(conn)
}

// ack acknowledges everything that was sent on conn.
func (b *bench) ack(conn uint64) {
	b.t.Helper()
	if s := b.r.sessions[conn]; s != nil {
		b.step(Received{Conn: conn, Msg: &wire.Ack{Sess: s.tx.sess, Seq: s.tx.seq, Credit: 64}})
	}
}

// alive is a neighbour that has nothing to say.
func (b *bench) alive(conn uint64) {
	b.t.Helper()
	b.receive(conn, &wire.Keepalive{})
	b.ack(conn)
}

func (b *bench) begin(conn uint64) {
	b.t.Helper()
	b.seq[conn] = 0
	b.receive(conn, &wire.SyncBegin{Mode: wire.ModeFull})
}

func (b *bench) receive(conn uint64, m wire.Message) {
	b.t.Helper()
	b.step(Received{Conn: conn, Msg: m})
}

func (b *bench) entries(conn uint64, batches [][]byte, entries ...wire.Entry) {
	b.t.Helper()
	raws := make([]cbor.RawMessage, len(entries))
	for i, e := range entries {
		raw, err := e.Append(nil)
		if err != nil {
			b.t.Fatal(err)
		}
		raws[i] = raw
	}
	b.raw(conn, batches, raws...)
}

func (b *bench) raw(conn uint64, batches [][]byte, raws ...cbor.RawMessage) {
	b.t.Helper()
	b.seq[conn]++
	b.receive(conn, &wire.Entries{Seq: b.seq[conn], Entries: raws, Batches: batches})
}

// acked takes the nacks out of the ACKs that were sent on conn, as "label code".
func (b *bench) nacks(conn uint64) []string {
	b.t.Helper()
	b.wait(60 * time.Millisecond)
	var out []string
	for _, e := range b.effects {
		if s, ok := e.(Send); ok && s.Conn == conn {
			if ack, ok := s.Msg.(*wire.Ack); ok {
				for _, n := range ack.Nacks {
					out = append(out, n.Origin+" "+n.Code.Hex())
				}
			}
		}
	}
	b.effects = nil
	return out
}

func (b *bench) labels() []string {
	var out []string
	for _, e := range b.r.Snapshot().Entries {
		out = append(out, e.Origin+"/"+e.Item.Label+" via "+e.Via)
	}
	return out
}

// closed is the code with which conn was closed.
func (b *bench) closed(conn uint64) (frame.Code, bool) {
	for _, e := range b.effects {
		if c, ok := e.(Close); ok && c.Conn == conn {
			return c.Code, true
		}
	}
	return 0, false
}

func (b *bench) sent(conn uint64) (out []wire.Message) {
	for _, e := range b.effects {
		if s, ok := e.(Send); ok && s.Conn == conn {
			out = append(out, s.Msg)
		}
	}
	return out
}

func (b *bench) alarms() (out []string) {
	for _, e := range b.effects {
		if a, ok := e.(Alarm); ok {
			out = append(out, a.Gateway+": "+a.Text)
		}
	}
	return out
}

func (b *bench) mustKnow(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.labels()); diff != "" {
		b.t.Fatalf("tables (-want +got):\n%s", diff)
	}
}

func (b *bench) mustNack(conn uint64, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.nacks(conn)); diff != "" {
		b.t.Fatalf("nacks (-want +got):\n%s", diff)
	}
}

func (b *bench) mustClose(conn uint64, code frame.Code) {
	b.t.Helper()
	if got, ok := b.closed(conn); !ok || got != code {
		b.t.Fatalf("connection %d: closed %v with %v, want %v", conn, ok, got, code)
	}
}

func digestItem(label string, oseq uint64) *wire.Item {
	it := &wire.Item{Key: wire.ItemKey(label, "tag", wire.LevelCoarse), OSeq: oseq, Kind: wire.KindDigest, NS: "tag", Label: label}
	it.CHash, _ = it.ContentHash()
	return it
}

func tombstone(label string, oseq uint64) *wire.Item {
	return &wire.Item{Key: wire.ItemKey(label, "tag", wire.LevelCoarse), OSeq: oseq}
}

// batchOf signs items of origin, whose domain is its lower-case letter under example.
func (b *bench) batchOf(origin string, change func(*wire.Batch), items ...*wire.Item) []byte {
	b.t.Helper()
	body := &wire.Batch{Origin: origin, Domain: strings.ToLower(origin) + ".example", OEpoch: uint64(start.UnixMilli()),
		NotBefore: uint64(b.now.Unix()), Expires: uint64(b.now.Add(time.Hour).Unix()), Visibility: wire.VisibleAny, MaxHops: 7, Level: wire.LevelCoarse}
	if change != nil {
		change(body)
	}
	raw, err := body.Sign(signerOf(origin), items)
	if err != nil {
		b.t.Fatal(err)
	}
	return raw
}

func put(batch []byte, index int, path ...string) wire.Entry {
	return wire.Entry{Op: wire.OpPut, Batch: wire.BatchHash(batch), Index: uint16(index), Path: path, Attrs: wire.Attrs{HopsLeft: uint8(8 - len(path))}}
}

func del(batch []byte, path ...string) wire.Entry {
	e := put(batch, 0, path...)
	e.Op = wire.OpDel
	return e
}

func TestCase18ForgedDigestIsNotStored(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	good := b.batchOf("A", nil, digestItem("x", 1))
	forged := bytes.Clone(good)
	forged[len(forged)-1] ^= 1 // last octet of the signature
	b.entries(1, [][]byte{forged}, put(forged, 0, "a.example"))
	b.mustNack(1, "A 24")
	b.mustKnow()

	altered := bytes.Replace(good, []byte("axx"), []byte("ayx"), 1)
	altered = bytes.Replace(altered, []byte{0x6a, 'x'}, []byte{0x6a, 'y'}, 1)
	i := bytes.Index(altered, []byte("a.example")) // content under the signature
	altered[i] = 'c'
	b.entries(1, [][]byte{altered}, put(altered, 0, "c.example"))
	if nacks := b.nacks(1); len(nacks) != 1 {
		t.Fatalf("nacks %v", nacks)
	}
	b.mustKnow()
	b.entries(1, [][]byte{good}, put(good, 0, "a.example"))
	b.mustNack(1)
	b.mustKnow("A/x via A")
	if st := b.r.Snapshot().Neighbours[0]; st.Forged != 1 || st.Nacked != 2 || st.State != Established {
		t.Errorf("status %+v", st)
	}
}

func TestCase18ForgeriesEndTheSession(t *testing.T) {
	flood := func(pause time.Duration) *bench {
		b := newBench(t)
		b.connect(1, "A", "a.example")
		for i := range 100 {
			forged := b.batchOf("A", nil, digestItem(fmt.Sprint(i), 1))
			forged[len(forged)-1] ^= 1
			b.entries(1, [][]byte{forged}, put(forged, 0, "a.example"))
			b.wait(pause)
			if i == 98 {
				if _, closed := b.closed(1); closed {
					t.Fatal("closed after 99")
				}
			}
		}
		return b
	}
	flood(time.Millisecond).mustClose(1, frame.BadSignature)
	if _, closed := flood(700 * time.Millisecond).closed(1); closed {
		t.Error("100 in more than a minute end the session")
	}
}

func TestCase19OneMalformedEntry(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	batch := b.batchOf("A", nil, digestItem("x", 1), digestItem("y", 2), digestItem("z", 3))
	ok := func(i int) cbor.RawMessage {
		raw, _ := put(batch, i, "a.example").Append(nil)
		return raw
	}
	b.raw(1, [][]byte{batch}, ok(0), ok(1), ok(2))
	b.mustNack(1)
	b.mustKnow("A/x via A", "A/z via A", "A/y via A")

	long, _ := put(batch, 1, strings.Split(strings.Repeat("d ", 9)+"a.example", " ")...).Append(nil)
	b.raw(1, nil, ok(0), long, cbor.RawMessage{0x82, 0x09, 0x00}, ok(2))
	b.mustNack(1, "A 25", " 04")
	b.mustKnow("A/x via A", "A/z via A") // what is malformed counts as withdrawn
	if st := b.r.Snapshot().Neighbours[0]; st.State != Established {
		t.Errorf("session is %v", st.State)
	}
}

func TestCase20UndecodableFrame(t *testing.T) {
	for err, code := range map[error]frame.Code{
		frame.Errorf(frame.Malformed, "x"):       frame.Malformed,
		frame.Errorf(frame.FrameTooLarge, "x"):   frame.FrameTooLarge,
		frame.Errorf(frame.UnexpectedFrame, "x"): frame.UnexpectedFrame,
		frame.Errorf(frame.CriticalUnknown, "x"): frame.CriticalUnknown,
		frame.Errorf(frame.BadSignature, "x"):    frame.Malformed,
		errors.New("x"):                          frame.Malformed,
	} {
		b := newBench(t)
		b.connect(1, "A", "a.example")
		b.step(Undecodable{Conn: 1, Err: err})
		b.mustClose(1, code)
	}
}

func TestAcceptance(t *testing.T) {
	type offer struct {
		change func(*wire.Batch)
		path   []string
		hops   uint8
	}
	tests := map[string]struct {
		origin string
		offer  offer
		want   string
	}{
		"own":               {"A", offer{}, ""},
		"transit":           {"O", offer{path: []string{"a.example", "o.example"}}, ""},
		"no path":           {"A", offer{path: []string{}}, "25"},
		"not from A":        {"O", offer{path: []string{"o.example"}}, "25"},
		"other end":         {"O", offer{path: []string{"a.example", "c.example"}}, "25"},
		"our domain":        {"O", offer{path: []string{"a.example", "me.example", "o.example"}}, "25"},
		"twice":             {"O", offer{path: []string{"a.example", "c.example", "a.example", "o.example"}}, "25"},
		"max hops":          {"O", offer{path: []string{"a.example", "o.example"}, change: func(b *wire.Batch) { b.MaxHops = 0 }}, "25"},
		"no export":         {"A", offer{change: func(b *wire.Batch) { b.MaxHops = 0 }}, ""},
		"hops left":         {"A", offer{hops: 3, change: func(b *wire.Batch) { b.MaxHops = 2 }}, "25"},
		"listed":            {"A", offer{change: func(b *wire.Batch) { b.Visibility, b.Allow = wire.VisibleListed, []string{"me.example"} }}, ""},
		"not listed":        {"A", offer{change: func(b *wire.Batch) { b.Visibility, b.Allow = wire.VisibleListed, []string{"x.example"} }}, "27"},
		"domain only":       {"A", offer{change: func(b *wire.Batch) { b.Visibility = wire.VisibleDomain }}, "27"},
		"unknown key":       {"C", offer{path: []string{"a.example", "c.example"}}, "2B"},
		"other's domain":    {"A", offer{path: []string{"a.example", "o.example"}, change: func(b *wire.Batch) { b.Domain = "o.example" }}, "0C"},
		"other's gateway":   {"A", offer{change: func(b *wire.Batch) { b.Origin = "O" }}, "0C"},
		"our own":           {"A", offer{change: func(b *wire.Batch) { b.Origin = "ME" }}, "25"},
		"expired":           {"A", offer{change: func(b *wire.Batch) { b.Expires = uint64(start.Unix()) - 60 }}, "26"},
		"just expired":      {"A", offer{change: func(b *wire.Batch) { b.Expires = uint64(start.Unix()) - 59 }}, ""},
		"not yet":           {"A", offer{change: func(b *wire.Batch) { b.NotBefore = uint64(start.Unix()) + 61 }}, "26"},
		"too long":          {"A", offer{change: func(b *wire.Batch) { b.Expires = uint64(start.Unix()) + 7261 }}, "26"},
		"epoch far ahead":   {"A", offer{change: func(b *wire.Batch) { b.OEpoch = uint64(start.Add(61 * time.Minute).UnixMilli()) }}, "12"},
		"epoch a bit ahead": {"A", offer{change: func(b *wire.Batch) { b.OEpoch = uint64(start.Add(59 * time.Minute).UnixMilli()) }}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.connect(1, "A", "a.example")
			batch := b.batchOf(tt.origin, tt.offer.change, digestItem("x", 1))
			path := tt.offer.path
			if path == nil {
				path = []string{"a.example"}
			}
			e := put(batch, 0, path...)
			e.Attrs.HopsLeft = tt.offer.hops
			b.entries(1, [][]byte{batch}, e)
			got := b.nacks(1)
			if tt.want == "" && got != nil || tt.want != "" && (len(got) != 1 || !strings.HasSuffix(got[0], tt.want)) {
				t.Errorf("nacks %v, want %q", got, tt.want)
			}
			if stored := len(b.labels()) == 1; stored != (tt.want == "") && name != "just expired" {
				t.Errorf("tables %v", b.labels())
			}
		})
	}
}

func TestCase15RouteLeak(t *testing.T) {
	b := newBench(t, Neighbour{Domain: "a.example", Role: wire.RoleCustomer, Level: wire.LevelCoarse})
	b.connect(1, "A", "a.example")
	batch := b.batchOf("O", nil, digestItem("x", 1))
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example", "o.example"))
	b.mustNack(1, "O 27")
	b.mustKnow()
}

func TestCase17OriginEquivocates(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.connect(2, "B", "b.example")
	first := b.batchOf("O", nil, digestItem("x", 5))
	other := digestItem("x", 5)
	other.Count = 2
	other.CHash, _ = other.ContentHash()
	second := b.batchOf("O", nil, other)
	b.entries(1, [][]byte{first}, put(first, 0, "a.example", "o.example"))
	b.entries(2, [][]byte{second}, put(second, 0, "b.example", "o.example"))
	if got := b.alarms(); len(got) != 1 || !strings.Contains(got[0], "two things") {
		t.Errorf("alarms %v", got)
	}
	b.mustNack(2, "O 29")
	b.mustKnow("O/x via A")
	b.wait(2 * time.Second)
	if n := b.r.peers["B"].session.tx.out; len(n) != 0 {
		t.Errorf("it is passed on: %v", n)
	}
	newer := b.batchOf("O", nil, digestItem("x", 6))
	b.entries(2, [][]byte{newer}, put(newer, 0, "b.example", "o.example"))
	b.mustNack(2)
	b.mustKnow("O/x via A")
	b.wait(2 * time.Second)
	if n := b.r.peers["B"].session.tx.out; len(n) != 1 {
		t.Errorf("the newer version is not passed on: %v", n)
	}
}

// Entries that show the same again, and keys that show it as well, are no news about their origin.
func TestCase17OneAlarmAboutAnOrigin(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.connect(2, "B", "b.example")
	other := func(label string, oseq uint64) *wire.Item {
		it := digestItem(label, oseq)
		it.Count = 2
		it.CHash, _ = it.ContentHash()
		return it
	}
	equivocate := func(oseq uint64) {
		first := b.batchOf("O", nil, digestItem("x", oseq), digestItem("y", oseq))
		second := b.batchOf("O", nil, other("x", oseq), other("y", oseq))
		b.entries(1, [][]byte{first}, put(first, 0, "a.example", "o.example"), put(first, 1, "a.example", "o.example"))
		for range 20 {
			b.entries(2, [][]byte{second}, put(second, 0, "b.example", "o.example"), put(second, 1, "b.example", "o.example"))
		}
	}
	equivocate(5)
	equivocate(6)
	if got := b.alarms(); len(got) != 1 {
		t.Fatalf("alarms %q", got)
	}
	for range 3 {
		b.wait(25 * time.Second)
		b.alive(1)
		b.alive(2)
	}
	equivocate(6)
	if got := b.alarms(); len(got) != 1 {
		t.Errorf("alarms about what is known: %q", got)
	}
	equivocate(7)
	if got := b.alarms(); len(got) != 2 {
		t.Errorf("alarms about another version, a minute later: %q", got)
	}
	b.step(SetNeighbours{})
	b.wait(2 * time.Minute)
	if len(b.r.equivocal) != 0 {
		t.Error("an origin that is forgotten is remembered as equivocating")
	}
}

func TestLimits(t *testing.T) {
	b := newBench(t)
	b.r.cfg.Limits.PeerEntries, b.r.cfg.Limits.OriginEntries, b.r.cfg.Limits.Origins = 3, 2, 2
	b.connect(1, "A", "a.example")
	own := b.batchOf("A", nil, digestItem("x", 1), digestItem("y", 2), digestItem("z", 3))
	b.entries(1, [][]byte{own}, put(own, 0, "a.example"), put(own, 1, "a.example"), put(own, 2, "a.example"))
	b.mustNack(1, "A 10") // the third key of one origin
	two := b.batchOf("O", nil, digestItem("x", 1), digestItem("y", 1))
	b.entries(1, [][]byte{two}, put(two, 0, "a.example", "o.example"), put(two, 1, "a.example", "o.example"))
	if got := b.alarms(); len(got) != 2 || !strings.Contains(got[0], "near its limits") {
		t.Errorf("alarms %v", got)
	}
	b.mustNack(1, "O 10") // the fourth entry of one neighbour
	three := b.batchOf("B", nil, digestItem("x", 1))
	b.r.cfg.Limits.PeerEntries = 10
	b.entries(1, [][]byte{three}, put(three, 0, "a.example", "b.example"))
	b.mustNack(1, "B 10") // the third origin
	renewed := b.batchOf("A", nil, digestItem("x", 9))
	b.entries(1, [][]byte{renewed}, put(renewed, 0, "a.example"))
	b.mustNack(1) // what is known may change
	b.r.cfg.Limits.PeerBytes = b.r.peers["A"].session.rx.bytes + 10
	late := b.batchOf("A", nil, digestItem("y", 10))
	b.entries(1, [][]byte{late}, put(late, 0, "a.example"))
	b.mustNack(1, " 10") // a batch over the octets is not even kept
}

// A signed PUT from before a withdrawal must not bring the key back while its signature is valid.
func TestTombstoneOutlivesEveryOlderVersion(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.connect(2, "B", "b.example")
	old := b.batchOf("O", nil, digestItem("x", 1))
	gone := b.batchOf("O", nil, tombstone("x", 2))
	b.entries(1, [][]byte{old}, put(old, 0, "a.example", "o.example"))
	b.entries(1, [][]byte{gone}, del(gone, "a.example", "o.example"))
	b.mustKnow()
	for range 58 {
		b.alive(1)
		b.alive(2)
		b.wait(29 * time.Second)
	}
	b.entries(2, [][]byte{old}, put(old, 0, "b.example", "o.example"))
	b.mustNack(2) // silently
	b.mustKnow()
	back := b.batchOf("O", nil, digestItem("x", 3))
	b.entries(2, [][]byte{back}, put(back, 0, "b.example", "o.example"))
	b.mustKnow("O/x via B")
}

func TestUnreachableFallsBackAtOnce(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.connect(2, "B", "b.example")
	batch := b.batchOf("O", nil, digestItem("x", 1))
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example", "o.example"))
	b.entries(2, [][]byte{batch}, put(batch, 0, "b.example", "c.example", "o.example"))
	b.mustKnow("O/x via A") // the shorter path
	b.entries(1, nil, wire.Entry{Op: wire.OpUnreach, Origin: "O", Key: wire.ItemKey("x", "tag", wire.LevelCoarse)})
	b.mustKnow("O/x via B")
	b.entries(1, nil, put(batch, 0, "a.example", "o.example"))
	b.mustKnow("O/x via A")
	b.step(Disconnected{Conn: 1})
	b.mustKnow("O/x via B") // stale is worse than longer
	b.step(Disconnected{Conn: 2})
	b.mustKnow("O/x via A") // both are stale
}

// A neighbour that sends an older version is still a way to the origin; the newest content counts.
func TestOlderVersionIsARouteStill(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.connect(2, "B", "b.example")
	newer, older := b.batchOf("O", nil, digestItem("x", 2)), b.batchOf("O", nil, digestItem("x", 1))
	b.entries(2, [][]byte{newer}, put(newer, 0, "b.example", "c.example", "o.example"))
	b.entries(1, [][]byte{older}, put(older, 0, "a.example", "o.example"))
	b.mustNack(1)
	b.mustKnow("O/x via A")
	if e := b.r.Snapshot().Entries[0]; e.Item.OSeq != 2 {
		t.Errorf("content has oseq %d", e.Item.OSeq)
	}
}

func TestHelloJudged(t *testing.T) {
	tests := map[string]struct {
		change func(*wire.Hello)
		code   frame.Code
	}{
		"version":  {func(h *wire.Hello) { h.Versions = wire.VersionRange{Min: 2, Max: 3} }, frame.Version},
		"gateway":  {func(h *wire.Hello) { h.Gateway = "B" }, frame.IdentityMismatch},
		"domain":   {func(h *wire.Hello) { h.Domain = "b.example" }, frame.IdentityMismatch},
		"role":     {func(h *wire.Hello) { h.Role = wire.RolePeer }, frame.Policy},
		"clock":    {func(h *wire.Hello) { h.Now += 121 }, frame.ClockSkew},
		"clock -":  {func(h *wire.Hello) { h.Now -= 121 }, frame.ClockSkew},
		"accepted": {func(h *wire.Hello) { h.Now += 120; h.Versions.Max = 9 }, frame.OK},
	}
	for name, tt := range tests {
		b := newBench(t)
		b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
		h := b.hello("A", "a.example")
		tt.change(h)
		b.receive(1, h)
		if code, _ := b.closed(1); code != tt.code {
			t.Errorf("%s: %v, want %v", name, code, tt.code)
		}
	}
	b := newBench(t)
	b.step(Connected{Conn: 1, Gateway: "C", Domain: "c.example"})
	b.mustClose(1, frame.TrustDenied)
}

func TestRolesMatch(t *testing.T) {
	for mine := wire.RolePeer; mine <= wire.RoleProvider; mine++ {
		for theirs := wire.RoleInternal; theirs <= wire.RoleProvider; theirs++ {
			b := newBench(t, Neighbour{Domain: "a.example", Role: mine})
			b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
			if h := b.sent(1)[0].(*wire.Hello); h.Role != mine.Opposite() {
				t.Errorf("to a %v we say that we are %v", mine, h.Role)
			}
			h := b.hello("A", "a.example")
			h.Role = theirs
			b.receive(1, h)
			if _, closed := b.closed(1); closed == (mine == theirs) {
				t.Errorf("it is our %v and says it is our %v: closed %v", mine, theirs, closed)
			}
		}
	}
}

// Every frame in every state: what is illegal costs the peer its connection with code 05.
func TestStateTable(t *testing.T) {
	frames := map[string]func(*bench) wire.Message{
		"HELLO":      func(b *bench) wire.Message { return b.hello("A", "a.example") },
		"KEEPALIVE":  func(*bench) wire.Message { return &wire.Keepalive{} },
		"ACK":        func(*bench) wire.Message { return &wire.Ack{} },
		"ACK ahead":  func(b *bench) wire.Message { return &wire.Ack{Sess: b.r.sessions[1].tx.sess, Seq: 99} },
		"RESYNC":     func(*bench) wire.Message { return &wire.Resync{Mode: wire.ModeFull} },
		"GOODBYE":    func(*bench) wire.Message { return &wire.Goodbye{} },
		"BUNDLE":     func(*bench) wire.Message { return &wire.Bundle{Bundle: []byte{1}} },
		"SYNC_BEGIN": func(*bench) wire.Message { return &wire.SyncBegin{Mode: wire.ModeFull} },
		"ENTRIES":    func(*bench) wire.Message { return &wire.Entries{Seq: 1} },
		"SYNC_END":   func(*bench) wire.Message { return &wire.SyncEnd{Seq: 1} },
	}
	up := func(b *bench) {
		b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
		b.receive(1, b.hello("A", "a.example"))
	}
	states := map[string]func(*bench){
		"OPEN":  func(b *bench) { b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"}) },
		"UP":    up,
		"SYNC":  func(b *bench) { up(b); b.begin(1) },
		"LIVE":  func(b *bench) { up(b); b.begin(1); b.receive(1, &wire.SyncEnd{Seq: 1}) },
		"DRAIN": func(b *bench) { up(b); b.receive(1, &wire.Goodbye{Kind: wire.LeaveRestart, RestartMS: 1000}) },
	}
	legal := map[string]string{ // per state, the frames after which the connection stands
		"OPEN":  "HELLO",
		"UP":    "KEEPALIVE ACK RESYNC GOODBYE BUNDLE SYNC_BEGIN",
		"SYNC":  "KEEPALIVE ACK RESYNC GOODBYE BUNDLE SYNC_BEGIN ENTRIES SYNC_END",
		"LIVE":  "KEEPALIVE ACK RESYNC GOODBYE BUNDLE SYNC_BEGIN ENTRIES SYNC_END",
		"DRAIN": "KEEPALIVE ACK RESYNC GOODBYE BUNDLE SYNC_BEGIN",
	}
	for state, enter := range states {
		for name, make := range frames {
			b := newBench(t)
			enter(b)
			b.effects = nil
			b.receive(1, make(b))
			code, closed := b.closed(1)
			if want := !strings.Contains(" "+legal[state]+" ", " "+name+" "); closed != want {
				t.Errorf("%s in %s: closed %v with %v", name, state, closed, code)
			}
			if closed && code != frame.UnexpectedFrame && name != "ACK ahead" {
				t.Errorf("%s in %s: code %v", name, state, code)
			}
		}
	}
}

func TestTimersEndSessions(t *testing.T) {
	b := newBench(t)
	b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
	b.wait(4999 * time.Millisecond)
	if _, closed := b.closed(1); closed {
		t.Fatal("closed before 5 s")
	}
	b.wait(time.Millisecond)
	b.mustClose(1, frame.HelloTimeout)
	b.connect(2, "A", "a.example")
	b.receive(2, &wire.SyncEnd{Seq: 1})
	b.wait(29 * time.Second)
	b.receive(2, &wire.Keepalive{})
	b.wait(29 * time.Second)
	if _, closed := b.closed(2); closed {
		t.Fatal("closed though it lives")
	}
	b.wait(time.Second)
	b.mustClose(2, frame.HoldExpired)
}

func TestCase08LostAcks(t *testing.T) {
	b := newBench(t)
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: items(600)}}})
	b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
	h := b.hello("A", "a.example")
	h.Limits.MaxInflight, h.Limits.MaxEntries = 2, 1000
	b.receive(1, h)
	if n := len(entriesOf(b.sent(1))); n != 2 {
		t.Fatalf("%d frames without an acknowledgement, the credit is 2", n)
	}
	for range 2 {
		b.wait(14 * time.Second)
		b.receive(1, &wire.Keepalive{})
	}
	b.wait(1999 * time.Millisecond)
	if _, closed := b.closed(1); closed {
		t.Fatal("closed before 30 s")
	}
	b.wait(time.Millisecond)
	b.mustClose(1, frame.SendStalled)
}

var anyScope = wire.Scope{Visibility: wire.VisibleAny, MaxHops: 7, Level: wire.LevelCoarse}

func items(n int) []wire.Item {
	out := make([]wire.Item, n)
	for i := range out {
		label := fmt.Sprintf("label-%03d", i)
		out[i] = wire.Item{Key: wire.ItemKey(label, "tag", wire.LevelCoarse), NS: "tag", Label: label}
	}
	return out
}

func entriesOf(msgs []wire.Message) (out []*wire.Entries) {
	for _, m := range msgs {
		if e, ok := m.(*wire.Entries); ok {
			out = append(out, e)
		}
	}
	return out
}

// The window moves on with acknowledgements, and the last frame is SYNC_END with the table's hash.
func TestWindowMovesOn(t *testing.T) {
	b := newBench(t)
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: items(600)}}})
	b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
	h := b.hello("A", "a.example")
	h.Limits.MaxInflight, h.Limits.MaxEntries = 1, 1000
	b.receive(1, h)
	for seq := uint64(1); seq <= 4; seq++ {
		b.receive(1, &wire.Ack{Sess: b.r.sessions[1].tx.sess, Seq: seq, Credit: 1})
	}
	msgs := b.sent(1)
	end, ok := msgs[len(msgs)-1].(*wire.SyncEnd)
	if !ok || end.Count != 600 || end.Seq != 4 || len(entriesOf(msgs)) != 3 {
		t.Fatalf("%d frames of entries, last %+v", len(entriesOf(msgs)), msgs[len(msgs)-1])
	}
	if st := b.r.Snapshot().Neighbours[0]; !st.Acked || st.Sent != 600 {
		t.Errorf("status %+v", st)
	}
}

func TestRefusedKeyIsNotSentAgainUntilItChanges(t *testing.T) {
	b := newBench(t)
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: items(2)}}})
	b.connect(1, "A", "a.example")
	tx := &b.r.sessions[1].tx
	ref := Ref{Origin: "ME", Key: items(1)[0].Key}
	b.receive(1, &wire.Ack{Sess: tx.sess, Seq: 2, Credit: 64, Nacks: []wire.Nack{{Origin: "ME", Key: ref.Key, Code: frame.Policy}}})
	if st := b.r.Snapshot().Neighbours[0]; st.Sent != 1 || st.Refused != 1 || st.LastRefusal != frame.Policy || !st.Acked {
		t.Fatalf("status %+v", st)
	}
	b.effects = nil
	b.r.mark(b.now, b.r.sessions[1], b.r.dests[ref])
	b.wait(3 * time.Second)
	if got := entriesOf(b.sent(1)); got != nil {
		t.Fatalf("sent again: %+v", got)
	}
	changed := items(2)
	changed[0].Count = 1
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: changed}}})
	b.wait(3 * time.Second)
	if got := entriesOf(b.sent(1)); len(got) != 1 || tx.out[ref] == nil {
		t.Fatalf("the new content is not sent: %+v", got)
	}
}

// Many changes within a second travel as one; a withdrawal waits 100 ms only.
func TestCoalescing(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	set := func(count uint8, n int) {
		its := items(n)
		for i := range its {
			its[i].Count = count
		}
		b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: its}}})
	}
	set(0, 2)
	b.wait(10 * time.Millisecond)
	b.effects = nil
	for i := range 20 {
		set(uint8(i%3), 2)
		b.wait(30 * time.Millisecond)
	}
	if got := entriesOf(b.sent(1)); got != nil {
		t.Fatalf("%d frames within 0.7 s", len(got))
	}
	b.wait(400 * time.Millisecond)
	if got := entriesOf(b.sent(1)); len(got) != 1 || len(got[0].Entries) != 2 {
		t.Fatalf("frames after a second: %+v", got)
	}
	b.effects = nil
	set(1, 1)
	b.wait(99 * time.Millisecond)
	if got := entriesOf(b.sent(1)); got != nil {
		t.Fatal("withdrawal before 100 ms")
	}
	b.wait(time.Millisecond)
	got := entriesOf(b.sent(1))
	if len(got) != 1 || len(got[0].Entries) != 1 {
		t.Fatalf("withdrawal: %+v", got)
	}
	if e, err := wire.ParseEntry(got[0].Entries[0]); err != nil || e.Op != wire.OpDel || len(got[0].Batches) != 1 {
		t.Errorf("withdrawal is %+v, %v", e, err)
	}
}

func TestSequenceGap(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.receive(1, &wire.Entries{Seq: 2})
	var stopped bool
	for _, e := range b.effects {
		if s, ok := e.(StopDigest); ok && s.Code == frame.SeqGap {
			stopped = true
		}
	}
	msgs := b.sent(1)
	if m, ok := msgs[len(msgs)-1].(*wire.Resync); !stopped || !ok || m.Reason != frame.SeqGap {
		t.Fatalf("stopped %v, last %+v", stopped, msgs[len(msgs)-1])
	}
	b.receive(1, &wire.Entries{Seq: 3}) // the rest of the old stream
	b.begin(1)
	batch := b.batchOf("A", nil, digestItem("x", 1))
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example"))
	b.mustKnow("A/x via A")
}

// A table that differs is asked for anew at most once a minute; the third time within an hour somebody must look.
func TestCase13TablesDiffer(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.receive(1, &wire.SyncEnd{Seq: 1})
	wrong := wire.ID16{1}
	alive := func() { b.receive(1, &wire.Keepalive{TableHash: &wrong}) }
	resyncs := func() (n int) {
		for _, m := range b.sent(1) {
			if _, ok := m.(*wire.Resync); ok {
				n++
			}
		}
		return n
	}
	live := func() { b.begin(1); b.receive(1, &wire.SyncEnd{Seq: 1}) }
	alive()
	alive()
	if resyncs() != 1 {
		t.Fatalf("%d RESYNC", resyncs())
	}
	live()
	alive()
	if resyncs() != 1 {
		t.Fatal("again within a minute")
	}
	for i := range 2 {
		for range 3 {
			b.wait(20 * time.Second)
			b.alive(1)
		}
		live()
		alive()
		if resyncs() != 2+i {
			t.Fatalf("%d RESYNC, want %d", resyncs(), 2+i)
		}
	}
	if got := b.alarms(); len(got) != 1 {
		t.Errorf("alarms %v", got)
	}
}

func TestBundleBringsTheKey(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	batch := b.batchOf("C", nil, digestItem("x", 1))
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example", "c.example"))
	b.mustNack(1, "C 2B")
	b.step(KeysChanged{}) // not the key that is missing
	if got := b.sent(1); got != nil {
		t.Fatalf("sent %+v", got)
	}
	b.keys["C"] = "c.example"
	b.step(KeysChanged{})
	if m, ok := b.sent(1)[0].(*wire.Resync); !ok || m.Mode != wire.ModeFull || m.Reason != frame.UnknownKey {
		t.Fatalf("sent %+v", b.sent(1))
	}
	b.begin(1)
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example", "c.example"))
	b.mustNack(1)
	b.mustKnow("C/x via A")

	delete(b.keys, "C") // its trust goes, and everything that stood on it
	b.step(KeysChanged{})
	b.mustKnow()
	b.mustNack(1, "C 2B")
	b.keys["C"] = "c.example"
	b.step(KeysChanged{})
	b.begin(1)
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example", "c.example"))
	b.mustKnow("C/x via A")
}

func TestGoodbye(t *testing.T) {
	for kind, want := range map[wire.Leaving][2]int{ // entries after GOODBYE, and after the connection is gone
		wire.LeaveRestart: {1, 1}, wire.LeaveDrain: {1, 0}, wire.LeaveHard: {0, 0},
	} {
		b := newBench(t)
		b.connect(1, "A", "a.example")
		batch := b.batchOf("A", nil, digestItem("x", 1))
		b.entries(1, [][]byte{batch}, put(batch, 0, "a.example"))
		b.receive(1, &wire.Goodbye{Kind: kind, RestartMS: 10_000})
		first := len(b.labels())
		b.step(Disconnected{Conn: 1})
		if got := [2]int{first, len(b.labels())}; got != want {
			t.Errorf("kind %d: %v, want %v", kind, got, want)
		}
		b.wait(10 * time.Second)
		b.mustKnow()
	}
}

func TestCase06TrustRemoved(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	batch := b.batchOf("A", nil, digestItem("x", 1))
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example"))
	b.step(SetNeighbours{})
	b.mustClose(1, frame.TrustDenied)
	b.mustKnow()
}

func TestCollision(t *testing.T) {
	tests := map[string]struct {
		firstDialled, secondDialled bool
		boot                        byte
		age                         time.Duration
		alive                       bool
		keepSecond                  bool
		younger                     time.Duration
	}{
		// The neighbour is A, we are ME: A is smaller, so of two young ones the one that A dialled stays.
		"both at once, ours first":   {firstDialled: true, keepSecond: true},
		"both at once, theirs first": {secondDialled: true},
		"twice by them":              {},
		"it restarted":               {secondDialled: true, boot: 1, age: 10 * time.Second, alive: true, keepSecond: true},
		"the old one lives":          {firstDialled: true, age: 20 * time.Second, alive: true},
		"the old one is silent":      {firstDialled: true, age: 20 * time.Second, keepSecond: true},
		"younger certificates":       {firstDialled: true, age: 20 * time.Second, alive: true, younger: time.Hour, keepSecond: true},
		"older certificates":         {firstDialled: true, age: 20 * time.Second, alive: true, younger: -time.Hour},
	}
	for name, tt := range tests {
		b := newBench(t)
		until := start.Add(24 * time.Hour)
		b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example", Dialled: tt.firstDialled, Until: until})
		b.receive(1, b.hello("A", "a.example"))
		b.wait(tt.age)
		if tt.alive {
			b.receive(1, &wire.Keepalive{})
		}
		b.step(Connected{Conn: 2, Gateway: "A", Domain: "a.example", Dialled: tt.secondDialled, Until: until.Add(tt.younger)})
		h := b.hello("A", "a.example")
		h.BootID[0] = tt.boot
		b.receive(2, h)
		loser := uint64(2)
		if tt.keepSecond {
			loser = 1
		}
		t.Run(name, func(t *testing.T) {
			b.t = t
			if tt.younger > 0 {
				b.mustRetire(loser)
			} else {
				b.mustClose(loser, frame.Collision)
			}
		})
		if b.r.peers["A"].session == nil || b.r.peers["A"].session.conn == loser {
			t.Errorf("%s: no session is left", name)
		}
	}
	if KeepsDialled("ME", "A") || !KeepsDialled("A", "ME") {
		t.Error("the two ends do not keep the same connection")
	}
}

// Own keys that stay the same keep their version; the others' batches are signed anew when more than half is superseded.
func TestOwnDigests(t *testing.T) {
	b := newBench(t)
	version := func(label string) uint64 {
		return b.r.own[wire.ItemKey(label, "tag", wire.LevelCoarse)].item.OSeq
	}
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: items(10)}}})
	v := version("label-009")
	first := b.r.own[items(10)[9].Key].batch
	changed := items(10)
	for i := range 6 {
		changed[i].Count = 2
	}
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: changed}}})
	if version("label-009") != v || version("label-000") <= v {
		t.Errorf("versions: %d stays %d, changed one %d", version("label-009"), v, version("label-000"))
	}
	if b.r.own[items(10)[9].Key].batch == first {
		t.Error("a batch of which most is superseded is kept")
	}
	narrow := anyScope
	narrow.Visibility, narrow.Allow = wire.VisibleListed, []string{"b.example"}
	b.step(SetOwn{Groups: []wire.Group{{Scope: narrow, Items: changed}}})
	if version("label-009") == v {
		t.Error("another scope is no new version")
	}
	if err := b.r.Step(b.now, SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: append(items(1), items(1)...)}}}); err == nil {
		t.Error("a key twice is accepted")
	}
	if err := b.r.Step(b.now, SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: []wire.Item{{Label: strings.Repeat("x", 200), NS: "tag"}}}}}); err == nil {
		t.Error("a label over its limit is accepted")
	}
}

// labelled is items of other labels than those of items.
func labelled(labels ...string) (out []wire.Item) {
	for _, l := range labels {
		out = append(out, wire.Item{Key: wire.ItemKey(l, "tag", wire.LevelCoarse), NS: "tag", Label: l})
	}
	return out
}

// One group or item that breaks the protocol is left out, and withdrawn where it was told before; all else is published, then and
// later.
func TestOwnDigestsOneBadAmongThem(t *testing.T) {
	listed := func(allow ...string) wire.Scope {
		return wire.Scope{Visibility: wire.VisibleListed, Allow: allow, MaxHops: 7, Level: wire.LevelCoarse}
	}
	many := make([]string, wire.MaxAllow+1)
	for i := range many {
		many[i] = fmt.Sprintf("d%d.example", i)
	}
	wrongKey := labelled("bad")
	wrongKey[0].Key = wire.ItemKey("bad", "tag", wire.LevelFull)
	tooLong := labelled(strings.Repeat("x", wire.MaxLabel+1) + "bad")
	manyModes := labelled("bad")
	manyModes[0].Modes = &wire.Modes{In: many[:wire.MaxModes+1]}
	sketchWithLabel := labelled("bad")
	sketchWithLabel[0].Sketch, sketchWithLabel[0].SketchAlg = []byte{1}, 1
	for name, bad := range map[string]wire.Group{
		"listed for nobody":      {Scope: listed(), Items: labelled("bad")},
		"listed for a long name": {Scope: listed(strings.Repeat("x", 254)), Items: labelled("bad")},
		"listed for no name":     {Scope: listed(""), Items: labelled("bad")},
		"listed for no text":     {Scope: listed("\xff.example"), Items: labelled("bad")},
		"listed for too many":    {Scope: listed(many...), Items: labelled("bad")},
		"unknown visibility":     {Scope: wire.Scope{Visibility: 3, Level: wire.LevelCoarse}, Items: labelled("bad")},
		"too many hops":          {Scope: wire.Scope{Visibility: wire.VisibleAny, MaxHops: 8, Level: wire.LevelCoarse}, Items: labelled("bad")},
		"key of another level":   {Scope: anyScope, Items: wrongKey},
		"label too long":         {Scope: anyScope, Items: tooLong},
		"too many media types":   {Scope: anyScope, Items: manyModes},
		"sketch with a label":    {Scope: anyScope, Items: sketchWithLabel},
		"key twice":              {Scope: anyScope, Items: labelled("b", "bad", "bad")[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.connect(1, "A", "a.example")
			b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: labelled("a", "bad", "old")}}})
			set := func(groups ...wire.Group) error {
				err := b.r.Step(b.now, SetOwn{Groups: groups})
				b.effects = append(b.effects, b.r.Ready()...)
				b.wait(2 * time.Second)
				b.ack(1)
				return err
			}
			// Groups before the bad one and after it are published.
			err := set(wire.Group{Scope: anyScope, Items: labelled("a", "b")}, bad, wire.Group{Scope: listed("a.example"), Items: labelled("c", "d")})
			if err == nil || !strings.Contains(err.Error(), `bad"`) {
				t.Errorf("the error does not name what is wrong: %v", err)
			}
			out := b.r.sessions[1].tx.out
			want := map[string]bool{"a": true, "b": true, "c": true, "d": true, "old": false, "bad": name == "key twice"}
			for label, want := range want {
				key := labelled(label)[0].Key
				if got := out[Ref{Origin: "ME", Key: key}] != nil; got != want {
					t.Errorf("%s is told: %v, want %v", label, got, want)
				}
				if it := b.r.own[key]; it == nil || it.batch == nil || (it.item.Kind == wire.KindDigest) != want {
					t.Errorf("own %s: %+v", label, it)
				}
			}
			if err := set(wire.Group{Scope: anyScope, Items: labelled("a", "bad")}); err != nil {
				t.Fatal(err)
			}
			if out[Ref{Origin: "ME", Key: labelled("bad")[0].Key}] == nil || out[Ref{Origin: "ME", Key: labelled("b")[0].Key}] != nil {
				t.Error("what was wrong is not told once it is right")
			}
		})
	}
}

// What could not be signed does not count as said: it is signed when it can be, tombstones too.
func TestOwnDigestsThatCannotBeSigned(t *testing.T) {
	b := newBench(t)
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: labelled("a", "gone")}}})
	good := b.r.cfg.Gateway
	oseq := b.r.oseq
	b.r.cfg.Gateway = "" // no batch can be made
	groups := []wire.Group{{Scope: anyScope, Items: labelled("a", "b")}}
	if err := b.r.Step(b.now, SetOwn{Groups: groups}); err == nil || b.r.oseq != oseq {
		t.Fatalf("error %v, version %d", err, b.r.oseq)
	}
	b.wait(40 * time.Minute) // past the time at which batches are signed anew
	if got := b.alarms(); len(got) != 1 {
		t.Errorf("alarms about digests that will expire: %q", got)
	}
	b.r.cfg.Gateway = good
	b.step(SetOwn{Groups: groups})
	for label, kind := range map[string]wire.Kind{"a": wire.KindDigest, "b": wire.KindDigest, "gone": wire.KindTombstone} {
		if it := b.r.own[labelled(label)[0].Key]; it == nil || it.batch == nil || it.item.Kind != kind {
			t.Errorf("%s: %+v", label, it)
		}
	}
}

// Items of the largest size fill as many batches as they need, each of which fits its frame.
func TestOwnBatchesKeepTheirSize(t *testing.T) {
	b := newBench(t)
	its := items(wire.MaxItems)
	for i := range its {
		its[i].Modes = &wire.Modes{}
		for m := range wire.MaxModes {
			mode := fmt.Sprintf("%064d", m)
			its[i].Modes.In, its[i].Modes.Out = append(its[i].Modes.In, mode), append(its[i].Modes.Out, mode)
		}
	}
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: its}}})
	for _, it := range b.r.own {
		if n := len(it.batch.raw); n > wire.MaxBatch+1024 {
			t.Fatalf("a batch of %d octets", n)
		}
	}
}

func TestSketchTravelsAlone(t *testing.T) {
	b := newBench(t)
	sketch := wire.Item{Key: wire.ItemKey("", wire.SketchNS, wire.LevelCoarse), NS: wire.SketchNS, Sketch: []byte{1}, SketchAlg: 1}
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: append(items(3), sketch)}}})
	if n := b.r.own[sketch.Key].batch.size; n != 1 {
		t.Errorf("the sketch's batch holds %d items", n)
	}
	if n := b.r.own[items(1)[0].Key].batch.size; n != 3 {
		t.Errorf("the other batch holds %d items", n)
	}
}

func TestExportRules(t *testing.T) {
	roles := []wire.Role{wire.RoleCustomer, wire.RolePeer, wire.RoleProvider}
	for _, from := range roles {
		r := &Replica{rows: map[string]Neighbour{"a.example": {Domain: "a.example", Role: from}}}
		for _, to := range roles {
			for heard, by := range map[string]wire.Role{"here": from, "by another gateway of the domain": wire.RoleInternal} {
				rt := &route{peer: &peer{row: Neighbour{Role: by}}, path: []string{"a.example", "b.example"}}
				want := from == wire.RoleCustomer || to == wire.RoleCustomer
				if got := r.mayTransit(rt, Neighbour{Role: to, ExportTransit: true}); got != want {
					t.Errorf("from %v, heard %s, to %v: %v", from, heard, to, got)
				}
				if r.mayTransit(rt, Neighbour{Role: to}) {
					t.Errorf("from %v, heard %s, to %v without transit in the row", from, heard, to)
				}
			}
			own := &route{peer: &peer{row: Neighbour{Role: wire.RoleInternal}}}
			if !r.mayTransit(own, Neighbour{Role: to}) {
				t.Errorf("what another gateway of the domain says itself does not go to %v", to)
			}
		}
	}
	strange := &route{peer: &peer{row: Neighbour{Role: wire.RoleInternal}}, path: []string{"c.example"}}
	if r := new(Replica); r.mayTransit(strange, Neighbour{Role: wire.RolePeer, ExportTransit: true}) || !r.mayTransit(strange, Neighbour{Role: wire.RoleCustomer, ExportTransit: true}) {
		t.Error("what came in from a domain of which there is no row goes to others than customers")
	}
}

// Routes in the order in which they are chosen.
func TestRouteChoice(t *testing.T) {
	r := &Replica{rows: map[string]Neighbour{"customer": {Role: wire.RoleCustomer}, "peer": {Role: wire.RolePeer}}}
	from := func(role wire.Role, gateway string, metric uint32, stale bool, path ...string) *route {
		return &route{peer: &peer{gateway: gateway, row: Neighbour{Role: role}}, path: path, metric: metric, stale: stale}
	}
	order := []*route{
		from(wire.RoleInternal, "C", 900, false),
		from(wire.RoleCustomer, "D", 900, false, "customer"),
		from(wire.RoleInternal, "A", 10, false, "customer"),
		from(wire.RoleInternal, "B", 20, false, "customer"), // in the same step of the metric
		from(wire.RoleInternal, "A", 80, false, "customer"),
		from(wire.RoleCustomer, "A", 10, false, "customer", "x"),
		from(wire.RoleInternal, "A", 10, false, "customer", "x"),
		from(wire.RolePeer, "A", 10, false, "peer"),
		from(wire.RoleInternal, "A", 10, false, "peer"),
		from(wire.RoleInternal, "A", 10, false, "unknown"),
		from(wire.RoleInternal, "A", 10, true),
		from(wire.RoleCustomer, "A", 10, true, "customer"),
	}
	for i, a := range order {
		for j, b := range order {
			if got := r.better(a, b); got != (i < j) {
				t.Errorf("%d before %d: %v", i, j, got)
			}
		}
	}
}

func TestExportHonoursScope(t *testing.T) {
	tests := map[string]struct {
		change func(*wire.Batch)
		hops   uint8
		want   bool
	}{
		"any":                {nil, 6, true},
		"hops used up":       {nil, 0, false},
		"listed for B":       {func(b *wire.Batch) { b.Visibility, b.Allow = wire.VisibleListed, []string{"b.example", "me.example"} }, 6, true},
		"listed for us only": {func(b *wire.Batch) { b.Visibility, b.Allow = wire.VisibleListed, []string{"me.example"} }, 6, false},
		"level above":        {func(b *wire.Batch) { b.Level = wire.LevelFull }, 6, false},
	}
	for name, tt := range tests {
		b := newBench(t)
		b.connect(1, "A", "a.example")
		b.connect(2, "B", "b.example")
		it := digestItem("x", 1)
		if name == "level above" {
			it.Key = wire.ItemKey("x", "tag", wire.LevelFull)
			it.CHash, _ = it.ContentHash()
		}
		batch := b.batchOf("O", tt.change, it)
		e := put(batch, 0, "a.example", "o.example")
		e.Attrs.HopsLeft = tt.hops
		b.entries(1, [][]byte{batch}, e)
		b.mustKnow("O/x via A")
		b.wait(2 * time.Second)
		out := b.r.peers["B"].session.tx.out
		if got := len(out) == 1; got != tt.want {
			t.Errorf("%s: passed on %v", name, got)
		}
		for _, a := range out {
			if diff := cmp.Diff([]string{"me.example", "a.example", "o.example"}, a.path); diff != "" || a.attrs.HopsLeft != tt.hops-1 {
				t.Errorf("%s: path %s, %d hops left", name, diff, a.attrs.HopsLeft)
			}
		}
		if n := len(b.r.peers["A"].session.tx.out); n != 0 {
			t.Errorf("%s: sent back to where it came from", name)
		}
	}
}

func TestPolicyChangesLive(t *testing.T) {
	b := newBench(t)
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: items(1)}}})
	b.connect(1, "A", "a.example")
	out := func() int { b.wait(2 * time.Second); return len(b.r.peers["A"].session.tx.out) }
	if out() != 1 {
		t.Fatal("own digest is not sent")
	}
	row := Neighbour{Domain: "a.example", Role: wire.RoleCustomer, ExportTransit: true, ImportTransit: true, Level: wire.LevelClasses}
	b.step(SetNeighbours{Rows: []Neighbour{row}})
	if out() != 0 {
		t.Error("another level, and it is still there")
	}
	row.ImportTransit = false
	b.effects = nil
	b.step(SetNeighbours{Rows: []Neighbour{row}})
	if m, ok := b.sent(1)[0].(*wire.Resync); !ok || m.Reason != frame.Policy {
		t.Errorf("sent %+v", b.sent(1))
	}
	row.Role = wire.RolePeer
	b.step(SetNeighbours{Rows: []Neighbour{row}})
	b.mustClose(1, frame.Policy)
	if err := b.r.Step(b.now, SetNeighbours{Rows: []Neighbour{{Domain: "me.example", Role: wire.RolePeer}}}); err == nil {
		t.Error("our own domain as a peer is accepted")
	}
}

// mustRetire expects that a connection was given the time to end what runs on it, and was not closed.
func (b *bench) mustRetire(conn uint64) {
	b.t.Helper()
	if _, closed := b.closed(conn); closed {
		b.t.Fatalf("connection %d was closed at once", conn)
	}
	for _, e := range b.effects {
		if r, ok := e.(Retire); ok && r.Conn == conn {
			return
		}
	}
	b.t.Fatalf("connection %d was not retired", conn)
}
