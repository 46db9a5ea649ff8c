package amc

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// What follows brings the records of a restored backup up to what the audit log says of the time after it. All of it may be done again.

// Reapply gives an agent the state that the log says last. One that the records do not know is left alone: see [AMC.Bury].
func (a *AMC) Reapply(ctx context.Context, state identity.State, c Changed) error {
	err := a.set(ctx, c.AIC, state, c.Reason, c.Why)
	switch frame.CodeOf(err) {
	case frame.State, frame.NotFound: // so already, or revoked for good
		return nil
	}
	return err
}

// Bury revokes an agent whose registration is lost, and makes a record of it where there is none: its AIC is never issued again, its
// certificate is on the status list until it ends, and a token or grant that brought it brings nothing more.
func (a *AMC) Bury(ctx context.Context, i Issued, why string) error {
	g, err := i.agent()
	if err != nil {
		return err
	}
	err = a.transact(ctx, func(tx Tx) error {
		if _, err := getAgent(tx, i.AIC); frame.CodeOf(err) != frame.NotFound {
			return err
		}
		return put(tx, prefixAgent+i.AIC, g)
	})
	if err != nil {
		return fmt.Errorf("record of the lost %s: %w", i.AIC, err)
	}
	return a.Reapply(ctx, identity.Revoked, Changed{AIC: i.AIC, Reason: identity.ReasonUnspecified, Why: why})
}

// agent is the record that the log allows for: who it was for is not in it.
func (i Issued) agent() (*agent, error) {
	spki, jti, serial, err := i.octets()
	if err != nil {
		return nil, err
	}
	return &agent{
		SPKI: spki, Gateway: i.Gateway, Attributes: arp.Attributes{}, Scope: []string{}, Grant: jti, Decider: "restore",
		Certs: []certificate{{Serial: serial, NotAfter: uint64(max(i.NotAfter.Unix(), 0))}},
	}, nil
}

func (i Issued) octets() (spki, jti, serial []byte, err error) {
	if spki, err = hex.DecodeString(i.SPKI); err == nil {
		if jti, err = hex.DecodeString(i.Grant); err == nil {
			serial, err = hex.DecodeString(i.Serial)
		}
	}
	if err != nil || len(spki) != 32 || len(serial) != 16 {
		return nil, nil, nil, fmt.Errorf("audit record of a certificate of %.80s: its serial, key or grant is malformed", i.AIC)
	}
	return spki, jti, serial, nil
}

// Reissued notes a certificate of the time after the backup. One over another key makes those before it void, as it did then.
func (a *AMC) Reissued(ctx context.Context, i Issued) error {
	spki, _, serial, err := i.octets()
	if err != nil {
		return err
	}
	var g *agent
	err = a.transact(ctx, func(tx Tx) (err error) {
		if g, err = getAgent(tx, i.AIC); err != nil {
			return err
		}
		if slices.ContainsFunc(g.Certs, func(c certificate) bool { return string(c.Serial) == string(serial) }) {
			return nil
		}
		g.add(certificate{Serial: serial, NotAfter: uint64(max(i.NotAfter.Unix(), 0))}, [32]byte(spki), a.cfg.Now())
		return put(tx, prefixAgent+i.AIC, g)
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.noteCerts(g)
	a.mu.Unlock()
	a.certs.keep(i.AIC, g)
	return nil
}

// VoidTokens ends every enrolment token: which of them were used after the backup is not known any more, and each admits one agent.
func (a *AMC) VoidTokens(ctx context.Context) (ended int, err error) {
	var names []string
	if err := a.cfg.Store.Records(prefixToken, func(name string, _ []byte) error {
		names = append(names, name)
		return nil
	}); err != nil {
		return 0, err
	}
	for batch := range slices.Chunk(names, purgeBatch) {
		if err := a.transact(ctx, func(tx Tx) error {
			for _, name := range batch {
				tx.Set(name, nil)
			}
			return nil
		}); err != nil {
			return ended, err
		}
		ended += len(batch)
	}
	return ended, nil
}
