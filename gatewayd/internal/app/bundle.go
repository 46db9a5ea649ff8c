package app

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/config"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// BundleView is a trust bundle as people and scripts read it.
type BundleView struct {
	Domain      string     `json:"domain"`
	Issuer      string     `json:"issuer"` // AIC of the AMC
	Seq         uint64     `json:"seq"`
	Issued      time.Time  `json:"issued"`
	RefreshS    uint64     `json:"refresh_s"`
	Prefixes    []string   `json:"prefixes"` // of the identity codes that are the domain's
	Gateways    []string   `json:"gateways"`
	Roots       []RootView `json:"roots"`
	Keys        []KeyView  `json:"keys"`
	Fingerprint string     `json:"fingerprint"` // of the key that signed it
	// Siblings are the other AMCs of the domain, which this one vouches for
	Siblings []SiblingView `json:"siblings,omitempty"`
}

// SiblingView is another AMC of a domain, as a bundle names it.
type SiblingView struct {
	Issuer      string `json:"issuer"`      // AIC
	Fingerprint string `json:"fingerprint"` // of the key that signs its bundle
}

// RootView is one root certificate of a bundle.
type RootView struct {
	Subject  string    `json:"subject"`
	SHA256   string    `json:"sha256"`
	NotAfter time.Time `json:"not_after"`
}

// KeyView is one signing key of a bundle.
type KeyView struct {
	ID        string    `json:"id"`
	Use       string    `json:"use"`
	Owner     string    `json:"owner"` // AIC
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
}

var useNames = map[identity.Use]string{
	identity.UseDigest: "digests and results", identity.UseSAT: "session tokens", identity.UseRAT: "request tokens",
	identity.UseStatus: "status lists", identity.UseBundle: "bundles", identity.UseGrant: "grants",
}

// ShowBundle reads a bundle file.
func ShowBundle(file string) (*BundleView, error) {
	a, err := readBundle(file)
	if err != nil {
		return nil, err
	}
	v := &BundleView{
		Domain: a.Domain, Issuer: a.Issuer, Seq: a.Seq, Issued: unix(a.Issued), RefreshS: a.RefreshS, Prefixes: a.Prefixes,
		Gateways: a.Gateways(), Fingerprint: identity.FingerprintText(a.Fingerprint),
	}
	for _, der := range a.Roots {
		root, err := x509.ParseCertificate(der)
		if err != nil { // ParseBundle has seen to it
			return nil, err
		}
		sum := sha256.Sum256(der)
		v.Roots = append(v.Roots, RootView{Subject: root.Subject.String(), SHA256: hex.EncodeToString(sum[:]), NotAfter: root.NotAfter.UTC()})
	}
	for _, s := range a.Siblings {
		v.Siblings = append(v.Siblings, SiblingView{Issuer: s.Issuer, Fingerprint: identity.FingerprintText([32]byte(s.Signer))})
	}
	for _, k := range a.Keys {
		use := or(useNames[k.Use], fmt.Sprintf("use %d", k.Use))
		v.Keys = append(v.Keys, KeyView{ID: hex.EncodeToString(k.KeyID), Use: use, Owner: k.Owner, NotBefore: unix(k.NotBefore), NotAfter: unix(k.NotAfter)})
	}
	return v, nil
}

func unix(s uint64) time.Time { return time.Unix(int64(min(s, 1<<40)), 0).UTC() }

func readBundle(file string) (*identity.Accepted, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, daemon.Usagef("read the bundle: %w", err)
	}
	a, err := identity.ParseBundle(raw)
	if err != nil {
		return nil, daemon.Usagef("%s is no bundle file (bundle.cbor of a gateway's state folder), or a damaged one: %w", file, err)
	}
	return a, nil
}

// ExportBundle is this domain's own bundle, to be handed to peers.
func ExportBundle(cfg *config.Gateway) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(cfg.StateDir, fileBundle))
	if err != nil {
		return nil, fmt.Errorf("read own bundle: %w; `gatewayd init` makes a domain", err)
	}
	return raw, nil
}

// ImportResult is what `gatewayd bundle import` did.
type ImportResult struct {
	Domain      string `json:"domain"`
	Seq         uint64 `json:"seq"`
	File        string `json:"file"`
	Fingerprint string `json:"fingerprint"`
	Changed     bool   `json:"changed"`
	Running     bool   `json:"running"` // the running gateway uses it already
}

var fingerprintLine = regexp.MustCompile(`(?m)^fingerprint:.*$`)

// ImportBundle renews the copy of a configured peer's bundle from a file. The copy held must vouch for it: a larger sequence
// number, signed under a key that the copy names for bundles. fingerprint may name the key that signed it, as its operator says.
func ImportBundle(cfg *config.Gateway, file, fingerprint string) (*ImportResult, error) {
	next, err := readBundle(file)
	if err != nil {
		return nil, err
	}
	out := &ImportResult{Domain: next.Domain, Seq: next.Seq, Fingerprint: identity.FingerprintText(next.Fingerprint)}
	if fingerprint != "" {
		want, err := identity.ParseFingerprint(fingerprint)
		if err != nil {
			return nil, daemon.Usagef("--fingerprint: %w", err)
		}
		if want != next.Fingerprint {
			return nil, notSigner(file, out.Fingerprint, fingerprint)
		}
	}
	rowFile := filepath.Join(cfg.PeersDir, next.Domain+".yaml")
	if _, err := os.Stat(rowFile); err != nil {
		return nil, daemon.Usagef("%s is no configured peer (no %s): `gatewayd peer add` makes it one", next.Domain, rowFile)
	}
	row, err := config.LoadPeer(rowFile)
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	out.File = row.Bundle
	held, err := readBundle(row.Bundle)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(held.Raw, next.Raw) {
		return out, nil
	}
	if err := checkRenewal(cfg, held, next); err != nil {
		return nil, err
	}
	out.Changed = true
	return out, writeRenewal(row, rowFile, next)
}

func notSigner(file, is, want string) error {
	return frame.Errorf(frame.TrustDenied, "bundle file %s is signed by %s, not by %s: it is not the peer's, or the peer has replaced its key since: ask its operator for the fingerprint of today", file, is, want)
}

// checkRenewal judges as the running gateway would, with every row as it stands.
func checkRenewal(cfg *config.Gateway, held, next *identity.Accepted) error {
	if next.Seq <= held.Seq {
		return frame.Errorf(frame.TrustDenied, "bundle of %s: sequence %d is not above the %d held", next.Domain, next.Seq, held.Seq)
	}
	trust, err := trustOfFiles(cfg, next.Domain)
	if err != nil {
		return err
	}
	if _, err := trust.Configure(held.Raw, [32]byte{}); err != nil {
		return err
	}
	_, err = trust.Renew(next.Raw)
	return err
}

// writeRenewal replaces the copy, and what the row says of its signer. The row comes first: a row that pins the new signer over
// the old copy refuses it loudly, and the import can be done again.
func writeRenewal(row *config.Peer, rowFile string, next *identity.Accepted) error {
	text := identity.FingerprintText(next.Fingerprint)
	if row.Fingerprint != "" && row.Fingerprint != text {
		raw, err := os.ReadFile(rowFile)
		if err != nil {
			return err
		}
		if !fingerprintLine.Match(raw) {
			return daemon.Usagef("%s: the key that signs the bundle has changed: write fingerprint: %s there by hand", rowFile, text)
		}
		if err := renameio.WriteFile(rowFile, fingerprintLine.ReplaceAll(raw, []byte("fingerprint: "+text)), 0o644); err != nil {
			return err
		}
	}
	return renameio.WriteFile(row.Bundle, next.Raw, 0o644)
}
