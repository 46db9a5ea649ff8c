package arp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"testing"

	"agentgw/internal/frame"
)

func proofSigner(seed byte) frame.Signer {
	return frame.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32)))
}

// The bytes of a draft with one key: a change is a change of the protocol.
func TestGatewayDraftVector(t *testing.T) {
	s := proofSigner(1)
	spki := bytes.Repeat([]byte{5}, 32)
	for name, c := range map[string]struct {
		proof KeyProof
		hex   string
	}{
		"at the join": {KeyProof{SPKI: spki, Use: 1}, "a20181850158208a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c0a14587bd2844da20127044834750f98bd59fcfca05826a2025820" +
			"050505050505050505050505050505050505050505050505050505050505050503015840fdb3ea4d1eaef2b2bcf3e94f62932ee3e6cdeba02062727786f66e9f387a5d30" +
			"ee0412b92826430293417d4706bd938cb7b0287a73c9a8eaf1dfa256630235050281826a67772e6578616d706c65191151"},
		"later": {KeyProof{Owner: "2.999.A", Use: 1}, "a20181850158208a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c0a145860d2844da20127044834750f98bd59fcfca04ca20167322e3939" +
			"392e4103015840c6801397e8951b55d541d89fec0081272c5423dcd835f9afe4570029787972c2f303df3d78094ff2155e1d7075b9c955439f30839552e1198bde7ac877" +
			"15e2050281826a67772e6578616d706c65191151"},
	} {
		proof, err := c.proof.Sign(s)
		if err != nil {
			t.Fatal(err)
		}
		k := GatewayKey{Use: 1, Public: s.Public(), NotBefore: 10, NotAfter: 20, Proof: proof}
		raw, err := frame.Marshal(GatewayDraft{Keys: []GatewayKey{k}, Addresses: []HostPort{{Host: "gw.example", Port: 4433}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(raw); got != c.hex {
			t.Errorf("%s it is encoded as\n%s\nthe vector says\n%s", name, got, c.hex)
		}
		var back GatewayDraft
		if err := frame.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if err := back.Keys[0].Proves(c.proof); err != nil {
			t.Error(err)
		}
		for n := range raw {
			if frame.Unmarshal(raw[:n], &GatewayDraft{}) == nil {
				t.Errorf("cut to %d bytes it parses", n)
			}
		}
	}
	old, err := frame.Marshal(map[int]any{1: []any{[]any{1, s.Public(), 10, 20}}})
	if err != nil {
		t.Fatal(err)
	}
	if frame.Unmarshal(old, &GatewayDraft{}) == nil {
		t.Error("a key without a place for its proof parses")
	}
}

func TestKeyProves(t *testing.T) {
	s, other := proofSigner(1), proofSigner(2)
	want := KeyProof{Owner: "2.999.A", Use: 2}
	sign := func(p KeyProof, by frame.Signer) []byte {
		t.Helper()
		b, err := p.Sign(by)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	otherKind, err := s.SignMessage(frame.AADGrant, "", want)
	if err != nil {
		t.Fatal(err)
	}
	good := sign(want, s)
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		proof  []byte
		public []byte
		code   frame.Code
	}{
		"good":                    {good, s.Public(), frame.OK},
		"none":                    {nil, s.Public(), frame.Binding},
		"of another gateway":      {sign(KeyProof{Owner: "2.999.B", Use: 2}, s), s.Public(), frame.Binding},
		"of a join":               {sign(KeyProof{SPKI: make([]byte, 32), Use: 2}, s), s.Public(), frame.Binding},
		"for another use":         {sign(KeyProof{Owner: "2.999.A", Use: 1}, s), s.Public(), frame.Binding},
		"by another key":          {sign(want, other), s.Public(), frame.BadSignature},
		"of another kind":         {otherKind, s.Public(), frame.BadSignature},
		"with a bit that differs": {flipped, s.Public(), frame.BadSignature},
		"that is none":            {[]byte{1, 2, 3}, s.Public(), frame.BadSignature},
		"for half a key":          {good, s.Public()[:16], frame.ReqInvalid},
	} {
		if got := frame.CodeOf(GatewayKey{Use: 2, Public: c.public, Proof: c.proof}.Proves(want)); got != c.code {
			t.Errorf("a proof %s: %v, want %v", name, got, c.code)
		}
	}
}
