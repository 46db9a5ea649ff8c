package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/internal/identity"
)

// Signer is what gives credentials. It returns the chain in DER, leaf first and then its issuing CA: at most
// [identity.MaxChain] certificates and [identity.MaxChainBytes]. It signs over csrKey, whose possession the caller has
// verified, and what the profile says or nothing.
type Signer interface {
	Sign(ctx context.Context, p Profile, csrKey crypto.PublicKey) (chain [][]byte, err error)
}

// Options of a CA.
type Options struct {
	Domain  string // stands in the names of new CAs
	Limits  Limits
	BaseURL string // http://host[:port] under which a [Site] is reached; "" leaves CRL and OCSP places out
	Deltas  bool   // full CRLs say where the delta CRL is
	// Refresh is how long others may go on with an old trust bundle: a new root is in bundles for three times that, and an hour at
	// least, before anything is signed under it. Default 5 minutes.
	Refresh time.Duration
	// Published says since when bundles carry a root; not yet: false. nil takes it that they do since the root was made.
	Published func(root *x509.Certificate) (since time.Time, ok bool)
	Now       func() time.Time // default time.Now
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// urls are the places that tell of an issuer. A root has no responder: its few certificates are in its CRL.
func (o Options) urls(issuer *x509.Certificate, leaf bool) URLs {
	if o.BaseURL == "" {
		return URLs{}
	}
	base, id := strings.TrimSuffix(o.BaseURL, "/"), keyID(issuer)
	u := URLs{CRL: []string{base + pathCRL + id + ".crl"}, Issuer: []string{base + pathIssuer + id + ".cer"}}
	if leaf {
		u.OCSP = []string{base + pathOCSP}
	}
	return u
}

// Paths of a [Site].
const (
	pathCRL    = "/crl/"
	pathIssuer = "/ca/"
	pathOCSP   = "/ocsp"
)

// CA is the built-in certification authority of one domain. Make it with [New], [Create] or [OpenDir].
type CA struct {
	opts Options
	dir  string // "" keeps nothing

	view atomic.Pointer[view] // immutable; replaced whole

	mu    sync.Mutex           // serialises changes of the view; guards asked
	asked map[Action]time.Time // when the operator was last told to do something

	respondersMu sync.Mutex
	responders   map[string]pair // OCSP certificates, by key id of their issuing CA; at most one for each
}

// pair is a CA's certificate and its key; the key is nil where it is kept elsewhere.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// view is all that a CA knows of itself.
type view struct {
	roots   []pair // newest first
	issuing pair
	old     []pair // issuing CAs that sign no credentials any more, newest first
	next    pair   // the issuing CA that will follow; without certificate when there is none
}

// New makes a domain's root and issuing CA in memory.
func New(o Options) (*CA, error) {
	now := o.now()
	root, err := makeRoot(o.Domain, o.Limits, now)
	if err != nil {
		return nil, err
	}
	key, err := identity.NewLeafKey()
	if err != nil {
		return nil, err
	}
	issuing, err := signIssuing(root, key.Public(), o, now)
	if err != nil {
		return nil, err
	}
	c := newCA(o, "")
	c.view.Store(&view{roots: []pair{root}, issuing: pair{issuing, key}})
	return c, nil
}

func newCA(o Options, dir string) *CA {
	return &CA{opts: o, dir: dir, asked: map[Action]time.Time{}, responders: map[string]pair{}}
}

// Root is the root that signed the issuing CA.
func (c *CA) Root() *x509.Certificate {
	v := c.view.Load()
	for _, r := range v.roots {
		if v.issuing.cert.CheckSignatureFrom(r.cert) == nil {
			return r.cert
		}
	}
	return v.roots[0].cert
}

// Roots are the roots that others must know, newest first: those that have not ended. There are at most [MaxRoots].
func (c *CA) Roots() []*x509.Certificate {
	var out []*x509.Certificate
	now := c.opts.now()
	for _, r := range c.view.Load().roots {
		if len(out) < MaxRoots && !now.After(r.cert.NotAfter) {
			out = append(out, r.cert)
		}
	}
	return out
}

// MaxRoots is how many roots a trust bundle carries.
const MaxRoots = 4

// Issuing is the CA that signs credentials now.
func (c *CA) Issuing() *x509.Certificate { return c.view.Load().issuing.cert }

// issuers are the issuing CAs that CRLs and OCSP answers are due for: the current one, the next, and the old ones, as far as
// they have not ended.
func (c *CA) issuers(now time.Time) []pair {
	v := c.view.Load()
	var out []pair
	for _, p := range append([]pair{v.issuing, v.next}, v.old...) {
		if p.cert != nil && !now.After(p.cert.NotAfter) {
			out = append(out, p)
		}
	}
	return out
}

// keyID names a CA in file names, URLs and maps: its subject key identifier in hexadecimal.
func keyID(cert *x509.Certificate) string { return hex.EncodeToString(cert.SubjectKeyId) }

var _ Signer = (*CA)(nil)

// Sign signs at the time of [Options.Now].
func (c *CA) Sign(ctx context.Context, p Profile, csrKey crypto.PublicKey) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.Issue(p, csrKey, c.opts.now())
}

// Issue signs a credential of the profile over pub, and returns the chain in DER, leaf first. A weak key is refused with
// [frame.ReqInvalid], what breaks the profile with a [*RuleError].
func (c *CA) Issue(p Profile, pub crypto.PublicKey, now time.Time) ([][]byte, error) {
	if !p.Kind.named() {
		return nil, &RuleError{RuleKind, p.Kind, "credentials are for agents and gateways"}
	}
	if err := identity.CheckPublicKey(pub); err != nil {
		return nil, err
	}
	by := c.view.Load().issuing
	if p.URLs.empty() {
		p.URLs = c.opts.urls(by.cert, true)
	}
	leaf, err := sign(p, by, pub, c.opts.Limits, now)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", p.subject().CommonName, err)
	}
	if n := len(leaf.Raw) + len(by.cert.Raw); n > identity.MaxChainBytes {
		return nil, fmt.Errorf("certificate of %s makes a chain of %d bytes, peers accept %d: give it fewer or shorter DNS names and URLs",
			p.subject().CommonName, n, identity.MaxChainBytes)
	}
	return [][]byte{leaf.Raw, by.cert.Raw}, nil
}

// makeRoot makes a root and its key.
func makeRoot(domain string, l Limits, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	ski, err := subjectKeyID(key.Public())
	if err != nil {
		return pair{}, err
	}
	cert, err := sign(Profile{Kind: Root, Name: caName(domain, roleRoot, ski)}, pair{key: key}, key.Public(), l, now)
	if err != nil {
		return pair{}, fmt.Errorf("make root: %w", err)
	}
	return pair{cert, key}, nil
}

// signIssuing has a root sign an issuing CA.
func signIssuing(root pair, pub crypto.PublicKey, o Options, now time.Time) (*x509.Certificate, error) {
	ski, err := subjectKeyID(pub)
	if err != nil {
		return nil, err
	}
	p := Profile{Kind: Issuing, Name: caName(o.Domain, roleIssuing, ski), URLs: o.urls(root.cert, false)}
	cert, err := sign(p, root, pub, o.Limits, now)
	if err != nil {
		return nil, fmt.Errorf("make issuing CA: %w", err)
	}
	return cert, nil
}

// sign makes one certificate over pub. by has no certificate when the root signs itself. The bytes to be signed are judged
// under a throw-away signature before the real key sees them, and the result again before anybody else does.
func sign(p Profile, by pair, pub crypto.PublicKey, l Limits, now time.Time) (*x509.Certificate, error) {
	now = now.UTC().Truncate(time.Second)
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	ski, err := subjectKeyID(pub)
	if err != nil {
		return nil, err
	}
	tmpl := p.template(by.cert, l, ski, serial, now)
	stand, err := standIn(by.key.Public())
	if err != nil {
		return nil, err
	}
	parent := by.cert
	if parent == nil {
		parent = tmpl
	}
	posing := *parent
	posing.PublicKey = stand.Public()
	draft, err := create(tmpl, &posing, pub, stand)
	if err != nil {
		return nil, err
	}
	if err := Check(draft, p, by.cert, l, now); err != nil {
		return nil, err
	}
	cert, err := create(tmpl, parent, pub, by.key)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(cert.RawTBSCertificate, draft.RawTBSCertificate) {
		return nil, errors.New("what was signed is not what was checked: the certificate is not released")
	}
	return cert, Check(cert, p, by.cert, l, now)
}

func create(tmpl, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Keys that sign drafts and are trusted by nobody, one a curve: the algorithm, which is among the signed bytes, depends on it.
var (
	stand256 = sync.OnceValues(func() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) })
	stand384 = sync.OnceValues(func() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) })
)

func standIn(pub crypto.PublicKey) (*ecdsa.PrivateKey, error) {
	ec, ok := pub.(*ecdsa.PublicKey)
	switch {
	case ok && ec.Curve == elliptic.P256():
		return stand256()
	case ok && ec.Curve == elliptic.P384():
		return stand384()
	}
	return nil, errors.New("a CA's key is ECDSA over P-256 or P-384")
}

// subjectKeyID is the start of SHA-256 of the key (RFC 7093, section 2, method 4).
func subjectKeyID(pub crypto.PublicKey) ([]byte, error) {
	spki, err := identity.SPKIHash(pub)
	return spki[:20], err
}

// newSerial is a random positive number of exactly 16 octets: the second bit is set, so that no list of serials has to pad.
func newSerial() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	b[0] = b[0]&0x3f | 0x40
	return new(big.Int).SetBytes(b), nil
}

// newest sorts CAs by the beginning of their lives.
func newest(ps []pair) {
	slices.SortStableFunc(ps, func(a, b pair) int { return b.cert.NotBefore.Compare(a.cert.NotBefore) })
}
