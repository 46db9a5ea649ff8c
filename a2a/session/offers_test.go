package session

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

const (
	agentA, agentB, agentC = "1.2.A.AGENT", "1.2.B.AGENT", "1.2.B.OTHER"
	gatewayB               = "1.2.B.GW"
	capB                   = "acps://" + agentB + "/x"
)

var (
	gatewaySigner = frame.NewSigner(ed25519.NewKeyFromSeed(make([]byte, 32)))
	remoteA       = Remote{AIC: agentA, SPKI: wire.Hash{4}}
)

func keysB(id frame.KeyID) (frame.VerifyKey, bool) {
	return frame.VerifyKey{Public: gatewaySigner.Public(), Owner: gatewayB, Domain: "b.example"}, id == gatewaySigner.KeyID()
}

func domainOf(aic string) string {
	return map[string]string{agentA: "a.example", agentB: "b.example", agentC: "b.example"}[aic]
}

func minted(t *testing.T, change func(*token.SAT)) ([]byte, token.SAT) {
	t.Helper()
	sat := token.SAT{
		Issuer: gatewayB, Subject: agentA, Audience: agentB, Issued: uint64(t0.Unix()), ID: wire.ID{1}, Confirm: token.Confirm{SPKI: wire.Hash{4}},
		Scope: []string{"acps.skill.invoke:x"}, TargetSPKI: wire.Hash{5}, Sid: wire.ID{6}, Cap: capB, Txn: wire.ID{3},
	}
	if change != nil {
		change(&sat)
	}
	b, err := token.MintSAT(gatewaySigner, sat)
	if err != nil {
		t.Fatal(err)
	}
	sat, err = token.VerifySAT(b, keysB, domainOf)
	if err != nil {
		t.Fatal(err)
	}
	return b, sat
}

func initOf(sat []byte) *wire.SessionInit {
	return &wire.SessionInit{Version: 1, Sid: wire.ID{6}, Initiator: agentA, Target: agentB, Cap: capB, SAT: sat, Params: DefaultParams()}
}

// present runs the target's checks, up to the offer, on an INIT from remote at the target me.
func present(offers *Offers, m *wire.SessionInit, me string, remote Remote, now time.Time) error {
	sat, p, err := CheckInitToken(m, me, remote, keysB, domainOf, now)
	if err != nil {
		return err
	}
	return offers.Consume(sat.ID, p, now)
}

// Row 33 of the failure cases: a SAT replayed as it is, under another key, at another target, for another sid.
func TestCase33SATReplayed(t *testing.T) {
	fresh := func() (*Offers, []byte) {
		b, sat := minted(t, nil)
		offers := NewOffers(agentB)
		if err := offers.Add(sat, "a.example", t0); err != nil {
			t.Fatal(err)
		}
		return offers, b
	}
	offers, b := fresh()
	if err := present(offers, initOf(b), agentB, remoteA, t0); err != nil {
		t.Fatalf("first use: %v", err)
	}
	otherKey := Remote{AIC: agentA, SPKI: wire.Hash{9}}
	otherSid := initOf(b)
	otherSid.Sid = wire.ID{9}
	toOther := initOf(b)
	toOther.Target = agentC
	tests := []struct {
		name   string
		init   *wire.SessionInit
		me     string
		remote Remote
		want   frame.Code
	}{
		{"as it is", initOf(b), agentB, remoteA, frame.TokenReplayed},
		{"other key", initOf(b), agentB, otherKey, frame.Binding},
		{"other target", toOther, agentC, remoteA, frame.Audience},
		{"other target, INIT unchanged", initOf(b), agentC, remoteA, frame.Audience},
		{"other sid", otherSid, agentB, remoteA, frame.Binding},
	}
	for _, tt := range tests {
		if err := present(offers, tt.init, tt.me, tt.remote, t0); frame.CodeOf(err) != tt.want {
			t.Errorf("%s, used: %v, want %v", tt.name, err, tt.want)
		}
		if tt.want == frame.TokenReplayed {
			continue
		}
		// The same before its first use: nothing is used up by it.
		offers, b := fresh()
		if err := present(offers, tt.init, tt.me, tt.remote, t0); frame.CodeOf(err) != tt.want {
			t.Errorf("%s, not used: %v, want %v", tt.name, err, tt.want)
		}
		if err := present(offers, initOf(b), agentB, remoteA, t0); err != nil {
			t.Errorf("%s used up the offer of another: %v", tt.name, err)
		}
	}
	// The offer memory says the same where it alone is asked.
	_, sat := minted(t, nil)
	p := token.Presented{Target: agentB, Initiator: agentA, SPKI: wire.Hash{9}, Sid: wire.ID{6}, Cap: capB}
	if err := offers.Outstanding(sat.ID, p, t0); frame.CodeOf(err) != frame.Binding {
		t.Errorf("offer under another key: %v", err)
	}
}

func TestCase60OfferBounds(t *testing.T) {
	offers := NewOffers(agentB)
	add := func(n byte, origin string) error {
		_, sat := minted(t, func(s *token.SAT) { s.ID = wire.ID{n + 1}; s.Sid = wire.ID{n + 1} })
		return offers.Add(sat, origin, t0)
	}
	for i := range byte(MaxOriginOffers) {
		if err := add(i, "a.example"); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(100, "a.example"); frame.CodeOf(err) != frame.Overloaded {
		t.Errorf("17th offer to one domain: %v", err)
	}
	for i := range byte(MaxOffers - MaxOriginOffers) {
		if err := add(101+i, fmt.Sprintf("%d.example", i/16)); err != nil {
			t.Fatal(err)
		}
	}
	if err := offers.Room("new.example", t0); frame.CodeOf(err) != frame.Overloaded {
		t.Errorf("65th offer: %v", err)
	}
	if err := offers.Room("new.example", t0.Add(151*time.Second)); err != nil {
		t.Errorf("offers are kept until exp + 30 s: %v", err)
	}
}

// An INIT before its offer has come is refused; once the offer is there the same INIT opens the session.
func TestCase60InitBeforeOffer(t *testing.T) {
	b, sat := minted(t, nil)
	offers := NewOffers(agentB)
	if err := present(offers, initOf(b), agentB, remoteA, t0); frame.CodeOf(err) != frame.TokenInvalid {
		t.Errorf("before its offer: %v", err)
	}
	if offers.Admits(remoteA, t0) {
		t.Error("a key that no offer names is admitted")
	}
	if err := offers.Add(sat, "a.example", t0); err != nil {
		t.Fatal(err)
	}
	if !offers.Admits(remoteA, t0) || offers.Admits(Remote{AIC: agentA, SPKI: wire.Hash{9}}, t0) || offers.Admits(Remote{AIC: agentC, SPKI: wire.Hash{4}}, t0) {
		t.Error("an outstanding offer admits its own key and no other")
	}
	if got, ok := offers.Find(ServerName(sat.Sid), t0); !ok || got.ID != sat.ID {
		t.Error("offer is not found by its server name")
	}
	if err := present(offers, initOf(b), agentB, remoteA, t0); err != nil {
		t.Errorf("after its offer: %v", err)
	}
	if offers.Admits(remoteA, t0) {
		t.Error("a used offer admits")
	}
	if err := offers.Add(sat, "a.example", t0); frame.CodeOf(err) != frame.TokenReplayed {
		t.Errorf("a used offer is offered again: %v", err)
	}
	old := NewOffers(agentB)
	if err := old.Add(sat, "a.example", t0); err != nil || !old.Admits(remoteA, t0.Add(150*time.Second)) || old.Admits(remoteA, t0.Add(151*time.Second)) {
		t.Errorf("an offer admits until exp + 30 s: %v", err)
	}
}

func TestOfferRefused(t *testing.T) {
	_, sat := minted(t, nil)
	if err := NewOffers(agentC).Add(sat, "a.example", t0); frame.CodeOf(err) != frame.Audience {
		t.Error(err)
	}
	if err := NewOffers(agentB).Add(sat, "a.example", t0.Add(time.Hour)); frame.CodeOf(err) != frame.TokenExpired {
		t.Error(err)
	}
}

func TestInitChecks(t *testing.T) {
	b, _ := minted(t, nil)
	tests := []struct {
		name   string
		change func(*wire.SessionInit)
		remote Remote
		at     time.Duration
		want   frame.Code
	}{
		{name: "good"},
		{name: "tampered token", change: func(m *wire.SessionInit) { m.SAT = append([]byte(nil), b...); m.SAT[len(b)-1] ^= 1 }, want: frame.BadSignature},
		{name: "initiator is not the peer", change: func(m *wire.SessionInit) { m.Initiator = agentC }, want: frame.Binding},
		{name: "peer is not the subject", remote: Remote{AIC: agentC, SPKI: wire.Hash{4}}, change: func(m *wire.SessionInit) { m.Initiator = agentC }, want: frame.Binding},
		{name: "other capability", change: func(m *wire.SessionInit) { m.Cap += "y" }, want: frame.Binding},
		{name: "late", at: 151 * time.Second, want: frame.TokenExpired},
	}
	for _, tt := range tests {
		m, remote := initOf(b), remoteA
		if tt.change != nil {
			tt.change(m)
		}
		if tt.remote.AIC != "" {
			remote = tt.remote
		}
		if _, _, err := CheckInitToken(m, agentB, remote, keysB, domainOf, t0.Add(tt.at)); frame.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestCheckHeld(t *testing.T) {
	_, sat := minted(t, nil)
	if err := CheckHeld(sat, agentA, wire.Hash{4}, t0); err != nil {
		t.Error(err)
	}
	if err := CheckHeld(sat, agentA, wire.Hash{9}, t0); frame.CodeOf(err) != frame.Binding {
		t.Error(err)
	}
	if err := CheckHeld(sat, agentC, wire.Hash{4}, t0); frame.CodeOf(err) != frame.Binding {
		t.Error(err)
	}
}

// To foreign domains every failed check of the token looks the same.
func TestRejectIsNoOracle(t *testing.T) {
	for _, c := range []frame.Code{frame.Audience, frame.Binding, frame.TokenReplayed, frame.CapUnbound, frame.CertStatus, frame.BadSignature, frame.UnknownKey, frame.IdentityMismatch} {
		if got := RejectCode(c, false); got != frame.TokenInvalid {
			t.Errorf("%v travels abroad as %v", c, got)
		}
		if got := RejectCode(c, true); got != c {
			t.Errorf("%v at home is %v", c, got)
		}
	}
	if RejectCode(frame.RateLimited, false) != frame.RateLimited || RejectCode(frame.LimitExceeded, false) != frame.Overloaded {
		t.Error("rate and load are told")
	}
}

func TestServerName(t *testing.T) {
	sid := wire.ID{6}
	sum := sha256.Sum256(sid[:])
	if got, want := ServerName(sid), fmt.Sprintf("%x.a2a.invalid", sum[:8]); got != want || !IsServerName(got) {
		t.Errorf("%s, want %s", got, want)
	}
	for _, bad := range []string{"", "a2a.invalid", "0011223344556677.example", "001122334455667z.a2a.invalid", "00.a2a.invalid"} {
		if IsServerName(bad) {
			t.Errorf("%q passes", bad)
		}
	}
}
