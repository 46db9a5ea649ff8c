package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"log/slog"
	"math/big"
	"time"

	"github.com/hashicorp/golang-lru/v2"
	"golang.org/x/crypto/ocsp"

	"agentgw/internal/identity"
)

// Bounds of the responder.
const (
	maxOCSPRequest = 4 << 10   // octets of DER; one with a nonce has about 120
	maxOCSPLife    = time.Hour // of an answer
	maxOCSPCache   = 4096      // signed answers kept, of about 900 octets
	maxSerialBits  = 160       // RFC 5280, section 4.1.2.2
)

// Status is the state of a certificate that was issued here: good, or revoked (or suspended, reason 6) since At.
type Status struct {
	Revoked bool
	Reason  int
	At      time.Time
}

func (s Status) equal(t Status) bool {
	return s.Revoked == t.Revoked && s.Reason == t.Reason && s.At.Equal(t.At)
}

// Responder answers OCSP requests in the name of the issuing CAs (RFC 6960), with a delegated certificate for each. Make it with
// [NewResponder].
//
// An answer lives an hour at most and is kept for half of its life, unless the status changes before. Of a request the first
// certificate is answered (RFC 5019 has one); a nonce is not echoed, because answers are kept: freshness is nextUpdate's. Signed
// requests are malformed here. A certificate of an issuer that is not ours is refused as unauthorized. Each answer that is not
// kept costs a signature, so callers bound the rate.
type Responder struct {
	ca     *CA
	status func(serial *big.Int) (s Status, known bool)
	kept   *lru.Cache[answerKey, answer]
	log    *slog.Logger
}

type answerKey struct {
	issuer, serial string
	hash           crypto.Hash
}

type answer struct {
	der         []byte
	status      Status
	from, until time.Time
}

// fresh says whether a kept answer is in the first half of its life.
func (a answer) fresh(now time.Time) bool {
	return !now.Before(a.from) && now.Before(a.from.Add(a.until.Sub(a.from)/2))
}

// NewResponder makes a responder. status says what is known of a serial, quickly and from any goroutine; one that is not known
// was not issued here.
func NewResponder(ca *CA, status func(serial *big.Int) (s Status, known bool), log *slog.Logger) (*Responder, error) {
	kept, err := lru.New[answerKey, answer](maxOCSPCache)
	return &Responder{ca, status, kept, log}, err
}

// Answer makes the DER response to a DER request, and says until when it may be kept (the zero time: not at all). An error is
// for the log; the response then says that this is our fault.
func (r *Responder) Answer(request []byte, now time.Time) (response []byte, until time.Time, err error) {
	if len(request) > maxOCSPRequest {
		return ocsp.MalformedRequestErrorResponse, time.Time{}, nil
	}
	req, err := ocsp.ParseRequest(request)
	if err != nil || req.SerialNumber == nil || req.SerialNumber.BitLen() > maxSerialBits || !req.HashAlgorithm.Available() {
		return ocsp.MalformedRequestErrorResponse, time.Time{}, nil
	}
	var issuer pair
	for _, by := range r.ca.issuers(now) {
		if isIssuer(by.cert, req) {
			issuer = by
		}
	}
	if issuer.cert == nil {
		return ocsp.UnauthorizedErrorResponse, time.Time{}, nil
	}
	status, known := r.status(req.SerialNumber)
	key := answerKey{keyID(issuer.cert), req.SerialNumber.String(), req.HashAlgorithm}
	if a, ok := r.kept.Get(key); ok && known && a.status.equal(status) && a.fresh(now) {
		return a.der, a.until, nil
	}
	a, err := r.sign(issuer, req, status, known, now)
	if err != nil {
		return ocsp.InternalErrorErrorResponse, time.Time{}, err
	}
	if known { // serials that were made up would push out real ones
		r.kept.Add(key, a)
	}
	return a.der, a.until, nil
}

func (r *Responder) sign(issuer pair, req *ocsp.Request, status Status, known bool, now time.Time) (answer, error) {
	by, err := r.ca.responder(issuer, now)
	if err != nil {
		return answer{}, err
	}
	from := now.UTC().Truncate(time.Second)
	until := from.Add(maxOCSPLife)
	if by.cert.NotAfter.Before(until) {
		until = by.cert.NotAfter
	}
	t := ocsp.Response{
		Status: ocsp.Unknown, SerialNumber: req.SerialNumber, IssuerHash: req.HashAlgorithm,
		ThisUpdate: from, NextUpdate: until, Certificate: by.cert,
	}
	switch {
	case known && status.Revoked:
		t.Status, t.RevokedAt, t.RevocationReason = ocsp.Revoked, status.At, status.Reason
	case known:
		t.Status = ocsp.Good
	}
	der, err := ocsp.CreateResponse(issuer.cert, by.cert, t, by.key)
	if err != nil {
		return answer{}, fmt.Errorf("sign OCSP answer: %w", err)
	}
	return answer{der, status, from, until}, nil
}

// isIssuer compares the hashes by which a request names the issuer (RFC 6960, section 4.1.1).
func isIssuer(cert *x509.Certificate, req *ocsp.Request) bool {
	var spki struct {
		Algorithm asn1.RawValue
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(cert.RawSubjectPublicKeyInfo, &spki); err != nil {
		return false
	}
	sum := func(b []byte) []byte {
		h := req.HashAlgorithm.New()
		h.Write(b)
		return h.Sum(nil)
	}
	return bytes.Equal(sum(cert.RawSubject), req.IssuerNameHash) && bytes.Equal(sum(spki.Key.RightAlign()), req.IssuerKeyHash)
}

// responder is the delegated certificate of an issuing CA, and its key. It is renewed at half of its life; one that ends with
// its issuing CA stays to the end.
func (c *CA) responder(issuer pair, now time.Time) (pair, error) {
	c.respondersMu.Lock()
	defer c.respondersMu.Unlock()
	id := keyID(issuer.cert)
	if p, ok := c.responders[id]; ok {
		last := p.cert.NotAfter.Equal(issuer.cert.NotAfter) && now.Before(p.cert.NotAfter)
		if part := partOf(p.cert, now); last || part >= 0 && part < prepareAt {
			return p, nil
		}
	}
	key, err := identity.NewLeafKey()
	if err != nil {
		return pair{}, err
	}
	ski, err := subjectKeyID(key.Public())
	if err != nil {
		return pair{}, err
	}
	cert, err := sign(Profile{Kind: OCSP, Name: caName(c.opts.Domain, "OCSP", ski)}, issuer, key.Public(), c.opts.Limits, now)
	if err != nil {
		return pair{}, fmt.Errorf("make OCSP responder: %w", err)
	}
	for old := range c.responders { // those of issuing CAs that have ended
		if !c.isIssuing(old, now) {
			delete(c.responders, old)
		}
	}
	c.responders[id] = pair{cert, key}
	return c.responders[id], nil
}

func (c *CA) isIssuing(id string, now time.Time) bool {
	for _, p := range c.issuers(now) {
		if keyID(p.cert) == id {
			return true
		}
	}
	return false
}
