package peering

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/registry"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// clock is real time plus what the test lets pass.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// statusSide is a side that keeps status lists by a clock.
type statusSide struct {
	*side
	mu      sync.Mutex
	changed []identity.Standing
	gone    []string
}

func newStatusSide(t *testing.T, d *identitytest.Domain, c *clock) *statusSide {
	s := &statusSide{}
	s.side = newSide(t, d, nil, func(cfg *Config) {
		cfg.Statuses = identity.NewStatuses(cfg.Trust, c.now)
		cfg.OnStanding = func(l []identity.Standing) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed = append(s.changed, l...)
		}
		cfg.OnDistrusted = func(b *identity.Accepted) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gone = append(s.gone, b.Domain)
		}
	})
	return s
}

func (s *statusSide) seen() ([]identity.Standing, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changed), slices.Clone(s.gone)
}

// issue is the AMC of the side's domain: a list, applied at home and told to the neighbours.
func (s *statusSide) issue(t *testing.T, raw []byte) {
	t.Helper()
	if _, err := s.cfg.Statuses.Apply(raw); err != nil {
		t.Fatal(err)
	}
	s.StatusChanged()
}

func (s *statusSide) offer(t *testing.T, tag string) {
	id := string(s.d.AIC(t))
	s.SetOwn(t.Context(), slices.Values([]registry.Offer{{
		Capability: &directory.Capability{AIC: id, CapID: directory.CapID(id, tag), SkillID: tag, Name: tag, Tags: []string{tag}},
		Visibility: directory.VisiblePublic,
	}}), nil)
}

func (s *statusSide) knows(domain string) bool {
	for _, e := range s.Digests() {
		if e.Domain == domain {
			return true
		}
	}
	return false
}

func (s *statusSide) state(domain string) string {
	for _, st := range s.Status() {
		if st.Domain == domain {
			return st.State
		}
	}
	return ""
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func set(t *testing.T, s *side, rows ...Row) {
	t.Helper()
	if err := s.SetRows(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

// spokes are two domains that only a hub joins: it passes on, and introduces each to the other.
func spokes(t *testing.T, c *clock) (home, hub, far *statusSide) {
	dh, dt, df := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "hub.example", "B1"), identitytest.New(t, "far.example", "C1")
	home, hub, far = newStatusSide(t, dh, c), newStatusSide(t, dt, c), newStatusSide(t, df, c)
	customer := func(d *identitytest.Domain) Row {
		r := row(d)
		r.Role, r.Transit, r.Introduces = "customer", true, nil
		return r
	}
	provider := row(dt, hub.addr)
	provider.Role = "provider"
	set(t, hub.side, customer(dh), customer(df))
	set(t, home.side, provider)
	set(t, far.side, provider)
	until(t, "home and far are introduced", func() bool {
		return home.DomainOf(string(df.Gateway)) != "" && far.DomainOf(string(dh.Gateway)) != "" &&
			home.linkOf(dt.Name) != nil && far.linkOf(dt.Name) != nil && hub.linkOf(dh.Name) != nil && hub.linkOf(df.Name) != nil
	})
	return home, hub, far
}

// Two domains that only an introducer joins: the lists that it relays keep each fresh for the other, well over the time that one
// list counts; when the relay is cut it fails closed by next + 5 min, and says whose list is missing since when.
func TestCase66RelayedStatusKeepsAnIntroducedDomainFresh(t *testing.T) {
	c := &clock{}
	home, hub, far := spokes(t, c)
	agent := string(far.d.AIC(t))
	seq := uint64(0)
	issue := func() {
		seq++
		far.issue(t, far.d.Status(t, seq, c.now()))
	}
	issue()
	for range 7 { // 70 minutes; a list counts for 15, and 5 of grace
		until(t, "the relayed list", func() bool { held, _ := home.cfg.Statuses.Held(string(far.d.Issuer)); return held == seq })
		if err := home.Standing(t.Context(), agent, nil); err != nil {
			t.Fatalf("list %d: %v", seq, err)
		}
		c.pass(10 * time.Minute)
		issue()
	}
	until(t, "the last list", func() bool { held, _ := home.cfg.Statuses.Held(string(far.d.Issuer)); return held == seq })
	last := c.now().Add(identity.MaxStatusLife)

	set(t, hub.side, hub.row(home.d.Name).Row) // the relay is cut: the hub knows nobody but home
	until(t, "the hub has lost far", func() bool { return hub.DomainOf(agent) == "" })
	c.pass(identity.MaxStatusLife + identity.StatusGrace - time.Minute)
	if err := home.Standing(t.Context(), agent, nil); err != nil {
		t.Errorf("within the grace: %v", err)
	}
	c.pass(time.Minute + 2*time.Second)
	began := time.Now()
	err := home.Standing(t.Context(), agent, nil)
	since := last.UTC().Format("2006-01-02T15:04")
	if frame.CodeOf(err) != frame.CertStatus || !strings.Contains(err.Error(), "far.example") || !strings.Contains(err.Error(), since) {
		t.Errorf("after next and its grace: %v, want 0E, far.example and %s", err, since)
	}
	if took := time.Since(began); took > 2*refreshWait {
		t.Errorf("it took %v to fail", took)
	}
}

// A list that was never pushed is asked for when it is needed, and the asker waits for it.
func TestStandingAsksForAMissingList(t *testing.T) {
	c := &clock{}
	home, hub, far := spokes(t, c)
	agent := string(far.d.AIC(t))
	if err := home.cfg.Statuses.Fresh(agent); frame.CodeOf(err) != frame.CertStatus || !strings.Contains(err.Error(), "no status list of far.example") {
		t.Fatalf("without a list anywhere: %v", err)
	}
	// The hub holds it now, and nobody told home.
	if _, err := hub.cfg.Statuses.Apply(far.d.Status(t, 1, c.now(), identity.StatusEntry{Subject: agent, State: identity.Suspended, Since: 1})); err != nil {
		t.Fatal(err)
	}
	if err := home.Standing(t.Context(), string(far.d.Gateway), nil); err != nil {
		t.Errorf("the list was not fetched: %v", err)
	}
	if err := home.Standing(t.Context(), agent, nil); frame.CodeOf(err) != frame.CertStatus || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("the suspended agent: %v", err)
	}
	if err := home.Standing(t.Context(), string(home.d.Gateway), nil); err != nil {
		t.Errorf("at home: %v", err)
	}
	until(t, "the change is reported", func() bool {
		changed, _ := home.seen()
		return len(changed) == 1 && changed[0].AIC == agent && changed[0].State == identity.Suspended
	})
}

// Lists come from the domain itself or from who may introduce it; anybody else is blamed, and nothing is taken.
func TestStatusFromWhoMayNotBringItIsRefused(t *testing.T) {
	c := &clock{}
	dh, db, dc := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "b.example", "B1"), identitytest.New(t, "c.example", "C1")
	home := newStatusSide(t, dh, c)
	rb := row(db)
	rb.Introduces = []string{"*.b.example"}
	set(t, home.side, rb, row(dc))
	raw := dc.Status(t, 1, c.now())
	if err := home.onStatus(t.Context(), string(db.Gateway), db.Name, raw); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("c's list from b: %v", err)
	}
	if home.penalties[string(db.Gateway)] != 1 {
		t.Errorf("penalties %v", home.penalties)
	}
	if seq, _ := home.cfg.Statuses.Held(string(dc.Issuer)); seq != 0 {
		t.Error("it was taken")
	}
	if err := home.onStatus(t.Context(), string(dc.Gateway), dc.Name, raw); err != nil {
		t.Errorf("c's list from c: %v", err)
	}
	forged := slices.Clone(raw)
	forged[len(forged)-1] ^= 1
	if err := home.onStatus(t.Context(), string(dc.Gateway), dc.Name, forged); frame.CodeOf(err) != frame.BadSignature {
		t.Errorf("a forged list: %v", err)
	}
	if home.penalties[string(dc.Gateway)] != 1 {
		t.Errorf("penalties %v", home.penalties)
	}
}

// A gateway that is revoked between its handshake and its HELLO is cut off when it is up.
func TestGatewayRevokedBeforeItsHello(t *testing.T) {
	c := &clock{}
	a, b := newStatusSide(t, identitytest.New(t, "a.example", "A1"), c), newStatusSide(t, identitytest.New(t, "b.example", "B1"), c)
	set(t, b.side, row(a.d))
	set(t, a.side, row(b.d, b.addr))
	until(t, "the link", func() bool { return a.linkOf("b.example") != nil })
	l := a.linkOf("b.example")
	if _, err := a.cfg.Statuses.Apply(b.d.Status(t, 2, c.now(), revoked(string(b.d.Gateway)))); err != nil {
		t.Fatal(err)
	}
	a.linkUp(l)
	until(t, "the link gone", func() bool { return l.conn.Context().Err() != nil })
}

// So is one whose issuer is trusted no more.
func TestGatewayDistrustedBeforeItsHello(t *testing.T) {
	c := &clock{}
	a, b := newStatusSide(t, identitytest.New(t, "a.example", "A1"), c), newStatusSide(t, identitytest.New(t, "b.example", "B1"), c)
	set(t, b.side, row(a.d))
	set(t, a.side, row(b.d, b.addr))
	until(t, "the link", func() bool { return a.linkOf("b.example") != nil })
	l := a.linkOf("b.example")
	a.cfg.Trust.Forget("b.example")
	a.linkUp(l)
	until(t, "the link gone", func() bool { return l.conn.Context().Err() != nil })
}

// What goes hard goes whole: a domain that is trusted no more, and a gateway whose domain revokes its certificate, lose their
// connection and their digests at once, and whoever keeps sessions hears of it.
func TestCase06TrustRemovedOrGatewayRevokedPurgesAtOnce(t *testing.T) {
	for name, revoke := range map[string]func(t *testing.T, c *clock, a, b *statusSide){
		"trust removed": func(t *testing.T, _ *clock, a, _ *statusSide) { set(t, a.side) },
		"gateway revoked": func(t *testing.T, c *clock, a, b *statusSide) {
			b.issue(t, b.d.Status(t, 2, c.now(), revoked(string(b.d.Gateway))))
		},
		"certificate revoked": func(t *testing.T, c *clock, a, b *statusSide) {
			b.issue(t, b.d.Status(t, 2, c.now(), revoked(a.serialOf(t, b))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{}
			a, b := newStatusSide(t, identitytest.New(t, "a.example", "A1"), c), newStatusSide(t, identitytest.New(t, "b.example", "B1"), c)
			set(t, b.side, row(a.d))
			set(t, a.side, row(b.d, b.addr))
			b.offer(t, "hotel")
			b.issue(t, b.d.Status(t, 1, c.now()))
			until(t, "digests of b", func() bool { return a.knows("b.example") && a.state("b.example") == "up" })
			began := time.Now()
			revoke(t, c, a, b)
			until(t, "nothing of b is left", func() bool { return !a.knows("b.example") && a.linkOf("b.example") == nil })
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			changed, gone := a.seen()
			switch name {
			case "trust removed":
				if !slices.Equal(gone, []string{"b.example"}) {
					t.Errorf("distrusted %v", gone)
				}
			case "gateway revoked":
				if len(changed) != 1 || changed[0].AIC != string(b.d.Gateway) || changed[0].State != identity.Revoked {
					t.Errorf("changed %v", changed)
				}
			}
			if name != "trust removed" { // it stays out, and the reason is shown
				time.Sleep(2 * backoffMin)
				if st := a.state("b.example"); st == "up" || a.linkOf("b.example") != nil {
					t.Errorf("it is %s again", st)
				}
				if p := a.row("b.example"); p.lastErr.Load() == nil || !strings.Contains(*p.lastErr.Load(), "revoked") {
					t.Errorf("last error %v", p.lastErr.Load())
				}
			}
		})
	}
}

func revoked(subject any) identity.StatusEntry {
	return identity.StatusEntry{Subject: subject, State: identity.Revoked, Since: 1, Reason: identity.ReasonKeyCompromise}
}

func (s *statusSide) serialOf(t *testing.T, other *statusSide) []byte {
	t.Helper()
	l := s.linkOf(other.d.Name)
	if l == nil {
		t.Fatal("not connected")
	}
	return identity.Serial(l.conn.PeerLeaf())
}

// So do those of a further issuer of a domain.
func TestRefreshBringsTheNewerBundleOfAFurtherIssuer(t *testing.T) {
	c := &clock{}
	home, hub, far := spokes(t, c)
	second := identitytest.New(t, far.d.Name, "F2")
	far.d.Names(t, second)
	for _, raw := range [][]byte{far.d.Raw, second.Raw} {
		if changed, err := hub.Renew(far.d.Name, raw); !changed || err != nil {
			t.Fatal(changed, err)
		}
	}
	seq := func() uint64 {
		if b := home.cfg.Trust.Issuer(string(second.Issuer)); b != nil {
			return b.Seq
		}
		return 0
	}
	until(t, "the further issuer known", func() bool { return seq() == 1 })
	second.Names(t)
	if changed, err := hub.cfg.Trust.Vouch(second.Raw); !changed || err != nil { // the hub has it, and has told nobody
		t.Fatal(changed, err)
	}
	if !home.Refresh(t.Context(), far.d.Name, func() bool { return seq() == 2 }) {
		t.Errorf("the newer bundle has not come, or is not taken for one: sequence %d", seq())
	}
}

// Digests, tokens or results under a key that only a newer bundle names bring that bundle, without waiting to be told.
func TestRefreshBringsTheNewerBundle(t *testing.T) {
	c := &clock{}
	home, hub, far := spokes(t, c)
	next := *far.d.Bundle
	next.Seq = 2
	raw := far.d.SignBundle(t, &next)
	if changed, err := hub.cfg.Trust.Renew(raw); !changed || err != nil { // the hub has it, and has told nobody
		t.Fatal(changed, err)
	}
	seq := func(n uint64) func() bool {
		return func() bool { return home.cfg.Trust.Domain(far.d.Name).Seq == n }
	}
	if !home.Refresh(t.Context(), far.d.Name, seq(2)) {
		t.Error("the newer bundle has not come")
	}
	began := time.Now()
	if !home.Refresh(t.Context(), far.d.Name, seq(2)) || time.Since(began) > refreshWait/2 {
		t.Error("what is here already was waited for")
	}
	if home.Refresh(t.Context(), far.d.Name, seq(3)) {
		t.Error("a bundle came where none is newer")
	}
	never := func() bool { return false }
	if home.Refresh(t.Context(), "nobody.example", never) || home.Refresh(t.Context(), "nobody.test", never) {
		t.Error("a bundle of nobody came")
	}
	if took := time.Since(began); took > 3*refreshWait {
		t.Errorf("it took %v", took)
	}
}

// Names that strangers make up cost a bounded number of questions, and none of a domain that is trusted.
func TestQuestionsAboutUnknownDomainsAreBounded(t *testing.T) {
	a, now := newAsked(), time.Now()
	n := 0
	for i := range 10 * maxAsked {
		if ask, _ := a.begin(fmt.Sprintf("x%d.example", i), 1, false, now); ask {
			n++
		}
	}
	if n > 20 || len(a.at) > maxAsked {
		t.Errorf("%d questions at once, %d remembered", n, len(a.at))
	}
	if ask, _ := a.begin("known.example", 1, true, now); !ask {
		t.Error("a trusted domain is not asked for")
	}
	if ask, until := a.begin("known.example", 1, true, now.Add(time.Second)); ask || !until.Before(now.Add(time.Second)) {
		t.Error("asked twice, or awaited too long")
	}
	if ask, _ := a.begin("known.example", 1, true, now.Add(refreshEvery)); !ask {
		t.Error("not asked again")
	}
}

// A gateway that is revoked far away announces nothing any more, whoever passes its digests on; one that is resumed does again.
func TestDigestsOfASuspendedGatewayAreDropped(t *testing.T) {
	c := &clock{}
	home, hub, far := spokes(t, c)
	far.offer(t, "hotel")
	until(t, "far's digests", func() bool { return home.knows("far.example") })
	id := string(far.d.Gateway)
	tell := func(raw []byte) { // the hub passes the list on, and does not act on it
		t.Helper()
		if err := home.onStatus(t.Context(), string(hub.d.Gateway), hub.d.Name, raw); err != nil {
			t.Fatal(err)
		}
	}
	tell(far.d.Status(t, 1, c.now(), identity.StatusEntry{Subject: id, State: identity.Suspended, Since: 1, Reason: identity.ReasonHold}))
	until(t, "far's digests are gone", func() bool { return !home.knows("far.example") })
	tell(far.d.Status(t, 2, c.now()))
	until(t, "far's digests are back", func() bool { return home.knows("far.example") })
}

// An issuer that changes its list all the time is heard at a pace; others are heard all the same.
func TestListsOfOneIssuerArePaced(t *testing.T) {
	c := &clock{}
	db, dc := identitytest.New(t, "b.example", "B1"), identitytest.New(t, "c.example", "C1")
	home := newStatusSide(t, identitytest.New(t, "home.example", "A1"), c)
	set(t, home.side, row(db), row(dc))
	limited := 0
	for seq := range uint64(200) {
		switch err := home.onStatus(t.Context(), string(db.Gateway), db.Name, db.Status(t, seq+1, c.now())); frame.CodeOf(err) {
		case frame.RateLimited:
			limited++
		case frame.OK:
		default:
			t.Fatal(err)
		}
	}
	if limited < 120 || limited > 136 {
		t.Errorf("%d of 200 lists at once were left out", limited)
	}
	if err := home.onStatus(t.Context(), string(dc.Gateway), dc.Name, dc.Status(t, 1, c.now())); err != nil {
		t.Errorf("another domain's: %v", err)
	}
}
