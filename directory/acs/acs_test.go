package acs

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"agentgw/directory/aic"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// minimal is the example of FORMATS, section 3, with unknown members at three levels.
const minimal = `{ "aic":"1.2.156.3088.1.1.1.1.1.0H91","active":true,"lastModifiedTime":"2026-11-30T10:00:00+00:00",
  "protocolVersion":"02.02","name":"Invoice reader","description":"Extracts totals from PDF invoices. Refuses other documents.",
  "version":"1.0.0","provider":{"countryCode":"DE","organization":"Example GmbH","x-rank":3,
     "domainRegistrations":[{"domain":"example.com","registrationNumber":"D-1","registrationType":"WHOIS"}]},
  "securitySchemes":{"mtls":{"type":"mutualTLS"}},
  "endPoints":[{"url":"https://inv.example.com/rpc","transport":"JSONRPC","security":[{"mtls":[]}]},
               {"url":"dmsc-a2a://192.0.2.7:4433","transport":"DMSC_A2A"},
               {"url":"amqps://mq.example.com:5671/v?inbox=inbox_{AIC}","transport":"AMQP"}],
  "capabilities":{"streaming":true,"notification":false,"messageQueue":["mqtt:5.0","kafka:>=3.0 <4.0","amqp:1.*"]},
  "defaultInputModes":["application/pdf"],"defaultOutputModes":["application/json"],
  "x-vendor":{"a":[1,2.5,null,true],"b":"<&>"},
  "skills":[{"id":"finance.invoice.extract","name":"Extract invoice","description":"Totals, VAT, dates.","version":"1.0.0",
     "tags":["finance","invoice","ocr"],"examples":["read this invoice"],"x-cost":"low"},
     {"id":"finance:invoice/pay","name":"Pay","description":"Pays.","tags":[]}] }`

func parse(t *testing.T, s string) *ACS {
	t.Helper()
	a, err := Parse([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestMinimalExample(t *testing.T) {
	a := parse(t, minimal)
	if p := a.Validate(Options{}); p != nil {
		t.Fatal(p)
	}
	if a.Skills[0].ID != "finance.invoice.extract" || a.Provider.Domains[0].Domain != "example.com" || !a.Capabilities.Streaming ||
		a.EndPoints[0].Security[0]["mtls"] == nil || len(a.Skills) != 2 {
		t.Errorf("view: %+v", a)
	}
}

func TestUnknownMembersSurvive(t *testing.T) {
	b, err := parse(t, minimal).Encode()
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if json.Unmarshal([]byte(minimal), &want) != nil || json.Unmarshal(b, &got) != nil {
		t.Fatal("not JSON")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("round trip (-want +got):\n%s", diff)
	}
	if !bytes.Contains(b, []byte(`"<&>"`)) {
		t.Error("characters were escaped for HTML")
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"empty":             "",
		"array":             `[]`,
		"two documents":     `{}{}`,
		"cut":               `{"a":`,
		"twice at the root": `{"name":"a","name":"b"}`,
		"twice below":       `{"x":[{"a":1,"a":2}]}`,
		"twice by escape":   `{"name":"a","n\u0061me":"b"}`,
		"not UTF-8":         "{\"a\":\"\xff\"}",
		"deep":              `{"a":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
		"very deep":         `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
		"huge exponent":     `{"a":1e999}`,
		"integer above":     `{"a":9007199254740993}`,
		"many digits":       `{"a":0.` + strings.Repeat("1", 60) + `}`,
		"large":             `{"a":"` + strings.Repeat("x", MaxSize) + `"}`,
	} {
		if _, err := Parse([]byte(s)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Parse([]byte(`{"a":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `}`)); err != nil {
		t.Errorf("%d levels: %v", MaxDepth, err)
	}
}

func TestParseTellsWhereItIsNoJSON(t *testing.T) {
	for s, want := range map[string]string{
		" \n": "is empty", "\ufeff{}": "byte order mark", "{\"a\":1,\n \"ä\" 1}": "line 2, column 6:", "{\"a\":": "line 1, column 5:", "name: x": "line 1, column 2:",
	} {
		if _, err := Parse([]byte(s)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", s, err, want)
		}
	}
}

// TestValidateNamesThePath breaks one thing at a time and wants exactly that path told.
func TestValidateNamesThePath(t *testing.T) {
	list := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	for _, c := range []struct{ name, old, replacement, path string }{
		{"bad AIC", "0H91", "9H91", "aic"},
		{"active missing", `"active":true,`, ``, "active"},
		{"time without offset", "10:00:00+00:00", "10:00:00", "lastModifiedTime"},
		{"version of the specification", `"02.02"`, `"02.00"`, "protocolVersion"},
		{"name missing", `"name":"Invoice reader",`, ``, "name"},
		{"name empty", `"Invoice reader"`, `" "`, "name"},
		{"name of a wrong type", `"Invoice reader"`, `7`, "name"},
		{"name with a control character", `Invoice reader`, `Invoice\u001b[2J`, "name"},
		{"name that turns its end round", `Invoice reader`, "Invoice\u202e reader", "name"},
		{"name with a space of no width", `Invoice reader`, `Invoice\u200b reader`, "name"},
		{"description with hidden tags", `Refuses other documents.`, `Refuses\udb40\udc41 other documents.`, "description"},
		{"example with a mark of byte order", `read this invoice`, `\ufeffread this invoice`, "skills[0].examples[0]"},
		{"name over the limit that repeats one word", `Invoice reader`, strings.Repeat("Invoice ", 100), "name"},
		{"member in another case", `"endPoints"`, `"endpoints"`, "endPoints"},
		{"long description", `Refuses other documents.`, strings.Repeat("x", MaxDescription), "description"},
		{"skills missing", `"skills"`, `"skillz"`, "skills"},
		{"country", `"DE"`, `"Germany"`, "provider.countryCode"},
		{"domain", `"example.com"`, `"Example.com"`, "provider.domainRegistrations[0].domain"},
		{"registration type", `"WHOIS"`, `"OTHER"`, "provider.domainRegistrations[0].registrationType"},
		{"scheme type", `"mutualTLS"`, `"magic"`, "securitySchemes.mtls.type"},
		{"scheme member", `"mutualTLS"`, `"apiKey","name":"k"`, "securitySchemes.mtls.in"},
		{"unknown scheme", `[{"mtls":[]}]`, `[{"other":[]}]`, "endPoints[0].security[0].other"},
		{"http", `https://inv`, `http://inv`, "endPoints[0].url"},
		{"wildcard host", `inv.example.com`, `*.example.com`, "endPoints[0].url"},
		{"wildcard of agents", `192.0.2.7:4433`, `*:4433`, "endPoints[1].url"},
		{"port that is none", `192.0.2.7:4433`, `192.0.2.7:70000`, "endPoints[1].url"},
		{"host in another script", `inv.example.com`, `іnv.example.com`, "endPoints[0].url"},
		{"number as a string", `"x-vendor"`, `"certificate":{"requestedValidity":"30"},"x-vendor"`, "certificate.requestedValidity"},
		{"foreign host", `inv.example.com`, `inv.example.org`, "endPoints[0].url"},
		{"host that only ends alike", `inv.example.com`, `badexample.com`, "endPoints[0].url"},
		{"credentials", `https://inv`, `https://u:p@inv`, "endPoints[0].url"},
		{"transport", `"JSONRPC"`, `"SMTP"`, "endPoints[0].transport"},
		{"agent address without port", `192.0.2.7:4433`, `192.0.2.7`, "endPoints[1].url"},
		{"agent address with path", `192.0.2.7:4433`, `192.0.2.7:4433/x`, "endPoints[1].url"},
		{"amqp in clear", `amqps://`, `amqp://`, "endPoints[2].url"},
		{"message queue", `mqtt:5.0`, `zmq:5.0`, "capabilities.messageQueue[0]"},
		{"mode", `"application/pdf"`, `"pdf"`, "defaultInputModes[0]"},
		{"streaming", `"streaming":true`, `"streaming":"yes"`, "capabilities.streaming"},
		{"skill id", `"finance.invoice.extract"`, `"über"`, "skills[0].id"},
		{"skill id twice", `"finance:invoice/pay"`, `"finance.invoice.extract"`, "skills[1].id"},
		{"skill without tags", `,"tags":[]`, ``, "skills[1].tags"},
		{"skill that is no object", `{"id":"finance:invoice/pay","name":"Pay","description":"Pays.","tags":[]}`, `7`, "skills[1]"},
		{"tag too long", `"ocr"`, `"` + strings.Repeat("x", MaxTag+1) + `"`, "skills[0].tags[2]"},
		{"too many tags", `["finance","invoice","ocr"]`, list(MaxTags+1, `"t"`), "skills[0].tags"},
		{"too many examples", `["read this invoice"]`, list(MaxExamples+1, `"e"`), "skills[0].examples"},
		{"example too long", `read this invoice`, strings.Repeat("é", MaxExample+1), "skills[0].examples[0]"},
		{"too many skills", `{"id":"finance:invoice/pay","name":"Pay","description":"Pays.","tags":[]}`,
			strings.Trim(list(MaxSkills, `{"id":"a","name":"a","description":"","tags":[]}`), "[]"), "skills"},
		{"certificate name", `"x-vendor"`, `"certificate":{"altNames":{"dns":["a.example.org"]}},"x-vendor"`, "certificate.altNames.dns[0]"},
		{"certificate address", `"x-vendor"`, `"certificate":{"altNames":{"ip":["10.0.0.0/8"]}},"x-vendor"`, "certificate.altNames.ip[0]"},
		{"certificate days", `"x-vendor"`, `"certificate":{"requestedValidity":0},"x-vendor"`, "certificate.requestedValidity"},
		{"ontology with an address", "1.1.1.0H91", "1.1.0.0J1H", "endPoints"},
	} {
		broken := strings.Replace(minimal, c.old, c.replacement, 1)
		if broken == minimal {
			t.Fatalf("%s: nothing was replaced", c.name)
		}
		p := parse(t, broken).Validate(Options{})
		if !p.has(c.path) {
			t.Errorf("%s: want a problem at %s, got %v", c.name, c.path, p)
		}
	}
}

// What is unusual is not wrong: scripts that are written from right to left or with joiners, emoji of several, ten levels of a vendor's own.
func TestUnusualTextIsTaken(t *testing.T) {
	for _, c := range []struct{ old, replacement string }{
		{"Invoice reader", "👨\u200d👩\u200d👧 📄"},
		{"Invoice reader", "قارئ الفواتير"},
		{"Invoice reader", "می\u200cخواهم"},
		{"Refuses other documents.", "读取发票"},
		{`{"a":[1,2.5,null,true],"b":"<&>"}`, strings.Repeat(`{"a":`, 9) + `1` + strings.Repeat(`}`, 9)},
	} {
		changed := strings.Replace(minimal, c.old, c.replacement, 1)
		if changed == minimal {
			t.Fatalf("%s: nothing was replaced", c.old)
		}
		a := parse(t, changed)
		if p := a.Validate(Options{}); p != nil {
			t.Errorf("%s: %v", c.replacement, p)
		}
		if b, err := a.Encode(); err != nil || !bytes.Contains(b, []byte(c.replacement)) {
			t.Errorf("%s: is stored as %s, %v", c.replacement, b, err)
		}
	}
}

func TestValidateTellsAll(t *testing.T) {
	p := parse(t, `{}`).Validate(Options{})
	for _, path := range []string{"aic", "active", "lastModifiedTime", "protocolVersion", "name", "provider", "skills", "endPoints"} {
		if !p.has(path) {
			t.Errorf("%s is not told: %v", path, p)
		}
	}
	if !strings.Contains(p.Error(), "protocolVersion: is missing; add it") {
		t.Errorf("message: %s", p.Error())
	}
	many := parse(t, `{"defaultInputModes":[`+strings.TrimSuffix(strings.Repeat(`"x",`, 500), ",")+`]}`).Validate(Options{})
	if len(many) > maxProblems {
		t.Errorf("%d problems are told", len(many))
	}
}

func TestDraftMayLackWhatTheGatewaySets(t *testing.T) {
	draft := strings.NewReplacer(`"aic":"1.2.156.3088.1.1.1.1.1.0H91","active":true,"lastModifiedTime":"2026-11-30T10:00:00+00:00",`, "").Replace(minimal)
	a := parse(t, draft)
	if p := a.Validate(Options{Draft: true}); p != nil {
		t.Error(p)
	}
	if p := a.Validate(Options{}); len(p) != 3 {
		t.Errorf("as an authoritative ACS: %v", p)
	}
}

func TestLoopbackHTTP(t *testing.T) {
	local := parse(t, strings.Replace(minimal, "https://inv.example.com/rpc", "http://127.0.0.1:8080/rpc", 1))
	if p := local.Validate(Options{LoopbackHTTP: true}); p != nil {
		t.Error(p)
	}
	if p := local.Validate(Options{}); p == nil {
		t.Error("http is allowed outside test mode")
	}
	far := parse(t, strings.Replace(minimal, "https://inv.example.com/rpc", "http://inv.example.com/rpc", 1))
	if p := far.Validate(Options{LoopbackHTTP: true}); p == nil {
		t.Error("http to another host is allowed in test mode")
	}
}

func TestAuthoritative(t *testing.T) {
	const id = aic.AIC("1.2.156.3088.1.1.34C2.478BDF.3GF546.0JU4")
	draft := parse(t, strings.Replace(minimal, `"active":true`, `"active":false`, 1))
	before, _ := draft.Encode()
	now := time.Date(2026, 12, 1, 1, 2, 3, 4, time.FixedZone("", 3600))
	a, removed, err := Authoritative(draft, id, []string{"finance.*"}, now)
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if p := a.Validate(Options{}); p != nil {
		t.Error(p)
	}
	if a.AIC != id.String() || !a.Active || a.LastModifiedTime != "2026-12-01T00:02:03+00:00" {
		t.Errorf("gateway's members: %s, %v, %s", a.AIC, a.Active, a.LastModifiedTime)
	}
	if len(a.Skills) != 1 || a.Skills[0].ID != "finance.invoice.extract" || !cmp.Equal(removed, []string{"finance:invoice/pay"}) {
		t.Errorf("skills %v, removed %v", a.Skills, removed)
	}
	if want := "amqps://mq.example.com:5671/v?inbox=inbox_" + id.String(); a.EndPoints[2].URL != want {
		t.Errorf("AMQP address %s", a.EndPoints[2].URL)
	}
	if !bytes.Contains(b, []byte(`"x-vendor"`)) || !bytes.Contains(b, []byte(`"x-cost"`)) {
		t.Error("unknown members are lost")
	}
	if after, _ := draft.Encode(); !bytes.Equal(before, after) {
		t.Error("the draft was changed")
	}
	sameAsRead(t, a)
	none, removed, err := Authoritative(draft, id, nil, now)
	if err != nil || len(none.Skills) != 0 || len(removed) != 2 {
		t.Errorf("an empty grant leaves skills: %v, %v", removed, err)
	}
	sameAsRead(t, none)
}

// sameAsRead holds a view that was made without reading against what a reader of its text sees, and against its hash.
func sameAsRead(t *testing.T, a *ACS) {
	t.Helper()
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read := parse(t, string(text))
	if diff := cmp.Diff(read, a, cmp.AllowUnexported(ACS{}, SecurityScheme{}, view{}), cmpopts.IgnoreFields(ACS{}, "encoded")); diff != "" {
		t.Errorf("what is read of it (-read +made):\n%s", diff)
	}
	made, err1 := a.Hash()
	if want, err2 := Hash(text); err1 != nil || err2 != nil || made != want || made != sha256.Sum256(text) {
		t.Errorf("hash %x, that of its text %x; %v, %v", made, want, err1, err2)
	}
}

func TestHashIsOfTheMeaning(t *testing.T) {
	one, err := Hash([]byte(minimal))
	if err != nil {
		t.Fatal(err)
	}
	encoded, _ := parse(t, minimal).Encode()
	if two, err := Hash(encoded); err != nil || one != two {
		t.Errorf("another spelling has another hash, %v", err)
	}
	if three, _ := Hash([]byte(strings.Replace(minimal, "1.0.0", "1.0.1", 1))); three == one {
		t.Error("another document has the same hash")
	}
	if _, err := Hash([]byte(`{"a":1,"a":2}`)); err == nil {
		t.Error("a document with a member twice has a hash")
	}
}

func FuzzACS(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte(`{"skills":[{"tags":[1]},7],"provider":[],"endPoints":{"a":1},"certificate":{"requestedValidity":1.5}}`))
	f.Add([]byte(`{"endPoints":[{"url":"https://[::1%25a]:x/","transport":"JSONRPC","security":[{"a":7}]}]}`))
	f.Add([]byte(`{"a":"\ud800","b":-0,"c":1e-9}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := Parse(b)
		if err != nil {
			return
		}
		a.Validate(Options{LoopbackHTTP: true})
		once, err := a.Encode()
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		again, err := Parse(once)
		if err != nil {
			if len(once) > MaxSize {
				return // escapes may lengthen a document that was at the limit
			}
			t.Fatalf("what was encoded does not parse: %v\n%s", err, once)
		}
		twice, _ := again.Encode()
		if !bytes.Equal(once, twice) {
			t.Fatalf("not stable:\n%s\n%s", once, twice)
		}
		one, err1 := Hash(once)
		two, err2 := Hash(twice)
		if err1 != nil || err2 != nil || one != two {
			t.Fatalf("hash: %v, %v", err1, err2)
		}
		made, _, err := Authoritative(a, "1.2.156.3088.1.1.1.1.1.0H91", []string{"*"}, time.Unix(0, 0))
		if err != nil && len(once) < MaxSize/2 {
			t.Fatalf("authoritative: %v", err)
		}
		if err == nil && a.Validate(Options{Draft: true}) == nil {
			sameAsRead(t, made)
		}
	})
}
