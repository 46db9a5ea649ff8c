package registrar

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/amc"
)

// steps records what is done in which order.
type steps struct {
	oneEntry
	amc.Center
	done []string
	down bool
}

func (s *steps) step(name string) error { s.done = append(s.done, name); return nil }

func (s *steps) Owe(context.Context, string, string) error { return s.step("owe") }
func (s *steps) Paid(context.Context, string) error        { return s.step("paid") }

// leaving is the directory of steps; the AMC's Withdraw is another one.
type leaving struct{ *steps }

func (l leaving) Withdraw(context.Context, string, string) error { return l.step("entry") }

type center struct{ *steps }

func (c center) Withdraw(context.Context, string, *arp.Deregister) error {
	c.step("amc")
	if c.down {
		return errors.New("down")
	}
	return nil
}

// What the AMC must be told is on the disk before the entry goes, and until it has been told.
func TestWithdrawalIsOwedFirst(t *testing.T) {
	for down, want := range map[bool][]string{false: {"owe", "entry", "amc", "paid"}, true: {"owe", "entry", "amc"}} {
		s := &steps{oneEntry: oneEntry{directory.Entry{AIC: "A"}}, down: down}
		r := New(Config{Directory: leaving{s}, AMC: center{s}, Log: slog.New(slog.DiscardHandler)})
		if err := r.Withdraw(t.Context(), "A", "closing"); err != nil {
			t.Error(err)
		}
		if !slices.Equal(s.done, want) {
			t.Errorf("AMC down %v: %v, want %v", down, s.done, want)
		}
	}
	imported := &steps{oneEntry: oneEntry{directory.Entry{AIC: "A", Provenance: directory.Provenance{SubmittedBy: directory.SubmittedByImport}}}}
	r := New(Config{Directory: leaving{imported}, AMC: center{imported}, Log: slog.New(slog.DiscardHandler)})
	if err := r.Withdraw(t.Context(), "A", ""); err != nil || !slices.Equal(imported.done, []string{"entry"}) {
		t.Errorf("an imported entry: %v, %v", imported.done, err)
	}
	if err := New(Config{Directory: oneEntry{}, Log: slog.New(slog.DiscardHandler)}).Withdraw(t.Context(), "B", ""); err == nil {
		t.Error("an agent that is not here is withdrawn")
	}
}
