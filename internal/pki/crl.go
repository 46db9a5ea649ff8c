package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Reason codes of RFC 5280, section 5.3.1, that the status list uses by name; the others are 1 to 5, 9 and 10.
const (
	ReasonUnspecified = 0
	ReasonHold        = 6 // certificateHold: suspended, may come back
	ReasonRemove      = 8 // removeFromCRL: a hold is lifted; in delta CRLs only
)

// Revoked is one entry of a CRL: a certificate that is revoked or, with [ReasonHold], suspended.
type Revoked struct {
	Serial *big.Int
	At     time.Time
	Reason int
	Issuer string // key id of the CA that issued it, in hexadecimal; "" where it is not known: all issuing CAs list it
}

// CRLs are DER lists by the key id of their issuer.
type CRLs map[string][]byte

const maxRevoked = 1 << 16 // entries of one CRL: credentials live a day or three, so this is a fleet's whole day

var (
	oidDelta    = asn1.ObjectIdentifier{2, 5, 29, 27} // deltaCRLIndicator
	oidFreshest = asn1.ObjectIdentifier{2, 5, 29, 46} // freshestCRL
)

// CRL signs full lists: one for each issuing CA that has not ended, and for each root whose key is here; of the other roots it
// gives what [InstallRootCRL] left. An entry that is no longer suspended is simply not given any more. number grows with every
// call; a delta of the same moment has the same.
func (c *CA) CRL(entries []Revoked, number *big.Int, now, next time.Time) (CRLs, error) {
	if err := checkRevoked(entries); err != nil {
		return nil, err
	}
	return c.lists(entries, nil, number, now, next)
}

// DeltaCRL signs what has changed since the full list of number base: entries that are new or changed, and holds that are
// lifted, with [ReasonRemove] (RFC 5280, sections 5.2.4 and 5.3.1). was are the entries of that full list, is those of now.
func (c *CA) DeltaCRL(was, is []Revoked, base, number *big.Int, now, next time.Time) (CRLs, error) {
	for _, entries := range [][]Revoked{was, is} {
		if err := checkRevoked(entries); err != nil {
			return nil, err
		}
	}
	if base == nil || number == nil || base.Sign() <= 0 || base.Cmp(number) >= 0 {
		return nil, fmt.Errorf("delta CRL %v over the full CRL %v: its number must be above", number, base)
	}
	return c.lists(changed(was, is, now), base, number, now, next)
}

// changed is the difference of two full lists. What left the list and was no hold has expired: a delta says nothing of it.
func changed(was, is []Revoked, now time.Time) []Revoked {
	before := map[string]Revoked{}
	for _, r := range was {
		before[r.Serial.String()] = r
	}
	var out []Revoked
	for _, r := range is {
		if old, ok := before[r.Serial.String()]; !ok || old.Reason != r.Reason || !old.At.Equal(r.At) {
			out = append(out, r)
		}
		delete(before, r.Serial.String())
	}
	for _, r := range was {
		if _, gone := before[r.Serial.String()]; gone && r.Reason == ReasonHold {
			out = append(out, Revoked{Serial: r.Serial, At: now, Reason: ReasonRemove, Issuer: r.Issuer})
		}
	}
	return out
}

func checkRevoked(entries []Revoked) error {
	if len(entries) > maxRevoked {
		return fmt.Errorf("CRL of %d entries: at most %d are signed, leave out what has expired", len(entries), maxRevoked)
	}
	seen := make(map[string]bool, len(entries))
	for _, r := range entries {
		switch {
		case r.Serial == nil || r.Serial.Sign() <= 0:
			return fmt.Errorf("CRL entry without a serial")
		case seen[r.Serial.String()]:
			return fmt.Errorf("CRL entry %x is there twice", r.Serial)
		case r.At.IsZero():
			return fmt.Errorf("CRL entry %x without a time", r.Serial)
		case r.Reason < 0 || r.Reason > 10 || r.Reason == 7 || r.Reason == ReasonRemove:
			return fmt.Errorf("CRL entry %x has the reason %d, which a full list does not know", r.Serial, r.Reason)
		}
		seen[r.Serial.String()] = true
	}
	return nil
}

// lists signs one list an issuer. base is nil for full lists.
func (c *CA) lists(entries []Revoked, base, number *big.Int, now, next time.Time) (CRLs, error) {
	if number == nil || number.Sign() <= 0 {
		return nil, fmt.Errorf("CRL number %v is not positive", number)
	}
	out := CRLs{}
	for _, by := range c.issuers(now) {
		der, err := c.list(by, of(entries, keyID(by.cert), true), base, number, now, next)
		if err != nil {
			return nil, err
		}
		out[keyID(by.cert)] = der
	}
	for _, by := range c.view.Load().roots {
		var der []byte
		var err error
		switch {
		case now.After(by.cert.NotAfter):
		case by.key != nil:
			der, err = c.list(by, of(entries, keyID(by.cert), false), base, number, now, next)
		case base == nil:
			der, err = c.rootList(by.cert, now)
		}
		if err != nil {
			return nil, err
		}
		if der != nil {
			out[keyID(by.cert)] = der
		}
	}
	return out, nil
}

// of are the entries of one issuer, in the order of their serials.
func of(entries []Revoked, issuer string, unknownToo bool) []x509.RevocationListEntry {
	var out []x509.RevocationListEntry
	for _, r := range entries {
		if r.Issuer == issuer || r.Issuer == "" && unknownToo {
			out = append(out, x509.RevocationListEntry{SerialNumber: r.Serial, RevocationTime: r.At.UTC(), ReasonCode: r.Reason})
		}
	}
	slices.SortFunc(out, func(a, b x509.RevocationListEntry) int { return a.SerialNumber.Cmp(b.SerialNumber) })
	return out
}

func (c *CA) list(by pair, entries []x509.RevocationListEntry, base, number *big.Int, now, next time.Time) ([]byte, error) {
	t := &x509.RevocationList{Number: number, ThisUpdate: now.UTC(), NextUpdate: next.UTC(), RevokedCertificateEntries: entries}
	var err error
	switch {
	case base != nil:
		t.ExtraExtensions, err = extension(oidDelta, true, base)
	case c.opts.Deltas && c.opts.BaseURL != "":
		url := strings.TrimSuffix(c.opts.BaseURL, "/") + pathCRL + keyID(by.cert) + deltaSuffix
		t.ExtraExtensions, err = extension(oidFreshest, false, distributionPoints(url))
	}
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateRevocationList(rand.Reader, t, by.cert, by.key)
	if err != nil {
		return nil, fmt.Errorf("sign CRL of %q: %w", by.cert.Subject.CommonName, err)
	}
	// What is read back is what a relying party sees: a list that is not this issuer's would lock everybody out.
	back, err := x509.ParseRevocationList(der)
	if err != nil || back.CheckSignatureFrom(by.cert) != nil || !bytes.Equal(back.RawIssuer, by.cert.RawSubject) {
		return nil, fmt.Errorf("sign CRL of %q: it does not verify under its issuer (%w)", by.cert.Subject.CommonName, err)
	}
	return der, nil
}

func extension(id asn1.ObjectIdentifier, critical bool, value any) ([]pkix.Extension, error) {
	der, err := asn1.Marshal(value)
	return []pkix.Extension{{Id: id, Critical: critical, Value: der}}, err
}

// distributionPoint is a CRLDistributionPoints element with one full name (RFC 5280, section 4.2.1.13).
type distributionPoint struct {
	Name struct {
		Full []asn1.RawValue `asn1:"tag:0"`
	} `asn1:"tag:0"`
}

func distributionPoints(url string) []distributionPoint {
	var p distributionPoint
	p.Name.Full = []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(url)}}
	return []distributionPoint{p}
}
