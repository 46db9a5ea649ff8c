package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
)

// The CRL of an offline root: issuing CAs name it, so it is signed where the root's key is and published by the gateway.

const (
	pemList = "X509 CRL"
	maxList = 64 << 10 // octets of a root's CRL; it lists issuing CAs, of which there are two a year
)

// SignRootCRL signs the CRL of a root that is kept elsewhere, and writes it to out, for [InstallRootCRL]. entries are issuing
// CAs that are revoked; number grows with every list.
func SignRootCRL(rootFile, rootKeyFile, out string, entries []Revoked, number *big.Int, next time.Time, o Options) error {
	if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already: choose another file", out)
	}
	if err := checkRevoked(entries); err != nil {
		return err
	}
	if number == nil || number.Sign() <= 0 {
		return fmt.Errorf("CRL number %v is not positive", number)
	}
	root := pair{}
	var err error
	if root.cert, err = loadCert(rootFile); err != nil {
		return err
	}
	if root.key, err = loadKeyOf(rootKeyFile, root.cert); err != nil {
		return err
	}
	der, err := newCA(o, "").list(root, of(entries, keyID(root.cert), true), nil, number, o.now(), next)
	if err != nil {
		return err
	}
	return writeList(out, der)
}

// InstallRootCRL puts the CRL of a root into a gateway's folder, whose next [CA.CRL] has it among its lists.
func InstallRootCRL(dir, file string, o Options) error {
	roots, err := loadRoots(dir)
	if err != nil {
		return err
	}
	list, err := readList(file)
	if err != nil {
		return err
	}
	for _, r := range roots {
		if list.CheckSignatureFrom(r.cert) != nil {
			continue
		}
		if now := o.now(); now.Before(list.ThisUpdate.Add(-backdate)) || now.After(list.NextUpdate) {
			return fmt.Errorf("%s is valid from %s to %s, not now", file, stamp(list.ThisUpdate), stamp(list.NextUpdate))
		}
		installed := rootListFile(dir, r.cert)
		if held, err := readList(installed); err == nil && list.Number.Cmp(held.Number) <= 0 {
			return fmt.Errorf("%s has the number %v, %s has %v already: sign one with a higher number", file, list.Number, installed, held.Number)
		}
		return writeList(installed, list.Raw)
	}
	return fmt.Errorf("%s is signed by no root of %s", file, dir)
}

// rootList is the installed CRL of a root whose key is not here, nil where there is none that is valid.
func (c *CA) rootList(root *x509.Certificate, now time.Time) ([]byte, error) {
	if c.dir == "" {
		return nil, nil
	}
	list, err := readList(rootListFile(c.dir, root))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case list.CheckSignatureFrom(root) != nil:
		return nil, fmt.Errorf("%s is not signed by its root: install a new one", rootListFile(c.dir, root))
	case now.After(list.NextUpdate):
		return nil, nil
	}
	return list.Raw, nil
}

func rootListFile(dir string, root *x509.Certificate) string {
	return filepath.Join(dir, rootPrefix+keyID(root)+".crl")
}

func readList(file string) (*x509.RevocationList, error) {
	raw, err := readSmall(file, maxList)
	if err != nil {
		return nil, fmt.Errorf("read CRL: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != pemList {
		return nil, fmt.Errorf("read CRL %s: no PEM block %s", file, pemList)
	}
	list, err := x509.ParseRevocationList(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read CRL %s: %w", file, err)
	}
	if list.Number == nil {
		return nil, fmt.Errorf("read CRL %s: it has no number", file)
	}
	return list, nil
}

func writeList(file string, der []byte) error {
	return renameio.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: pemList, Bytes: der}), 0o644)
}

// readSmall reads a file that came from outside, whole or not at all.
func readSmall(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s: %d octets are too many, at most %d are read", file, info.Size(), limit)
	}
	return os.ReadFile(file)
}
