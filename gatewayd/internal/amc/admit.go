package amc

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"reflect"
	"time"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// Propose makes an AIC of a vendor and an ontology code, of random numbers.
type Propose func(vendor, ontology string) (aic.AIC, error)

// Enter commits the entry of a new agent, for the AIC of its grant, and in the same commit what with changes. An error of with is its own.
type Enter func(g *arp.Grant, leaf []byte, with func(Tx) error) error

const admitTries = 4 // 46 random bits: a second try has never been needed yet

// Admit decides about a first registration at the gateway of this process, and where nothing speaks against it takes the AIC, issues its
// credential and has its entry made: decision, use of the token, reservation, record of the agent and entry are one commit, so that a
// crash leaves all of it or nothing, and the disk is waited for once. ok is false where the ordinary way is due: a decision that is no
// fresh grant, or an earlier try of the same request. Then nothing has changed. csr is as identity.ParseCSR has it: its signature is
// verified.
func (a *AMC) Admit(ctx context.Context, q *arp.AuthzRequest, csr *x509.CertificateRequest, propose Propose, enter Enter) (c *arp.Credential, ok bool, err error) {
	if checkRequest(q) != nil || q.AIC != "" {
		return nil, false, nil
	}
	question := &Question{AuthzRequest: q, Class: ClassAgent, Now: a.cfg.Now(), NewJTI: make([]byte, 16)}
	rand.Read(question.NewJTI) // it never fails
	var given *grant
	var by string
	decide := func(tx Tx) error {
		verdict, name, err := a.ask(tx, question)
		if err != nil || verdict.Kind != Allow || verdict.JTI != nil {
			return errors.Join(errOrdinary, err)
		}
		by = name
		given, err = a.give(tx, question, &verdict, name)
		return err
	}
	if err := a.look(ctx, decide); err != nil {
		return nil, false, nil // the ordinary way comes to it again, and says so
	}
	for range admitTries {
		proposed, err := propose(given.Vendor, given.Ontology)
		if err != nil {
			return nil, false, err
		}
		id, err := a.issuesFor(string(proposed))
		if err != nil {
			return nil, false, err
		}
		o, err := a.orderOf(q.GW, id, csr, question.NewJTI)
		if err != nil {
			return nil, false, err
		}
		signed := given
		kept, chain, leaf, err := a.admit(ctx, o, question.Now, signed, enter, func(tx Tx) error {
			if err := decide(tx); err != nil {
				return err
			}
			if !reflect.DeepEqual(signed, given) { // the certificate and the entry are of another decision
				return errOrdinary
			}
			return nil
		})
		switch {
		case errors.Is(err, directory.ErrExists):
			continue
		case errors.Is(err, errOrdinary):
			return nil, false, nil
		case err != nil:
			return nil, false, err
		}
		if err := a.auditSoon(q.GW)(ctx, "authorisation.granted", decisionRecord(q, by)); err != nil {
			return nil, false, frame.Errorf(frame.Internal, "the decision cannot be recorded: %w", err)
		}
		c, err := a.credential(ctx, o, kept, chain, leaf, false)
		return c, true, err
	}
	return nil, false, frame.Errorf(frame.Internal, "no free AIC in %d tries: check the machine's random numbers", admitTries)
}

var errOrdinary = errors.New("the ordinary way is due")

// admit signs, and keeps everything at once if the decision is still the same.
func (a *AMC) admit(ctx context.Context, o order, now time.Time, given *grant, enter Enter, decide func(Tx) error) (kept *agent, chain [][]byte, leaf *x509.Certificate, err error) {
	profile := a.profile(o.id, &agent{Class: ClassAgent, Attributes: given.Attributes})
	if chain, err = a.cfg.Signer.Sign(ctx, profile, o.csr.PublicKey); err != nil {
		return nil, nil, nil, err
	}
	if leaf, err = x509.ParseCertificate(chain[0]); err != nil {
		return nil, nil, nil, err
	}
	wire := given.wire(o.jti)
	wire.AIC = string(o.id)
	err = enter(wire, chain[0], func(tx Tx) (err error) {
		if err := decide(tx); err != nil {
			return err
		}
		if kept, err = a.firstIssue(tx, o); err != nil {
			return err
		}
		if err := tx.Reserve(string(o.id), now); err != nil {
			return err
		}
		kept.add(certificate{Serial: leaf.SerialNumber.FillBytes(make([]byte, 16)), NotAfter: uint64(leaf.NotAfter.Unix())}, o.spki, now)
		return put(tx, prefixAgent+string(o.id), kept)
	})
	if err == nil {
		a.certs.keep(string(o.id), kept)
	}
	return kept, chain, leaf, err
}
