package app

import (
	"crypto"
	"crypto/x509"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory/aic"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
	"agentgw/internal/pki"
)

// rotation is one domain whose root is replaced, in a time of its own, and two peers that have its bundle.
type rotation struct {
	t                 *testing.T
	cfg               *config.Gateway
	home              *home
	at                time.Time
	follower, sleeper *identity.Trust
	agent             aic.AIC
	key               crypto.Signer
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	dir := t.TempDir()
	if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	r := &rotation{t: t, cfg: &config.Gateway{Domain: "x.example", StateDir: dir + "/state"}, at: time.Now(), key: identitytest.NewKey(t)}
	r.start()
	r.follower, r.sleeper = r.peer(), r.peer()
	var err error
	if r.agent, err = newCode(config.AIC{Prefix: "2.999.1.1", ARSP: aic.Index("x.example"), Vendor: "1", Salt: "1234"}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rotation) start() {
	r.t.Helper()
	var err error
	if r.home, err = loadHome(r.cfg, r.at); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rotation) peer() *identity.Trust {
	r.t.Helper()
	p, err := identity.NewTrust(identitytest.New(r.t, "peer.example", "P").Raw, func() time.Time { return r.at })
	if err == nil {
		_, err = p.Configure(r.home.bundle.Raw, [32]byte{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// minute lets one pass: the gateway does what is due, and the follower refreshes every five minutes.
func (r *rotation) minute() (activated bool) {
	r.t.Helper()
	r.at = r.at.Add(time.Minute)
	events, err := r.home.rotate(r.at)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range events {
		activated = activated || e.Action == pki.Activated
	}
	if _, err := r.home.renewBundle(r.at, false); err != nil {
		r.t.Fatal(err)
	}
	if r.at.Unix()/60%5 == 0 {
		r.refresh(r.follower)
	}
	return activated
}

func (r *rotation) refresh(p *identity.Trust) {
	r.t.Helper()
	if _, err := p.Renew(r.home.bundle.Raw); err != nil {
		r.t.Fatal(err)
	}
}

// chain is a credential as it is issued now.
func (r *rotation) chain() (out []*x509.Certificate) {
	r.t.Helper()
	ders, err := r.home.authority.Issue(pki.Profile{Kind: pki.Agent, AIC: r.agent}, r.key.Public(), r.at)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, der := range ders {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, cert)
	}
	return out
}

func (r *rotation) judges(step string, p *identity.Trust, chain []*x509.Certificate, want frame.Code) {
	r.t.Helper()
	if _, err := p.VerifyChain(chain, x509.ExtKeyUsageClientAuth); frame.CodeOf(err) != want {
		r.t.Errorf("%s: %v, want %v", step, err, want)
	}
}

// The root of a domain is replaced: bundles carry both roots for three refreshes, and for an hour, before anything is signed under
// the new one, however often the gateway is started meanwhile. Who follows bundles verifies chains of both; who has missed them
// refuses the new ones, until one refresh.
func TestCase41CARotation(t *testing.T) {
	for name, refresh := range map[string]time.Duration{"refresh every 5 minutes": 0, "every 30 minutes": 30 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			r := newRotation(t)
			r.cfg.AMC.Refresh = config.Duration(refresh)
			r.at = r.at.Add(24 * time.Hour)
			if _, err := r.home.authority.NewRoot(r.at); err != nil { // and then the gateway rests: nobody hears of it
				t.Fatal(err)
			}
			r.at = r.at.Add(309 * 24 * time.Hour) // the next issuing CA is due at once, and it is the new root's
			r.start()
			before := r.chain()
			for range 7 {
				if r.minute() {
					t.Fatal("the new root signs before anybody can know it")
				}
			}
			if len(r.follower.Domain("x.example").Roots) != 2 {
				t.Fatal("a peer that refreshes does not have both roots")
			}
			began, restarted := r.at.Add(-7*time.Minute), false
			for !r.minute() {
				r.judges("while both are in bundles", r.follower, r.chain(), frame.OK)
				r.judges("while both are in bundles", r.sleeper, r.chain(), frame.OK)
				switch held := r.at.Sub(began); {
				case held == 30*time.Minute && !restarted:
					r.start()
					began, restarted = r.at, true
				case held > 4*time.Hour:
					t.Fatal("the new root never counts")
				}
			}
			if held := r.at.Sub(began); held < max(time.Hour, 3*refresh) {
				t.Errorf("the new root signs after %v", held)
			}
			after := r.chain()
			r.judges("a chain of the old root", r.follower, before, frame.OK)
			r.judges("a chain of the new root", r.follower, after, frame.OK)
			r.judges("a chain of the old root, to who has missed the bundles", r.sleeper, before, frame.OK)
			r.judges("a chain of the new root, to who has missed the bundles", r.sleeper, after, frame.TrustDenied)
			r.refresh(r.sleeper)
			r.judges("after one refresh", r.sleeper, after, frame.OK)
		})
	}
}
