package pki

import (
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestOfflineRootsCRLIsSignedByFileAndPublished(t *testing.T) {
	f := newFolder(t)
	away := f.offline()
	c := f.open()
	rootFile, keyFile := filepath.Join(away, FileRoot), filepath.Join(away, FileRootKey)
	sign := func(name string, number int64, life time.Duration, at time.Time) string {
		out := filepath.Join(away, name)
		o := f.options()
		o.Now = func() time.Time { return at }
		if err := SignRootCRL(rootFile, keyFile, out, []Revoked{{Serial: big.NewInt(5), At: at}}, big.NewInt(number), at.Add(life), o); err != nil {
			t.Fatal(err)
		}
		return out
	}
	lists := func() CRLs {
		l, err := c.CRL(nil, big.NewInt(1), f.now, f.now.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := lists(); len(l) != 1 {
		t.Error("a root without key and list has a list")
	}
	second := sign("2.crl", 2, 90*day, f.now)
	if err := SignRootCRL(rootFile, keyFile, second, nil, big.NewInt(3), f.now.Add(day), f.options()); err == nil {
		t.Error("a file is written over")
	}
	if err := InstallRootCRL(f.dir, second, f.options()); err != nil {
		t.Fatal(err)
	}
	if s := entriesOf(readCRL(t, lists(), c.Root())); s != "5:0" {
		t.Error(s)
	}
	if d, err := c.DeltaCRL(nil, nil, big.NewInt(1), big.NewInt(2), f.now, f.now.Add(time.Hour)); err != nil || len(d) != 1 {
		t.Error("a full list is given for a delta:", len(d), err)
	}
	other := newFolder(t)
	for name, x := range map[string]struct{ dir, file, want string }{
		"same number":    {f.dir, second, "higher number"},
		"lower number":   {f.dir, sign("1.crl", 1, 90*day, f.now), "higher number"},
		"over":           {f.dir, sign("old.crl", 9, day, f.now.Add(-2*day)), "not now"},
		"of the future":  {f.dir, sign("new.crl", 9, day, f.now.Add(day)), "not now"},
		"other root":     {other.dir, second, "no root of"},
		"a certificate":  {f.dir, rootFile, "no PEM block X509 CRL"},
		"no file":        {f.dir, filepath.Join(away, "no"), "read CRL"},
		"a huge file":    {f.dir, huge(t), "too many"},
		"another folder": {filepath.Join(away, "no"), second, "read certificate"},
	} {
		if err := InstallRootCRL(x.dir, x.file, f.options()); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.now = f.now.Add(91 * day)
	if l := lists(); len(l) != 1 {
		t.Error("a root's list is published beyond its end")
	}
}

func huge(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(file, make([]byte, maxList+1), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Two gateways on one folder, or a verb beside one, take turns: whoever comes second finds the work done.
func TestProcessesThatRotateAtOnceTakeTurns(t *testing.T) {
	for range 5 {
		f := newFolder(t)
		f.now = f.now.Add(310 * day)
		var cas []*CA // each has a lock of its own, as a process has
		for range 4 {
			cas = append(cas, f.open())
		}
		var wg sync.WaitGroup
		for _, c := range cas {
			wg.Go(func() {
				for range 3 {
					if _, err := c.Rotate(f.now); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		c := f.open()
		f.works(c)
		if v := c.view.Load(); len(v.old) != 1 || v.next.cert != nil || v.next.key != nil {
			t.Errorf("%d old ones where one was due", len(v.old))
		}
	}
}
