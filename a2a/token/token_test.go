package token

import (
	"crypto/ed25519"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"agentgw/a2a/wire"
	"agentgw/internal/frame"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/vectors.txt")

const (
	gatewayA, agentA = "1.2.156.3088.1.A.GW", "1.2.156.3088.1.A.AGENT"
	gatewayB, agentB = "1.2.156.3088.2.B.GW", "1.2.156.3088.2.B.AGENT"
	capB             = "acps://" + agentB + "/medicine.sell"
)

var now = time.Unix(1790000000, 0)

func signer(seed byte) frame.Signer {
	return frame.NewSigner(ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), 32))))
}

var keyA, keyB, stranger = signer('A'), signer('B'), signer('S')

func keys(id frame.KeyID) (frame.VerifyKey, bool) {
	switch id {
	case keyA.KeyID():
		return frame.VerifyKey{Public: keyA.Public(), Owner: gatewayA, Domain: "a.example"}, true
	case keyB.KeyID():
		return frame.VerifyKey{Public: keyB.Public(), Owner: gatewayB, Domain: "b.example"}, true
	}
	return frame.VerifyKey{}, false
}

func domainOf(aic string) string {
	switch {
	case strings.HasPrefix(aic, "1.2.156.3088.1."):
		return "a.example"
	case strings.HasPrefix(aic, "1.2.156.3088.2."):
		return "b.example"
	}
	return ""
}

func fill(n int, v byte) []byte { return []byte(strings.Repeat(string(rune(v)), n)) }

func sampleRAT() RAT {
	return RAT{
		Issuer: gatewayA, Subject: agentA, Issued: uint64(now.Unix()), ID: fill(16, 1), Scope: []string{"agw.discover", "acps.skill.invoke:*"},
		QHash: fill(32, 2), ReqID: fill(16, 3), SPKI: fill(32, 4), MaxHops: 6, Bind: Bind(nil, []byte{0xa1, 0x01, 0x00}, 8),
	}
}

func expect() RATExpect {
	return RATExpect{OriginDomain: "a.example", QHash: fill(32, 2), ReqID: fill(16, 3), Bind: Bind(nil, []byte{0xa1, 0x01, 0x00}, 8)}
}

func sampleSAT() SAT {
	return SAT{
		Issuer: gatewayB, Subject: agentA, Audience: agentB, Issued: uint64(now.Unix()), ID: wire.ID{1}, Confirm: Confirm{SPKI: wire.Hash{4}},
		Scope: []string{"acps.skill.invoke:medicine.sell"}, TargetSPKI: wire.Hash{5}, Sid: wire.ID{6}, Cap: capB,
		Limits: Limits{MaxMessages: 100, MaxBytes: 10 << 20}, Txn: wire.ID{3},
	}
}

func presented() Presented {
	return Presented{Target: agentB, Initiator: agentA, SPKI: wire.Hash{4}, Sid: wire.ID{6}, Cap: capB}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestGoldenTokens(t *testing.T) {
	rat := must[[]byte](t)(MintRAT(keyA, sampleRAT()))
	sat := must[[]byte](t)(MintSAT(keyB, sampleSAT()))
	text := fmt.Sprintf("RAT key seed: %x\nRAT: %x\nSAT key seed: %x\nSAT: %x\nbind of {}, {}, 0: %x\n",
		fill(32, 'A'), rat, fill(32, 'B'), sat, Bind(nil, nil, 0))
	const file = "testdata/vectors.txt"
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := must[[]byte](t)(os.ReadFile(file))
	if d := cmp.Diff(string(want), text); d != "" {
		t.Errorf("bytes changed (-want +got):\n%s", d)
	}
	gotRAT := must[RAT](t)(VerifyRAT(rat, keys, domainOf, expect(), now))
	wantRAT := sampleRAT()
	wantRAT.Expires = wantRAT.Issued + 60
	if d := cmp.Diff(wantRAT, gotRAT); d != "" {
		t.Error(d)
	}
	gotSAT := must[SAT](t)(VerifySAT(sat, keys, domainOf))
	wantSAT := sampleSAT()
	wantSAT.NotBefore, wantSAT.Expires, wantSAT.SessExp = wantSAT.Issued, wantSAT.Issued+120, wantSAT.Issued+3600
	if d := cmp.Diff(wantSAT, gotSAT); d != "" {
		t.Error(d)
	}
	held := must[SAT](t)(ReadSAT(sat))
	if d := cmp.Diff(gotSAT, held); d != "" {
		t.Errorf("holder reads other claims: %s", d)
	}
	unlimited := sampleSAT()
	unlimited.Limits = Limits{}
	if b := must[[]byte](t)(MintSAT(keyB, unlimited)); len(b) >= len(sat)-6 {
		t.Errorf("absent limits take %d bytes of %d", len(b), len(sat))
	}
	if err := gotSAT.CheckPresented(presented()); err != nil {
		t.Error(err)
	}
}

// bind of nothing is SHA-256(83 a0 a0 00), calculated apart from this package.
func TestBindOfNothing(t *testing.T) {
	if got := hex.EncodeToString(Bind(nil, nil, 0)); got != "7c7dc59c69264a48d4ab25c560ee4298ce198c3440b9bbe3f1f2459124f20e90" {
		t.Error(got)
	}
	if hex.EncodeToString(Bind([]byte{0xa0}, []byte{0xa0}, 0)) != hex.EncodeToString(Bind(nil, nil, 0)) {
		t.Error("absent and empty must bind alike")
	}
}

func TestEveryFlippedByteIsRefused(t *testing.T) {
	rat := must[[]byte](t)(MintRAT(keyA, sampleRAT()))
	sat := must[[]byte](t)(MintSAT(keyB, sampleSAT()))
	for i := range rat {
		bad := append([]byte(nil), rat...)
		bad[i] ^= 1
		if _, err := VerifyRAT(bad, keys, domainOf, expect(), now); err == nil {
			t.Fatalf("RAT with byte %d flipped verifies", i)
		}
	}
	for i := range sat {
		bad := append([]byte(nil), sat...)
		bad[i] ^= 1
		if _, err := VerifySAT(bad, keys, domainOf); err == nil {
			t.Fatalf("SAT with byte %d flipped verifies", i)
		}
	}
}

func TestRATRefused(t *testing.T) {
	tests := []struct {
		name   string
		signer frame.Signer
		rat    func(*RAT)
		want   func(*RATExpect)
		at     time.Duration
		code   frame.Code
	}{
		{name: "unknown key", signer: stranger, code: frame.UnknownKey},
		{name: "issuer is not the key's owner", rat: func(r *RAT) { r.Issuer = gatewayB }, code: frame.IdentityMismatch},
		{name: "subject of another domain", rat: func(r *RAT) { r.Subject = agentB }, code: frame.IdentityMismatch},
		{name: "subject of no known domain", rat: func(r *RAT) { r.Subject = "9.9.9" }, code: frame.IdentityMismatch},
		{name: "other origin domain", want: func(w *RATExpect) { w.OriginDomain = "b.example" }, code: frame.IdentityMismatch},
		{name: "no origin domain", want: func(w *RATExpect) { w.OriginDomain = "" }, code: frame.IdentityMismatch},
		{name: "expired", at: 91 * time.Second, code: frame.TokenExpired},
		{name: "of the future", at: -31 * time.Second, code: frame.TokenExpired},
		{name: "within leeway", at: 90 * time.Second, code: frame.OK},
		{name: "other query", want: func(w *RATExpect) { w.QHash = fill(32, 9) }, code: frame.Binding},
		{name: "other request", want: func(w *RATExpect) { w.ReqID = fill(16, 9) }, code: frame.Binding},
		{name: "altered flags", want: func(w *RATExpect) { w.Bind = Bind(nil, []byte{0xa1, 0x01, 0x00}, 0) }, code: frame.ReqInvalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, r, w := keyA, sampleRAT(), expect()
			if tt.signer.KeyID() != (frame.KeyID{}) {
				s = tt.signer
			}
			if tt.rat != nil {
				tt.rat(&r)
			}
			if tt.want != nil {
				tt.want(&w)
			}
			b := must[[]byte](t)(MintRAT(s, r))
			if _, err := VerifyRAT(b, keys, domainOf, w, now.Add(tt.at)); frame.CodeOf(err) != tt.code {
				t.Errorf("%v, want %v", err, tt.code)
			}
		})
	}
}

func TestSATWhoSpeaks(t *testing.T) {
	other := sampleSAT()
	other.Audience = agentA // a gateway of b.example authorises a session with an agent of a.example
	b := must[[]byte](t)(MintSAT(keyB, other))
	if _, err := VerifySAT(b, keys, domainOf); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("audience of another domain: %v", err)
	}
	b = must[[]byte](t)(MintSAT(keyA, sampleSAT()))
	if _, err := VerifySAT(b, keys, domainOf); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("issuer is not the key's owner: %v", err)
	}
	b = must[[]byte](t)(MintSAT(stranger, sampleSAT()))
	if _, err := VerifySAT(b, keys, domainOf); frame.CodeOf(err) != frame.UnknownKey {
		t.Errorf("unknown key: %v", err)
	}
	rat := must[[]byte](t)(MintRAT(keyA, sampleRAT()))
	if _, err := VerifySAT(rat, keys, domainOf); frame.CodeOf(err) != frame.BadSignature {
		t.Errorf("a RAT as a SAT: %v", err)
	}
}

func TestSATPresentedByAnother(t *testing.T) {
	s := must[SAT](t)(VerifySAT(must[[]byte](t)(MintSAT(keyB, sampleSAT())), keys, domainOf))
	tests := []struct {
		name   string
		change func(*Presented)
		code   frame.Code
	}{
		{"other target", func(p *Presented) { p.Target = agentA }, frame.Audience},
		{"other initiator", func(p *Presented) { p.Initiator = gatewayA }, frame.Binding},
		{"other key", func(p *Presented) { p.SPKI = wire.Hash{9} }, frame.Binding},
		{"other sid", func(p *Presented) { p.Sid = wire.ID{9} }, frame.Binding},
		{"other capability", func(p *Presented) { p.Cap += "x" }, frame.Binding},
	}
	for _, tt := range tests {
		p := presented()
		tt.change(&p)
		if err := s.CheckPresented(p); frame.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.code)
		}
	}
	for at, want := range map[time.Duration]frame.Code{
		-31 * time.Second: frame.TokenExpired, -30 * time.Second: frame.OK, 150 * time.Second: frame.OK, 151 * time.Second: frame.TokenExpired,
	} {
		if err := s.CheckTime(now.Add(at)); frame.CodeOf(err) != want {
			t.Errorf("at %v: %v, want %v", at, err, want)
		}
	}
}

func TestWidenedScope(t *testing.T) {
	s := sampleSAT()
	if err := s.CheckScope([]string{"acps.skill.invoke:*"}); err != nil {
		t.Error(err)
	}
	if err := s.CheckScope([]string{"acps.skill.invoke:other"}); frame.CodeOf(err) != frame.Scope {
		t.Errorf("widened SAT: %v", err)
	}
	r := sampleRAT()
	r.Scope = []string{"agw.discover"}
	if err := r.CheckScope([]string{"agw.discover", "acps.skill.invoke:x"}); frame.CodeOf(err) != frame.ScopeDenied {
		t.Errorf("widened request: %v", err)
	}
}

func TestMalformedTokens(t *testing.T) {
	for name, change := range map[string]func(*SAT){
		"no audience":      func(s *SAT) { s.Audience = "" },
		"no cti":           func(s *SAT) { s.ID = wire.ID{} },
		"no key":           func(s *SAT) { s.Confirm.SPKI = wire.Hash{} },
		"no capability":    func(s *SAT) { s.Cap = "" },
		"nine hours":       func(s *SAT) { s.SessExp = s.Issued + 9*3600 },
		"no scope":         func(s *SAT) { s.Scope = nil },
		"oversized scope":  func(s *SAT) { s.Scope = []string{strings.Repeat("x", 513)} },
		"more than 2 KiB":  func(s *SAT) { s.Scope = strings.Split(strings.Repeat(strings.Repeat("x", 400)+" ", 6), " ")[:6] },
		"issued never":     func(s *SAT) { s.Issued = 0 },
		"session of past":  func(s *SAT) { s.SessExp = s.Issued },
		"time of no clock": func(s *SAT) { s.Issued = 1 << 62 },
	} {
		s := sampleSAT()
		change(&s)
		if _, err := MintSAT(keyB, s); frame.CodeOf(err) != frame.TokenInvalid {
			t.Errorf("%s: minted: %v", name, err)
		}
		// A gateway that signs it all the same is not believed either.
		s.NotBefore, s.Expires = s.Issued, s.Issued+120
		if s.SessExp == 0 {
			s.SessExp = s.Issued + 3600
		}
		b := must[[]byte](t)(keyB.SignMessage(frame.AADSAT, ContentTypeSAT, s))
		if _, err := VerifySAT(b, keys, domainOf); frame.CodeOf(err) != frame.TokenInvalid {
			t.Errorf("%s: verified: %v", name, err)
		}
		if _, err := ReadSAT(b); frame.CodeOf(err) != frame.TokenInvalid {
			t.Errorf("%s: read: %v", name, err)
		}
	}
	long := sampleSAT()
	long.NotBefore, long.Expires, long.SessExp = long.Issued, long.Issued+3600, long.Issued+3600
	b := must[[]byte](t)(keyB.SignMessage(frame.AADSAT, ContentTypeSAT, long))
	if _, err := VerifySAT(b, keys, domainOf); frame.CodeOf(err) != frame.TokenInvalid {
		t.Errorf("a SAT that lives an hour: %v", err)
	}
	b = must[[]byte](t)(keyB.SignMessage(frame.AADSAT, "", sampleSAT()))
	if _, err := VerifySAT(b, keys, domainOf); frame.CodeOf(err) != frame.TokenInvalid {
		t.Errorf("a SAT without its content type: %v", err)
	}
}
