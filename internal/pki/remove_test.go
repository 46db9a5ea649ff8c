package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/identity"
)

func (f *folder) removeRoot(root *x509.Certificate) error {
	_, err := RemoveRoot(f.dir, sha256.Sum256(root.Raw), f.options())
	return err
}

// A root that was made by mistake goes again, with the issuing CA that waited under it, and the domain goes on under the one that it had.
func TestRemoveRootThatWasAMistake(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	first := c.Root()
	f.now = f.now.Add(day)
	wrong, err := c.NewRoot(f.now)
	if err != nil {
		t.Fatal(err)
	}
	f.rotate(c, 183*day, Prepared)
	if err := f.removeRoot(wrong); err != nil {
		t.Fatal(err)
	}
	if err := f.removeRoot(wrong); err == nil || !strings.Contains(err.Error(), first.Subject.CommonName) {
		t.Errorf("a root that is not there: %v", err)
	}
	if f.has(rootPrefix + "*") {
		t.Error("files of it are left")
	}
	f.rotate(c, 0, Prepared) // anew
	if len(c.Roots()) != 1 || !c.Roots()[0].Equal(first) {
		t.Error("the roots are not those of before")
	}
	f.rotate(c, 122*day, Activated)
	f.works(c)
}

func TestRemoveRootRefuses(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	first := c.Root()
	if err := f.removeRoot(first); err == nil || !strings.Contains(err.Error(), "only root") {
		t.Errorf("the only root: %v", err)
	}
	f.now = f.now.Add(day)
	if _, err := c.NewRoot(f.now); err != nil {
		t.Fatal(err)
	}
	if err := f.removeRoot(first); err == nil || !strings.Contains(err.Error(), c.Issuing().Subject.CommonName) {
		t.Errorf("the root of the issuing CA: %v", err)
	}
	f.rotate(c, 183*day, Prepared)
	f.rotate(c, 122*day, Activated)
	if err := f.removeRoot(first); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the root of an issuing CA whose credentials still count: %v", err)
	}
}

// Once nothing counts any more that it has signed, the first root may go before its end: the next one takes its place. Whichever step a
// crash comes after, the folder opens with roots that are whole.
func TestRemoveTheFirstRoot(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	first := c.Root()
	f.now = f.now.Add(day)
	second, err := c.NewRoot(f.now)
	if err != nil {
		t.Fatal(err)
	}
	f.rotate(c, 183*day, Prepared)
	f.rotate(c, 122*day, Activated)
	f.rotate(c, 61*day, Retired, Prepared)
	twin := filepath.Join(f.t.TempDir(), "twin")
	for _, ending := range []string{".pem", ".key"} { // as a crash would leave them
		raw, err := os.ReadFile(filepath.Join(f.dir, rootPrefix+keyID(second)+ending))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(twin+ending, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.removeRoot(first); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"", ".pem", ".key"} {
		if left != "" {
			if err := os.Rename(twin+left, filepath.Join(f.dir, rootPrefix+keyID(second)+left)); err != nil {
				t.Fatal(err)
			}
		}
		c = f.open()
		if roots := c.Roots(); len(roots) != 1 || !roots[0].Equal(second) {
			t.Errorf("with %s left there are %d roots", left, len(roots))
		}
		if key, err := identity.LoadKey(filepath.Join(f.dir, FileRootKey)); err != nil || !belongs(key, second) {
			t.Errorf("the key of the root: %v", err)
		}
		f.works(c)
	}
}
