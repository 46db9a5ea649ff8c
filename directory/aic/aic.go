// Package aic is the Agent Identity Code: the name of an agent, of a class of agents (an ontology) and of a gateway, in the
// published form v02.02.
//
//	prefix(4 decimal arcs) . version . ARSP . vendor . ontology . entity . check
//	2.999.1.1.1.34C2.478BDF.3GF546.K3P9Z0AQ1.0JU4
//
// The contract: an [AIC] made by [Parse] or [New] is upper case, at most [MaxLen] octets and well formed; it is compared and
// indexed by that string and never renormalised, because the checksum covers its spelling (leading zeros of other issuers
// are accepted and kept). The checksum is CRC-16 with the issuer's salt and finds typing errors only: who knows one AIC of an
// issuer can compute the checksums of all others. It is never a security decision.
//
// The package is pure, safe for concurrent use and imports nothing of this project. Lengths are octets. Source: ACPs AIC
// v02.02 as told in FORMATS, section 2.
package aic

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
)

// AIC is a canonical Agent Identity Code. The zero value names nobody.
type AIC string

// MaxLen is the longest AIC accepted, in octets: it fits a certificate's common name (64).
const MaxLen = 64

// Version is the AIC version that this project issues.
const Version = "1"

// ErrChecksum is returned by [AIC.Verify] for an AIC whose last level does not belong to its body under the salt.
var ErrChecksum = errors.New("AIC_CHECKSUM: the checksum does not fit, look for a typing error")

const (
	digits   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	maxCheck = "1EKF" // 65535
)

// Levels of an AIC, by index in its dot-separated form.
const (
	levelVersion = iota + 4
	levelARSP
	levelVendor
	levelOntology
	levelEntity
	levelCheck
	levels
)

// Parse reads an AIC: ASCII, nothing trimmed, letters of either case. The error says which level is wrong.
func Parse(s string) (AIC, error) {
	if len(s) > MaxLen {
		return "", fmt.Errorf("AIC of %d octets, the limit is %d", len(s), MaxLen)
	}
	up, err := upper(s)
	if err != nil {
		return "", err
	}
	part := strings.Split(up, ".")
	if len(part) != levels {
		return "", fmt.Errorf("AIC %q has %d levels, it needs %d", s, len(part), levels)
	}
	if err := checkLevels(part); err != nil {
		return "", fmt.Errorf("AIC %q: %w", s, err)
	}
	return AIC(up), nil
}

// upper is ASCII upper-casing that refuses every octet that no AIC has.
func upper(s string) (string, error) {
	b := []byte(s)
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z':
			b[i] = c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.':
		default:
			return "", fmt.Errorf("AIC %q: character %q at %d, only letters, digits and dots are allowed", s, c, i)
		}
	}
	return string(b), nil
}

func checkLevels(part []string) error {
	for _, arc := range part[:levelVersion] {
		if !isArc(arc) {
			return fmt.Errorf("prefix arc %q is not a decimal number without leading zeros", arc)
		}
	}
	if v := part[levelVersion]; len(v) != 1 || v == "0" {
		return fmt.Errorf("version %q is not one character 1-9 or A-Z", v)
	}
	for _, l := range []struct {
		name   string
		at     int
		max    int
		zeroOK bool
	}{
		{"ARSP", levelARSP, 6, false}, {"vendor", levelVendor, 6, false},
		{"ontology", levelOntology, 9, false}, {"entity", levelEntity, 9, true},
	} {
		v := part[l.at]
		if len(v) == 0 || len(v) > l.max {
			return fmt.Errorf("%s %q has %d characters, allowed are 1 to %d", l.name, v, len(v), l.max)
		}
		if !l.zeroOK && isZero(v) {
			return fmt.Errorf("%s %q is zero, it counts from 1", l.name, v)
		}
	}
	if c := part[levelCheck]; len(c) != 4 || c > maxCheck {
		return fmt.Errorf("checksum %q is not four characters 0000 to %s", c, maxCheck)
	}
	return nil
}

func isArc(s string) bool {
	if s == "" || s[0] == '0' && len(s) > 1 {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}

func isZero(s string) bool { return strings.Trim(s, "0") == "" }

// New builds the AIC of an issuer: prefix of four arcs, the issuer's ARSP index, the provider's vendor index, ontology and
// entity serials (entity "0" names the ontology itself), and the issuer's salt of two octets or more. Leading zeros are refused.
func New(prefix, arsp, vendor, onto, entity string, salt []byte) (AIC, error) {
	if len(salt) < 2 {
		return "", fmt.Errorf("AIC salt of %d octets, it needs 2 or more", len(salt))
	}
	for _, s := range []string{arsp, vendor, onto, entity} {
		if len(s) > 1 && s[0] == '0' {
			return "", fmt.Errorf("AIC level %q starts with a zero", s)
		}
	}
	body := strings.ToUpper(strings.Join([]string{prefix, Version, arsp, vendor, onto, entity}, "."))
	return Parse(body + "." + Checksum(body, salt))
}

// String is the canonical text.
func (a AIC) String() string { return string(a) }

// Body is levels 1 to 9, what the checksum covers.
func (a AIC) Body() string {
	i := strings.LastIndexByte(string(a), '.')
	return string(a[:max(i, 0)])
}

// ARSPKey is `prefix.version.arsp`: the part that tells which domain issued the AIC.
func (a AIC) ARSPKey() string {
	part := strings.Split(string(a), ".")
	if len(part) != levels {
		return ""
	}
	return strings.Join(part[:levelVendor], ".")
}

// Codes are the vendor index and the ontology serial of a parsed AIC.
func (a AIC) Codes() (vendor, ontology string) {
	part := strings.Split(string(a), ".")
	return part[levelVendor], part[levelOntology]
}

// IsOntology says whether the AIC names a class of agents: its entity serial is zero, however many zeros that is.
func (a AIC) IsOntology() bool {
	part := strings.Split(string(a), ".")
	return len(part) == levels && isZero(part[levelEntity])
}

// Ontology is the AIC of the class that an entity belongs to; the issuer's salt is needed for its checksum.
func (a AIC) Ontology(salt []byte) (AIC, error) {
	part := strings.Split(string(a), ".")
	if len(part) != levels {
		return "", fmt.Errorf("AIC %q has %d levels, it needs %d", string(a), len(part), levels)
	}
	body := strings.Join(part[:levelEntity], ".") + ".0"
	return Parse(body + "." + Checksum(body, salt))
}

// Verify compares the checksum under the issuer's salt. The error wraps [ErrChecksum].
func (a AIC) Verify(salt []byte) error {
	if want := Checksum(a.Body(), salt); !strings.HasSuffix(string(a), "."+want) {
		return fmt.Errorf("AIC %s: %w", string(a), ErrChecksum)
	}
	return nil
}

// Checksum is level 10: CRC-16/CCITT-FALSE (polynomial 0x1021, start 0xFFFF, nothing reflected) over the upper-cased body and
// the salt, in base 36, four characters.
func Checksum(body string, salt []byte) string {
	crc := crc16(0xFFFF, []byte(strings.ToUpper(body)))
	crc = crc16(crc, salt)
	var out [4]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = digits[crc%36]
		crc /= 36
	}
	return string(out[:])
}

func crc16(crc uint16, b []byte) uint16 {
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// Index is the six-character code of a name, the same wherever it is computed: SHA-256 of it, modulo 36^6 in base 36; zero
// becomes 1. It is how a domain gets its ARSP index, and a provider its vendor index.
func Index(name string) string {
	hash := sha256.Sum256([]byte(name))
	n := new(big.Int).SetBytes(hash[:])
	n.Mod(n, big.NewInt(36*36*36*36*36*36))
	if n.Sign() == 0 {
		n.SetInt64(1)
	}
	return strings.ToUpper(n.Text(36))
}

// RandomSerial draws an ontology or entity serial: nine base-36 characters, the first not 0 (46 bits). Serials are random and
// not counted, because a counter would repeat after a restore and collide between gateways.
func RandomSerial(rand io.Reader) (string, error) {
	out := make([]byte, 0, 9)
	var one [1]byte
	for len(out) < cap(out) {
		if _, err := io.ReadFull(rand, one[:]); err != nil {
			return "", fmt.Errorf("draw a serial: %w", err)
		}
		// 252 = 7·36: above it the remainder would favour the low digits.
		if one[0] >= 252 || len(out) == 0 && one[0]%36 == 0 {
			continue
		}
		out = append(out, digits[one[0]%36])
	}
	return string(out), nil
}
