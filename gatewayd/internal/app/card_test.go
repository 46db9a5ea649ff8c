package app

import (
	"bytes"
	"strings"
	"testing"

	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// A class that the taxonomy has not is taken, in a card and in an ACS, and the log hears of it once.
func TestUnknownClassesAreToldOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	key := identitytest.NewKey(t)
	tagged := func(doc, tag string) string {
		return strings.Replace(doc, `"tags":["medicine"]`, `"tags":["medicine","`+tag+`"]`, 1)
	}
	done, err := g.enrolAs(g.token(), key, arp.Enrol{CSR: must(identity.NewCSR(key)), Draft: []byte(tagged(pharmacyCard, "oasf:newer/class")), DraftKind: arp.DraftCard, Visibility: 2})
	if err != nil {
		t.Fatal(err)
	}
	if c := g.app.registry.Capabilities(done.AIC); len(c) != 1 || len(c[0].Classes) != 1 || c[0].Classes[0] != "newer/class" {
		t.Errorf("%+v", c)
	}
	s, err := g.attach(must(identity.TLSCertificate(done.Chain, key)), &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		tag   string
		lines int
	}{{"oasf:newer/class", 1}, {"oasf:10302", 1}, {"oasf:another/class", 2}} {
		e := must(g.app.registry.Get(done.AIC))
		doc := strings.Replace(tagged(pharmacyACS, step.tag), "Sells medicine.", "Sells "+step.tag, 1)
		if typ, payload := verb(t, s, &arp.ACSPut{AIC: done.AIC, ACS: []byte(doc), Expected: e.Version, Visibility: 2}); typ != frame.ACSState {
			t.Fatalf("%v %x", typ, payload)
		}
		if n := strings.Count(g.logs.String(), "taxonomy has not"); n != step.lines {
			t.Errorf("%s: %d lines in the log, want %d:\n%s", step.tag, n, step.lines, g.logs.String())
		}
	}
}

const pharmacyCard = `{ "name":"Corner pharmacy",  "description":"Sells medicine.","version":"1.0.0","provider":{"organization":"Pharmacy","url":"https://pharmacy.example"},
 "supportedInterfaces":[{"url":"https://pharmacy.example/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{"streaming":true},
 "defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
 "skills":[{"id":"medicine.sell","name":"Sell medicine","description":"Throat lozenges, sore throat remedies.","tags":["medicine"]}],
 "signatures":[{"protected":"e30","signature":"AA"}] }`

// An agent that has an Agent Card needs no other specification. The card's bytes, which its signatures are over, stay as they were.
func TestAgentCardIsADraft(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	key := identitytest.NewKey(t)
	enrol := func(token arp.Token, card string) (*arp.Enrolled, error) {
		return g.enrolAs(token, key, arp.Enrol{CSR: must(identity.NewCSR(key)), Draft: []byte(card), DraftKind: arp.DraftCard, Visibility: 2})
	}
	token := g.token()
	_, err := enrol(token, strings.Replace(pharmacyCard, `"id":"medicine.sell"`, `"id":["medicine.sell"]`, 1))
	if frame.CodeOf(err) != frame.ReqInvalid || !strings.Contains(err.Error(), "read as an ACS") || !strings.Contains(err.Error(), "skills[0].id") {
		t.Errorf("a card that is not right: %v", err)
	}
	done, err := enrol(token, pharmacyCard)
	if err != nil || len(done.Caps) != 1 || !bytes.Contains(done.ACS, []byte(`"transport":"JSONRPC"`)) {
		t.Fatalf("%+v %v", done, err)
	}
	p := must(g.app.ExportAgents(admin.AgentsRequest{}))
	if len(p.Entries) != 1 || p.Entries[0].Card != pharmacyCard {
		t.Errorf("what is kept of the card: %+v", p.Entries)
	}
	cert := must(identity.TLSCertificate(done.Chain, key))
	s, err := g.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant})
	if err != nil {
		t.Fatal(err)
	}
	put := func(doc string, kind uint8) {
		t.Helper()
		e := must(g.app.registry.Get(done.AIC))
		if typ, payload := verb(t, s, &arp.ACSPut{AIC: done.AIC, ACS: []byte(doc), Kind: kind, Expected: e.Version, Visibility: 2}); typ != frame.ACSState {
			t.Fatalf("%v %x", typ, payload)
		}
	}
	put(pharmacyCard+" ", arp.DraftCard)
	if e := must(g.app.registry.Get(done.AIC)); string(e.Card) != pharmacyCard+" " || e.Edition.Number != 1 {
		t.Errorf("edition %d, card %q", e.Edition.Number, e.Card)
	}
	put(pharmacyCard+" ", arp.DraftCard) // once more: it changes nothing
	if e := must(g.app.registry.Get(done.AIC)); e.Edition.Number != 1 || e.Version != done.EntryVersion+1 {
		t.Errorf("an update that says nothing new: edition %d, version %d", e.Edition.Number, e.Version)
	}
	put(pharmacyACS, arp.DraftACS)
	if e := must(g.app.registry.Get(done.AIC)); e.Card != nil {
		t.Errorf("a card that is no more is kept: %q", e.Card)
	}
}
