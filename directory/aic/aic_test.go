package aic

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
)

var salt = []byte{0x12, 0x34}

// vectors of FORMATS, section 2; the two v02.00 bodies show that the checksum covers the string and not its meaning.
var vectors = []struct{ body, check string }{
	{"1.2.156.3088.1.1.34C2.478BDF.3GF546", "0JU4"},
	{"1.2.156.3088.1.1.34C2.478BDF.3GF547", "0GGS"},
	{"1.2.156.3088.1.1.34C2.478BDF.3GF548", "0P65"},
	{"1.2.156.3088.1.34C2.478BDF.3GF546.1", "0SEN"},
	{"1.2.156.3088.1.34C2.478BDE.3GF546.1", "0RBK"},
	{"1.2.156.3088.1.1.34C2.478BDF.0", "0LIV"},
	{"1.2.156.3088.1.1.1.1.0", "0J1H"},
	{"1.2.156.3088.1.1.1.1.1", "0H91"},
	{"1.2.156.3088.1.1.2.1.1", "0SEV"},
	{"1.2.156.3088.1.2.1.1.1", "0O41"},
	{"2.999.1.1.1.1.1.1.1", "10GC"},
}

func TestChecksumVectors(t *testing.T) {
	if got := crc16(0xFFFF, []byte("123456789")); got != 0x29B1 {
		t.Errorf("CRC of the check string = %04X, want 29B1", got)
	}
	if got := crc16(crc16(0xFFFF, []byte(vectors[0].body)), salt); got != 0x646C {
		t.Errorf("CRC of the first vector = %04X, want 646C", got)
	}
	for _, v := range vectors {
		if got := Checksum(v.body, salt); got != v.check {
			t.Errorf("Checksum(%s) = %s, want %s", v.body, got, v.check)
		}
		a, err := Parse(strings.ToLower(v.body + "." + v.check))
		if err != nil {
			t.Errorf("Parse: %v", err)
			continue
		}
		if a.String() != v.body+"."+v.check || a.Body() != v.body || a.Verify(salt) != nil {
			t.Errorf("%s: String %s, Body %s, Verify %v", v.body, a, a.Body(), a.Verify(salt))
		}
	}
}

func TestVerifyFindsATypingError(t *testing.T) {
	a, err := Parse("1.2.156.3088.1.1.34C2.478BDF.3GF549.0JU4")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Verify(salt); !errors.Is(err, ErrChecksum) {
		t.Errorf("Verify = %v, want ErrChecksum", err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"empty":                   "",
		"v01.00":                  "10001000011K912345E789ABCDEF2353",
		"nine levels":             "1.2.156.3088.1.1.34C2.478BDF.0JU4",
		"eleven levels":           "1.2.156.3088.1.1.34C2.478BDF.3GF546.1.0JU4",
		"space":                   " 1.2.156.3088.1.1.34C2.478BDF.3GF546.0JU4",
		"not ASCII":               "1.2.156.3088.1.1.34C2.478BDF.3GF54é.0JU4",
		"dotless i":               "1.2.156.3088.1.1.34C2.478BDF.3GF54ı.0JU4",
		"letter in prefix":        "1.2.156.308A.1.1.34C2.478BDF.3GF546.0JU4",
		"prefix with leading 0":   "1.2.156.03088.1.1.34C2.478BDF.3GF546.0JU4",
		"version 0":               "1.2.156.3088.0.1.34C2.478BDF.3GF546.0JU4",
		"version of two":          "1.2.156.3088.11.1.34C2.478BDF.3GF546.0JU4",
		"ARSP zero":               "1.2.156.3088.1.0.34C2.478BDF.3GF546.0JU4",
		"ARSP of seven":           "1.2.156.3088.1.1234567.34C2.478BDF.3GF546.0JU4",
		"vendor zeros":            "1.2.156.3088.1.1.000.478BDF.3GF546.0JU4",
		"ontology zero":           "1.2.156.3088.1.1.34C2.0.3GF546.0JU4",
		"ontology of ten":         "1.2.156.3088.1.1.34C2.1234567890.3GF546.0JU4",
		"entity empty":            "1.2.156.3088.1.1.34C2.478BDF..0JU4",
		"checksum above 1EKF":     "1.2.156.3088.1.1.34C2.478BDF.3GF546.1EKG",
		"checksum of three":       "1.2.156.3088.1.1.34C2.478BDF.3GF546.JU4",
		"more than 64 octets":     "1.2.156.30880000000000000000000000.1.1.34C2.478BDF00.3GF546000.0JU4",
		"trailing newline":        "1.2.156.3088.1.1.34C2.478BDF.3GF546.0JU4\n",
		"v02.00, ARSP of several": "1.2.156.3088.34C2.478BDF.3GF546.1.0.0SEN",
	} {
		if a, err := Parse(s); err == nil {
			t.Errorf("%s: Parse(%q) = %s, want an error", name, s, a)
		}
	}
}

func TestParseKeepsTheSpelling(t *testing.T) {
	const spelled = "1.2.156.3088.1.00001.SC64YN.Z5LSGY.000.0NMQ"
	a, err := Parse(spelled)
	if err != nil {
		t.Fatal(err)
	}
	if a.String() != spelled || !a.IsOntology() || a.ARSPKey() != "1.2.156.3088.1.00001" {
		t.Errorf("got %s, ontology %v, key %s", a, a.IsOntology(), a.ARSPKey())
	}
}

func TestNewAndOntology(t *testing.T) {
	a, err := New("1.2.156.3088", "1", "34c2", "478BDF", "3GF546", salt)
	if err != nil {
		t.Fatal(err)
	}
	if a != "1.2.156.3088.1.1.34C2.478BDF.3GF546.0JU4" || a.IsOntology() {
		t.Errorf("New = %s", a)
	}
	class, err := a.Ontology(salt)
	if err != nil || class != "1.2.156.3088.1.1.34C2.478BDF.0.0LIV" || !class.IsOntology() {
		t.Errorf("Ontology = %s, %v", class, err)
	}
	for name, args := range map[string][5]string{
		"leading zero": {"1.2.156.3088", "01", "1", "1", "1"},
		"three arcs":   {"1.2.156", "1", "1", "1", "1"},
		"dot in level": {"1.2.156.3088", "1", "1.1", "1", "1"},
	} {
		if a, err := New(args[0], args[1], args[2], args[3], args[4], salt); err == nil {
			t.Errorf("%s: New = %s", name, a)
		}
	}
	if _, err := New("1.2.156.3088", "1", "1", "1", "1", salt[:1]); err == nil {
		t.Error("a salt of one octet is accepted")
	}
}

func TestRandomSerial(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		s, err := RandomSerial(rand.Reader)
		if err != nil || len(s) != 9 || s[0] == '0' || strings.Trim(s, digits) != "" || seen[s] {
			t.Fatalf("serial %q, %v", s, err)
		}
		seen[s] = true
	}
	if s, err := RandomSerial(bytes.NewReader([]byte{255, 36, 1, 2, 3, 4, 5, 6, 7, 8, 0})); err != nil || s != "123456780" {
		t.Errorf("serial %q, %v; want the biased octet and the leading zero passed over", s, err)
	}
	if _, err := RandomSerial(bytes.NewReader(nil)); err == nil {
		t.Error("no error without randomness")
	}
}

func FuzzAIC(f *testing.F) {
	for _, v := range vectors {
		f.Add(v.body + "." + v.check)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(a.String())
		if err != nil || again != a || !strings.EqualFold(s, a.String()) {
			t.Fatalf("Parse(%q) = %s, again %s, %v", s, a, again, err)
		}
		if a.ARSPKey() == "" || !strings.HasPrefix(a.Body(), a.ARSPKey()) {
			t.Fatalf("%s: key %s, body %s", a, a.ARSPKey(), a.Body())
		}
		fixed, err := Parse(a.Body() + "." + Checksum(a.Body(), salt))
		if err != nil || fixed.Verify(salt) != nil {
			t.Fatalf("%s with its checksum: %v", fixed, err)
		}
	})
}
