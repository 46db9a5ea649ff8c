package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

func readCRL(t *testing.T, l CRLs, by *x509.Certificate) *x509.RevocationList {
	t.Helper()
	got, err := x509.ParseRevocationList(l[keyID(by)])
	if err != nil {
		t.Fatal(err)
	}
	if err := got.CheckSignatureFrom(by); err != nil {
		t.Fatal(err)
	}
	return got
}

func entriesOf(l *x509.RevocationList) string {
	var out []string
	for _, e := range l.RevokedCertificateEntries {
		out = append(out, fmt.Sprintf("%d:%d", e.SerialNumber, e.ReasonCode))
	}
	return strings.Join(out, " ")
}

func revoked(at time.Time, serialReason ...int) []Revoked {
	var out []Revoked
	for i := 0; i < len(serialReason); i += 2 {
		out = append(out, Revoked{Serial: big.NewInt(int64(serialReason[i])), At: at, Reason: serialReason[i+1]})
	}
	return out
}

func TestFullCRL(t *testing.T) {
	ca, now := testCA(t, Options{BaseURL: "http://pki.x.example", Deltas: true}), time.Now().UTC().Truncate(time.Second)
	entries := append(revoked(now, 9, ReasonHold, 3, 1, 4, ReasonUnspecified), Revoked{Serial: big.NewInt(77), At: now, Reason: 4, Issuer: keyID(ca.Root())})
	l, err := ca.CRL(entries, big.NewInt(7), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	got := readCRL(t, l, ca.Issuing())
	if s := entriesOf(got); s != "3:1 4:0 9:6" || got.Number.Int64() != 7 || !got.ThisUpdate.Equal(now) || !got.NextUpdate.Equal(now.Add(time.Hour)) {
		t.Error(s, got.Number, got.ThisUpdate, got.NextUpdate)
	}
	if !bytes.Equal(got.AuthorityKeyId, ca.Issuing().SubjectKeyId) {
		t.Error("authority key id")
	}
	if s := entriesOf(readCRL(t, l, ca.Root())); s != "77:4" {
		t.Error("of the root:", s)
	}
	freshest := false
	for _, e := range got.Extensions {
		freshest = freshest || e.Id.Equal(oidFreshest) && !e.Critical && bytes.Contains(e.Value, []byte("/crl/"+keyID(ca.Issuing())+"-delta.crl"))
	}
	if !freshest {
		t.Error("the full list does not name its delta")
	}
}

func TestDeltaCRLHasWhatChangedSinceItsBase(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now().UTC().Truncate(time.Second)
	was := revoked(now.Add(-time.Hour), 1, ReasonHold, 2, ReasonHold, 3, 1, 4, 1, 5, ReasonHold)
	is := append(revoked(now.Add(-time.Hour), 2, ReasonHold, 3, 1), revoked(now, 5, 1, 6, ReasonHold)...)
	l, err := ca.DeltaCRL(was, is, big.NewInt(7), big.NewInt(9), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	got := readCRL(t, l, ca.Issuing())
	// 1 is lifted, 2 and 3 are as they were, 4 has expired, 5 was a hold and is for good, 6 is new.
	if s := entriesOf(got); s != "1:8 5:1 6:6" || got.Number.Int64() != 9 {
		t.Error(s, got.Number)
	}
	base := new(big.Int)
	for _, e := range got.Extensions {
		if e.Id.Equal(oidDelta) && e.Critical {
			if _, err := asn1.Unmarshal(e.Value, &base); err != nil {
				t.Error(err)
			}
		}
	}
	if base.Int64() != 7 {
		t.Error("no critical deltaCRLIndicator of 7:", base)
	}
}

func TestCRLRefusesWhatNoListMayHave(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now()
	one := big.NewInt(1)
	for name, entries := range map[string][]Revoked{
		"remove":     revoked(now, 1, ReasonRemove),
		"reason 7":   revoked(now, 1, 7),
		"reason 11":  revoked(now, 1, 11),
		"reason -1":  revoked(now, 1, -1),
		"twice":      revoked(now, 1, 1, 1, 6),
		"no serial":  {{At: now}},
		"negative":   revoked(now, -1, 1),
		"no time":    revoked(time.Time{}, 1, 1),
		"too many":   make([]Revoked, maxRevoked+1),
		"serial nil": {{Serial: nil, At: now}},
	} {
		if _, err := ca.CRL(entries, one, now, now.Add(time.Hour)); err == nil {
			t.Error(name, "is signed")
		}
		if _, err := ca.DeltaCRL(nil, entries, one, big.NewInt(2), now, now.Add(time.Hour)); err == nil {
			t.Error(name, "is signed in a delta")
		}
	}
	for name, number := range map[string]*big.Int{"none": nil, "zero": new(big.Int), "long": new(big.Int).Lsh(one, 200)} {
		if _, err := ca.CRL(nil, number, now, now.Add(time.Hour)); err == nil {
			t.Error("number", name, "is signed")
		}
	}
	if _, err := ca.CRL(nil, one, now, now.Add(-time.Hour)); err == nil {
		t.Error("next update before this one")
	}
	for _, base := range []*big.Int{nil, new(big.Int), one, big.NewInt(2)} {
		if _, err := ca.DeltaCRL(nil, nil, base, one, now, now.Add(time.Hour)); err == nil {
			t.Error("delta over", base)
		}
	}
}
