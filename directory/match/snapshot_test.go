package match

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"agentgw/directory"
	"agentgw/directory/match/table"
	"agentgw/directory/snapshot"

	"github.com/google/go-cmp/cmp"
)

// block is one of a snapshot in memory.
type block struct {
	kind byte
	body []byte
}

func blocksOf(t testing.TB, x *Index) (out []block) {
	t.Helper()
	if err := x.Snapshot(func(kind byte, body []byte) error {
		out = append(out, block{kind, slices.Clone(body)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func load(blocks []block) (*Index, error) {
	var l Loader
	for _, b := range blocks {
		l.Octets += int64(len(b.body))
	}
	for _, b := range blocks {
		p, err := l.Next(b.kind, b.body)
		if err != nil {
			return nil, err
		}
		if err := p.Read(b.body); err != nil {
			return nil, err
		}
		if err := l.Add(p); err != nil {
			return nil, err
		}
	}
	for _, f := range l.Tables() {
		f()
	}
	x := new(Index)
	return x, x.LoadSnapshot(&l)
}

// sampleIndex has several segments, dead documents, classes, a term with more postings than one run has, and lists that are empty or not there.
func sampleIndex(n int) *Index {
	x := new(Index)
	var caps []directory.Capability
	for i := range n {
		c := sample(i, fmt.Sprintf("Kite %d, getWeather_%d", i%7, i))
		switch i % 3 {
		case 0:
			c.Tags, c.Examples = nil, []string{}
		case 1:
			c.Classes, c.SkillID, c.In = []string{"language_processing/language_generation"}, "Weather.Get", []string{"text/plain"}
		}
		caps = append(caps, c)
	}
	x.Load(caps[:n/2])
	for _, c := range caps[n/2:] {
		x.Apply(Change{AIC: c.AIC, Caps: []directory.Capability{c}})
	}
	for i := 0; i < n; i += 5 {
		x.Apply(Change{AIC: caps[i].AIC})
	}
	return x
}

func TestSnapshotIsTheIndex(t *testing.T) {
	x := sampleIndex(400)
	y, err := load(blocksOf(t, x))
	if err != nil {
		t.Fatal(err)
	}
	if x.Fingerprint() != y.Fingerprint() || x.Len() != y.Len() || x.Agents() != y.Agents() {
		t.Errorf("%d capabilities of %d agents, then %d of %d", x.Len(), x.Agents(), y.Len(), y.Agents())
	}
	for _, q := range []Query{{Text: "kite 3 described"}, {Text: "Weather.Get", Tags: []string{"tag kite 3, getweather_66"}}, {Classes: []string{"language_processing"}},
		{Caps: []string{sample(7, "").CapID}}, {Text: "wheather"}} {
		q.Limit = 30
		want := x.Resolve(q)
		if diff := cmp.Diff(want, y.Resolve(q)); diff != "" {
			t.Errorf("%+v: %d candidates\n%s", q.Text, len(want), diff)
		}
	}
	c := sample(401, "boat") // it goes on as the other does
	for _, i := range []*Index{x, y} {
		i.Apply(Change{AIC: c.AIC, Caps: []directory.Capability{c}}, Change{AIC: sample(7, "").AIC})
	}
	if x.Fingerprint() != y.Fingerprint() || len(y.Resolve(Query{Text: "boat", Limit: 5})) != 1 {
		t.Error("after a change they differ")
	}
}

// A term of more postings than one run holds, and blocks in plenty.
func TestLargeSnapshot(t *testing.T) {
	var b Builder
	for i := range maxRun + 10 {
		b.Add(directory.Capability{AIC: fmt.Sprint("A", i), CapID: fmt.Sprint("C", i), Name: "kite"})
	}
	x := new(Index)
	x.LoadBuilt(&b)
	y, err := load(blocksOf(t, x))
	if err != nil || x.Fingerprint() != y.Fingerprint() {
		t.Errorf("%v", err)
	}
	if n := len(y.view().parts[0].terms["kite"]); n != maxRun+10 {
		t.Errorf("%d postings", n)
	}
}

// A fingerprint notices what is not the same.
func TestFingerprint(t *testing.T) {
	made := func() *Index {
		var b Builder
		for i := range 3 {
			c := sample(i, "Kite, getWeather")
			c.Classes, c.SkillID = []string{"language_processing/language_generation"}, "Weather.Get"
			b.Add(c)
		}
		x := new(Index)
		x.LoadBuilt(&b)
		return x
	}
	x := made()
	for name, spoil := range map[string]func(s *segment){
		"text":    func(s *segment) { s.docs[1].cap.Description = "another" },
		"weight":  func(s *segment) { s.terms["kite"][0].weight++ },
		"posting": func(s *segment) { s.terms["kite"] = s.terms["kite"][1:] },
		"pair":    func(s *segment) { delete(s.pairs, "skill kite") },
		"vector":  func(s *segment) { s.vecs.bytes[0]++ },
		"class":   func(s *segment) { delete(s.under, "language_processing") },
		"name":    func(s *segment) { delete(s.idents, "weather.get") },
		"agent":   func(s *segment) { delete(s.byAIC, s.docs[1].cap.AIC) },
		"capid":   func(s *segment) { delete(s.byCap, s.docs[1].cap.CapID) },
	} {
		y := made()
		if x.Fingerprint() != y.Fingerprint() {
			t.Fatal("the same differ")
		}
		if spoil(y.view().parts[0].segment); x.Fingerprint() == y.Fingerprint() {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// TestSnapshotFormat: what a text becomes, and its bytes, are what snapshotFormat stands for. Where this fails the next start would take an index
// that another program has made: give snapshotFormat the next number, then this test the new sum.
func TestSnapshotFormat(t *testing.T) {
	const format, want = 1, "45bb318dad6e5ede"
	var b Builder
	b.Add(sample(1, "Sells medicines, 3 getWeather_now 天气预报"))
	x := new(Index)
	x.LoadBuilt(&b)
	sum := sha256.New()
	postings := map[string][]string{}
	for _, bl := range blocksOf(t, x) {
		if bl.kind != BlockTerms && bl.kind != BlockPairs {
			write(sum, bl)
			continue
		}
		p := &Piece{kind: bl.kind} // their order is the map's
		if err := p.Read(bl.body); err != nil {
			t.Fatal(err)
		}
		for _, r := range p.terms {
			key := fmt.Sprint(bl.kind)
			postings[key] = append(postings[key], fmt.Sprint(r.term, r.list))
		}
	}
	for _, kind := range []byte{BlockTerms, BlockPairs} {
		list := postings[fmt.Sprint(kind)]
		slices.Sort(list)
		write(sum, block{kind, []byte(strings.Join(list, "\n"))})
	}
	if got := hex.EncodeToString(sum.Sum(nil)[:8]); got != want || snapshotFormat != format {
		t.Errorf("format %d is %s, want %s of %d", snapshotFormat, got, want, format)
	}
}

func write(sum hash.Hash, b block) {
	sum.Write([]byte{b.kind})
	binary.Write(sum, binary.BigEndian, uint64(len(b.body)))
	sum.Write(b.body)
}

// FuzzSnapshot: blocks come from a file that anything may have happened to.
func FuzzSnapshot(f *testing.F) {
	var seed []byte
	for _, b := range blocksOf(f, sampleIndex(3)) {
		seed = binary.BigEndian.AppendUint32(append(seed, b.kind), uint32(len(b.body)))
		seed = append(seed, b.body...)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, file []byte) {
		var blocks []block
		for len(file) >= 5 {
			n := min(int(binary.BigEndian.Uint32(file[1:])), len(file)-5)
			blocks = append(blocks, block{file[0], file[5 : 5+n]})
			file = file[5+n:]
		}
		x, err := load(blocks)
		if err != nil {
			return
		}
		x.Resolve(Query{Text: "kite weather described", Limit: 5})
		x.Fingerprint()
		x.Apply(Change{AIC: "A", Caps: []directory.Capability{sample(9, "kite")}})
		if _, err := load(blocksOf(t, x)); err != nil {
			t.Errorf("what was read cannot be written and read again: %v", err)
		}
	})
}

// A small snapshot of many segments, each of which claims as many terms as the whole file could hold.
func TestSegmentsClaimNoMoreThanTheFileHolds(t *testing.T) {
	dim := table.Builtin.Dim()
	const segments = 30
	l := Loader{Octets: 1 << 20}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range segments {
		claim := uint64(l.Octets / leastRun)
		head := binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, 1), claim), claim)
		if _, err := l.Next(BlockSegment, head); err != nil {
			t.Fatal(err)
		}
		var b []byte
		for i := range 10 {
			b = snapshot.AppendText(b, map[bool]string{true: "A", false: ""}[i == 0])
		}
		for range 6 {
			b = snapshot.AppendList(b, nil)
		}
		b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, 1), 1), 1)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(0.5))
		b = append(b, make([]byte, dim)...)
		body := append(binary.AppendUvarint(binary.AppendUvarint(nil, 1), uint64(dim)), b...)
		p, err := l.Next(BlockDocs, body)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Read(body); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(&l)
	if got := after.TotalAlloc - before.TotalAlloc; got > 100<<20 {
		t.Errorf("room for %d MiB is made for a file of 1 MiB", got>>20)
	}
}
