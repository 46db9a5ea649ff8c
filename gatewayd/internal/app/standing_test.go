package app

import (
	"crypto"
	"crypto/x509"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

func (g *gateway) setStanding(id, state string) {
	g.t.Helper()
	if err := g.app.SetStanding(g.t.Context(), admin.StandingRequest{AIC: id, State: state}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) stateOf(t *testing.T, id string) directory.State {
	t.Helper()
	e, err := g.app.registry.Get(id)
	if errors.Is(err, directory.ErrNotFound) {
		tomb, err := g.app.store.Ended(id)
		if err != nil {
			t.Fatal(err)
		}
		return tomb.State
	}
	if err != nil {
		t.Fatal(err)
	}
	return e.State
}

// A suspended agent loses its connection and its place in the directory, and has both again when it is resumed; a revoked one
// does not. The other agents are told, for their sessions.
func TestSuspendResumeRevoke(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol()
	witness, witnessCert := g.mustEnrol()
	other, err := g.attach(witnessCert, &arp.Attach{AIC: witness.AIC, BootID: make([]byte, 16), Grant: witness.Grant})
	if err != nil {
		t.Fatal(err)
	}
	m := &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}
	s, err := g.attach(cert, m)
	if err != nil {
		t.Fatal(err)
	}
	g.setStanding(done.AIC, "suspended")
	select {
	case <-s.Conn().Context().Done():
	case <-time.After(5 * time.Second):
		t.Error("the connection of a suspended agent lives on")
	}
	if code := frame.CodeOf(s.Conn().Err()); code != frame.CertStatus {
		t.Errorf("it was closed with %v", code)
	}
	if state := g.stateOf(t, done.AIC); state != directory.Suspended {
		t.Errorf("its entry is %v", state)
	}
	told := 0
	for told < 2 { // STATUS, SESSION_REVOKE
		typ, payload, err := other.ReadFrame(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		switch typ {
		case frame.StatusFrame:
			told++
		case frame.SessionRevoke:
			var r arp.SessionRevoke
			if err := frame.Unmarshal(payload, &r); err != nil || r.Kind != arp.RevokePeer || !reflect.DeepEqual(r.Value, []any{done.AIC}) {
				t.Errorf("%+v, %v", r, err)
			}
			told++
		}
	}
	if _, err := g.attach(cert, m); frame.CodeOf(err) == frame.OK {
		t.Error("a suspended agent attaches")
	}
	g.setStanding(done.AIC, "good")
	eventually(t, "the entry active again", func() bool { return g.stateOf(t, done.AIC) == directory.Active })
	if _, err := g.attach(cert, m); err != nil {
		t.Errorf("after it was resumed: %v", err)
	}
	g.setStanding(done.AIC, "revoked")
	eventually(t, "the entry ended", func() bool { return g.stateOf(t, done.AIC) == directory.Revoked })
	if _, err := g.attach(cert, m); err == nil {
		t.Error("a revoked agent attaches")
	}
	if err := g.app.SetStanding(t.Context(), admin.StandingRequest{AIC: done.AIC, State: "good"}); frame.CodeOf(err) != frame.State {
		t.Errorf("resuming a revoked agent: %v", err)
	}
}

// What the AMC has decided while the gateway could not act, or died half way, is brought about at its next start.
func TestStandingIsCaughtUpAtStart(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, _ := g.mustEnrol()
	g.setStanding(done.AIC, "suspended")
	eventually(t, "suspended", func() bool { return g.stateOf(t, done.AIC) == directory.Suspended })
	if err := g.app.registry.SetState(t.Context(), done.AIC, directory.Active, time.Now()); err != nil { // as if it had not been done
		t.Fatal(err)
	}
	g.stop()
	g.start()
	if state := g.stateOf(t, done.AIC); state != directory.Suspended {
		t.Errorf("after the start its entry is %v", state)
	}
}

// A new key under the same AIC: the credential is of the new key, the old one opens nothing any more.
func TestReKey(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol()
	g.age(done.AIC, time.Minute)
	key := identitytest.NewKey(t)
	csr, err := identity.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	next, err := g.renew(cert, done.AIC, csr)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := identity.TLSCertificate(next.Chain, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.attach(fresh, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: next.Grant}); err != nil {
		t.Errorf("attach under the new key: %v", err)
	}
	if _, err := g.attach(fresh, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("attach with the grant of the old key: %v", err)
	}
	if _, err := g.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err == nil {
		t.Error("the old key still attaches")
	}
}

// A connection of before a re-key can do nothing with the old key.
func TestReKeyVoidsOlderConnections(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol()
	g.age(done.AIC, time.Minute)
	dial := func() *endpoint.Conn {
		c, err := g.ep.Dial(t.Context(), g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
			Certificate: cert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	attaching, leaving := dial(), dial()
	csr, err := identity.NewCSR(identitytest.NewKey(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.renew(cert, done.AIC, csr); err != nil {
		t.Fatal(err)
	}
	s, err := attaching.Open(t.Context(), frame.StreamControl)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteMessage(time.Second, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err != nil {
		t.Fatal(err)
	}
	var a arp.Attached
	if err := s.ReadMessage(5*time.Second, &a); err != nil || a.Code != frame.IdentityMismatch {
		t.Errorf("ATTACH under the old key: %v, %v", a.Code, err)
	}
	if s, err = leaving.Open(t.Context(), frame.StreamRegistration); err != nil {
		t.Fatal(err)
	}
	typ, payload := verb(t, s, &arp.Deregister{AIC: done.AIC})
	var no arp.Answer
	if err := frame.Unmarshal(payload, &no); err != nil || typ != frame.Answer || no.Code != frame.IdentityMismatch {
		t.Errorf("DEREGISTER under the old key: %v, %v", no.Code, err)
	}
}

// verb sends one frame of a registration stream on the connection of s and reads the answer.
func verb(t *testing.T, s *endpoint.Stream, m frame.Message) (frame.Type, []byte) {
	t.Helper()
	stream, err := s.Conn().Open(t.Context(), frame.StreamRegistration)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.WriteMessage(5*time.Second, m); err != nil {
		t.Fatal(err)
	}
	typ, payload, err := stream.ReadFrame(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return typ, payload
}

func TestACSPut(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol("agw.discover", "acps.skill.invoke:medicine.sell")
	s, err := g.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant})
	if err != nil {
		t.Fatal(err)
	}
	put := func(m arp.ACSPut) (arp.ACSState, error) {
		t.Helper()
		var out arp.ACSState
		typ, payload := verb(t, s, &m)
		if typ == frame.Answer {
			var a arp.Answer
			if err := frame.Unmarshal(payload, &a); err != nil {
				t.Fatal(err)
			}
			return out, a.Err()
		}
		return out, frame.Unmarshal(payload, &out)
	}
	changed := strings.Replace(pharmacyACS, "Sells medicine.", "Sells medicine at night.", 1)
	good := arp.ACSPut{AIC: done.AIC, ACS: []byte(changed), Expected: done.EntryVersion, Visibility: 2}
	out, err := put(good)
	if err != nil || out.EntryVersion != done.EntryVersion+1 || len(out.Caps) != 1 || len(out.Removed) != 1 || !strings.Contains(string(out.ACS), "at night") {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := put(good); frame.CodeOf(err) != frame.State || !strings.Contains(err.Error(), "version") {
		t.Errorf("over an entry that has changed: %v", err)
	}
	good.Expected = out.EntryVersion
	bad := good
	bad.ACS = []byte(`{"name":1}`)
	if _, err := put(bad); frame.CodeOf(err) != frame.ReqInvalid {
		t.Errorf("what is no ACS: %v", err)
	}
	bad = good
	bad.AIC = string(g.app.home.gateway)
	if _, err := put(bad); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("for another: %v", err)
	}
	moved := good
	moved.ACS = []byte(strings.Replace(changed, `"organization":"Pharmacy"`, `"organization":"Chemist"`, 1))
	if _, err := put(moved); err != nil {
		t.Errorf("with another provider: %v", err)
	}
	for range 10 { // they cost the directory a write each
		if _, err = put(good); frame.CodeOf(err) == frame.RateLimited {
			break
		}
	}
	if frame.CodeOf(err) != frame.RateLimited {
		t.Errorf("one after the other: %v", err)
	}
	g.age(done.AIC, time.Minute)
	csr, err := identity.NewCSR(cert.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	next, err := g.renew(cert, done.AIC, csr)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := identity.TLSCertificate(next.Chain, cert.PrivateKey.(crypto.Signer))
	if err != nil || len(renewed.Leaf.Subject.Organization) != 1 || renewed.Leaf.Subject.Organization[0] != "Chemist" {
		t.Errorf("the next certificate is of %v, %v", renewed.Leaf.Subject, err)
	}
	m := &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}
	if _, err := g.attach(renewed, m); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("attach with the grant that another provider had: %v", err)
	}
	m.Grant = next.Grant
	if _, err := g.attach(renewed, m); err != nil {
		t.Errorf("attach with the newest grant: %v", err)
	}
}

func TestDeregister(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol()
	m := &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}
	s, err := g.attach(cert, m)
	if err != nil {
		t.Fatal(err)
	}
	typ, payload := verb(t, s, &arp.Deregister{AIC: done.AIC, Reason: "closing"})
	var a arp.Answer
	if err := frame.Unmarshal(payload, &a); err != nil || typ != frame.Answer || a.Code != frame.OK {
		t.Fatalf("%v %+v %v", typ, a, err)
	}
	select {
	case <-s.Conn().Context().Done():
	case <-time.After(5 * time.Second):
		t.Error("its connection lives on")
	}
	if state := g.stateOf(t, done.AIC); state != directory.Withdrawn {
		t.Errorf("its entry is %v", state)
	}
	if st, err := g.app.amc.Agent(done.AIC); err != nil || st.State != identity.Revoked {
		t.Errorf("its credentials are %v, %v", st.State, err)
	}
	if _, err := g.attach(cert, m); err == nil {
		t.Error("it attaches again")
	}
}

// What one domain's AMC decides, another domain's gateway obeys within seconds, through the list that it is sent.
func TestForeignSuspensionIsObeyed(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	done, _ := two.mustEnrol()
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}})
	two.addPeer(one, PeerOptions{Role: "peer"})
	witness, witnessCert := one.mustEnrol()
	other, err := one.attach(witnessCert, &arp.Attach{AIC: witness.AIC, BootID: make([]byte, 16), Grant: witness.Grant})
	if err != nil {
		t.Fatal(err)
	}
	standing := func() error { return one.app.peers.Standing(t.Context(), done.AIC, nil) }
	eventually(t, "in good standing", func() bool { return standing() == nil })
	two.setStanding(done.AIC, "suspended")
	eventually(t, "suspended abroad too", func() bool { return frame.CodeOf(standing()) == frame.CertStatus })
	mustHearRevoke(t, other, arp.RevokePeer, []any{done.AIC})
	two.setStanding(done.AIC, "good")
	eventually(t, "good again abroad too", func() bool { return standing() == nil })
	if err := RemovePeer(one.cfg, "two.example"); err != nil {
		t.Fatal(err)
	}
	if err := one.app.ReloadPeers(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustHearRevoke(t, other, arp.RevokeUnder, two.app.trust.Own().Prefixes[0])
}

// mustHearRevoke reads what an attached agent is sent until it hears of a revocation.
func mustHearRevoke(t *testing.T, s *endpoint.Stream, kind uint8, value any) {
	t.Helper()
	for {
		typ, payload, err := s.ReadFrame(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if typ != frame.SessionRevoke {
			continue
		}
		var r arp.SessionRevoke
		if err := frame.Unmarshal(payload, &r); err != nil || r.Check() != nil || r.Kind != kind || !reflect.DeepEqual(r.Value, value) {
			t.Errorf("%+v, %v, want kind %d of %v", r, err, kind, value)
		}
		return
	}
}

// A list that says nothing new goes to nobody: another AMC of the domain, which says it again and again, would have every agent told each time.
func TestAListThatIsHeldIsNotToldAgain(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol()
	s, err := g.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant})
	if err != nil {
		t.Fatal(err)
	}
	own := g.app.trust.Own()
	mark := func(what string) (lists int) {
		t.Helper()
		g.app.agents.Announce(&arp.Bundle{Bundle: []byte(what)})
		for {
			typ, payload, err := s.ReadFrame(5 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			var b arp.Bundle
			switch {
			case typ == frame.StatusFrame:
				lists++
			case typ == frame.BundleFrame && frame.Unmarshal(payload, &b) == nil && string(b.Bundle) == what:
				return lists
			}
		}
	}
	mark("before")
	held := g.app.statuses.Raw(own.Issuer)
	if len(held) == 0 {
		t.Fatal("no list is held")
	}
	for range 3 {
		g.app.takeStatus(t.Context(), held)
	}
	if n := mark("after"); n != 0 {
		t.Errorf("the agent was told of a list that it has %d times", n)
	}
}
