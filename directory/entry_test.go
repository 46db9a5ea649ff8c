package directory

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testEntry() Entry {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	return Entry{
		AIC: testAIC, ACS: []byte(`{}`), ACSHash: [32]byte{1, 2}, State: Active, Version: 3,
		RegisteredAt: at, LastModified: at.Add(time.Second), ExpiresAt: at.Add(time.Hour),
		Visibility: VisibleListed, Allow: []string{"partner.example"}, Skills: []string{"a.b"},
		Provenance: Provenance{SubmittedBy: "token t1", CertSHA256: [32]byte{3}, SPKI: [32]byte{4}, Grant: "g1", Provider: ProviderUnverified},
	}
}

// golden is the storage encoding, format 1. It must be readable for ever: a new format adds a test and keeps this one.
const golden = "b101010278" + "1b312e322e3135362e333038382e312e312e312e312e312e30483931" + "03427b7d" +
	"0458200102000000000000000000000000000000000000000000000000000000000000" + "0501" + "0603" +
	"071b000001a22be5a500" + "081b000001a22be5a8e8" + "091b000001a22c1c9380" + "0a01" +
	"0b816f706172746e65722e6578616d706c65" + "0c8163612e62" + "0d68746f6b656e207431" +
	"0e58200300000000000000000000000000000000000000000000000000000000000000" +
	"0f58200400000000000000000000000000000000000000000000000000000000000000" +
	"10626731" + "116a756e7665726966696564"

func TestEntryEncodingIsGolden(t *testing.T) {
	b, err := EncodeEntry(testEntry())
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != golden {
		t.Errorf("encoding changed:\n got %s\nwant %s", got, golden)
	}
	raw, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	e, err := DecodeEntry(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testEntry(), e); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	for i := range raw {
		if _, err := DecodeEntry(raw[:i]); err == nil {
			t.Errorf("a record cut at %d is accepted", i)
		}
	}
}

// A bound is an optional key of format 1: a record without one is as it was, and a program that does not know the key passes it by.
func TestBoundIsAnOptionalKey(t *testing.T) {
	e := testEntry()
	e.Bound = &Reach{VisibleListed, []string{"a.example"}}
	b, err := EncodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	want := "b2" + golden[2:] + "16a2" + "0101" + "0281" + "69" + hex.EncodeToString([]byte("a.example"))
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err := DecodeEntry(b)
	if diff := cmp.Diff(e, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if h, err := DecodeHead(b); err != nil || h.Version != e.Version { // a program with fewer keys
		t.Errorf("%+v, %v", h, err)
	}
	e.Bound.Visibility = 9
	if _, err := EncodeEntry(e); err == nil {
		t.Error("a bound of no visibility is encoded")
	}
}

func TestReachWithin(t *testing.T) {
	a, ab, bc, c := []string{"a.example"}, []string{"a.example", "b.example"}, []string{"b.example", "c.example"}, []string{"c.example"}
	public, domain, private := Reach{Visibility: VisiblePublic}, Reach{Visibility: VisibleDomain}, Reach{Visibility: VisiblePrivate}
	listed := func(l []string) Reach { return Reach{VisibleListed, l} }
	for _, x := range []struct{ asked, bound, want Reach }{
		{public, domain, domain}, {public, private, private}, {public, listed(ab), listed(ab)}, {public, public, public},
		{listed(ab), public, listed(ab)}, {listed(ab), listed(bc), listed([]string{"b.example"})}, {listed(a), listed(ab), listed(a)},
		{listed(ab), listed(c), domain}, {listed(a), domain, domain}, {listed(a), private, private},
		{domain, public, domain}, {domain, listed(a), domain}, {domain, domain, domain}, {domain, private, private},
		{private, public, private}, {private, listed(a), private}, {private, domain, private}, {private, private, private},
	} {
		if got := x.asked.Within(&x.bound); !cmp.Equal(got, x.want) {
			t.Errorf("%v within %v is %v, want %v", x.asked, x.bound, got, x.want)
		}
		if got := x.asked.Within(nil); !cmp.Equal(got, x.asked) {
			t.Errorf("%v without a bound is %v", x.asked, got)
		}
	}
}

func TestEncodeEntryRefuses(t *testing.T) {
	for name, change := range map[string]func(*Entry){
		"no AIC":          func(e *Entry) { e.AIC = "" },
		"large ACS":       func(e *Entry) { e.ACS = make([]byte, MaxACS+1) },
		"long allow list": func(e *Entry) { e.Allow = make([]string, MaxAllow+1) },
		"many skills":     func(e *Entry) { e.Skills = make([]string, MaxSkills+1) },
		"no such state":   func(e *Entry) { e.State = 7 },
		"large record":    func(e *Entry) { e.Allow[0] = strings.Repeat("a", MaxEntry) },
	} {
		e := testEntry()
		change(&e)
		if _, err := EncodeEntry(e); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func TestDecodeEntryRefusesANewerFormat(t *testing.T) {
	raw, _ := hex.DecodeString(strings.Replace(golden, "b10101", "b10102", 1))
	if _, err := DecodeEntry(raw); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("err = %v, want one that names format 2", err)
	}
}

func TestTombstoneRoundTrip(t *testing.T) {
	want := Tombstone{testAIC, Revoked, 9, time.UnixMilli(1700000000000).UTC(), "key lost"}
	b, err := EncodeTombstone(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeTombstone(b)
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := EncodeTombstone(Tombstone{AIC: testAIC, State: Active}); err == nil {
		t.Error("a tombstone of a live state is encoded")
	}
}

func TestOffered(t *testing.T) {
	now := testEntry().ExpiresAt
	for s := Pending; s <= Expired; s++ {
		e := testEntry()
		e.State = s
		if got := e.Offered(now.Add(-time.Minute)); got != (s == Active || s == Deprecated) {
			t.Errorf("%v: Offered = %v", s, got)
		}
		if e.Offered(now) {
			t.Errorf("%v: offered when it expires", s)
		}
	}
}

func TestVisibleTo(t *testing.T) {
	for _, c := range []struct {
		v     Visibility
		asker string
		home  bool
		want  bool
	}{
		{VisiblePublic, "x.example", false, true}, {VisibleListed, "x.example", false, false}, {VisibleListed, "partner.example", false, true},
		{VisibleListed, "home.example", true, true}, {VisibleDomain, "partner.example", false, false}, {VisibleDomain, "home.example", true, true},
		{VisiblePrivate, "home.example", true, false},
	} {
		e := testEntry()
		e.Visibility = c.v
		if got := e.VisibleTo(c.asker, c.home); got != c.want {
			t.Errorf("%v to %s (home %v) = %v", c.v, c.asker, c.home, got)
		}
	}
}

// TestStateTransitions walks every pair of states against the drawing of FORMATS, section 6.
func TestStateTransitions(t *testing.T) {
	drawn := map[[2]State]bool{
		{Pending, Active}: true, {Active, Suspended}: true, {Suspended, Active}: true, {Active, Deprecated}: true, {Deprecated, Active}: true, {Deprecated, Suspended}: true,
	}
	for from := Pending; from <= Expired; from++ {
		for to := Pending; to <= Expired+1; to++ {
			want := drawn[[2]State{from, to}] || !from.Terminal() && (to == from || to.Terminal())
			if got := from.May(to); got != want {
				t.Errorf("%v.May(%v) = %v", from, to, got)
			}
		}
	}
}

func TestStateAndVisibilityTexts(t *testing.T) {
	for s := Pending; s <= Expired; s++ {
		b, err := json.Marshal(s)
		var back State
		if err != nil || json.Unmarshal(b, &back) != nil || back != s || string(b) != `"`+s.String()+`"` {
			t.Errorf("%v: %s, %v, %v", s, b, err, back)
		}
	}
	for v := VisibleDomain; v <= VisiblePrivate; v++ {
		b, err := json.Marshal(v)
		var back Visibility
		if err != nil || json.Unmarshal(b, &back) != nil || back != v {
			t.Errorf("%v: %s, %v, %v", v, b, err, back)
		}
	}
	var s State
	var v Visibility
	if s.UnmarshalText([]byte("active")) == nil || v.UnmarshalText([]byte("PUBLIC")) == nil {
		t.Error("another spelling is accepted")
	}
	if _, err := State(9).MarshalText(); err == nil {
		t.Error("state 9 has a text")
	}
}

func TestCapabilities(t *testing.T) {
	e := testEntry()
	e.ACS = []byte(`{"name":"Reader","description":"Reads.","version":"1.2.0","defaultInputModes":["text/plain"],"defaultOutputModes":["application/json"],
		"provider":{},"skills":[{"id":"a:b","name":"A","description":"d","tags":["t"],"examples":["do a"],"outputModes":["image/png"]},{"id":"c"}]}`)
	caps, err := Capabilities(e)
	if err != nil {
		t.Fatal(err)
	}
	want := Capability{
		AIC: testAIC, CapID: "acps://" + testAIC + "/a%3Ab", SkillID: "a:b", Name: "A", Description: "d", Tags: []string{"t"},
		Examples: []string{"do a"}, In: []string{"text/plain"}, Out: []string{"image/png"}, AgentName: "Reader", AgentDescription: "Reads.",
		Provider: "1.2.156.3088.1.1.1", ACSVersion: "1.2.0", EntryVersion: 3,
	}
	if diff := cmp.Diff(want, caps[0]); diff != "" || len(caps) != 2 {
		t.Errorf("%d capabilities, first (-want +got):\n%s", len(caps), diff)
	}
	e.ACS = []byte(`[]`)
	if _, err := Capabilities(e); err == nil {
		t.Error("an ACS that is no object is read")
	}
}

// What the store compares is what the whole record says.
func TestDecodeHead(t *testing.T) {
	for _, e := range []Entry{
		{AIC: "1.A", State: Active, Version: 1},
		{AIC: "1.A", ACS: []byte("{}"), State: Suspended, Version: 1 << 40, ExpiresAt: time.UnixMilli(1234).UTC(), Allow: []string{"a.example"}, Skills: []string{"a"},
			Edition: Edition{7, time.UnixMilli(99).UTC()}},
	} {
		b, err := EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		if h, err := DecodeHead(b); err != nil || h.Version != e.Version || h.Edition != e.Edition.Number || !h.ExpiresAt.Equal(e.ExpiresAt) {
			t.Errorf("%+v, %v of %+v", h, err, e)
		}
		if back, err := DecodeEntry(b); err != nil || back.Edition != e.Edition {
			t.Errorf("%+v, %v", back.Edition, err)
		}
		if _, err := DecodeHead(b[:len(b)-1]); err == nil {
			t.Error("a record that is cut short has a head")
		}
	}
}
