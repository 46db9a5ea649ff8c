package frame

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"testing"
)

func testSigner(seed byte) Signer {
	return NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32)))
}

func keysOf(s Signer) KeyFunc {
	return func(id KeyID) (VerifyKey, bool) {
		return VerifyKey{Public: s.Public(), Owner: "O", Domain: "d.example"}, id == s.KeyID()
	}
}

func TestSignedVector(t *testing.T) {
	s := testSigner(1)
	b, err := s.SignMessage(AADResult, "", &sample{Text: "x"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "d2844da2012704483475" // tag 18, four items, protected {1: -8, 4: kid of 8 bytes}
	if got := hex.EncodeToString(b); got[:16] != want[:16] {
		t.Errorf("signed object begins with %s", got[:24])
	}
	again, _ := s.SignMessage(AADResult, "", &sample{Text: "x"})
	if !bytes.Equal(b, again) {
		t.Error("signing is not deterministic")
	}
	signed, key, err := Open(b, AADResult, keysOf(s))
	if err != nil || key.Owner != "O" {
		t.Fatal(key, err)
	}
	var out sample
	if err := Unmarshal(signed.Payload, &out); err != nil || out.Text != "x" {
		t.Error(out, err)
	}
	typed, _ := s.SignMessage(AADSAT, "application/test", &sample{Text: "x"})
	p, err := ParseSigned(typed)
	if err != nil || p.ContentType() != "application/test" {
		t.Error(p, err)
	}
}

func TestSignedRefuses(t *testing.T) {
	s := testSigner(1)
	b, _ := s.SignMessage(AADResult, "", &sample{Text: "x"})
	if _, _, err := Open(b, AADSAT, keysOf(s)); CodeOf(err) != BadSignature {
		t.Errorf("signature of another kind of object: %v", err)
	}
	if _, _, err := Open(b, AADResult, keysOf(testSigner(2))); CodeOf(err) != UnknownKey {
		t.Errorf("unknown key: %v", err)
	}
	for bit := range len(b) * 8 {
		flipped := bytes.Clone(b)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, _, err := Open(flipped, AADResult, keysOf(s)); err == nil {
			t.Fatalf("verifies with bit %d flipped", bit)
		}
	}
	// The envelope: what no signature covers must still have one spelling (unprotected header, longer lengths).
	at := bytes.IndexByte(b[3:], 0xa0) // the empty unprotected map
	for name, spelt := range map[string][]byte{
		"unprotected header":  bytes.Join([][]byte{b[:3+at], {0xa1, 0x04, 0x41, 0x00}, b[4+at:]}, nil),
		"longer array length": append([]byte{0xd2, 0x98, 0x04}, b[2:]...),
		"bytes behind it":     append(bytes.Clone(b), 0),
		"no tag":              b[1:],
	} {
		if _, err := ParseSigned(spelt); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func FuzzSigned(f *testing.F) {
	s := testSigner(1)
	b, _ := s.SignMessage(AADResult, "", &sample{Text: "x"})
	f.Add(b)
	f.Fuzz(func(t *testing.T, in []byte) {
		signed, _, err := Open(in, AADResult, keysOf(s))
		if err == nil && !bytes.Equal(in, b) {
			t.Fatalf("a second spelling verifies: %x (%x)", in, signed.Payload)
		}
	})
}
