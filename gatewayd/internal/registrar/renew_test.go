package registrar

import (
	"context"
	"log/slog"
	"testing"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/amc"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// busy is a directory whose one entry is changed by somebody else just before the first update.
type busy struct {
	oneEntry
	e       directory.Entry
	between func(*directory.Entry)
}

func (b *busy) Get(string) (directory.Entry, bool) { return b.e, true }

func (b *busy) Update(_ context.Context, e directory.Entry, _ *acs.ACS) (directory.Entry, error) {
	if b.between != nil {
		b.between(&b.e)
		b.between, b.e.Version = nil, b.e.Version+1
	}
	if e.Version != b.e.Version {
		return e, directory.ErrConflict
	}
	e.Version++
	b.e = e
	return e, nil
}

type issuer struct{ amc.Center }

func (issuer) Issue(context.Context, string, *arp.Renew) (*arp.Credential, error) {
	return &arp.Credential{Chain: [][]byte{{1}}}, nil
}

// When the AMC has taken a new key the entry follows, whatever else changes at that moment: else neither key would open anything.
func TestReKeyOutlivesAnotherChange(t *testing.T) {
	d := identitytest.New(t, "home.example", "A")
	id := string(d.AIC(t))
	csr, err := identity.NewCSR(identitytest.NewKey(t))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change func(*directory.Entry)
		code   frame.Code
	}{
		"its ACS":     {func(e *directory.Entry) { e.Visibility = directory.VisiblePrivate }, frame.OK},
		"its state":   {func(e *directory.Entry) { e.State = directory.Suspended }, frame.OK},
		"its own key": {func(e *directory.Entry) { e.Provenance.SPKI = [32]byte{9} }, frame.Overloaded},
	} {
		b := &busy{e: directory.Entry{AIC: id, State: directory.Active, Version: 1, Provenance: directory.Provenance{SPKI: [32]byte{1}}}, between: c.change}
		r := New(Config{Directory: b, AMC: issuer{}, Trust: d.Trust(t), Log: slog.New(slog.DiscardHandler)})
		_, err := r.renew(t.Context(), &arp.Renew{AIC: id, CSR: csr}, [32]byte{1}, false)
		if frame.CodeOf(err) != c.code {
			t.Errorf("%s: %v", what, err)
		}
		want := directory.Entry{AIC: id, State: directory.Active}
		c.change(&want)
		if b.e.State != want.State || b.e.Visibility != want.Visibility || c.code == frame.OK && b.e.Provenance.SPKI == [32]byte{1} {
			t.Errorf("%s: %+v", what, b.e)
		}
	}
}

// Who has proved another key learns nothing of an agent's standing.
func TestStrangerLearnsNoStanding(t *testing.T) {
	e := directory.Entry{AIC: "A", State: directory.Suspended, Provenance: directory.Provenance{SPKI: [32]byte{1}}}
	r := New(Config{Directory: oneEntry{e}, Log: slog.New(slog.DiscardHandler)})
	if _, err := r.renew(t.Context(), &arp.Renew{AIC: "A"}, [32]byte{2}, true); frame.CodeOf(err) != frame.Binding {
		t.Error(err)
	}
}
