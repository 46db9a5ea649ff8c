package identity_test

import (
	"fmt"
	"slices"
	"testing"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

var anyExample = []string{"*.example"}

func TestHeldIntroductionCountsOnceApproved(t *testing.T) {
	home, far := identitytest.New(t, "home.example", "A"), identitytest.New(t, "far.example", "F")
	trust := home.Trust(t)
	if changed, held, err := trust.Hold(far.Raw, "hub.example", anyExample); changed || !held || err != nil {
		t.Fatal(changed, held, err)
	}
	p := trust.Pending()
	if len(p) != 1 || p[0].Domain != far.Name || !slices.Equal(p[0].By, []string{"hub.example"}) || trust.Of(string(far.Gateway)) != nil {
		t.Fatalf("pending %+v", p)
	}
	if _, err := trust.Approve(far.Name, [32]byte{1}); frame.CodeOf(err) != frame.TrustDenied || trust.Domain(far.Name) != nil {
		t.Errorf("under a wrong fingerprint: %v", err)
	}
	if _, err := trust.Approve("else.example", p[0].Fingerprint); frame.CodeOf(err) != frame.NotFound {
		t.Errorf("a domain that nobody introduced: %v", err)
	}
	if _, err := trust.Approve(far.Name, p[0].Fingerprint); err != nil {
		t.Fatal(err)
	}
	if a := trust.Of(string(far.Gateway)); a == nil || a.Source != identity.Introduced || len(trust.Pending()) != 0 {
		t.Errorf("approved: %+v", a)
	}
	next := *far.Bundle
	next.Seq = 2
	if changed, held, err := trust.Hold(far.SignBundle(t, &next), "hub.example", anyExample); !changed || held || err != nil {
		t.Errorf("its next bundle: %v %v %v", changed, held, err)
	}
	// After a restart the pin is what is left of the approval.
	again := home.Trust(t)
	again.Pin(far.Name, p[0].Fingerprint, nil)
	if changed, held, err := again.Hold(far.Raw, "hub.example", anyExample); !changed || held || err != nil {
		t.Errorf("pinned: %v %v %v", changed, held, err)
	}
}

func TestHeldIntroductionsThatDifferAreDisputed(t *testing.T) {
	home := identitytest.New(t, "home.example", "A")
	far, impostor := identitytest.New(t, "far.example", "F"), identitytest.New(t, "far.example", "G")
	trust := home.Trust(t)
	trust.Hold(far.Raw, "hub.example", anyExample)
	if _, held, err := trust.Hold(impostor.Raw, "hub.example", anyExample); held || frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("one introducer against itself: %v %v", held, err)
	}
	if p := trust.Pending(); len(p) != 1 || p[0].Fingerprint != mustParse(t, far.Raw).Fingerprint {
		t.Fatal("the first word is gone")
	}
	for _, introduce := range []func() error{
		func() error { _, _, err := trust.Hold(impostor.Raw, "other.example", anyExample); return err },
		func() error { _, err := trust.Introduce(far.Raw, "hub.example", anyExample); return err },
	} {
		if err := introduce(); frame.CodeOf(err) != frame.TrustDenied || len(trust.Pending()) != 0 || trust.Domain(far.Name) != nil {
			t.Errorf("disputed: %v", err)
		}
	}
	if who := trust.Disputed(far.Name); !slices.Equal(who, []string{"hub.example", "other.example"}) {
		t.Errorf("disputed by %v", who)
	}
	// The same, when the second introducer's word needs no approval.
	trust = home.Trust(t)
	trust.Hold(far.Raw, "hub.example", anyExample)
	if _, err := trust.Introduce(impostor.Raw, "other.example", anyExample); frame.CodeOf(err) != frame.TrustDenied || trust.Domain(far.Name) != nil {
		t.Errorf("disputed by one that is not asked about: %v", err)
	}
}

func mustParse(t *testing.T, raw []byte) *identity.Accepted {
	t.Helper()
	a, err := identity.ParseBundle(raw)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// What waits is bounded, goes with its introducer's right, and claims nothing that is another's.
func TestHeldIntroductionsAreBounded(t *testing.T) {
	home := identitytest.New(t, "home.example", "A")
	trust := home.Trust(t)
	far := identitytest.New(t, "far.example", "F")
	b := *far.Bundle
	refused := 0
	for i := range 300 {
		b.Domain = fmt.Sprintf("d%d.example", i)
		if _, _, err := trust.Hold(far.SignBundle(t, &b), "hub.example", anyExample); frame.CodeOf(err) == frame.LimitExceeded {
			refused++
		}
	}
	if n := len(trust.Pending()); n != 256 || refused != 44 {
		t.Errorf("%d wait, %d refused", n, refused)
	}
	first := trust.Pending()[0]
	if _, err := trust.Approve(first.Domain, first.Fingerprint); err != nil {
		t.Fatal(err)
	}
	other := trust.Pending()[0] // of the same prefix
	if _, err := trust.Approve(other.Domain, other.Fingerprint); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("two domains of one prefix: %v", err)
	}
	trust.Reconsider(func(string) []string { return []string{"d7.example"} })
	if p := trust.Pending(); len(p) != 1 || p[0].Domain != "d7.example" {
		t.Errorf("%d wait after the right is gone", len(p))
	}
	thief := *home.Bundle
	thief.Domain = "thief.example"
	if _, held, err := trust.Hold(home.SignBundle(t, &thief), "hub.example", anyExample); held || frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("a bundle with our own prefix: %v %v", held, err)
	}
}
