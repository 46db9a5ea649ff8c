package acs

import (
	"strings"
	"testing"
)

const card1 = `{"name":"Invoice reader","description":"Reads invoices.","version":"2.1.0","iconUrl":"https://a.example/i.png",
 "provider":{"organization":"Example","url":"https://a.example"},
 "supportedInterfaces":[{"url":"https://a.example/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0","tenant":"t1"},
  {"url":"https://a.example/rest","protocolBinding":"HTTP+JSON","protocolVersion":"1.0"},{"url":"https://a.example/grpc","protocolBinding":"GRPC","protocolVersion":"1.0"}],
 "capabilities":{"streaming":true,"pushNotifications":true,"extensions":[{"uri":"https://x.example/e"}]},
 "securitySchemes":{"mtls":{"mtlsSecurityScheme":{}},"key":{"apiKeySecurityScheme":{"location":"header","name":"X-Key"}},
  "oidc":{"openIdConnectSecurityScheme":{"openIdConnectUrl":"https://id.example/.well-known/openid-configuration"}}},
 "securityRequirements":[{"schemes":{"mtls":{"list":[]}}},{"schemes":{"oidc":{"list":["read"]},"key":{}}}],
 "defaultInputModes":["application/pdf"],"defaultOutputModes":["application/json"],
 "skills":[{"id":"extract","name":"Extract","description":"Totals and dates.","tags":["finance"],"examples":["read this invoice"],"outputModes":["text/csv"]}],
 "signatures":[{"protected":"e30","signature":"AA"}]}`

const acs1 = `{"capabilities":{"messageQueue":[],"notification":true,"streaming":true},"defaultInputModes":["application/pdf"],"defaultOutputModes":["application/json"],` +
	`"description":"Reads invoices.","endPoints":[` +
	`{"security":[{"mtls":[]},{"key":[],"oidc":["read"]}],"transport":"JSONRPC","url":"https://a.example/rpc","x-a2a":{"protocolVersion":"1.0","tenant":"t1"}},` +
	`{"security":[{"mtls":[]},{"key":[],"oidc":["read"]}],"transport":"HTTP_JSON","url":"https://a.example/rest","x-a2a":{"protocolVersion":"1.0"}}],` +
	`"iconUrl":"https://a.example/i.png","name":"Invoice reader","protocolVersion":"02.02","provider":{"organization":"Example","url":"https://a.example"},` +
	`"securitySchemes":{"key":{"in":"header","name":"X-Key","type":"apiKey"},"mtls":{"type":"mutualTLS"},` +
	`"oidc":{"openIdConnectUrl":"https://id.example/.well-known/openid-configuration","type":"openIdConnect"}},` +
	`"skills":[{"description":"Totals and dates.","examples":["read this invoice"],"id":"extract","name":"Extract","outputModes":["text/csv"],"tags":["finance"]}],"version":"2.1.0"}`

const card03 = `{"protocolVersion":"0.3.0","name":"Poet","description":"Writes verses.","version":"1","url":"https://p.example/a2a","preferredTransport":"HTTP+JSON",
 "additionalInterfaces":[{"url":"https://p.example/a2a","transport":"HTTP+JSON"},{"url":"https://p.example/rpc","transport":"JSONRPC"}],
 "capabilities":{},"securitySchemes":{"b":{"type":"http","scheme":"bearer"}},"security":[{"b":[]}],"defaultInputModes":["text"],"defaultOutputModes":["text","image/png"],
 "skills":[{"id":"verse","name":"Verse","description":"Writes one.","tags":[],"inputModes":[]}],"supportsAuthenticatedExtendedCard":true}`

const acs03 = `{"capabilities":{"messageQueue":[],"notification":false,"streaming":false},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain","image/png"],` +
	`"description":"Writes verses.","endPoints":[{"security":[{"b":[]}],"transport":"HTTP_JSON","url":"https://p.example/a2a","x-a2a":{"protocolVersion":"0.3.0"}},` +
	`{"security":[{"b":[]}],"transport":"JSONRPC","url":"https://p.example/rpc","x-a2a":{"protocolVersion":"0.3.0"}}],"name":"Poet","protocolVersion":"02.02",` +
	`"provider":{},"securitySchemes":{"b":{"scheme":"bearer","type":"http"}},"skills":[{"description":"Writes one.","id":"verse","name":"Verse","tags":[]}],"version":"1"}`

func TestFromCard(t *testing.T) {
	for _, c := range []struct{ name, card, want string }{{"1.0", card1, acs1}, {"0.3", card03, acs03}} {
		if !IsCard([]byte(c.card)) {
			t.Errorf("%s is no card", c.name)
		}
		a, err := FromCard([]byte(c.card))
		if err != nil {
			t.Fatal(c.name, err)
		}
		if p := a.Validate(Options{Draft: true}); p != nil {
			t.Errorf("%s: %v", c.name, p)
		}
		if got, err := a.Encode(); err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n%s, want\n%s", c.name, err, got, c.want)
		}
	}
	for _, other := range []string{minimal, "{}", "[]", `{"url":`} {
		if IsCard([]byte(other)) {
			t.Errorf("%.40s is a card", other)
		}
	}
}

// What a card has wrong is told as the ACS that it comes to has it, and nothing is made up.
func TestBadCardsAreTold(t *testing.T) {
	for _, c := range []struct{ old, replacement, path string }{
		{`"name":"Invoice reader",`, ``, "name"},
		{`"description":"Reads invoices."`, `"description":7`, "description"},
		{`"skills":[{`, `"skills":["x",{`, "skills[0]"},
		{`"id":"extract"`, `"id":["extract"]`, "skills[0].id"},
		{`"url":"https://a.example/rpc"`, `"url":"http://a.example/rpc"`, "endPoints[0].url"},
		{`"url":"https://a.example/rpc",`, ``, "endPoints[0].url"},
		{`"streaming":true`, `"streaming":"yes"`, "capabilities.streaming"},
		{`"mtls":{"mtlsSecurityScheme":{}},`, ``, "endPoints[0].security[0].mtls"},
		{`"mtls":{"mtlsSecurityScheme":{}}`, `"mtls":{"magic":{}}`, "securitySchemes.mtls.type"},
		{`["application/pdf"]`, `"application/pdf"`, "defaultInputModes"},
	} {
		broken := strings.Replace(card1, c.old, c.replacement, 1)
		if broken == card1 {
			t.Fatalf("%s: nothing was replaced", c.old)
		}
		a, err := FromCard([]byte(broken))
		if err != nil {
			t.Fatal(err)
		}
		if p := a.Validate(Options{Draft: true}); !p.has(c.path) {
			t.Errorf("%s: want a problem at %s, got %v", c.replacement, c.path, p)
		}
	}
	for _, bad := range []string{"", "[]", `{"name":"a","name":"b"}`, `{"name":"` + strings.Repeat("x", MaxSize) + `"}`} {
		if _, err := FromCard([]byte(bad)); err == nil {
			t.Errorf("%.20q is a card", bad)
		}
	}
}

func FuzzFromCard(f *testing.F) {
	f.Add([]byte(card1))
	f.Add([]byte(card03))
	f.Add([]byte(`{"url":1,"additionalInterfaces":[1,{}],"security":7,"skills":{},"securitySchemes":{"a":{"oauth2SecurityScheme":[]}}}`))
	f.Add([]byte(`{"url":[],"preferredTransport":[],"additionalInterfaces":[{"url":[],"transport":{}}]}`))
	f.Add([]byte(`{"supportedInterfaces":[{"url":{},"protocolBinding":[]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := FromCard(b)
		if err != nil {
			return
		}
		a.Validate(Options{Draft: true})
		if _, err := a.Encode(); err != nil {
			t.Errorf("what was read is not written: %v", err)
		}
	})
}

// One card is one specification, whatever it says twice.
func TestACardIsReadInOneWay(t *testing.T) {
	const card = `{"name":"A","description":"","version":"1","supportedInterfaces":[],"skills":[],"capabilities":{},"defaultInputModes":[],"defaultOutputModes":[],
		"securitySchemes":{"key":{"apiKeySecurityScheme":{"name":"k","in":"query","location":"header"}}}}`
	seen := map[string]bool{}
	for range 64 {
		a, err := FromCard([]byte(card))
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		seen[string(b)] = true
	}
	if len(seen) != 1 {
		t.Errorf("%d specifications of one card", len(seen))
	}
}
