package pki

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"agentgw/internal/identity"
)

// Files of a CA's folder. A further root and an old issuing CA have the start of their key id in their names.
const (
	FileRootKey    = "ca-root.key" // absent where the root is kept offline
	FileRoot       = "ca-root.pem"
	FileIssuingKey = "ca-issuing.key"
	FileIssuing    = "ca-issuing.pem"
	FileNextKey    = "ca-issuing-next.key"
	FileNext       = "ca-issuing-next.pem"
	FileRequest    = "ca-issuing-next.csr" // for the owner of an offline root to sign

	rootPrefix = "ca-root-"
	oldPrefix  = "ca-issuing-old-"
)

const maxCAFiles = 64 // further roots, or old issuing CAs, in a folder; rotation keeps a handful

// Create makes a domain's root and issuing CA in a folder that has none.
func Create(dir string, o Options) (*CA, error) {
	for _, name := range []string{FileRootKey, FileRoot, FileIssuingKey, FileIssuing} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is there already: keep the domain's CA, or choose another folder", filepath.Join(dir, name))
		}
	}
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	c.dir = dir
	v := c.view.Load()
	if err := savePair(c.at(FileRootKey), c.at(FileRoot), v.roots[0]); err != nil {
		return nil, err
	}
	return c, savePair(c.at(FileIssuingKey), c.at(FileIssuing), v.issuing)
}

// OpenDir opens the CA of a folder. A change that a crash cut short is finished first. A CA that has ended is opened too, so
// that [CA.Rotate] can follow it up.
func OpenDir(dir string, o Options) (*CA, error) {
	c := newCA(o, dir)
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return c, c.load()
}

// lock keeps other goroutines and other processes, such as an operator's verb, from changing the folder.
func (c *CA) lock() (unlock func(), err error) {
	c.mu.Lock()
	release, err := lockDir(c.dir)
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	return func() { release(); c.mu.Unlock() }, nil
}

// lockDir waits for the folder's lock, which its holders need for a few files. It goes with the process that dies.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the CA's folder: %w", err)
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the CA's folder %s: %w", dir, err), d.Close())
	}
	return func() { _ = d.Close() }, nil // closing releases, and nothing was written
}

func (c *CA) at(name string) string { return filepath.Join(c.dir, name) }

// load reads the folder and replaces the view. Callers hold mu.
func (c *CA) load() (err error) {
	if err := finishActivation(c.dir); err != nil {
		return err
	}
	v := &view{}
	if v.roots, err = loadRoots(c.dir); err != nil {
		return err
	}
	if v.issuing, err = loadIssuing(c.at(FileIssuingKey), c.at(FileIssuing), v.roots); err != nil {
		return err
	}
	if v.next, err = loadNext(c.dir, v.roots); err != nil {
		return err
	}
	names, err := c.glob(oldPrefix + "*.pem")
	if err != nil {
		return err
	}
	for _, name := range names {
		p, err := loadIssuing(strings.TrimSuffix(name, ".pem")+".key", name, v.roots)
		if err != nil {
			return err
		}
		if keyID(p.cert) != keyID(v.issuing.cert) { // a copy that was made before the activation it is for
			v.old = append(v.old, p)
		}
	}
	newest(v.old)
	c.view.Store(v)
	return nil
}

func (c *CA) glob(pattern string) ([]string, error) { return globFiles(c.dir, pattern) }

func globFiles(dir, pattern string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err == nil && len(names) > maxCAFiles {
		err = fmt.Errorf("%s has %d files %s, at most %d are read: move old ones away", dir, len(names), pattern, maxCAFiles)
	}
	return names, err
}

// loadRoots reads all roots of a folder, newest first, with the keys that are there.
func loadRoots(dir string) ([]pair, error) {
	names, err := globFiles(dir, rootPrefix+"*.pem")
	if err != nil {
		return nil, err
	}
	var out []pair
	for _, name := range append([]string{filepath.Join(dir, FileRoot)}, names...) {
		cert, err := loadCert(name)
		if err != nil {
			return nil, err
		}
		if !cert.IsCA || cert.CheckSignatureFrom(cert) != nil {
			return nil, fmt.Errorf("%s is no self-signed root: restore the file from a backup", name)
		}
		p := pair{cert: cert}
		keyFile := strings.TrimSuffix(name, ".pem") + ".key"
		if p.key, err = loadKeyOf(keyFile, cert); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if i := slices.IndexFunc(out, func(r pair) bool { return r.cert.Equal(cert) }); i < 0 {
			out = append(out, p)
		} else if p.key != nil { // a removal that a crash cut short has left it twice
			out[i] = p
		}
	}
	newest(out)
	return out, nil
}

// loadIssuing reads an issuing CA that one of the roots has signed, and its key.
func loadIssuing(keyFile, certFile string, roots []pair) (pair, error) {
	cert, err := loadCert(certFile)
	if err != nil {
		return pair{}, err
	}
	if rootOf(cert, roots).cert == nil {
		return pair{}, fmt.Errorf("%s is signed by no root of this folder: it needs the root in %s, or in a file %s*.pem",
			certFile, FileRoot, rootPrefix)
	}
	key, err := loadKeyOf(keyFile, cert)
	return pair{cert, key}, err
}

// loadNext reads the issuing CA that will follow, as far as there is one: nothing, its key alone, or both.
func loadNext(dir string, roots []pair) (pair, error) {
	keyFile, certFile := filepath.Join(dir, FileNextKey), filepath.Join(dir, FileNext)
	key, err := identity.LoadKey(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(certFile); err == nil {
			return pair{}, fmt.Errorf("%s has no key beside it: restore %s from a backup, or remove the certificate", certFile, keyFile)
		}
		return pair{}, nil
	} else if err != nil {
		return pair{}, err
	}
	if _, err := os.Stat(certFile); errors.Is(err, fs.ErrNotExist) {
		return pair{key: key}, nil
	}
	return loadIssuing(keyFile, certFile, roots)
}

func rootOf(cert *x509.Certificate, roots []pair) pair {
	for _, r := range roots {
		if cert.CheckSignatureFrom(r.cert) == nil {
			return r
		}
	}
	return pair{}
}

func loadCert(name string) (*x509.Certificate, error) {
	chain, err := identity.LoadChain(name)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", name, err)
	}
	return cert, nil
}

// loadKeyOf reads the key of a certificate.
func loadKeyOf(name string, cert *x509.Certificate) (crypto.Signer, error) {
	key, err := identity.LoadKey(name)
	if err != nil {
		return nil, err
	}
	if !belongs(key, cert) {
		return nil, fmt.Errorf("read key %s: it is not the key of %q: restore both files from one backup", name, cert.Subject.CommonName)
	}
	return key, nil
}

func belongs(key crypto.Signer, cert *x509.Certificate) bool {
	spki, err := identity.SPKIHash(key.Public())
	return err == nil && sha256.Sum256(cert.RawSubjectPublicKeyInfo) == spki
}

// savePair writes the key first: a certificate in a folder always has its key beside it.
func savePair(keyFile, certFile string, p pair) error {
	if p.key != nil {
		if err := identity.SaveKey(keyFile, p.key); err != nil {
			return err
		}
	}
	return identity.SaveChain(certFile, [][]byte{p.cert.Raw})
}

// partOf is where in its life a certificate is: 0 when it was made, 1 at its end.
func partOf(cert *x509.Certificate, now time.Time) float64 {
	made := cert.NotBefore.Add(backdate)
	return float64(now.Sub(made)) / float64(cert.NotAfter.Sub(made))
}
