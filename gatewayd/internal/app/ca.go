package app

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"strings"
	"time"

	"agentgw/config"
	"agentgw/internal/daemon"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// Work on the domain's CA by file: what needs the root's key may be done on a machine that has nothing else.

// CAResult is what a verb of `gatewayd ca` made or installed.
type CAResult struct {
	What        string    `json:"what"` // root, issuing CA, CRL of a root
	Name        string    `json:"name,omitempty"`
	File        string    `json:"file,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"` // SHA-256 of the certificate
	Until       time.Time `json:"until"`
	Running     bool      `json:"running"` // the running gateway has taken it
}

func caResult(what, file string, cert *x509.Certificate) *CAResult {
	return &CAResult{What: what, Name: cert.Subject.CommonName, File: file, Fingerprint: identity.FingerprintText(sha256.Sum256(cert.Raw)), Until: cert.NotAfter.UTC()}
}

// MakeRoot makes a root in a folder of its own, for a domain that is to keep it offline.
func MakeRoot(domain, dir string) (*CAResult, error) {
	cert, err := pki.MakeRoot(dir, pki.Options{Domain: domain})
	if err != nil {
		return nil, err
	}
	return caResult(pki.Root.String(), dir, cert), nil
}

// IssuingOptions is what `gatewayd ca intermediate` is told.
type IssuingOptions struct {
	CSR, Root, RootKey, Out string // files
	PKIURL                  string
	Life                    time.Duration
}

// SignIssuing signs the request of a gateway with a root that is kept elsewhere.
func SignIssuing(o IssuingOptions) (*CAResult, error) {
	l := pki.DefaultLimits()
	l.Issuing = or(o.Life, l.Issuing)
	cert, err := pki.SignIssuing(o.CSR, o.Root, o.RootKey, o.Out, pki.Options{Limits: l, BaseURL: o.PKIURL})
	if err != nil {
		return nil, err
	}
	return caResult(pki.Issuing.String(), o.Out, cert), nil
}

// RootCRLOptions is what `gatewayd ca root-crl` is told.
type RootCRLOptions struct {
	Root, RootKey, Out string   // files
	Revoke             []string // files of issuing CAs
	Life               time.Duration
}

// SignRootCRL signs the CRL of a root that is kept elsewhere. Its number is a time: the next one's is above it.
func SignRootCRL(o RootCRLOptions) (*CAResult, error) {
	at := now()
	var entries []pki.Revoked
	for _, file := range o.Revoke {
		chain, err := identity.LoadChain(file)
		if err != nil {
			return nil, err
		}
		cert, err := x509.ParseCertificate(chain[0])
		if err != nil {
			return nil, fmt.Errorf("read certificate %s: %w", file, err)
		}
		entries = append(entries, pki.Revoked{Serial: cert.SerialNumber, At: at, Reason: pki.ReasonUnspecified})
	}
	until := at.Add(o.Life)
	if err := pki.SignRootCRL(o.Root, o.RootKey, o.Out, entries, big.NewInt(at.UnixMilli()), until, pki.Options{}); err != nil {
		return nil, err
	}
	return &CAResult{What: whatCRL, File: o.Out, Until: until.UTC()}, nil
}

const whatCRL = "CRL of a root"

// InstallCA puts what the root's owner has signed into the gateway's folder: an issuing CA, a further root, or a root's CRL.
func InstallCA(cfg *config.Gateway, file string) (*CAResult, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, daemon.Usagef("read what is to be installed: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, daemon.Usagef("%s has no PEM block: a certificate or a CRL is due", file)
	}
	o := authorityOptions(cfg)
	if block.Type == "X509 CRL" {
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read CRL %s: %w", file, err)
		}
		return &CAResult{What: whatCRL, Until: list.NextUpdate.UTC()}, pki.InstallRootCRL(cfg.StateDir, file, o)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", file, err)
	}
	if bytes.Equal(cert.RawSubject, cert.RawIssuer) {
		cert, err = pki.InstallRoot(cfg.StateDir, file, o)
		if err != nil {
			return nil, err
		}
		return caResult(pki.Root.String(), "", cert), nil
	}
	if cert, err = pki.InstallIssuing(cfg.StateDir, file, o); err != nil {
		return nil, err
	}
	return caResult(pki.Issuing.String(), "", cert), nil
}

// RemoveRoot takes a root of the domain away again, by its fingerprint.
func RemoveRoot(cfg *config.Gateway, fingerprint string) (*CAResult, error) {
	fp, err := identity.ParseFingerprint("sha256:" + strings.TrimPrefix(fingerprint, "sha256:"))
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	cert, err := pki.RemoveRoot(cfg.StateDir, fp, authorityOptions(cfg))
	if err != nil {
		return nil, err
	}
	return caResult("removed "+pki.Root.String(), "", cert), nil
}

// NewRoot begins the rotation of the domain's root: the trust bundle names both, and the next issuing CA is the new one's.
func NewRoot(cfg *config.Gateway) (*CAResult, error) {
	ca, err := pki.OpenDir(cfg.StateDir, authorityOptions(cfg))
	if err != nil {
		return nil, err
	}
	cert, err := ca.NewRoot(now())
	if err != nil {
		return nil, err
	}
	return caResult(pki.Root.String(), cfg.StateDir, cert), nil
}
