package arp

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/directory/semreq"
	"agentgw/internal/frame"
)

var id16 = bytes.Repeat([]byte{1}, 16)

// vectors are one of each message with its bytes: a change is a change of the protocol.
var vectors = []struct {
	name string
	msg  frame.Message
	hex  string
}{
	{"ENROL", &Enrol{Secret: bytes.Repeat([]byte{7}, 32), CSR: []byte{1}, Draft: []byte("{}"), Visibility: 2},
		"40602da4015820070707070707070707070707070707070707070707070707070707070707070702410103427b7d0602"},
	{"ENROLLED", &Enrolled{AIC: "A", Caps: []string{"c"}, Chain: [][]byte{{1}}, Bundle: []byte{2}, ACS: []byte("{}"), EntryVersion: 1, Grant: []byte{3}, Removed: []Removed{{Path: "s", Code: frame.ScopeDenied}}},
		"406221a901000261410381616304814101054102" + "06427b7d0701084103098182617318" + "45"},
	{"RENEW", &Renew{AIC: "A", CSR: []byte{1}}, "406e07a201614102" + "4101"},
	{"CREDENTIAL", &Credential{Chain: [][]byte{{1}}, Bundle: []byte{2}}, "40700aa3010002814101034102"},
	{"ATTACH", &Attach{AIC: "A", BootID: id16, Endpoints: []semreq.Endpoint{{Host: "192.0.2.1", Port: 4434, ALPN: "dmsc-a2a/1"}}, Capacity: 255, Grant: []byte{3}, Now: 5},
		"406439a60161410250010101010101010101010101010101010381836931" + "39322e302e322e311911526a646d73632d6132612f310618ff0741030905"},
	{"ATTACHED", &Attached{EntryVersion: 1, Policy: AttachPolicy{MaxContext: 1 << 20, SessExpS: 3600}, KeepaliveMS: 20000, OfflineMS: 45000, Now: 5},
		"40661ba60100020104a2011a0010000002190e1005194e200619afc80905"},
	{"CTL_KEEPALIVE", &Keepalive{TSMS: 1, EchoTSMS: 2, Capacity: 255, Pad: KeepalivePad},
		"405833a4010102020318ff065828" + strings.Repeat("00", 40)},
	{"SESSION_OFFER", &SessionOffer{CTI: id16, SAT: []byte{4}}, "407616a2015001010101010101010101010101010101024104"},
	{"OFFER_ACK", &OfferAck{CTI: id16}, "405c15a20150010101010101010101010101010101010200"},
	{"ANSWER", &Answer{Code: frame.TokenInvalid, Msg: "no"}, "405a08a20118600262" + "6e6f"},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		b, err := frame.AppendMessage(nil, v.msg)
		if err != nil {
			t.Fatal(v.name, err)
		}
		if got := hex.EncodeToString(b); got != v.hex {
			t.Errorf("%s is encoded as\n%s\nthe vector says\n%s", v.name, got, v.hex)
		}
		back := fresh(v.msg)
		if err := frame.NewReader(bytes.NewReader(b)).Into(back); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
		if d := cmp.Diff(v.msg, back); d != "" {
			t.Errorf("%s: %s", v.name, d)
		}
		for n := range b {
			if err := frame.NewReader(bytes.NewReader(b[:n])).Into(fresh(v.msg)); err == nil {
				t.Errorf("%s cut to %d bytes parses", v.name, n)
			}
		}
	}
}

func fresh(m frame.Message) frame.Message {
	switch m.(type) {
	case *Enrol:
		return &Enrol{}
	case *Enrolled:
		return &Enrolled{}
	case *Renew:
		return &Renew{}
	case *Credential:
		return &Credential{}
	case *Attach:
		return &Attach{}
	case *Attached:
		return &Attached{}
	case *Keepalive:
		return &Keepalive{}
	case *SessionOffer:
		return &SessionOffer{}
	case *OfferAck:
		return &OfferAck{}
	}
	return &Answer{}
}

// A peer that restarted answers only packets of more than 42 bytes with a stateless reset.
func TestKeepaliveIsLongEnough(t *testing.T) {
	b, err := frame.AppendMessage(nil, &Keepalive{TSMS: 1, Pad: KeepalivePad})
	if err != nil || len(b) < 48 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestToken(t *testing.T) {
	in := Token{
		Secret: bytes.Repeat([]byte{7}, 32), GatewayPK: bytes.Repeat([]byte{8}, 32),
		Addresses: []HostPort{{Host: "gw.example", Port: 4433}, {Host: "2001:db8::1", Port: 4433}}, Domain: "d.example", Exp: 1_800_000_000,
	}
	text := in.String()
	if !strings.HasPrefix(text, "agwt1.") || strings.ContainsAny(text, " \n=+/") {
		t.Errorf("%q is not safe to copy", text)
	}
	out, err := ParseToken(" " + text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(in, out); d != "" {
		t.Error(d)
	}
	if got := out.Addresses[1].String(); got != "[2001:db8::1]:4433" {
		t.Error(got)
	}
	if out.Expired(time.Unix(1_799_999_999, 0)) || !out.Expired(time.Unix(1_800_000_001, 0)) {
		t.Error("expiry")
	}
	for name, bad := range map[string]string{
		"another thing": "hello", "cut short": text[:len(text)-8], "another version": "agwt2." + text[6:], "bad characters": "agwt1.!!!!",
		"huge": "agwt1." + strings.Repeat("A", maxTokenText),
	} {
		if _, err := ParseToken(bad); err == nil || strings.Contains(err.Error(), text[20:40]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGrant(t *testing.T) {
	signer := frame.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32)))
	now := time.Unix(1_800_000_000, 0)
	keys := func(id frame.KeyID) (frame.VerifyKey, bool) {
		return frame.VerifyKey{Public: signer.Public(), Owner: "AMC", Domain: "d.example"}, id == signer.KeyID()
	}
	const issuer = "AMC"
	g := Grant{JTI: id16, GW: "G", SPKI: make([]byte, 32), Scope: []string{"agw.discover"}, Nbf: uint64(now.Unix()), Exp: uint64(now.Unix()) + 100, AIC: "A"}
	b, err := g.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := OpenGrant(b, keys, issuer, now); err != nil || got.AIC != "A" {
		t.Fatal(got, err)
	}
	if _, err := OpenGrant(b, keys, "another", now); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("signed by one that is no issuer: %v", err)
	}
	for _, at := range []time.Time{now.Add(-time.Hour), now.Add(time.Hour)} {
		if _, err := OpenGrant(b, keys, issuer, at); frame.CodeOf(err) != frame.Expired {
			t.Errorf("at %v: %v", at, err)
		}
	}
	b[len(b)-1] ^= 1
	if _, err := OpenGrant(b, keys, issuer, now); frame.CodeOf(err) != frame.BadSignature {
		t.Errorf("tampered: %v", err)
	}
}

func TestRefusalsFit(t *testing.T) {
	a := Refusal(frame.Errorf(frame.ReqInvalid, "%s", strings.Repeat("ü", 500)))
	for range 200 {
		a.AddDetail(strings.Repeat("ö", 300), frame.ReqInvalid)
	}
	if len(a.Msg) > MaxMsg || len(a.Detail) != maxDetail || len(a.Detail[0].Path) > maxPath {
		t.Errorf("%d bytes, %d details", len(a.Msg), len(a.Detail))
	}
	if _, err := frame.AppendMessage(nil, a); err != nil {
		t.Errorf("cut in the middle of a character: %v", err)
	}
	if err := a.Err(); frame.CodeOf(err) != frame.ReqInvalid {
		t.Error(err)
	}
	if (&Answer{}).Err() != nil {
		t.Error("OK is no error")
	}
}

func FuzzARP(f *testing.F) {
	for _, v := range vectors {
		b, _ := hex.DecodeString(v.hex)
		f.Add(b)
	}
	f.Add([]byte(Token{Secret: make([]byte, 32), GatewayPK: make([]byte, 32), Addresses: []HostPort{{Host: "h", Port: 1}}}.String()))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, v := range vectors {
			m := fresh(v.msg)
			if frame.NewReader(bytes.NewReader(in)).Into(m) == nil {
				if _, err := frame.AppendMessage(nil, m); err != nil {
					t.Fatalf("%s: %v", v.name, err)
				}
			}
		}
		ParseToken(string(in))
	})
}
