package identity_test

import (
	"testing"
	"time"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

func suspended(id string) identity.StatusEntry {
	return identity.StatusEntry{Subject: id, State: identity.Suspended, Since: 1, Reason: identity.ReasonHold}
}

// When others have filled what is kept, an issuer's list of a common size still counts: else its domain would be cut off.
func TestOthersCannotFillAgainstAnIssuer(t *testing.T) {
	home, far := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "far.example", "F1")
	s := identity.NewStatuses(home.Trust(t, far), time.Now)
	s.Fill()
	var entries []identity.StatusEntry
	for range identity.StatusShare {
		entries = append(entries, identity.StatusEntry{Subject: string(far.AIC(t)), State: identity.Revoked})
	}
	if c, err := s.Apply(far.Status(t, 1, time.Now(), entries...)); err != nil || !c.New {
		t.Errorf("%d entries: %+v, %v", len(entries), c, err)
	}
	entries = append(entries, identity.StatusEntry{Subject: string(far.AIC(t)), State: identity.Revoked})
	if _, err := s.Apply(far.Status(t, 2, time.Now(), entries...)); frame.CodeOf(err) != frame.LimitExceeded {
		t.Errorf("%d entries: %v", len(entries), err)
	}
	if c, err := s.Apply(far.Status(t, 3, time.Now(), entries[1:]...)); err != nil || !c.New {
		t.Errorf("no more than before: %v", err)
	}
}

func TestStatusesFollowTheNewestList(t *testing.T) {
	home, peer := identitytest.New(t, "home.example", "A"), identitytest.New(t, "peer.example", "B")
	now := time.Now()
	s := identity.NewStatuses(home.Trust(t, peer), func() time.Time { return now })
	bad := string(peer.AIC(t))
	apply := func(raw []byte, news int) {
		t.Helper()
		c, err := s.Apply(raw)
		if err != nil || len(c.Changed) != news {
			t.Fatalf("%+v, %v, want %d changes", c, err, news)
		}
	}
	if err := s.Fresh(bad); frame.CodeOf(err) != frame.CertStatus {
		t.Errorf("without a list of the domain: %v", err)
	}
	apply(peer.Status(t, 5, now, suspended(bad)), 1)
	if s.Of(bad) != identity.Suspended || frame.CodeOf(s.Check(bad, nil)) != frame.CertStatus || s.Fresh(bad) != nil {
		t.Errorf("state %v, check %v, fresh %v", s.Of(bad), s.Check(bad, nil), s.Fresh(bad))
	}
	apply(peer.Status(t, 4, now), 0) // older: a replay lifts nothing
	if s.Of(bad) != identity.Suspended {
		t.Error("an older list was believed")
	}
	apply(peer.Status(t, 6, now), 1)
	if err := s.Check(bad, nil); err != nil {
		t.Errorf("after the suspension was lifted: %v", err)
	}
	now = now.Add(identity.MaxStatusLife + identity.StatusGrace + 2*time.Second)
	if err := s.Fresh(bad); frame.CodeOf(err) != frame.CertStatus {
		t.Errorf("%v after the last list: %v", identity.MaxStatusLife+identity.StatusGrace, err)
	}
	if err := s.Fresh(string(home.Gateway)); err != nil {
		t.Errorf("at home a missing list is no reason to stop: %v", err)
	}
}

func TestStatusOfWhoMayNotSpeakIsRefused(t *testing.T) {
	home, peer := identitytest.New(t, "home.example", "A"), identitytest.New(t, "peer.example", "B")
	now := time.Now()
	s := identity.NewStatuses(home.Trust(t, peer), func() time.Time { return now })
	list := func(change func(*identity.StatusList)) identity.StatusList {
		l := identity.StatusList{Domain: peer.Name, Issuer: string(peer.Issuer), Seq: 1, Issued: uint64(now.Unix()), Next: uint64(now.Unix()) + 60}
		change(&l)
		return l
	}
	for name, c := range map[string]struct {
		l    identity.StatusList
		use  identity.Use
		code frame.Code
	}{
		"signed by a key of another use": {list(func(*identity.StatusList) {}), identity.UseGrant, frame.UnknownKey},
		"of another domain":              {list(func(l *identity.StatusList) { l.Domain, l.Issuer = home.Name, string(home.Issuer) }), identity.UseStatus, frame.IdentityMismatch},
		"about another domain's agent":   {list(func(l *identity.StatusList) { l.Entries = []identity.StatusEntry{suspended(string(home.Gateway))} }), identity.UseStatus, frame.Malformed},
		"that counts for an hour":        {list(func(l *identity.StatusList) { l.Next = l.Issued + 3600 }), identity.UseStatus, frame.Malformed},
		"of tomorrow":                    {list(func(l *identity.StatusList) { l.Issued += 86400; l.Next += 86400 }), identity.UseStatus, frame.ClockSkew},
		"over a list that is not held":   {list(func(l *identity.StatusList) { l.Seq, l.Base = 9, 8 }), identity.UseStatus, frame.SeqGap},
		"with a good entry":              {list(func(l *identity.StatusList) { l.Entries = []identity.StatusEntry{{Subject: string(peer.Gateway)}} }), identity.UseStatus, frame.Malformed},
	} {
		raw, err := c.l.Sign(peer.Sign[c.use])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(raw); frame.CodeOf(err) != c.code {
			t.Errorf("a list %s: %v, want %v", name, err, c.code)
		}
	}
}

func TestStatusInPartsCountsWhenWhole(t *testing.T) {
	home, peer := identitytest.New(t, "home.example", "A"), identitytest.New(t, "peer.example", "B")
	now := time.Now()
	s := identity.NewStatuses(home.Trust(t, peer), func() time.Time { return now })
	l := identity.StatusList{Domain: peer.Name, Issuer: string(peer.Issuer), Seq: 1, Issued: uint64(now.Unix()), Next: uint64(now.Unix()) + 60}
	for range identity.MaxStatusEntries + 1 {
		l.Entries = append(l.Entries, suspended(string(peer.AIC(t))))
	}
	last := l.Entries[identity.MaxStatusEntries].Subject.(string)
	parts, err := identity.SignStatus(l, peer.Sign[identity.UseStatus])
	if err != nil || len(parts) != 2 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	if c, err := s.Apply(parts[1]); err != nil || c.New || s.Of(last) != identity.Good {
		t.Fatalf("half a list counts: %+v %v", c, err)
	}
	if c, err := s.Apply(parts[0]); err != nil || len(c.Changed) != len(l.Entries) {
		t.Fatalf("%d changes, %v", len(c.Changed), err)
	}
	delta := identity.StatusList{Domain: l.Domain, Issuer: l.Issuer, Seq: 2, Base: 1, Issued: l.Issued, Next: l.Next,
		Entries: []identity.StatusEntry{{Subject: last, State: identity.Good}}}
	raw, err := delta.Sign(peer.Sign[identity.UseStatus])
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.Apply(raw); err != nil || len(c.Changed) != 1 || s.Of(last) != identity.Good {
		t.Errorf("delta: %+v %v", c, err)
	}
	again := identity.NewStatuses(home.Trust(t, peer), func() time.Time { return now })
	for _, raw := range s.Raw(string(peer.Issuer)) { // as a relay hands it on
		if _, err := again.Apply(raw); err != nil {
			t.Fatal(err)
		}
	}
	if seq, _ := again.Held(string(peer.Issuer)); seq != 2 {
		t.Errorf("relayed list has sequence %d", seq)
	}
}

// A list that counts for less than a quarter of an hour has a grace that is as much shorter.
func TestGraceFollowsTheLifeOfAList(t *testing.T) {
	home, peer := identitytest.New(t, "home.example", "A"), identitytest.New(t, "peer.example", "B")
	begin := time.Now().Truncate(time.Second)
	now := begin
	s := identity.NewStatuses(home.Trust(t, peer), func() time.Time { return now })
	for _, d := range []*identitytest.Domain{home, peer} {
		l := identity.StatusList{Domain: d.Name, Issuer: string(d.Issuer), Seq: 1, Issued: uint64(begin.Unix()), Next: uint64(begin.Unix()) + 30}
		raw, err := l.Sign(d.Sign[identity.UseStatus])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(raw); err != nil {
			t.Fatal(err)
		}
	}
	for id, until := range map[string]time.Duration{string(peer.Gateway): 40 * time.Second, string(home.Gateway): 30*time.Second + 8*time.Minute} {
		for at, fresh := range map[time.Duration]bool{until: true, until + time.Second: false} {
			now = begin.Add(at)
			if err := s.Fresh(id); (err == nil) != fresh {
				t.Errorf("%s after %v: %v", id, at, err)
			}
		}
	}
}
