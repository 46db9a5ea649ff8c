package semreq

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentgw/directory"
	"agentgw/internal/frame"
)

const testAIC = "2.999.1.1.1.1.1.1.1.10GC"

func sample() *Request {
	raw, _ := Query{Text: "medicine for a sore throat", Tags: []string{"health"}}.Encode()
	hash := Hash(raw)
	constraints, _ := frame.Marshal(Constraints{DenyDomains: []string{"x.example"}, MinScore: 1})
	provision, _ := frame.Marshal(Provision{SID: bytes.Repeat([]byte{2}, 16), ISPKI: bytes.Repeat([]byte{3}, 32)})
	return &Request{
		ReqID: bytes.Repeat([]byte{1}, 16), OriginGW: "G", Query: raw, QHash: hash[:], HopLimit: 5, Via: []string{"G"}, BudgetMS: 4000,
		Breadth: 4, Want: 5, Scope: []string{"agw.discover"}, RAT: []byte{9}, Constraints: constraints, Provision: provision,
		Flags: FlagParallel, HopVia: []string{"a.example"},
	}
}

// The bytes are a contract: a change of this vector is a change of the protocol.
func TestRequestVector(t *testing.T) {
	b, err := frame.AppendMessage(nil, sample())
	if err != nil {
		t.Fatal(err)
	}
	got := hex.EncodeToString(b)
	checkVector(t, "request", got)
	var out Request
	if err := frame.NewReader(bytes.NewReader(b)).Into(&out); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample(), &out); d != "" {
		t.Error(d)
	}
	if err := out.Validate(); err != nil {
		t.Error(err)
	}
	c, err := out.ParsedConstraints()
	if err != nil || c.MinScore != 1 || c.Allows("x.example") || !c.Allows("y.example") {
		t.Error(c, err)
	}
	p, err := out.ParsedProvision()
	if err != nil || p.SID[0] != 2 {
		t.Error(p, err)
	}
}

func TestRequestRefuses(t *testing.T) {
	for name, change := range map[string]func(*Request){
		"short id":          func(r *Request) { r.ReqID = r.ReqID[1:] },
		"third retry":       func(r *Request) { r.Attempt = 3 },
		"hash of another":   func(r *Request) { r.QHash = make([]byte, 32) },
		"too many hops":     func(r *Request) { r.HopLimit = MaxHops + 1 },
		"long way":          func(r *Request) { r.Via = make([]string, MaxHops+1) },
		"no budget":         func(r *Request) { r.BudgetMS = 0 },
		"budget of an hour": func(r *Request) { r.BudgetMS = 3_600_000 },
		"no breadth":        func(r *Request) { r.Breadth = 0 },
		"wants all":         func(r *Request) { r.Want = 255 },
		"unknown flag":      func(r *Request) { r.Flags = 16 },
		"endless scope":     func(r *Request) { r.Scope = make([]string, maxList+1) },
	} {
		r := sample()
		change(r)
		if err := r.Validate(); frame.CodeOf(err) != frame.ReqInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := sample()
	r.Provision, _ = frame.Marshal(Provision{SID: []byte{1}, ISPKI: make([]byte, 32)})
	if _, err := r.ParsedProvision(); frame.CodeOf(err) != frame.ReqInvalid {
		t.Errorf("provision with a short sid: %v", err)
	}
	r.Constraints, _ = frame.Marshal(Constraints{Exclude: make([]string, maxList+1)})
	if _, err := r.ParsedConstraints(); frame.CodeOf(err) != frame.ReqInvalid {
		t.Errorf("endless constraints: %v", err)
	}
}

func TestQueryHasOneForm(t *testing.T) {
	a := Query{Text: "  medicine \t for\na sore   throat ", Tags: []string{"b", "a", "b"}}.Normalise()
	b := Query{Text: "medicine for a sore throat", Tags: []string{"a", "b"}}.Normalise()
	ea, _ := a.Encode()
	eb, _ := b.Encode()
	if !bytes.Equal(ea, eb) {
		t.Errorf("%x and %x", ea, eb)
	}
	if nfc := (Query{Text: "u\u0308ber"}).Normalise().Text; nfc != "\u00fcber" {
		t.Errorf("%q is not NFC", nfc)
	}
	back, err := ParseQuery(ea)
	if err != nil || back.Text != a.Text {
		t.Error(back, err)
	}
	for name, q := range map[string]Query{
		"nothing":             {},
		"too long":            {Text: strings.Repeat("x", MaxText+1)},
		"no capability":       {Caps: []string{"https://example.com"}},
		"too many tags":       {Tags: make([]string, maxList+1)},
		"an empty media type": {Text: "x", In: []string{""}},
	} {
		if err := q.Validate(); frame.CodeOf(err) != frame.ReqInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func result(now time.Time) *Result {
	return &Result{
		ReqID: bytes.Repeat([]byte{1}, 16), QHash: bytes.Repeat([]byte{2}, 32), AIC: testAIC, Cap: directory.CapID(testAIC, "x"), Score: 9000,
		GW: "G", Exp: uint64(now.Add(time.Minute).Unix()), Skill: Skill{Name: "x"},
	}
}

func TestResult(t *testing.T) {
	signer := frame.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32)))
	now := time.Unix(1_800_000_000, 0)
	keys := func(id frame.KeyID) (frame.VerifyKey, bool) {
		return frame.VerifyKey{Public: signer.Public(), Owner: "G", Domain: "d.example"}, id == signer.KeyID()
	}
	domainOf := func(aic string) string {
		if aic == testAIC {
			return "d.example"
		}
		return "other.example"
	}
	open := func(r *Result) error {
		b, err := r.Sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		_, err = OpenResult(b, bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 32), keys, domainOf, now)
		return err
	}
	if err := open(result(now)); err != nil {
		t.Fatal(err)
	}
	b, _ := result(now).Sign(signer)
	checkVector(t, "result", hex.EncodeToString(b))
	for name, c := range map[string]struct {
		change func(*Result)
		code   frame.Code
	}{
		"another gateway's name":       {func(r *Result) { r.GW = "H" }, frame.IdentityMismatch},
		"an AIC of another domain":     {func(r *Result) { r.AIC = "2.999.1.1.1.2.1.1.1.0000" }, frame.IdentityMismatch},
		"a capability of another":      {func(r *Result) { r.Cap = "acps://2.999.1.1.1.2.1.1.1.0000/x" }, frame.IdentityMismatch},
		"another request":              {func(r *Result) { r.ReqID = make([]byte, 16) }, frame.ReqInvalid},
		"another query":                {func(r *Result) { r.QHash = make([]byte, 32) }, frame.ReqInvalid},
		"expired":                      {func(r *Result) { r.Exp -= 3600 }, frame.Expired},
		"lives too long":               {func(r *Result) { r.Exp += 3600 }, frame.Expired},
		"too many endpoints":           {func(r *Result) { r.Endpoints = make([]Endpoint, MaxEndpoints+1) }, frame.Malformed},
		"a novel for a text":           {func(r *Result) { r.Skill.Description = strings.Repeat("x", MaxSkillText+1) }, frame.Malformed},
		"a token without a target key": {func(r *Result) { r.SAT = []byte{1} }, frame.Malformed},
	} {
		r := result(now)
		c.change(r)
		if err := open(r); frame.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
	}
}

func TestResponseBounds(t *testing.T) {
	r := &Response{ReqID: make([]byte, 16)}
	for range 100 {
		r.AddReason("G", frame.NotFound)
	}
	if err := r.Validate(); err != nil || len(r.Reasons) != maxReasons {
		t.Error(len(r.Reasons), err)
	}
	r.Results = make([][]byte, MaxWant+1)
	if r.Validate() == nil {
		t.Error("too many results")
	}
}

func FuzzSemreq(f *testing.F) {
	b, _ := frame.Marshal(sample())
	f.Add(b)
	q, _ := Query{Text: "x"}.Encode()
	f.Add(q)
	f.Fuzz(func(t *testing.T, in []byte) {
		var r Request
		if frame.Unmarshal(in, &r) == nil {
			r.Validate()
			r.ParsedConstraints()
			r.ParsedProvision()
		}
		if q, err := ParseQuery(in); err == nil {
			again, err := q.Normalise().Encode()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := ParseQuery(again); err == nil && cmp.Diff(q.Normalise(), back, cmpopts.EquateEmpty()) != "" {
				t.Fatalf("%x is not stable", in)
			}
		}
		PeekResult(in)
	})
}
