package frame

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

func TestVarintVectors(t *testing.T) {
	for v, want := range map[uint64]string{ // RFC 9000, appendix A.1, and the borders
		0: "00", 37: "25", 63: "3f", 64: "4040", 15293: "7bbd", 16383: "7fff", 16384: "80004000",
		494878333: "9d7f3e7d", 151288809941952652: "c2197c5eff14e88c", MaxVarint: "ffffffffffffffff",
	} {
		b := AppendVarint(nil, v)
		if got := hex.EncodeToString(b); got != want {
			t.Errorf("%d: %s, want %s", v, got, want)
		}
		got, n, err := ParseVarint(append(b, 0xaa))
		if err != nil || got != v || n != len(b) {
			t.Errorf("parse %s: %d, %d, %v", want, got, n, err)
		}
		for i := range b {
			if _, _, err := ParseVarint(b[:i]); err == nil {
				t.Errorf("%s cut to %d bytes parses", want, i)
			}
		}
	}
	for _, long := range []string{"4025", "80000025", "c000000000000025"} {
		b, _ := hex.DecodeString(long)
		if _, _, err := ParseVarint(b); err == nil {
			t.Errorf("%s is not the shortest form and parses", long)
		}
	}
}

// sample is a message of every shape that payloads have.
type sample struct {
	Text  string   `cbor:"1,keyasint"`
	List  []string `cbor:"2,keyasint,omitempty"`
	Bytes []byte   `cbor:"3,keyasint,omitempty"`
	N     int64    `cbor:"4,keyasint,omitempty"`
	Flag  bool     `cbor:"5,keyasint,omitempty"`
}

func (*sample) FrameType() Type { return Answer }

func TestFrameRoundTrip(t *testing.T) {
	in := &sample{Text: "größer", List: []string{"a", "b"}, Bytes: []byte{1}, N: -70001, Flag: true}
	b, err := AppendMessage(nil, in)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(b), "by bytes": iotest.OneByteReader(bytes.NewReader(b))} {
		var out sample
		if err := NewReader(r).Into(&out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, _ := AppendMessage(nil, &out)
		if !bytes.Equal(again, b) {
			t.Errorf("%s: %x re-encodes as %x", name, b, again)
		}
	}
	for i := 1; i < len(b); i++ {
		if err := NewReader(bytes.NewReader(b[:i])).Into(&sample{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut to %d of %d bytes: %v", i, len(b), err)
		}
	}
	if err := NewReader(bytes.NewReader(nil)).Into(&sample{}); err != io.EOF {
		t.Errorf("end between frames: %v", err)
	}
}

func TestUnknownFrames(t *testing.T) {
	answer, _ := AppendMessage(nil, &sample{Text: "x"})
	odd := Append(nil, 0x7f01, []byte{1, 2})
	if err := NewReader(bytes.NewReader(append(odd, answer...))).Into(&sample{}); err != nil {
		t.Errorf("an unknown odd frame must be skipped: %v", err)
	}
	even := Append(nil, 0x7f02, []byte{1, 2})
	if err := NewReader(bytes.NewReader(append(even, answer...))).Into(&sample{}); CodeOf(err) != UnexpectedFrame {
		t.Errorf("an unknown even frame: %v", err)
	}
	other := Append(nil, Hello, []byte{0xa0})
	if err := NewReader(bytes.NewReader(append(other, answer...))).Into(&sample{}); CodeOf(err) != UnexpectedFrame {
		t.Errorf("another known frame: %v", err)
	}
	if err := NewReader(bytes.NewReader(bytes.Repeat(odd, 100))).Into(&sample{}); CodeOf(err) != UnexpectedFrame {
		t.Errorf("a flood of unknown frames: %v", err)
	}
}

func TestCheckRefuses(t *testing.T) {
	for in, why := range map[string]string{
		"":                         "empty",
		"a1":                       "map without its pair",
		"a10100ff":                 "bytes behind the item",
		"a1180100":                 "key not in its shortest form",
		"a20200" + "0100":          "keys not sorted",
		"a201000100":               "key twice",
		"a1616100":                 "text key",
		"bf0100ff":                 "indefinite map",
		"a1015f41ff":               "indefinite string",
		"a101f6":                   "null",
		"a101f7":                   "undefined",
		"a101f93c00":               "float",
		"a101fb3ff0000000000000":   "double",
		"a101c000":                 "tag",
		"a10162c328":               "text that is not UTF-8",
		"a1011817":                 "23 in two bytes",
		"a101190017":               "23 in three bytes",
		"a10119ff":                 "integer cut short",
		"a1015a7fffffff00":         "string longer than the payload",
		"a1019a00002001" + "00":    "array over its limit",
		"b841" + "00":              "map over its limit",
		"a10181818181818181818100": "nested too deep",
	} {
		b, err := hex.DecodeString(in)
		if err != nil {
			t.Fatal(in, err)
		}
		if err := Check(b); CodeOf(err) != Malformed {
			t.Errorf("%s (%s): %v", in, why, err)
		}
	}
	if err := Check([]byte{0xa1, 0x18, 0x80, 0x00}); CodeOf(err) != CriticalUnknown {
		t.Errorf("key 128: %v", err)
	}
	var s sample
	ok, _ := hex.DecodeString("a2016178187f00")
	if err := Unmarshal(ok, &s); err != nil || s.Text != "x" {
		t.Errorf("an unknown key below 128 must be ignored: %v", err)
	}
}

func TestCase53LengthBomb(t *testing.T) {
	bombs := map[string][]byte{
		"frame of 2^62-1 bytes":        append(AppendVarint(AppendVarint(nil, uint64(Entries)), MaxVarint), 0xa0),
		"frame one over its limit":     append(AppendVarint(AppendVarint(nil, uint64(Answer)), MaxControl+1), 0xa0),
		"frame at its limit, no bytes": AppendVarint(AppendVarint(nil, uint64(Entries)), MaxDigest),
		"string of 2^63 bytes":         Append(nil, Answer, []byte{0xa1, 1, 0x7b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"array of 2^32 elements":       Append(nil, Answer, []byte{0xa1, 2, 0x9a, 0xff, 0xff, 0xff, 0xff}),
		"64 KiB of open arrays":        Append(nil, Answer, bytes.Repeat([]byte{0x81}, MaxControl)),
		"64 KiB of open maps":          Append(nil, Answer, bytes.Repeat([]byte{0xa1, 0x01}, MaxControl/2)),
	}
	for name, b := range bombs {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := NewReader(bytes.NewReader(b)).Into(&sample{})
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10+uint64(4*len(b)) {
			t.Errorf("%s: %d bytes were allocated for %d received", name, grown, len(b))
		}
	}
}

func TestCodes(t *testing.T) {
	if got := RateLimited.String() + " " + RateLimited.Hex(); got != "RATE_LIMITED 0F" {
		t.Error(got)
	}
	if got := Code(0x7e).String(); got != "CODE_7E" {
		t.Error(got)
	}
	inner := Errorf(TrustDenied, "no bundle")
	wrapped := Errorf(Malformed, "entry: %w", inner)
	if CodeOf(wrapped) != Malformed || !errors.Is(wrapped, inner) || CodeOf(io.EOF) != Internal || CodeOf(nil) != OK {
		t.Error("codes of wrapped errors")
	}
	if !strings.Contains(inner.Error(), "0D TRUST_DENIED") {
		t.Error(inner)
	}
}

func FuzzFrame(f *testing.F) {
	b, _ := AppendMessage(nil, &sample{Text: "größer", List: []string{"a"}, Bytes: []byte{1}, N: -3, Flag: true})
	f.Add(b)
	f.Add(Append(nil, 0x7f01, []byte{1, 2}))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		for {
			typ, payload, err := r.Next()
			if err != nil {
				return
			}
			if len(payload) > Limit(typ) {
				t.Fatalf("%v of %d bytes is over its limit", typ, len(payload))
			}
			var s sample
			if Unmarshal(payload, &s) == nil {
				if _, err := Marshal(s); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A code stands once in a text, however often it was passed on.
func TestErrorSaysItsCodeOnce(t *testing.T) {
	inner := Errorf(State, "it is suspended")
	if got := Errorf(State, "agent a: %w", inner).Error(); got != "agent a: it is suspended (6A STATE)" {
		t.Error(got)
	}
	if got := Errorf(Internal, "agent a: %w", inner).Error(); got != "agent a: it is suspended (6A STATE) (01 INTERNAL)" {
		t.Error(got)
	}
}
