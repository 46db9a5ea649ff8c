package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"agentgw/internal/identity"
)

// RemoveRoot takes a root out of a gateway's folder again, by the SHA-256 of its certificate: one that was installed by mistake, or that the
// domain has done with before its end. Its key goes too, where it is in the folder. A root that an issuing CA needs which signs, or has signed
// what still counts, stays; an issuing CA that only waits to take over goes with it, and [CA.Rotate] prepares the next one.
func RemoveRoot(dir string, fingerprint [32]byte, o Options) (*x509.Certificate, error) {
	c := newCA(o, dir)
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.load(); err != nil {
		return nil, err
	}
	v := c.view.Load()
	i := slices.IndexFunc(v.roots, func(r pair) bool { return sha256.Sum256(r.cert.Raw) == fingerprint })
	if i < 0 {
		return nil, fmt.Errorf("no root has the fingerprint %s; there are %s", identity.FingerprintText(fingerprint), rootNames(v.roots))
	}
	root := v.roots[i].cert
	others := slices.DeleteFunc(slices.Clone(v.roots), func(r pair) bool { return r.cert.Equal(root) || o.now().After(r.cert.NotAfter) })
	if len(others) == 0 {
		return nil, fmt.Errorf("%q is the only root that has not ended: make or install another one first", root.Subject.CommonName)
	}
	for _, p := range append([]pair{v.issuing}, v.old...) {
		if rootOf(p.cert, v.roots).cert.Equal(root) {
			return nil, fmt.Errorf("%q is in use: it has signed %q, which counts until %s", root.Subject.CommonName, p.cert.Subject.CommonName, stamp(p.cert.NotAfter))
		}
	}
	if v.next.cert != nil && rootOf(v.next.cert, v.roots).cert.Equal(root) {
		if err := c.dropNext(); err != nil {
			return nil, err
		}
	}
	return root, c.dropRoot(root, others[0])
}

func rootNames(roots []pair) string {
	var out []string
	for _, r := range roots {
		out = append(out, fmt.Sprintf("%q %s", r.cert.Subject.CommonName, identity.FingerprintText(sha256.Sum256(r.cert.Raw))))
	}
	return strings.Join(out, ", ")
}

// dropRoot removes the files of a root. Where it is the one of [FileRoot] heir takes its place there: until the last step the folder has heir
// twice, which loadRoots makes one of.
func (c *CA) dropRoot(root *x509.Certificate, heir pair) error {
	if err := remove(rootListFile(c.dir, root)); err != nil {
		return err
	}
	base, err := loadCert(c.at(FileRoot))
	if err != nil {
		return err
	}
	if base.Equal(root) {
		if err := remove(c.at(FileRootKey)); err != nil {
			return err
		}
		if err := savePairLast(c.at(FileRootKey), c.at(FileRoot), heir); err != nil {
			return err
		}
		root = heir.cert // its other files go
	}
	names, err := c.glob(rootPrefix + "*.pem")
	if err != nil {
		return err
	}
	for _, name := range names {
		cert, err := loadCert(name)
		if err != nil {
			return err
		}
		if !cert.Equal(root) {
			continue
		}
		for _, file := range []string{name, strings.TrimSuffix(name, filepath.Ext(name)) + ".key"} {
			if err := remove(file); err != nil {
				return err
			}
		}
	}
	return syncDir(c.dir)
}

// savePairLast writes the certificate first: the key that would be beside it is another one's until then.
func savePairLast(keyFile, certFile string, p pair) error {
	if err := identity.SaveChain(certFile, [][]byte{p.cert.Raw}); err != nil || p.key == nil {
		return err
	}
	return identity.SaveKey(keyFile, p.key)
}
