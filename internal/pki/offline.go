package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentgw/internal/identity"
)

// Work by file for a root that is kept away from the gateway. Nothing here needs a running gateway: it reads the folder anew at
// its next [CA.Rotate].

const (
	roleRoot    = "root"
	roleIssuing = "issuing CA"
	pemRequest  = "CERTIFICATE REQUEST"
	maxRequest  = 64 << 10 // octets of a request's file; one has about 500
)

// MakeRoot makes a root and its key in a folder of its own, which it makes where it is missing.
func MakeRoot(dir string, o Options) (*x509.Certificate, error) {
	if !identity.ValidDomain(o.Domain) {
		return nil, fmt.Errorf("domain %q is no lower-case DNS name such as hospital.example", o.Domain)
	}
	keyFile, certFile := filepath.Join(dir, FileRootKey), filepath.Join(dir, FileRoot)
	for _, file := range []string{keyFile, certFile} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is there already: choose another folder", file)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := makeRoot(o.Domain, o.Limits, o.now())
	if err != nil {
		return nil, err
	}
	return root.cert, savePair(keyFile, certFile, root)
}

// SignIssuing signs the request of a gateway's folder ([FileRequest]) with a root that is kept elsewhere, and writes the
// certificate to out, for [InstallIssuing]. The gateway's domain is read from the request; of o the limits, the base URL and the
// clock count.
func SignIssuing(request, rootFile, rootKeyFile, out string, o Options) (*x509.Certificate, error) {
	csr, err := readRequest(request)
	if err != nil {
		return nil, err
	}
	ski, err := subjectKeyID(csr.PublicKey)
	if err != nil {
		return nil, err
	}
	name := csr.Subject.CommonName
	if len(csr.Subject.Names) != 1 || !isIssuingName(name, ski) {
		return nil, fmt.Errorf("%s asks for the name %q: it is no request of a gateway for an issuing CA", request, csr.Subject)
	}
	if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is there already: choose another file", out)
	}
	root := pair{}
	if root.cert, err = loadCert(rootFile); err != nil {
		return nil, err
	}
	if root.key, err = loadKeyOf(rootKeyFile, root.cert); err != nil {
		return nil, err
	}
	o.Domain = strings.TrimSuffix(name, caName("", roleIssuing, ski))
	cert, err := signIssuing(root, csr.PublicKey, o, o.now())
	if err != nil {
		return nil, err
	}
	if err := rootIsOf(root.cert, o.Domain); err != nil {
		return nil, fmt.Errorf("%s: %w", rootFile, err)
	}
	return cert, identity.SaveChain(out, [][]byte{cert.Raw})
}

// InstallIssuing puts an issuing CA's certificate that the root's owner signed into the folder that asked for it. The next
// [CA.Rotate] takes it from there.
func InstallIssuing(dir, file string, o Options) (*x509.Certificate, error) {
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	roots, err := loadRoots(dir)
	if err != nil {
		return nil, err
	}
	cert, err := loadCert(file)
	if err != nil {
		return nil, err
	}
	root := rootOf(cert, roots).cert
	if root == nil {
		return nil, fmt.Errorf("%s is signed by no root of %s: install its root first, with `gatewayd ca install`", file, dir)
	}
	key, err := identity.LoadKey(filepath.Join(dir, FileNextKey))
	if err != nil {
		return nil, fmt.Errorf("no issuing CA is waited for: %w", err)
	}
	if !belongs(key, cert) {
		return nil, fmt.Errorf("%s is over another key than the request in %s: have that request signed", file, filepath.Join(dir, FileRequest))
	}
	if err := fits(cert, Issuing, root, o); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := identity.SaveChain(filepath.Join(dir, FileNext), [][]byte{cert.Raw}); err != nil {
		return nil, err
	}
	return cert, remove(filepath.Join(dir, FileRequest))
}

// InstallRoot puts a further root into a gateway's folder, without its key: the next issuing CA is its owner's to sign.
func InstallRoot(dir, file string, o Options) (*x509.Certificate, error) {
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	roots, err := loadRoots(dir)
	if err != nil {
		return nil, err
	}
	cert, err := loadCert(file)
	if err != nil {
		return nil, err
	}
	for _, r := range roots {
		if r.cert.Equal(cert) {
			return nil, fmt.Errorf("%s is a root of %s already", file, dir)
		}
	}
	if cert.CheckSignatureFrom(cert) != nil {
		return nil, fmt.Errorf("%s is no self-signed root", file)
	}
	if err := fits(cert, Root, nil, o); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := rootIsOf(cert, o.Domain); err != nil { // or its owner would speak for this domain
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := roomForRoot(roots, o.now()); err != nil {
		return nil, err
	}
	return cert, identity.SaveChain(filepath.Join(dir, rootPrefix+keyID(cert)+".pem"), [][]byte{cert.Raw})
}

// fits holds a CA's certificate that came from outside against the profile, as of the time when it was made.
func fits(cert *x509.Certificate, k Kind, issuer *x509.Certificate, o Options) error {
	if now := o.now(); now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return fmt.Errorf("it is valid from %s to %s, not now", stamp(cert.NotBefore), stamp(cert.NotAfter))
	}
	p := Profile{Kind: k, Name: cert.Subject.CommonName, URLs: URLs{cert.CRLDistributionPoints, cert.OCSPServer, cert.IssuingCertificateURL}}
	return Check(cert, p, issuer, o.Limits, cert.NotBefore.Add(backdate))
}

// rootIsOf holds the name of a root against a domain, as far as the name has room for it.
func rootIsOf(root *x509.Certificate, domain string) error {
	name := root.Subject.CommonName
	ski, err := subjectKeyID(root.PublicKey)
	if err != nil {
		return err
	}
	of, ours := strings.CutSuffix(name, caName("", roleRoot, ski))
	if ours && (of == domain || len([]rune(name)) == maxName && strings.HasPrefix(domain, of)) {
		return nil
	}
	return fmt.Errorf("%q is no root of %s: `gatewayd ca root --domain %s` makes one", name, domain, domain)
}

// readRequest reads a request and verifies that its own key signed it.
func readRequest(file string) (*x509.CertificateRequest, error) {
	raw, err := readSmall(file, maxRequest)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != pemRequest {
		return nil, fmt.Errorf("read request %s: no PEM block %s", file, pemRequest)
	}
	csr, err := identity.ParseCSR(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read request %s: %w", file, err)
	}
	return csr, nil
}

// belongsTo says whether a private key is that of a public one.
func belongsTo(key crypto.Signer, pub crypto.PublicKey) bool {
	a, errA := identity.SPKIHash(key.Public())
	b, errB := identity.SPKIHash(pub)
	return errA == nil && errB == nil && a == b
}

// isIssuingName says whether a common name is one that a CA's folder asks for: role and key id at its end.
func isIssuingName(name string, ski []byte) bool {
	return strings.HasSuffix(name, caName("", roleIssuing, ski)) && len([]rune(name)) <= maxName
}
