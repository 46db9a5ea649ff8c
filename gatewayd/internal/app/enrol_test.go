package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

func TestEnrol(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol("agw.discover", "acps.skill.invoke:medicine.sell")
	if len(done.Caps) != 1 || !strings.HasSuffix(done.Caps[0], "/medicine.sell") {
		t.Errorf("capabilities %v", done.Caps)
	}
	if len(done.Removed) != 1 || done.Removed[0].Code != frame.ScopeDenied || strings.Contains(string(done.ACS), "medicine.advise") {
		t.Errorf("a skill outside the grant was published: removed %v", done.Removed)
	}
	id, err := identity.AICOf(cert.Leaf)
	if err != nil || string(id) != done.AIC {
		t.Errorf("certificate of %s, enrolled as %s, %v", id, done.AIC, err)
	}
	grant, err := arp.OpenGrant(done.Grant, g.app.trust.Keys(identity.UseGrant), g.app.trust.Own().Issuer, time.Now())
	if err != nil || grant.AIC != done.AIC || !slices.Equal(grant.Skills, []string{"medicine.sell"}) {
		t.Errorf("grant %+v %v", grant, err)
	}
	rows := g.rows()
	if len(rows) != 1 || rows[0].AIC != done.AIC || rows[0].Attached {
		t.Errorf("directory %+v", rows)
	}
}

func TestEnrolmentRefusals(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	key := identitytest.NewKey(t)
	csr, _ := identity.NewCSR(key)
	other := identitytest.NewKey(t)
	otherCSR, _ := identity.NewCSR(other)
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weakCSR, err := identity.NewCSR(weak)
	if err != nil {
		t.Fatal(err)
	}
	used := g.token()
	if _, err := g.enrol(used, other, otherCSR, pharmacyACS); err != nil {
		t.Fatal(err)
	}
	expired := g.token()
	expireToken(t, g, expired)
	wrong := g.token()
	wrong.Secret = make([]byte, 32)
	for name, c := range map[string]struct {
		token arp.Token
		csr   []byte
		draft string
		code  frame.Code
		says  string
	}{
		"wrong token":           {wrong, csr, pharmacyACS, frame.TokenInvalid, "ask the operator"},
		"expired token":         {expired, csr, pharmacyACS, frame.TokenExpired, "ask the operator"},
		"token used twice":      {used, csr, pharmacyACS, frame.TokenReplayed, "ask the operator"},
		"weak key":              {g.token(), weakCSR, pharmacyACS, frame.ReqInvalid, "P-256"},
		"another key's request": {g.token(), otherCSR, pharmacyACS, frame.Binding, "another key"},
		"no CSR":                {g.token(), []byte{1}, pharmacyACS, frame.ReqInvalid, "certificate request"},
		"ACS without a name":    {g.token(), csr, strings.Replace(pharmacyACS, `"name":"Corner pharmacy",`, "", 1), frame.ReqInvalid, "name"},
		"skill without an id":   {g.token(), csr, strings.Replace(pharmacyACS, `"id":"medicine.sell",`, "", 1), frame.ReqInvalid, "skills[0]"},
		"no JSON":               {g.token(), csr, "{", frame.ReqInvalid, "ACS"},
	} {
		_, err := g.enrol(c.token, key, c.csr, c.draft)
		if frame.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v and %q", name, err, c.code, c.says)
		}
	}
	for name, m := range map[string]arp.Enrol{
		"listed without domains":      {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 1},
		"public with domains":         {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 2, Allow: []string{"a.example"}},
		"listed with what is no name": {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 1, Allow: []string{"No Name"}},
		"unknown visibility":          {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 9},
		"endless scope":               {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 2, Scope: make([]string, 33)},
		"unknown kind of draft":       {CSR: csr, Draft: []byte(pharmacyACS), DraftKind: 7},
	} {
		if _, err := g.enrolAs(g.token(), key, m); frame.CodeOf(err) != frame.ReqInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(g.rows()); n != 1 {
		t.Errorf("%d agents are registered, one was admitted", n)
	}
}

// expireToken makes a token of the past.
func expireToken(t *testing.T, g *gateway, tok arp.Token) {
	t.Helper()
	hash := sha(tok.Secret)
	name := "tok/" + hex.EncodeToString(hash[:])
	err := g.app.store.Transact(t.Context(), func(tx directory.Tx) error {
		record, err := tx.Get(name)
		if err != nil {
			return err
		}
		var m map[int]any
		if err := frame.Unmarshal(record, &m); err != nil {
			return err
		}
		m[1] = uint64(time.Now().Add(-time.Minute).Unix())
		record, err = frame.Marshal(m)
		tx.Set(name, record)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A lost answer: the same key with the same token completes the same registration.
func TestEnrolmentIsCompleted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	key := identitytest.NewKey(t)
	csr, _ := identity.NewCSR(key)
	token := g.token()
	first, err := g.enrol(token, key, csr, pharmacyACS)
	if err != nil {
		t.Fatal(err)
	}
	g.stop()
	g.start()
	again, err := g.enrol(token, key, csr, pharmacyACS)
	if err != nil {
		t.Fatal(err)
	}
	if again.AIC != first.AIC || len(g.rows()) != 1 {
		t.Errorf("enrolled as %s, then as %s; %d agents", first.AIC, again.AIC, len(g.rows()))
	}
}

// Where an operator decides, a request without a token waits, over the wire too, and is completed by the same key.
func TestEnrolmentWaitsForApproval(t *testing.T) {
	t.Parallel()
	g := newGatewayWith(t, "pharmacy.example", func(c *config.Gateway) { c.AMC.Deciders = []string{"token", "manual"} })
	key := identitytest.NewKey(t)
	csr, err := identity.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	here := g.token() // for the gateway's pin
	here.Secret = nil
	m := arp.Enrol{CSR: csr, Draft: []byte(pharmacyACS), Visibility: 2}
	waits, err := g.enrolAs(here, key, m)
	if err != nil || waits.Code != frame.Pending || len(waits.PendingID) != 16 || waits.RetryAfterMS == 0 || len(waits.Chain) != 0 {
		t.Fatalf("%+v, %v", waits, err)
	}
	if n := len(g.rows()); n != 0 {
		t.Errorf("%d agents are registered while nobody has decided", n)
	}
	open, err := g.app.Pending()
	if err != nil || len(open) != 1 || open[0].Attributes.Address == "" {
		t.Fatalf("pending %+v, %v", open, err)
	}
	if err := g.app.Decide(t.Context(), admin.DecideRequest{Request: open[0].ID, Approve: true, Scope: []string{"agw.discover", "acps.skill.invoke:medicine.sell"}}); err != nil {
		t.Fatal(err)
	}
	m.PendingID = waits.PendingID
	done, err := g.enrolAs(here, key, m)
	if err != nil || done.AIC == "" || len(done.Caps) != 1 {
		t.Fatalf("after the approval: %+v, %v", done, err)
	}
	again, err := g.enrolAs(here, key, m) // the answer was lost
	if err != nil || again.AIC != done.AIC {
		t.Errorf("the same request again is %s, %v", again.AIC, err)
	}
}

// Agents of one provider share its vendor code, whatever gateway they enrol at; another provider has another.
func TestVendorCodeIsOfTheProvider(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	vendor := func(draft string) string {
		t.Helper()
		key := identitytest.NewKey(t)
		csr, err := identity.NewCSR(key)
		if err != nil {
			t.Fatal(err)
		}
		done, err := g.enrol(g.token(), key, csr, draft)
		if err != nil {
			t.Fatal(err)
		}
		code, _ := aic.AIC(done.AIC).Codes()
		return code
	}
	one, two := vendor(pharmacyACS), vendor(strings.Replace(pharmacyACS, `"organization":"Pharmacy"`, `"organization":"  PHARMACY "`, 1))
	if other := vendor(strings.Replace(pharmacyACS, `"organization":"Pharmacy"`, `"organization":"Chemist"`, 1)); one != two || one == other {
		t.Errorf("vendors %s, %s and %s", one, two, other)
	}
	if none := vendor(strings.Replace(pharmacyACS, `"organization":"Pharmacy"`, ``, 1)); none != g.cfg.AIC.Vendor {
		t.Errorf("who names no organisation has the code %s", none)
	}
}
