package wire

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentgw/internal/frame"
)

var update = flag.Bool("update", false, "write testdata/vectors.txt anew")

const vectorFile = "testdata/vectors.txt"

func fill8(b byte) (id ID8)   { copy(id[:], bytes.Repeat([]byte{b}, 8)); return }
func fill16(b byte) (id ID16) { copy(id[:], bytes.Repeat([]byte{b}, 16)); return }

func testSigner() frame.Signer {
	return frame.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)))
}

const gw = "1.2.156.3088.1.1000.AG1"

func testItem(t testing.TB) *Item {
	it := &Item{Key: ItemKey("travel/hotel_booking", "oasf/1.1", LevelCoarse), OSeq: 5, Kind: KindDigest, NS: "oasf/1.1",
		Label: "travel/hotel_booking", Modes: &Modes{In: []string{"text/plain"}}, Count: 1}
	hash, err := it.ContentHash()
	if err != nil {
		t.Fatal(err)
	}
	it.CHash = hash
	return it
}

func testBatch(t testing.TB) []byte {
	tomb := &Item{Key: ItemKey("travel/flights", "oasf/1.1", LevelCoarse), OSeq: 6}
	b := &Batch{Origin: gw, Domain: "one.example", OEpoch: 1_700_000_000_000, NotBefore: 1_700_000_000, Expires: 1_700_003_600,
		Visibility: VisibleListed, Allow: []string{"two.example"}, MaxHops: 3, Level: LevelCoarse}
	signed, err := b.Sign(testSigner(), []*Item{testItem(t), tomb})
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func mustEntry(t testing.TB, e Entry) []byte {
	raw, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

type vector struct {
	name string
	msg  Message
}

func vectors(t testing.TB) []vector {
	table := fill16(3)
	batch := testBatch(t)
	alive, err := Keepalive{Epoch: fill8(1), RIBSeq: 9, TableHash: &table, Applied: 4, TimeMS: 1}.Padded()
	if err != nil {
		t.Fatal(err)
	}
	return []vector{
		{"HELLO", &Hello{Versions: VersionRange{Min: 1, Max: 1}, Gateway: gw, Domain: "one.example", BootID: fill16(2),
			Epoch: fill8(1), RIBSeq: 9, HoldMS: 30000, RestartMS: 120000, Role: RoleCustomer,
			Limits: Limits{10000, 64 << 20, MaxItem, 64}, Cookie: &Cookie{fill8(4), 7, table}, Now: 1_700_000_000,
			Sess: fill8(5), Trust: []TrustVersion{{Issuer: gw, BundleSeq: 2}}}},
		{"ACK", &Ack{Sess: fill8(5), Seq: 3, RIBSeq: 9, Credit: 64,
			Nacks: []Nack{{Origin: gw, Key: fill16(6), Code: frame.BadSignature, Msg: "signature"}}}},
		{"RESYNC", &Resync{Mode: ModeFull, Reason: frame.SeqGap}},
		{"GOODBYE", &Goodbye{Kind: LeaveRestart, RestartMS: 120000, Code: frame.Shutdown, Msg: "restart"}},
		{"KEEPALIVE", alive},
		{"STATUS", &Status{List: []byte{0xd2, 0x84}}},
		{"BUNDLE", &Bundle{Bundle: []byte{0xd2, 0x84}}},
		{"TRUST_GET", &TrustGet{Domain: "one.example", Issuer: gw, BundleSeq: 2, StatusSeq: 7}},
		{"MOVED", &Moved{AIC: gw, Version: 8, Base: 7}},
		{"SYNC_BEGIN", &SyncBegin{Sess: fill8(5), Mode: ModeFull, Epoch: fill8(1), Target: 9}},
		{"SYNC_BEGIN_delta", &SyncBegin{Sess: fill8(5), Mode: ModeDelta, Epoch: fill8(1), Base: 7, Target: 9}},
		{"ENTRIES", &Entries{Seq: 1, RIBSeq: 9, Batches: [][]byte{batch}, Entries: []cbor.RawMessage{
			mustEntry(t, Entry{Op: OpPut, Batch: BatchHash(batch), Path: []string{"one.example"}, Attrs: Attrs{HopsLeft: 3}}),
			mustEntry(t, Entry{Op: OpDel, Batch: BatchHash(batch), Index: 1, Path: []string{}, Attrs: Attrs{HopsLeft: 3, Stale: true, MetricMS: 12}}),
			mustEntry(t, Entry{Op: OpUnreach, Origin: gw, Key: fill16(6)}),
		}}},
		{"SYNC_END", &SyncEnd{Seq: 2, RIBSeq: 9, Count: 1, TableHash: table}},
	}
}

func TestVectors(t *testing.T) {
	var text strings.Builder
	for _, v := range vectors(t) {
		b, err := Append(nil, v.msg)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		fmt.Fprintf(&text, "%s %s\n", v.name, hex.EncodeToString(b))
	}
	fmt.Fprintf(&text, "batch %s\n", hex.EncodeToString(testBatch(t)))
	if *update {
		if err := os.WriteFile(vectorFile, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("bytes changed (-file +now):\n%s", diff)
	}
}

// split takes the payload out of one whole frame.
func split(t testing.TB, b []byte) (frame.Type, []byte) {
	typ, payload, err := frame.NewReader(bytes.NewReader(b)).Next()
	if err != nil {
		t.Fatal(err)
	}
	return typ, bytes.Clone(payload)
}

func TestParseReturnsWhatWasAppended(t *testing.T) {
	for _, v := range vectors(t) {
		b, err := Append(nil, v.msg)
		if err != nil {
			t.Fatal(err)
		}
		typ, payload := split(t, b)
		got, err := Parse(typ, payload)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if diff := cmp.Diff(v.msg, got, cmpopts.IgnoreUnexported(VersionRange{}, TrustVersion{}, Nack{})); diff != "" {
			t.Errorf("%s changed (-sent +got):\n%s", v.name, diff)
		}
	}
}

func TestEveryTruncationFails(t *testing.T) {
	for _, v := range vectors(t) {
		b, _ := Append(nil, v.msg)
		typ, payload := split(t, b)
		for n := range payload {
			if _, err := Parse(typ, payload[:n]); frame.CodeOf(err) != frame.Malformed {
				t.Fatalf("%s cut to %d octets: %v", v.name, n, err)
			}
		}
	}
	batch := testBatch(t)
	for n := range batch {
		if _, err := frame.ParseSigned(batch[:n]); err == nil {
			t.Fatalf("batch cut to %d octets parses", n)
		}
	}
	s, err := frame.ParseSigned(batch)
	if err != nil {
		t.Fatal(err)
	}
	for n := range s.Payload {
		if _, err := ParseBatch(s.Payload[:n]); err == nil {
			t.Fatalf("batch payload cut to %d octets parses", n)
		}
	}
}

func TestEntryRoundTripAndTruncation(t *testing.T) {
	for _, e := range []Entry{
		{Op: OpPut, Batch: fill16(1), Index: 255, Path: []string{"a.example", "b.example"}, Attrs: Attrs{HopsLeft: 2}},
		{Op: OpDel, Batch: fill16(1), Path: []string{}, Attrs: Attrs{MetricMS: 70000, Stale: true}},
		{Op: OpUnreach, Origin: gw, Key: fill16(9)},
	} {
		raw := mustEntry(t, e)
		got, err := ParseEntry(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Error(diff)
		}
		for n := range raw {
			if _, err := ParseEntry(raw[:n]); err == nil {
				t.Fatalf("entry cut to %d octets parses", n)
			}
		}
	}
}

func TestEntryRefused(t *testing.T) {
	long := make([]string, MaxPath+1)
	for i := range long {
		long[i] = fmt.Sprintf("d%d.example", i)
	}
	for name, c := range map[string]struct {
		raw  []byte
		code frame.Code
	}{
		"unknown operation": {mustHex("8205820041"), frame.Malformed},
		"long path":         {mustEntry(t, Entry{Path: long}), frame.BadPath},
		"empty domain":      {mustEntry(t, Entry{Path: []string{""}}), frame.Malformed},
		"index":             {mustEntry(t, Entry{Index: MaxItems}), frame.Malformed},
		"short with path":   {mustEntry(t, Entry{Op: OpUnreach}), frame.Malformed},
		"not an array":      {mustHex("00"), frame.Malformed},
	} {
		if _, err := ParseEntry(c.raw); frame.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
	}
}

func mustHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func TestBatchItems(t *testing.T) {
	s, key, err := frame.Open(testBatch(t), frame.AADDigest, func(id frame.KeyID) (frame.VerifyKey, bool) {
		return frame.VerifyKey{Public: testSigner().Public(), Owner: gw}, id == testSigner().KeyID()
	})
	if err != nil || key.Owner != gw {
		t.Fatal(err)
	}
	b, err := ParseBatch(s.Payload)
	if err != nil {
		t.Fatal(err)
	}
	it, err := b.Item(0)
	if err != nil {
		t.Fatal(err)
	}
	want := testItem(t)
	want.Modes.Out = []string{}
	if diff := cmp.Diff(want, it, cmpopts.IgnoreUnexported(Modes{})); diff != "" {
		t.Error(diff)
	}
	if tomb, err := b.Item(1); err != nil || tomb.Kind != KindTombstone || tomb.OSeq != 6 {
		t.Errorf("tombstone: %+v, %v", tomb, err)
	}
	if _, err := b.Item(2); err == nil {
		t.Error("item 2 of 2 exists")
	}
}

func TestItemRefused(t *testing.T) {
	sign := func(change func(*Item)) error {
		it := testItem(t)
		change(it)
		b := &Batch{Origin: gw, Domain: "one.example", Visibility: VisibleAny, Level: LevelCoarse}
		if _, err := b.Sign(testSigner(), []*Item{it, testItem(t)}); err != nil {
			t.Fatal(err)
		}
		_, err := b.Item(0)
		return err
	}
	rehash := func(it *Item) { it.CHash, _ = it.ContentHash() }
	for name, change := range map[string]func(*Item){
		"wrong hash":            func(it *Item) { it.CHash[0]++ },
		"wrong key":             func(it *Item) { it.Key[0]++; rehash(it) },
		"long label":            func(it *Item) { it.Label = strings.Repeat("x", MaxLabel+1); rehash(it) },
		"count bucket":          func(it *Item) { it.Count = 4; rehash(it) },
		"no taxonomy":           func(it *Item) { it.NS = ""; rehash(it) },
		"kind":                  func(it *Item) { it.Kind = 2; rehash(it) },
		"sketch with label":     func(it *Item) { it.Sketch = []byte{1}; rehash(it) },
		"sketch not alone":      func(it *Item) { *it = sketchItem(); rehash(it) },
		"too many terms":        func(it *Item) { it.Terms = make([]string, MaxTerms+1); rehash(it) },
		"empty term":            func(it *Item) { it.Terms = []string{""}; rehash(it) },
		"sketch over its limit": func(it *Item) { it.Sketch = make([]byte, MaxSketch+1); rehash(it) },
	} {
		if err := sign(change); frame.CodeOf(err) != frame.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := sign(func(it *Item) { it.Sketch = make([]byte, MaxItem) }); frame.CodeOf(err) != frame.EntryTooLarge {
		t.Errorf("item over its limit: %v", err)
	}
	if err := sign(func(*Item) {}); err != nil {
		t.Errorf("unchanged item: %v", err)
	}
}

func sketchItem() Item {
	return Item{Key: ItemKey("", SketchNS, LevelCoarse), OSeq: 1, Kind: KindDigest, NS: SketchNS, Sketch: []byte{1}, SketchAlg: SketchTerms}
}

// An item's key 3 in a spelling that re-encodes to something else must not get a second address.
func TestPayloadHasOneForm(t *testing.T) {
	tomb := mustHex("a303501111111111111111111111111111111105010800")
	var it Item
	if err := it.UnmarshalCBOR(tomb); err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string]string{
		"empty label present":   "a4035011111111111111111111111111111111050108000a60",
		"tombstone with count":  "a4035011111111111111111111111111111111050108000f00",
		"kind absent":           "a203501111111111111111111111111111111105" + "01",
		"integer in long form":  "a30350111111111111111111111111111111110518010800",
		"key not in order":      "a305010350111111111111111111111111111111110800",
		"key of another length": "a3034f111111111111111111111111111111" + "05010800",
	} {
		if err := it.UnmarshalCBOR(mustHex(raw)); frame.CodeOf(err) != frame.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A later version's key below 128 is read past.
	if err := it.UnmarshalCBOR(mustHex("a403501111111111111111111111111111111105010800181a00")); err != nil {
		t.Errorf("unknown key: %v", err)
	}
	if err := it.UnmarshalCBOR(mustHex("a403501111111111111111111111111111111105010800188000")); frame.CodeOf(err) != frame.CriticalUnknown {
		t.Errorf("critical key: %v", err)
	}
}

func TestMessageRefused(t *testing.T) {
	ok := vectors(t)[0].msg.(*Hello)
	hello := func(change func(*Hello)) Message { h := *ok; change(&h); return &h }
	for name, m := range map[string]Message{
		"role":            hello(func(h *Hello) { h.Role = 4 }),
		"empty gateway":   hello(func(h *Hello) { h.Gateway = "" }),
		"version range":   hello(func(h *Hello) { h.Versions.Min = 2 }),
		"nine trusts":     hello(func(h *Hello) { h.Trust = make([]TrustVersion, 9) }),
		"long domain":     hello(func(h *Hello) { h.Domain = strings.Repeat("a", 254) }),
		"features":        hello(func(h *Hello) { h.Features = make([]uint64, 33) }),
		"mode 1":          &Resync{Mode: 1},
		"goodbye kind":    &Goodbye{Kind: 3},
		"goodbye message": &Goodbye{Msg: strings.Repeat("x", 65)},
		"nacks":           &Ack{Nacks: make([]Nack, 257)},
		"nack message":    &Ack{Nacks: []Nack{{Msg: strings.Repeat("x", 65)}}},
		"empty bundle":    &Bundle{},
		"empty list":      &Status{},
		"large list":      &Status{List: make([]byte, MaxStatus+1)},
		"no domain":       &TrustGet{Issuer: gw},
		"no version":      &Moved{AIC: gw},
		"version run up":  &Moved{AIC: gw, Version: MaxVersion + 1},
		"base above":      &Moved{AIC: gw, Version: 1, Base: 2},
		"nobody moved":    &Moved{Version: 1},
		"long issuer":     &TrustGet{Domain: "one.example", Issuer: strings.Repeat("A", MaxAIC+1)},
		"padding":         &Keepalive{Pad: make([]byte, 49)},
	} {
		payload, err := frame.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(m.FrameType(), payload); frame.CodeOf(err) != frame.Malformed {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Append(nil, m); err == nil {
			t.Errorf("%s is written", name)
		}
	}
	if _, err := Parse(frame.SREQ, []byte{0xa0}); frame.CodeOf(err) != frame.UnexpectedFrame {
		t.Errorf("SREQ: %v", err)
	}
}

func TestKeepaliveIsLargeEnoughForAStatelessReset(t *testing.T) {
	for _, m := range []Keepalive{{}, {RIBSeq: 1 << 40, TimeMS: 1 << 40, EchoMS: 1 << 40}, {Trust: []TrustVersion{{Issuer: gw}}}} {
		padded, err := m.Padded()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := Append(nil, padded); err != nil || len(b) < minAlive {
			t.Errorf("%d octets, %v", len(b), err)
		}
	}
}

func TestBuilderStaysBelowTheFrameLimit(t *testing.T) {
	big := make([]byte, frame.MaxSigned)
	var b Builder
	entry := mustEntry(t, Entry{Op: OpUnreach, Origin: gw})
	if !b.Fits(len(entry), big) {
		t.Fatal("the largest batch does not fit an empty frame")
	}
	b.Add(entry, big)
	for b.Fits(len(entry), nil) {
		b.Add(entry, nil)
	}
	b.Frame.Seq, b.Frame.RIBSeq = 1<<60, 1<<60
	if _, err := Append(nil, &b.Frame); err != nil {
		t.Fatal(err)
	}
	if len(b.Frame.Entries) != MaxEntries {
		t.Errorf("frame holds %d entries", len(b.Frame.Entries))
	}
}

func FuzzCDSPWire(f *testing.F) {
	for _, v := range vectors(f) {
		b, err := Append(nil, v.msg)
		if err != nil {
			f.Fatal(err)
		}
		typ, payload := split(f, b)
		f.Add(uint64(typ), payload)
	}
	f.Fuzz(func(t *testing.T, typ uint64, payload []byte) {
		m, err := Parse(frame.Type(typ), payload)
		if err != nil {
			return
		}
		b, err := frame.Marshal(m)
		if err != nil {
			t.Fatalf("parsed, but does not encode: %v", err)
		}
		again, err := Parse(frame.Type(typ), b)
		if err != nil {
			t.Fatalf("encoded, but does not parse: %v", err)
		}
		if b2, err := frame.Marshal(again); err != nil || !bytes.Equal(b, b2) {
			t.Fatalf("two encodings of one message: %x %x (%v)", b, b2, err)
		}
		if e, ok := m.(*Entries); ok {
			fuzzEntries(t, e)
		}
	})
}

func fuzzEntries(t *testing.T, m *Entries) {
	for _, raw := range m.Entries {
		e, err := ParseEntry(raw)
		if err != nil {
			continue
		}
		if b, err := e.Append(nil); err != nil {
			t.Fatalf("entry does not encode: %x (%v)", b, err)
		} else if again, err := ParseEntry(b); err != nil || !cmp.Equal(e, again, cmpopts.EquateEmpty()) {
			t.Fatalf("entry changed: %+v %+v (%v)", e, again, err)
		}
	}
}

func FuzzBatch(f *testing.F) {
	s, err := frame.ParseSigned(testBatch(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Payload)
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := ParseBatch(payload)
		if err != nil {
			return
		}
		for i := range b.Raw {
			it, err := b.Item(i)
			if err != nil {
				continue
			}
			raw, err := it.MarshalCBOR()
			var again Item
			if err != nil || again.UnmarshalCBOR(raw) != nil && len(raw) == len(b.Raw[i]) {
				t.Fatalf("item does not read back: %x (%v)", raw, err)
			}
		}
	})
}
