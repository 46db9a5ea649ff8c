package pki

import (
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"agentgw/internal/identity"
)

const day = 24 * time.Hour

// folder is a CA's folder in a time that the test sets.
type folder struct {
	t   *testing.T
	dir string
	now time.Time
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	f := &folder{t, t.TempDir(), time.Now().UTC().Truncate(time.Second)}
	if _, err := Create(f.dir, f.options()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *folder) options() Options {
	return Options{Domain: "x.example", Now: func() time.Time { return f.now }}
}

func (f *folder) open() *CA {
	f.t.Helper()
	c, err := OpenDir(f.dir, f.options())
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// rotate lets some time pass, and wants these events.
func (f *folder) rotate(c *CA, pass time.Duration, want ...Action) (last Event) {
	f.t.Helper()
	f.now = f.now.Add(pass)
	for i := 0; ; i++ {
		e, err := c.Rotate(f.now)
		if err != nil {
			f.t.Fatal(err)
		}
		if e.Action == Nothing {
			if i != len(want) {
				f.t.Fatalf("%d events, want %v", i, want)
			}
			return last
		}
		if i >= len(want) || e.Action != want[i] {
			f.t.Fatalf("event %d is %s, want %v", i, e.Action, want)
		}
		last = e
	}
}

// works checks that credentials of this moment chain to the roots.
func (f *folder) works(c *CA) []*x509.Certificate {
	f.t.Helper()
	chain := issue(f.t, c, profiles(f.t)[Agent], f.now)
	if err := verify(chain, c.Roots(), f.now); err != nil {
		f.t.Fatal(err)
	}
	return chain
}

func (f *folder) has(name string) bool {
	names, err := filepath.Glob(filepath.Join(f.dir, name))
	return err == nil && len(names) > 0
}

func TestIssuingCARotates(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	first := c.Issuing()
	f.rotate(c, 182*day)
	f.rotate(c, day, Prepared)
	if !c.Issuing().Equal(first) {
		t.Error("the next one signs before five sixths")
	}
	f.rotate(c, 121*day)
	held := f.works(c)[0]
	f.rotate(c, day, Activated)
	second := c.Issuing()
	if second.Equal(first) || !f.open().Issuing().Equal(second) {
		t.Error("the issuing CA is the same")
	}
	if chain := f.works(c); !chain[1].Equal(second) {
		t.Error("credentials are not of the new issuing CA")
	}

	// The old one speaks of what it signed until it ends.
	r, known := testResponder(t, c)
	known.set(held.SerialNumber, Status{})
	if got := answerOf(t, r, held, first, f.now); got.Status != ocsp.Good {
		t.Error("OCSP of the old issuing CA:", got.Status)
	}
	l, err := c.CRL([]Revoked{{Serial: held.SerialNumber, At: f.now, Issuer: keyID(first)}}, big.NewInt(1), f.now, f.now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if s := readCRL(t, l, first).RevokedCertificateEntries; len(s) != 1 {
		t.Error("CRL of the old issuing CA:", s)
	}
	if s := readCRL(t, l, second).RevokedCertificateEntries; len(s) != 0 {
		t.Error("CRL of the new issuing CA lists what the old one signed:", s)
	}
	f.rotate(c, 58*day)
	f.rotate(c, 3*day, Retired, Prepared)
	if f.has(oldPrefix + "*") {
		t.Error("what ended is still in the folder")
	}
	f.works(c)
}

// A gateway that was off for years goes on by itself.
func TestRotationAfterYears(t *testing.T) {
	f := newFolder(t)
	f.now = f.now.Add(3 * 365 * day)
	c := f.open()
	f.rotate(c, 0, Prepared, Activated, Retired)
	f.works(c)
	f.rotate(c, 183*day, Prepared)
	f.now = f.now.Add(2 * 365 * day) // and off again: the one that waited has ended too
	c = f.open()
	f.rotate(c, 0, Prepared, Activated, Retired)
	f.works(c)
}

func TestRotationSurvivesACrashAtEveryPoint(t *testing.T) {
	for _, crash := range []struct {
		name  string
		steps []int // of activation
	}{
		{"before", nil}, {"old key", []int{0}}, {"old pair", []int{0, 1}}, {"synced", []int{0, 1, 2}}, {"key renamed", []int{0, 1, 2, 3}},
		{"both renamed", []int{0, 1, 2, 3, 4}}, {"all", []int{0, 1, 2, 3, 4, 5}}, {"the disk kept the later rename only", []int{0, 1, 2, 4}},
	} {
		t.Run(crash.name, func(t *testing.T) {
			f := newFolder(t)
			c := f.open()
			f.rotate(c, 183*day, Prepared)
			f.now = f.now.Add(122 * day)
			v := c.view.Load()
			steps := activation(f.dir, v)
			if len(steps) != 6 {
				t.Fatalf("%d steps: this test knows 6", len(steps))
			}
			for _, i := range crash.steps {
				if err := steps[i](); err != nil {
					t.Fatal(err)
				}
			}
			c = f.open()
			f.works(c)
			for _, old := range c.view.Load().old {
				if old.cert.Equal(c.Issuing()) {
					t.Error("the current issuing CA is an old one too")
				}
			}
			for range 4 {
				if _, err := c.Rotate(f.now); err != nil {
					t.Fatal(err)
				}
			}
			if !c.Issuing().Equal(v.next.cert) || len(c.view.Load().old) != 1 || !c.view.Load().old[0].cert.Equal(v.issuing.cert) {
				t.Error("the rotation is not finished")
			}
			if f.has(FileNext) || f.has(FileNextKey) {
				t.Error("the next pair is still there")
			}
			f.works(f.open())
		})
	}
}

func TestCrashWhilePreparingOrRetiringLeavesNothingBroken(t *testing.T) {
	f := newFolder(t)
	key := testKey(t, elliptic.P256())
	if err := identity.SaveKey(filepath.Join(f.dir, FileNextKey), key); err != nil {
		t.Fatal(err)
	}
	orphan := filepath.Join(f.dir, oldPrefix+"00.key")
	if err := identity.SaveKey(orphan, key); err != nil {
		t.Fatal(err)
	}
	if err := identity.SaveKey(filepath.Join(f.dir, rootPrefix+"00.key"), testKey(t, elliptic.P384())); err != nil {
		t.Fatal(err)
	}
	c := f.open()
	f.rotate(c, 183*day, Prepared)
	if !belongs(key, c.view.Load().next.cert) {
		t.Error("the key that was there is not used")
	}
	if _, err := os.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the key of a CA that is gone stays")
	}
	f.rotate(c, 122*day, Activated)
	f.works(c)
}

func TestFilesThatDoNotBelongTogetherStopTheRotation(t *testing.T) {
	f, other := newFolder(t), newFolder(t)
	c, stranger := f.open(), other.open()
	f.rotate(c, 183*day, Prepared)
	other.rotate(stranger, 183*day, Prepared)
	take(t, f.dir, other.dir, FileNext)
	if _, err := c.Rotate(f.now); err == nil || !strings.Contains(err.Error(), FileNext) {
		t.Error(err)
	}
	gone(t, f.dir, FileNextKey)
	if _, err := OpenDir(f.dir, f.options()); err == nil || !strings.Contains(err.Error(), FileNextKey) {
		t.Error(err)
	}
}

func TestNewRootIsFollowedByIssuingCAsUnderIt(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	first := c.Root()
	if e := f.rotate(c, 0); e.Action != Nothing {
		t.Error(e)
	}
	f.now = f.now.Add(time.Hour)
	second, err := c.NewRoot(f.now)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Roots(); len(r) != 2 || !r[0].Equal(second) || !r[1].Equal(first) || !c.Root().Equal(first) {
		t.Error("both roots are due, the new one first; the issuing CA is still of the old one")
	}
	before := f.works(c)
	f.rotate(c, 183*day, Prepared)
	f.rotate(c, 122*day, Activated)
	if !c.Root().Equal(second) || rootOf(c.Issuing(), []pair{{cert: first}}).cert != nil {
		t.Error("the next issuing CA is not of the new root")
	}
	after := f.works(f.open())
	if err := verify(after, []*x509.Certificate{second}, f.now); err != nil {
		t.Error(err)
	}
	if err := verify(before, []*x509.Certificate{second}, f.now.Add(-305*day)); err == nil {
		t.Error("a credential of the old root is one of the new")
	}
	f.now = first.NotAfter.Add(time.Second)
	if r := c.Roots(); len(r) != 1 || !r[0].Equal(second) {
		t.Error("a root that has ended is still given")
	}
}

func TestIssuingCAOfANewRootWaitsForTheBundle(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	f.now = f.now.Add(310 * day)
	root, err := c.NewRoot(f.now)
	if err != nil {
		t.Fatal(err)
	}
	f.rotate(c, 0, Prepared)
	f.rotate(c, 59*time.Minute)
	f.rotate(c, time.Minute, Activated)
	if !c.Root().Equal(root) {
		t.Error("not of the new root")
	}
}

// On the operator's word the next issuing CA takes over at once, and the old one stays known; under a root that is new it waits all the
// same, and where the root is offline its owner is asked.
func TestIssuingCAIsReplacedAtOnce(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	first := c.Issuing()
	done, err := c.Replace(f.now)
	if err != nil || len(done) != 2 || done[0].Action != Prepared || done[1].Action != Activated || c.Issuing().Equal(first) {
		t.Fatalf("%v, %v", done, err)
	}
	f.works(f.open())
	if n := len(c.issuers(f.now)); n != 2 {
		t.Errorf("%d issuing CAs are known for CRL and OCSP", n)
	}
	f.now = f.now.Add(time.Minute)
	root, err := c.NewRoot(f.now)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := c.Replace(f.now); err != nil || len(done) != 1 || done[0].Action != Prepared {
		t.Errorf("under a root that nobody can know: %v, %v", done, err)
	}
	f.now = f.now.Add(time.Hour)
	if done, err := c.Replace(f.now); err != nil || len(done) != 1 || done[0].Action != Activated || !c.Root().Equal(root) {
		t.Errorf("an hour later: %v, %v", done, err)
	}
	if err := os.Remove(filepath.Join(f.dir, rootPrefix+keyID(root)+".key")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // each time that somebody is there to read it
		if done, err := c.Replace(f.now); err != nil || len(done) != 1 || done[0].Action != AskSignature {
			t.Errorf("with an offline root: %v, %v", done, err)
		}
	}
}

// What counts is when bundles carried the root, and how long others may go on with an old one.
func TestIssuingCAOfANewRootWaitsForThreeRefreshes(t *testing.T) {
	f := newFolder(t)
	o := f.options()
	var since time.Time
	o.Refresh, o.Published = time.Hour, func(*x509.Certificate) (time.Time, bool) { return since, !since.IsZero() }
	c, err := OpenDir(f.dir, o)
	if err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(310 * day)
	if _, err := c.NewRoot(f.now); err != nil {
		t.Fatal(err)
	}
	f.rotate(c, 0, Prepared)
	f.rotate(c, day)
	since = f.now
	f.rotate(c, 3*time.Hour)
	f.rotate(c, time.Minute, Activated)
	since = time.Time{}
	f.rotate(c, 60*day, Retired)
	f.rotate(c, 123*day, Prepared) // the root has signed the current issuing CA: nobody asks for it again
	f.rotate(c, 123*day, Activated)
}

// An issuing CA that ended while its follower waited for the bundle is of no use: the follower takes over at once.
func TestIssuingCAOfANewRootDoesNotWaitWhenTheOldOneEnds(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	f.now = c.Issuing().NotAfter.Add(-10 * time.Minute)
	if _, err := c.NewRoot(f.now); err != nil {
		t.Fatal(err)
	}
	f.rotate(c, 0, Prepared)
	f.rotate(c, 9*time.Minute)
	f.rotate(c, 2*time.Minute, Activated, Retired)
	f.works(c)
}

func TestIssuingCADoesNotTakeOverBeforeItIsValid(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	f.now = f.now.Add(310 * day)
	if e, err := c.Rotate(f.now); err != nil || e.Action != Prepared {
		t.Fatal(e, err)
	}
	f.rotate(c, -2*time.Minute) // the clock was ahead
	f.rotate(c, 2*time.Minute, Activated)
}

func TestRootsAreBounded(t *testing.T) {
	f := newFolder(t)
	c := f.open()
	for range MaxRoots - 1 {
		f.now = f.now.Add(time.Hour)
		if _, err := c.NewRoot(f.now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.NewRoot(f.now); err == nil || !strings.Contains(err.Error(), "4") {
		t.Error(err)
	}
	if len(c.Roots()) != MaxRoots {
		t.Error(len(c.Roots()))
	}
	f.now = f.now.Add(10*365*day - time.Hour) // the first three have ended, the last is at its end
	if _, err := c.NewRoot(f.now); err != nil {
		t.Error(err)
	}
}

func TestEndOfTheRootIsAnnouncedDaily(t *testing.T) {
	f := newFolder(t)
	f.now = f.now.Add(9 * 365 * day)
	c := f.open()
	f.rotate(c, 0, Prepared, Activated, Retired, AskRoot)
	f.rotate(c, 23*time.Hour)
	f.rotate(c, time.Hour, AskRoot)
	if !c.Issuing().NotAfter.Equal(c.Root().NotAfter) {
		t.Error("an issuing CA outlives its root")
	}
	f.now = c.Root().NotAfter.Add(time.Second)
	if _, err := c.Rotate(f.now); err == nil || !strings.Contains(err.Error(), "ca root") {
		t.Error(err)
	}
}

func TestCAInMemoryDoesNotRotate(t *testing.T) {
	c := testCA(t, Options{})
	if _, err := c.Rotate(time.Now()); err == nil {
		t.Error("rotated")
	}
	if _, err := c.NewRoot(time.Now()); err == nil {
		t.Error("new root")
	}
}
