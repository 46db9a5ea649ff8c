package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/internal/identity"
)

// Parts of an issuing CA's life. Between the two its follower waits, and the operator has time to sign it.
const (
	prepareAt  = 1.0 / 2
	activateAt = 5.0 / 6
	askEvery   = 24 * time.Hour
	rootSettle = time.Hour // at least, of a new root in the bundles before it counts; a twelfth of lives shorter than half a day
	refresh    = 5 * time.Minute
	inFlight   = 2 * time.Second // for the last refresh to arrive
)

// Action is what a rotation did, or asks for.
type Action uint8

// Actions.
const (
	Nothing      Action = 0
	Prepared     Action = 1 // the next issuing CA is signed and waits
	Activated    Action = 2 // the next issuing CA signs from now on
	Retired      Action = 3 // an old issuing CA has ended; its key is removed
	AskSignature Action = 4 // the owner of the offline root must sign Event.File
	AskRoot      Action = 5 // the newest root is near its end: a second one is due
)

func (a Action) String() string {
	names := [...]string{"nothing", "prepared", "activated", "retired", "signature wanted", "root wanted"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Event is the outcome of one [CA.Rotate].
type Event struct {
	Action Action
	Name   string    // common name of the CA that it is about
	File   string    // of AskSignature
	Until  time.Time // when the CA that it is about ends
}

// Rotate does the one step that is due, or nothing; call it again at once until it says [Nothing], and then hourly or so. It
// reads the folder anew, so what another process installed counts. At half of the issuing CA's life the next one is prepared,
// at five sixths it takes over, and the old one stays known for CRL and OCSP until it ends. What the operator must do is said
// once a day.
func (c *CA) Rotate(now time.Time) (Event, error) {
	if c.dir == "" {
		return Event{}, errors.New("a CA in memory does not rotate")
	}
	unlock, err := c.lock()
	if err != nil {
		return Event{}, err
	}
	defer unlock()
	if err := c.load(); err != nil {
		return Event{}, err
	}
	activate := func(now time.Time) (Event, error) { return c.activate(now, activateAt) }
	prepare := func(now time.Time) (Event, error) { return c.prepare(now, prepareAt) }
	for _, step := range []func(time.Time) (Event, error){c.retire, c.dropStale, activate, prepare, c.askRoot} {
		if e, err := step(now); err != nil || e.Action != Nothing {
			if err == nil {
				err = c.load()
			}
			return e, err
		}
	}
	return Event{}, nil
}

// Replace has the issuing CA followed up now, whatever part of its life is over: the next one is prepared, where there is none yet,
// and takes over unless its root is too new. What it could not do [CA.Rotate] does in time; where the root is offline its owner is
// asked.
func (c *CA) Replace(now time.Time) (done []Event, err error) {
	if c.dir == "" {
		return nil, errors.New("a CA in memory does not rotate")
	}
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	delete(c.asked, AskSignature) // the operator is here
	prepare := func() (Event, error) { return c.prepare(now, 0) }
	activate := func() (Event, error) { return c.activate(now, 0) }
	for _, step := range []func() (Event, error){prepare, activate} {
		if err := c.load(); err != nil {
			return done, err
		}
		e, err := step()
		if err != nil {
			return done, err
		}
		if e.Action != Nothing {
			done = append(done, e)
		}
	}
	return done, c.load()
}

// retire removes an old issuing CA that has ended. The certificate goes first: a certificate always has its key. A key that a
// crash has left alone goes too.
func (c *CA) retire(now time.Time) (Event, error) {
	keys, err := c.glob(oldPrefix + "*.key")
	if err != nil {
		return Event{}, err
	}
	for _, key := range keys {
		if _, err := os.Stat(strings.TrimSuffix(key, ".key") + ".pem"); errors.Is(err, fs.ErrNotExist) {
			if err := remove(key); err != nil {
				return Event{}, fmt.Errorf("retire issuing CA: %w", err)
			}
		}
	}
	for _, p := range c.view.Load().old {
		if !now.After(p.cert.NotAfter) {
			continue
		}
		name := c.at(oldPrefix + keyID(p.cert))
		for _, file := range []string{name + ".pem", name + ".key"} {
			if err := remove(file); err != nil {
				return Event{}, fmt.Errorf("retire issuing CA: %w", err)
			}
		}
		return event(Retired, p.cert), nil
	}
	return Event{}, nil
}

// dropStale forgets a next issuing CA that nobody activated in its life.
func (c *CA) dropStale(now time.Time) (Event, error) {
	if next := c.view.Load().next; next.cert == nil || !now.After(next.cert.NotAfter) {
		return Event{}, nil
	}
	if err := c.dropNext(); err != nil {
		return Event{}, err
	}
	return Event{}, c.load()
}

func (c *CA) dropNext() error {
	for _, file := range []string{FileRequest, FileNext, FileNextKey} {
		if err := remove(c.at(file)); err != nil {
			return fmt.Errorf("drop the next issuing CA: %w", err)
		}
	}
	return nil
}

// prepare makes the next issuing CA, or the request for it, when a part of the current one's life is over.
func (c *CA) prepare(now time.Time, from float64) (Event, error) {
	v := c.view.Load()
	if partOf(v.issuing.cert, now) < from || v.next.cert != nil {
		return Event{}, nil
	}
	root := v.roots[0]
	if now.After(root.cert.NotAfter) {
		return Event{}, fmt.Errorf("the root %q has ended at %s: make a new one with `gatewayd ca root`", root.cert.Subject.CommonName, stamp(root.cert.NotAfter))
	}
	key := v.next.key
	if key == nil {
		made, err := identity.NewLeafKey()
		if err != nil {
			return Event{}, err
		}
		key = made
		if err := identity.SaveKey(c.at(FileNextKey), key); err != nil {
			return Event{}, fmt.Errorf("prepare next issuing CA: %w", err)
		}
	}
	if root.key == nil {
		return c.request(pair{key: key}, now)
	}
	cert, err := signIssuing(root, key.Public(), c.opts, now)
	if err != nil {
		return Event{}, err
	}
	if err := identity.SaveChain(c.at(FileNext), [][]byte{cert.Raw}); err != nil {
		return Event{}, fmt.Errorf("prepare next issuing CA: %w", err)
	}
	return event(Prepared, cert), remove(c.at(FileRequest))
}

// request writes the request for the next issuing CA where it is not there yet, and asks for its signature once a day.
func (c *CA) request(next pair, now time.Time) (Event, error) {
	ski, err := subjectKeyID(next.key.Public())
	if err != nil {
		return Event{}, err
	}
	name, file := caName(c.opts.Domain, roleIssuing, ski), c.at(FileRequest)
	if old, err := readRequest(file); err != nil || !belongsTo(next.key, old.PublicKey) {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, next.key)
		if err != nil {
			return Event{}, err
		}
		text := pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der})
		if err := renameio.WriteFile(file, text, 0o644); err != nil {
			return Event{}, fmt.Errorf("write request for the next issuing CA: %w", err)
		}
	}
	if !c.due(AskSignature, now) {
		return Event{}, nil
	}
	return Event{Action: AskSignature, Name: name, File: file, Until: c.Issuing().NotAfter}, nil
}

// due says whether the operator is to be told of something again.
func (c *CA) due(a Action, now time.Time) bool {
	if last, ok := c.asked[a]; ok && now.Sub(last) < askEvery {
		return false
	}
	c.asked[a] = now
	return true
}

// activate lets the next issuing CA take over, when a part of the current one's life is over. A root that is new has time in which bundles carry it to everybody, unless the
// old issuing CA has ended meanwhile.
func (c *CA) activate(now time.Time, from float64) (Event, error) {
	v := c.view.Load()
	next, ended := v.next.cert, now.After(v.issuing.cert.NotAfter)
	if next == nil || partOf(v.issuing.cert, now) < from || now.Before(next.NotBefore) {
		return Event{}, nil
	}
	if !ended && !c.settled(v, rootOf(next, v.roots).cert, now) {
		return Event{}, nil
	}
	for _, step := range activation(c.dir, v) {
		if err := step(); err != nil {
			return Event{}, fmt.Errorf("activate next issuing CA: %w", err)
		}
	}
	return event(Activated, next), nil
}

// settled says whether everybody who keeps up knows a root. One that has signed the current issuing CA is known.
func (c *CA) settled(v *view, root *x509.Certificate, now time.Time) bool {
	if root.Equal(rootOf(v.issuing.cert, v.roots).cert) {
		return true
	}
	since, known := root.NotBefore.Add(backdate), true
	if c.opts.Published != nil {
		since, known = c.opts.Published(root)
	}
	every := c.opts.Refresh
	if every <= 0 {
		every = refresh
	}
	wait := max(min(rootSettle, v.issuing.cert.NotAfter.Sub(v.issuing.cert.NotBefore)/12), 3*every+inFlight)
	return known && !now.Before(since.Add(wait))
}

// activation is the steps that replace the issuing CA by the next. The old pair is safe on the disk before the first rename;
// between the renames [finishActivation] finds a whole pair, whichever of them the disk has kept.
func activation(dir string, v *view) []func() error {
	at := func(name string) string { return filepath.Join(dir, name) }
	old := at(oldPrefix + keyID(v.issuing.cert))
	return []func() error{
		func() error { return identity.SaveKey(old+".key", v.issuing.key) },
		func() error { return identity.SaveChain(old+".pem", [][]byte{v.issuing.cert.Raw}) },
		func() error { return syncDir(dir) },
		func() error { return os.Rename(at(FileNextKey), at(FileIssuingKey)) },
		func() error { return os.Rename(at(FileNext), at(FileIssuing)) },
		func() error { return syncDir(dir) },
	}
}

// finishActivation does the rename that a crash left out of an activation. Files that do not fit otherwise are load's to name.
func finishActivation(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	cert, certErr := loadCert(at(FileIssuing))
	key, keyErr := identity.LoadKey(at(FileIssuingKey))
	if certErr != nil || keyErr != nil || belongs(key, cert) {
		return nil
	}
	if next, err := loadCert(at(FileNext)); err == nil && belongs(key, next) {
		return os.Rename(at(FileNext), at(FileIssuing))
	}
	if next, err := identity.LoadKey(at(FileNextKey)); err == nil && belongs(next, cert) {
		return os.Rename(at(FileNextKey), at(FileIssuingKey))
	}
	return nil
}

// askRoot warns when the newest root is near its end.
func (c *CA) askRoot(now time.Time) (Event, error) {
	root := c.view.Load().roots[0].cert
	if partOf(root, now) < activateAt || !c.due(AskRoot, now) {
		return Event{}, nil
	}
	return event(AskRoot, root), nil
}

// NewRoot makes a second root. Both are in [CA.Roots] until the old one ends; the trust bundle must name both before the next
// issuing CA, which the new root signs, takes over. The key stays in the folder: move it away to keep the root offline.
func (c *CA) NewRoot(now time.Time) (*x509.Certificate, error) {
	if c.dir == "" {
		return nil, errors.New("a CA in memory has one root")
	}
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.load(); err != nil {
		return nil, err
	}
	if err := roomForRoot(c.view.Load().roots, now); err != nil {
		return nil, err
	}
	root, err := makeRoot(c.opts.Domain, c.opts.Limits, now)
	if err != nil {
		return nil, err
	}
	name := c.at(rootPrefix + keyID(root.cert))
	if err := savePair(name+".key", name+".pem", root); err != nil {
		return nil, fmt.Errorf("keep new root: %w", err)
	}
	return root.cert, c.load()
}

func roomForRoot(roots []pair, now time.Time) error {
	n := 0
	for _, r := range roots {
		if !now.After(r.cert.NotAfter) {
			n++
		}
	}
	if n >= MaxRoots {
		return fmt.Errorf("%d roots have not ended, and a trust bundle carries %d: `gatewayd ca remove` takes one away that signs no issuing CA any more", n, MaxRoots)
	}
	return nil
}

func event(a Action, cert *x509.Certificate) Event {
	return Event{Action: a, Name: cert.Subject.CommonName, Until: cert.NotAfter}
}

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
