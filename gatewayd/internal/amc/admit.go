package amc

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"time"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// reserver is a transaction over the directory that an AIC is taken in.
type reserver interface {
	Reserve(aic string, at time.Time) error
}

// Propose makes an AIC of a vendor and an ontology code, of random numbers.
type Propose func(vendor, ontology string) (aic.AIC, error)

const admitTries = 4 // 46 random bits: a second try has never been needed yet

// Admit decides about a first registration at the gateway of this process, and where nothing speaks against it takes the AIC and issues
// its credential: decision, use of the token, reservation in the directory and record of the agent are one commit, so that a crash
// leaves all of it or nothing, and the disk is waited for once. ok is false where the ordinary way is due: a decision that is no fresh
// grant, or an earlier try of the same request. Then nothing has changed.
func (a *AMC) Admit(ctx context.Context, q *arp.AuthzRequest, csr []byte, propose Propose) (g *arp.Grant, c *arp.Credential, ok bool, err error) {
	if checkRequest(q) != nil || q.AIC != "" {
		return nil, nil, false, nil
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
		return nil, nil, false, nil // the ordinary way comes to it again, and says so
	}
	for range admitTries {
		id, err := propose(given.Vendor, given.Ontology)
		if err != nil {
			return nil, nil, false, err
		}
		o, err := a.readOrder(q.GW, &arp.Renew{AIC: string(id), CSR: csr, JTI: question.NewJTI})
		if err != nil {
			return nil, nil, false, err
		}
		kept, chain, leaf, err := a.admit(ctx, o, question.Now, given, decide)
		switch {
		case errors.Is(err, directory.ErrExists):
			continue
		case errors.Is(err, errOrdinary):
			return nil, nil, false, nil
		case err != nil:
			return nil, nil, false, err
		}
		if err := a.auditSoon(q.GW)(ctx, "authorisation.granted", decisionRecord(q, by)); err != nil {
			return nil, nil, false, frame.Errorf(frame.Internal, "the decision cannot be recorded: %w", err)
		}
		c, err := a.credential(ctx, o, kept, chain, leaf, false)
		given.AIC = string(id)
		return given.wire(question.NewJTI), c, true, err
	}
	return nil, nil, false, frame.Errorf(frame.Internal, "no free AIC in %d tries: check the machine's random numbers", admitTries)
}

var errOrdinary = errors.New("the ordinary way is due")

// admit signs, and keeps everything at once if the decision is still the same.
func (a *AMC) admit(ctx context.Context, o order, now time.Time, given *grant, decide func(Tx) error) (kept *agent, chain [][]byte, leaf *x509.Certificate, err error) {
	profile := a.profile(o.id, &agent{Class: ClassAgent, Attributes: given.Attributes})
	if chain, err = a.cfg.Signer.Sign(ctx, profile, o.csr.PublicKey); err != nil {
		return nil, nil, nil, err
	}
	if leaf, err = x509.ParseCertificate(chain[0]); err != nil {
		return nil, nil, nil, err
	}
	err = a.transact(ctx, func(tx Tx) (err error) {
		r, can := tx.(reserver)
		if !can {
			return errOrdinary
		}
		if err := decide(tx); err != nil {
			return err
		}
		if kept, err = a.firstIssue(tx, o); err != nil {
			return err
		}
		if err := r.Reserve(string(o.id), now); err != nil {
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
