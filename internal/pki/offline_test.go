package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
)

// offline takes the root's key out of the folder, and gives the folder where it is.
func (f *folder) offline() string {
	f.t.Helper()
	away := f.t.TempDir()
	for _, name := range []string{FileRootKey, FileRoot} {
		take(f.t, away, f.dir, name)
	}
	gone(f.t, f.dir, FileRootKey)
	return away
}

func TestOfflineRootSignsByFile(t *testing.T) {
	f := newFolder(t)
	away := f.offline()
	c := f.open()
	first := c.Issuing()
	e := f.rotate(c, 183*day, AskSignature)
	if e.File != filepath.Join(f.dir, FileRequest) || !e.Until.Equal(first.NotAfter) {
		t.Errorf("%+v", e)
	}
	request, err := os.ReadFile(e.File)
	if err != nil {
		t.Fatal(err)
	}
	f.rotate(c, 23*time.Hour)
	f.rotate(c, time.Hour, AskSignature)
	if again, err := os.ReadFile(e.File); err != nil || !bytes.Equal(again, request) {
		t.Error("the request is another one after a day:", err)
	}
	out := filepath.Join(away, "signed.pem")
	o := f.options()
	o.Domain, o.BaseURL = "", "http://pki.x.example"
	signed, err := SignIssuing(e.File, filepath.Join(away, FileRoot), filepath.Join(away, FileRootKey), out, o)
	if err != nil {
		t.Fatal(err)
	}
	if signed.Subject.CommonName != e.Name || !strings.HasPrefix(e.Name, "x.example issuing CA ") || len(signed.CRLDistributionPoints) != 1 {
		t.Error(signed.Subject, e.Name, signed.CRLDistributionPoints)
	}
	if _, err := SignIssuing(e.File, filepath.Join(away, FileRoot), filepath.Join(away, FileRootKey), out, o); err == nil {
		t.Error("the file is written over")
	}
	if _, err := InstallIssuing(f.dir, out, f.options()); err != nil {
		t.Fatal(err)
	}
	if f.has(FileRequest) {
		t.Error("the request is still there")
	}
	f.rotate(c, day)
	f.rotate(c, 122*day, Activated)
	if chain := f.works(c); !chain[1].Equal(signed) {
		t.Error("credentials are of another issuing CA")
	}
	// An installed root counts from then on, and its key is elsewhere too.
	second := t.TempDir()
	root, err := MakeRoot(filepath.Join(second, "root"), f.options())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MakeRoot(filepath.Join(second, "root"), f.options()); err == nil {
		t.Error("a root is written over")
	}
	if _, err := InstallRoot(f.dir, filepath.Join(second, "root", FileRoot), f.options()); err != nil {
		t.Fatal(err)
	}
	if _, err := InstallRoot(f.dir, filepath.Join(second, "root", FileRoot), f.options()); err == nil {
		t.Error("a root is installed twice")
	}
	f.rotate(c, 183*day, Retired, AskSignature)
	if len(c.Roots()) != 2 || !c.Roots()[0].Equal(root) {
		t.Error("the installed root is not known")
	}
}

func TestSignIssuingRefuses(t *testing.T) {
	f := newFolder(t)
	away := f.offline()
	f.rotate(f.open(), 183*day, AskSignature)
	request := filepath.Join(f.dir, FileRequest)
	rootFile, keyFile := filepath.Join(away, FileRoot), filepath.Join(away, FileRootKey)
	write := func(name string, raw []byte) string {
		file := filepath.Join(away, name)
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	agents := pemOf(t, func() ([]byte, error) { return identity.NewCSR(testKey(t, elliptic.P256())) })
	other, elsewhere := newFolder(t), filepath.Join(t.TempDir(), "y")
	if _, err := MakeRoot(elsewhere, Options{Domain: "y.example", Limits: f.options().Limits, Now: f.options().Now}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(request)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := bytes.Clone(good)
	spoilt[len(spoilt)-60] ^= 1 // within the signature's base64
	for name, x := range map[string]struct{ request, root, key, want string }{
		"an agent's request":   {write("agent.csr", agents), rootFile, keyFile, "no request of a gateway"},
		"no request":           {write("none.csr", []byte("none")), rootFile, keyFile, "no PEM"},
		"a certificate":        {rootFile, rootFile, keyFile, "no PEM"},
		"a spoilt request":     {write("spoilt.csr", spoilt), rootFile, keyFile, "request"},
		"a huge request":       {write("huge.csr", make([]byte, maxRequest+1)), rootFile, keyFile, "too many"},
		"no file":              {filepath.Join(away, "no"), rootFile, keyFile, "read request"},
		"key of another root":  {request, rootFile, filepath.Join(other.dir, FileRootKey), "not the key"},
		"another domain's":     {request, filepath.Join(elsewhere, FileRoot), filepath.Join(elsewhere, FileRootKey), "no root of x.example"},
		"an issuing CA's pair": {request, filepath.Join(other.dir, FileIssuing), filepath.Join(other.dir, FileIssuingKey), string(RuleKind)},
	} {
		out := filepath.Join(away, "out.pem")
		if _, err := SignIssuing(x.request, x.root, x.key, out, f.options()); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(name, "left a file")
		}
	}
}

func TestInstallRefusesWhatDoesNotFit(t *testing.T) {
	f, other := newFolder(t), newFolder(t)
	away := f.offline()
	f.rotate(f.open(), 183*day, AskSignature)
	key := loadKey(t, filepath.Join(f.dir, FileNextKey))
	root := pair{mustCert(t, filepath.Join(away, FileRoot)), loadKey(t, filepath.Join(away, FileRootKey))}
	strange := pair{mustCert(t, filepath.Join(other.dir, FileRoot)), loadKey(t, filepath.Join(other.dir, FileRootKey))}
	self := func(k *ecdsa.PrivateKey, change func(*x509.Certificate)) string {
		cert := bench{t, nil, Profile{Kind: Root, Name: "x.example root"}, f.now}.makeBy(pair{}, k.Public(), k, change)
		file := filepath.Join(t.TempDir(), "root.pem")
		if err := identity.SaveChain(file, [][]byte{cert.Raw}); err != nil {
			t.Fatal(err)
		}
		return file
	}
	sign := func(by pair, pub crypto.PublicKey, at time.Time, change func(*x509.Certificate)) string {
		b := bench{t, nil, Profile{Kind: Issuing, Name: "x.example issuing CA"}, at}
		cert := b.makeBy(by, pub, nil, change)
		file := filepath.Join(t.TempDir(), "ca.pem")
		if err := identity.SaveChain(file, [][]byte{cert.Raw}); err != nil {
			t.Fatal(err)
		}
		return file
	}
	none := func(*x509.Certificate) {}
	for name, x := range map[string]struct{ file, want string }{
		"root that is not here": {sign(strange, key.Public(), f.now, none), "no root of"},
		"another key":           {sign(root, testKey(t, elliptic.P256()).Public(), f.now, none), "another key"},
		"path length":           {sign(root, key.Public(), f.now, func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 1, false }), string(RuleConstraints)},
		"no CA":                 {sign(root, key.Public(), f.now, func(c *x509.Certificate) { c.IsCA, c.MaxPathLenZero = false, false }), string(RuleConstraints)},
		"too long a life":       {sign(root, key.Public(), f.now, func(c *x509.Certificate) { c.NotAfter = f.now.Add(400 * day) }), string(RuleLife)},
		"ended":                 {sign(root, key.Public(), f.now.Add(-380*day), none), "not now"},
		"not begun":             {sign(root, key.Public(), f.now.Add(day), none), "not now"},
		"no file":               {filepath.Join(away, "no"), "read certificate"},
	} {
		if _, err := InstallIssuing(f.dir, x.file, f.options()); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.has(FileNext) {
		t.Error("something was installed")
	}
	elsewhere := filepath.Join(t.TempDir(), "y")
	if _, err := MakeRoot(elsewhere, Options{Domain: "y.example", Limits: f.options().Limits, Now: f.options().Now}); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct{ file, want string }{
		"another domain's": {filepath.Join(elsewhere, FileRoot), "no root of x.example"},
		"an issuing CA":    {sign(root, key.Public(), f.now, none), "self-signed"},
		"known":            {filepath.Join(f.dir, FileRoot), "already"},
		"weak":             {self(testKey(t, elliptic.P256()), none), string(RuleKey)},
		"no CA":            {self(testKey(t, elliptic.P384()), func(c *x509.Certificate) { c.IsCA, c.MaxPathLen = false, 0 }), "self-signed"},
		"long life":        {self(testKey(t, elliptic.P384()), func(c *x509.Certificate) { c.NotAfter = f.now.Add(11 * 365 * day) }), string(RuleLife)},
	} {
		if _, err := InstallRoot(f.dir, x.file, f.options()); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := InstallIssuing(other.dir, filepath.Join(other.dir, FileIssuing), f.options()); err == nil || !strings.Contains(err.Error(), "waited for") {
		t.Error("nothing is waited for:", err)
	}
	if _, err := MakeRoot(t.TempDir(), Options{Domain: "No Domain"}); err == nil {
		t.Error("a root of no domain is made")
	}
}
