package app

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// traveller is an agent of a domain of several gateways.
type traveller struct {
	t         *testing.T
	done      *arp.Enrolled
	cert      tls.Certificate
	statement []byte
	version   uint64
	stream    *endpoint.Stream // where it is attached
}

func newTraveller(t *testing.T, at *gateway) *traveller {
	t.Helper()
	done, cert := at.mustEnrol()
	a := &traveller{t: t, done: done, cert: cert}
	if info, err := a.attach(at, nil); err != nil || info.WantACS {
		t.Fatalf("attach where it has enrolled: %+v, %v", info, err)
	}
	return a
}

// attach attaches with a statement, and takes the newer one.
func (a *traveller) attach(g *gateway, statement []byte) (*arp.Attached, error) {
	a.t.Helper()
	s, info, err := g.attached(a.cert, &arp.Attach{AIC: a.done.AIC, BootID: bytes.Repeat([]byte{7}, 16), Grant: a.done.Grant, Entry: statement, Capacity: 9})
	if err == nil {
		a.stream = s
		if len(info.Entry) > 0 {
			a.statement, a.version = info.Entry, info.EntryVersion
		}
	}
	return info, err
}

// put sends the ACS of a version.
func (a *traveller) put(doc []byte, version uint64) (*arp.ACSState, error) {
	a.t.Helper()
	s, err := a.stream.Conn().Open(a.t.Context(), frame.StreamRegistration)
	if err != nil {
		return nil, err
	}
	if err := s.WriteMessage(5*time.Second, &arp.ACSPut{AIC: a.done.AIC, ACS: doc, Expected: version}); err != nil {
		return nil, err
	}
	typ, payload, err := s.ReadFrame(5 * time.Second)
	if err != nil {
		return nil, err
	}
	if typ == frame.Answer {
		var no arp.Answer
		if err := frame.Unmarshal(payload, &no); err != nil {
			a.t.Fatal(err)
		}
		return nil, no.Err()
	}
	out := new(arp.ACSState)
	return out, frame.Unmarshal(payload, out)
}

// move makes a gateway the agent's home.
func (a *traveller) move(to *gateway) {
	a.t.Helper()
	info, err := a.attach(to, a.statement)
	if err != nil || !info.WantACS {
		a.t.Fatalf("attach at another gateway: %+v, %v", info, err)
	}
	state, err := a.put(a.done.ACS, a.version)
	if err != nil || state.EntryVersion != a.version+1 || len(state.Entry) == 0 || len(state.Caps) != len(a.done.Caps) {
		a.t.Fatalf("at home: %+v, %v", state, err)
	}
	a.statement, a.version = state.Entry, state.EntryVersion
}

// keepalive says which statement the agent has, and returns the answer, whatever comes before it.
func (a *traveller) keepalive() (k arp.Keepalive) {
	a.t.Helper()
	if err := a.stream.WriteMessage(5*time.Second, &arp.Keepalive{TSMS: 1, Version: a.version, Pad: arp.KeepalivePad}); err != nil {
		a.t.Fatal(err)
	}
	for range 100 {
		typ, payload, err := a.stream.ReadFrame(5 * time.Second)
		if err != nil {
			a.t.Fatal(err)
		}
		if typ == frame.CtlKeepalive {
			if err := frame.Unmarshal(payload, &k); err != nil {
				a.t.Fatal(err)
			}
			return k
		}
	}
	a.t.Fatal("no CTL_KEEPALIVE comes")
	return k
}

// found is how many agents a gateway finds.
func (g *gateway) found() int {
	out, err := g.app.Resolve(g.t.Context(), semreq.Ask{NoCache: true, Query: semreq.Query{Text: "sore throat remedies"}})
	if err != nil {
		return 0
	}
	return len(out.Results)
}

// An agent whose gateway is gone is at home at another one of its domain, and again at the first when it likes; the others know.
func TestAgentsMoveBetweenGatewaysOfADomain(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 3)
	a := newTraveller(t, list[0])
	if info, err := a.attach(list[0], nil); err != nil || len(info.Gateways) != 2 || len(info.Gateways[0].Addresses) == 0 {
		t.Fatalf("attached, with %+v: %v", info, err)
	}
	home := list[0].app.home.gateway
	list[0].stop()
	a.move(list[1])
	eventually(t, "the third gateway finds it", func() bool { return list[2].found() == 1 })
	list[0].start()
	eventually(t, "it is connected again", func() bool { return list[0].connected() == 2 })
	eventually(t, "the first hears that it has moved", func() bool {
		return list[0].app.registry.MovedTo(a.done.AIC).Gateway == string(list[1].app.home.gateway)
	})
	eventually(t, "and finds it where it is", func() bool { return list[0].found() == 1 })
	if l, ok := list[0].app.registry.Listing(a.done.AIC); !ok || l.MovedTo == "" {
		t.Errorf("listed as %+v", l)
	}

	// A keepalive brings what the operator has changed since.
	if err := list[1].app.Deprecate(t.Context(), admin.DeprecateRequest{AIC: a.done.AIC}); err != nil {
		t.Fatal(err)
	}
	k := a.keepalive()
	if k.Version != a.version+1 || len(k.Entry) == 0 {
		t.Fatalf("keepalive %+v", k)
	}
	old, oldVersion := a.statement, a.version
	a.statement, a.version = k.Entry, k.Version
	a.move(list[0])
	if e, err := list[0].app.registry.Get(a.done.AIC); err != nil || e.State != directory.Deprecated || e.Provenance.From != string(list[1].app.home.gateway) {
		t.Errorf("back home as %v from %q: %v", e.State, e.Provenance.From, err)
	}
	eventually(t, "the second hears of it", func() bool { return list[1].app.registry.MovedTo(a.done.AIC).Gateway == string(home) })

	// An old statement is good only until the home is heard.
	if info, err := a.attach(list[2], old); err != nil || !info.WantACS {
		t.Fatalf("with an old statement: %+v, %v", info, err)
	}
	if state, err := a.put(a.done.ACS, oldVersion); err == nil && state.EntryVersion != oldVersion+1 { // the home may be heard before the answer is
		t.Errorf("%+v", state)
	}
	eventually(t, "the home has its way", func() bool {
		return list[2].app.registry.MovedTo(a.done.AIC).Gateway == string(home) && list[0].app.registry.MovedTo(a.done.AIC).Gateway == ""
	})
	select {
	case <-a.stream.Conn().Context().Done():
	case <-time.After(5 * time.Second):
		t.Error("it stays attached at a gateway that is not its home")
	}

	// After a restart of all that are concerned the home is still one.
	for _, g := range list {
		g.stop()
	}
	for _, g := range list {
		g.start()
	}
	for _, g := range list {
		eventually(t, "they are connected again", func() bool { return g.connected() == 2 })
	}
	defer func() {
		if t.Failed() {
			for i, g := range list {
				e, err := g.app.registry.Get(a.done.AIC)
				t.Log(i, g.app.home.gateway, e.Version, e.State, e.Provenance.From, err, "moved to", g.app.registry.MovedTo(a.done.AIC), g.app.registry.Adopted())
			}
		}
	}()
	eventually(t, "all know", func() bool {
		for _, g := range list[1:] {
			if g.app.registry.MovedTo(a.done.AIC).Gateway != string(home) {
				return false
			}
		}
		return list[0].app.registry.MovedTo(a.done.AIC).Gateway == ""
	})
}

func TestWhoMayMove(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 2)
	alone := newGateway(t, "alone.example")
	if done, cert := alone.mustEnrol(); true {
		_, info, err := alone.attached(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant})
		if err != nil || len(info.Entry) > 0 || len(info.Gateways) > 0 {
			t.Errorf("where there is nowhere to go: %+v, %v", info, err)
		}
	}
	a, b := newTraveller(t, list[0]), newTraveller(t, list[0])
	other := list[1]
	for name, entry := range map[string][]byte{
		"without a statement":           nil,
		"with another agent's":          b.statement,
		"with one that was altered":     append(bytes.Clone(a.statement[:len(a.statement)-1]), a.statement[len(a.statement)-1]^1),
		"with what is none":             []byte("hello"),
		"with one of before a re-key":   restated(t, list[0], a.done.AIC, func(s *arp.Statement) { s.SPKI = make([]byte, 32) }),
		"with one of another grant":     restated(t, list[0], a.done.AIC, func(s *arp.Statement) { s.JTI = make([]byte, 16) }),
		"with one that is over":         restated(t, list[0], a.done.AIC, func(s *arp.Statement) { s.Exp = 1 }),
		"with one that says suspended":  restated(t, list[0], a.done.AIC, func(s *arp.Statement) { s.State = 2 }),
		"with one in another's name":    restated(t, list[0], a.done.AIC, func(s *arp.Statement) { s.GW = string(other.app.home.gateway) }),
		"with one that is not complete": restated(t, list[0], a.done.AIC, func(s *arp.Statement) { s.ACSHash = nil }),
		"with one of another domain":    restated(t, alone, a.done.AIC, func(*arp.Statement) {}),
	} {
		if info, err := a.attach(other, entry); err == nil {
			t.Errorf("%s: attached, %+v", name, info)
		}
	}
	if info, err := a.attach(other, a.statement); err != nil || !info.WantACS {
		t.Fatalf("%+v, %v", info, err)
	}
	changed := bytes.Replace(a.done.ACS, []byte("Sells medicine."), []byte("Sells anything."), 1)
	if _, err := a.put(changed, a.version); frame.CodeOf(err) != frame.State || !strings.Contains(err.Error(), "not the one") {
		t.Errorf("with another ACS: %v", err)
	}
	if _, err := a.put(a.done.ACS, a.version+1); frame.CodeOf(err) != frame.State {
		t.Errorf("of another version: %v", err)
	}
	if _, err := a.put([]byte("{}"), a.version); frame.CodeOf(err) != frame.ReqInvalid && frame.CodeOf(err) != frame.State {
		t.Errorf("with what is no ACS: %v", err)
	}
	if _, err := other.app.registry.Get(a.done.AIC); err == nil {
		t.Error("it has an entry without having brought its ACS")
	}
	if n := other.app.agents.Attached(); n == 0 {
		t.Error("a refused ACS ends the connection")
	}

	// A new key is for the gateway alone that has seen the old one; the old key takes the registration along.
	a.move(other)
	stranger := identitytest.NewKey(t)
	strange, err := identity.NewCSR(stranger)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // an entry that has changed a moment ago takes no renewal
	if _, err := other.renew(a.cert, a.done.AIC, strange); frame.CodeOf(err) != frame.Binding {
		t.Errorf("a new key at a new gateway: %v", err)
	}
	own, err := identity.NewCSR(a.cert.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.renew(a.cert, a.done.AIC, own); err != nil {
		t.Errorf("renew at the new gateway: %v", err)
	}
	if _, err := list[0].renew(a.cert, a.done.AIC, own); frame.CodeOf(err) != frame.State {
		t.Errorf("renew where it is not at home any more: %v", err)
	}

	// What has been withdrawn comes back nowhere.
	if err := other.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: a.done.AIC}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its credential counts nowhere", func() bool {
		_, err := a.attach(list[0], a.statement)
		return err != nil
	})
	if _, err := a.attach(other, a.statement); err == nil {
		t.Error("attached where it was withdrawn")
	}
}

// What an operator has set bounds an agent wherever it goes.
func TestAMovedAgentIsSeenByNoMore(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 2)
	a := newTraveller(t, list[0])
	e, err := list[0].app.registry.Get(a.done.AIC)
	if err != nil {
		t.Fatal(err)
	}
	narrow := directory.Reach{Visibility: directory.VisibleDomain}
	e.Bound, e.Visibility = &narrow, narrow.Visibility
	if e, err = list[0].app.registry.Update(t.Context(), e, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.attach(list[0], nil); err != nil {
		t.Fatal(err)
	}
	a.move(list[1])
	if _, err := a.put(bytes.Replace(a.done.ACS, []byte("Sells medicine."), []byte("Sells medicine at night."), 1), a.version); err != nil {
		t.Fatal(err)
	}
	got, err := list[1].app.registry.Get(a.done.AIC)
	if err != nil || got.Bound == nil || got.Visibility != narrow.Visibility || got.Bound.Visibility != narrow.Visibility {
		t.Errorf("after a move it is %v within %+v: %v", got.Visibility, got.Bound, err)
	}
}

// restated is the statement of an entry, changed and signed by a gateway.
func restated(t *testing.T, by *gateway, id string, change func(*arp.Statement)) []byte {
	t.Helper()
	s := arp.Statement{AIC: id, GW: string(by.app.home.gateway), Version: 7, Registered: 1, Exp: uint64(time.Now().Add(time.Hour).Unix())}
	if e, err := by.app.registry.Get(id); err == nil {
		jti, _ := hex.DecodeString(e.Provenance.Grant)
		s.ACSHash, s.SPKI, s.JTI, s.State = e.ACSHash[:], e.Provenance.SPKI[:], jti, uint8(e.State)
	} else {
		s.ACSHash, s.SPKI, s.JTI = make([]byte, 32), make([]byte, 32), make([]byte, 16)
	}
	change(&s)
	signed, err := s.Sign(by.app.home.signer(identity.UseDigest)())
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// An agent that shows an old statement, or none, where it was before is not at home there, however often it tries: what its operator has set at its
// home stands.
func TestAttachingAgainAndAgainUndoesNothing(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 2)
	a := newTraveller(t, list[0])
	old := a.statement
	a.move(list[1])
	home := string(list[1].app.home.gateway)
	eventually(t, "the move is heard", func() bool { return list[0].app.registry.MovedTo(a.done.AIC).Gateway == home })
	e, err := list[1].app.registry.Get(a.done.AIC)
	if err != nil {
		t.Fatal(err)
	}
	e.Bound, e.Visibility = &directory.Reach{Visibility: directory.VisiblePrivate}, directory.VisiblePrivate
	if _, err = list[1].app.registry.Update(t.Context(), e, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		for _, statement := range [][]byte{nil, old} {
			if _, err := a.attach(list[0], statement); frame.CodeOf(err) != frame.State {
				t.Fatalf("attached where it is not at home: %v", err)
			}
		}
	}
	if e, err := list[1].app.registry.Get(a.done.AIC); err != nil || e.Visibility != directory.VisiblePrivate || list[1].app.registry.MovedTo(a.done.AIC).Gateway != "" {
		t.Errorf("at home %v within %+v: %v", e.Visibility, e.Bound, err)
	}
}

// Standing is looked at when an agent brings its ACS, and an agent that has not is no agent of the gateway.
func TestAnAgentThatHasNotBroughtItsACS(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 2)
	a := newTraveller(t, list[0])
	if info, err := a.attach(list[1], a.statement); err != nil || !info.WantACS {
		t.Fatalf("%+v, %v", info, err)
	}
	req, err := semreq.Ask{Query: semreq.Query{Text: "medicine"}}.Request()
	if err != nil {
		t.Fatal(err)
	}
	q, err := a.stream.Conn().Open(t.Context(), frame.StreamRequest)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.WriteMessage(5*time.Second, req); err != nil {
		t.Fatal(err)
	}
	if err := q.ReadMessage(5*time.Second, new(semreq.Response)); frame.CodeOf(err) != frame.State {
		t.Errorf("it is answered: %v", err)
	}
	if _, ok := list[1].app.agents.Key(a.done.AIC); ok {
		t.Error("it may be offered sessions")
	}
	if err := list[0].app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: a.done.AIC}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other gateway lets it go", func() bool { return a.stream.Conn().Context().Err() != nil })
	if _, err := list[1].app.registry.Get(a.done.AIC); err == nil {
		t.Error("it has an entry there")
	}
}

// What is withdrawn at the home is withdrawn everywhere, wherever the agent has registered; and a former home has nothing to say any more.
func TestWithdrawnAtItsHome(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 2)
	for i, from := range list {
		to := list[1-i]
		a := newTraveller(t, list[0])
		if from != list[0] {
			a.move(from)
		}
		a.move(to)
		eventually(t, "the move is heard", func() bool {
			return from.app.registry.MovedTo(a.done.AIC).Gateway == string(to.app.home.gateway)
		})
		if err := from.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: a.done.AIC}); frame.CodeOf(err) != frame.State {
			t.Errorf("withdrawn where it is not at home: %v", err)
		}
		if err := to.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: a.done.AIC}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it attaches nowhere", func() bool {
			_, here := a.attach(from, nil)
			_, there := a.attach(to, a.statement)
			return here != nil && there != nil
		})
	}
}

// A certificate request that a former home has seen is of no use to it.
func TestAFormerHomeCannotTakeAnAgent(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 2)
	a := newTraveller(t, list[0])
	a.move(list[1])
	center, other := list[0].app.amc, string(list[1].app.home.gateway)
	seen, err := identity.NewCSR(a.cert.PrivateKey.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	thief, err := identity.NewCSR(identitytest.NewKey(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := center.Issue(t.Context(), other, &arp.Renew{AIC: a.done.AIC, CSR: seen}); err != nil {
		t.Errorf("over the key that it has: %v", err)
	}
	if _, err := center.Issue(t.Context(), other, &arp.Renew{AIC: a.done.AIC, CSR: thief}); frame.CodeOf(err) != frame.Binding {
		t.Errorf("over another one: %v", err)
	}
}
