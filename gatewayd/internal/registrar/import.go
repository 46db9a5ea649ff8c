package registrar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/internal/frame"
)

// Import is an entry of a file: what an agent's registration would have brought, without the agent.
type Import struct {
	AIC        aic.AIC // of this domain; the caller has checked that
	Doc        *acs.ACS
	Card       []byte          // the Agent Card that Doc was made of; none if there is none, or as it was
	State      directory.State // Active or Deprecated
	Visibility directory.Visibility
	Allow      []string
	Skills     []string  // authorised ids or patterns; nil: those of the document
	ExpiresAt  time.Time // zero: it does not expire
	Update     bool      // an entry that is there with other content is replaced
}

// Outcome is what an import has come to.
type Outcome int

// The outcomes.
const (
	Unchanged Outcome = iota
	Registered
	Updated
)

// importTries is how often an entry is looked at again that changes at this moment.
const importTries = 4

// Import takes an entry into the directory, by the checks of a registration. It gives nobody a credential: the entry can be found, and nobody can
// attach under it. Nor does it take an AIC that is in use: one that has ended, or is reserved for somebody, is refused; of an entry that is there,
// state, expiry and credential stay, and what its AMC has authorised is not widened. A visibility that it changes of an enrolled agent is the widest that
// the agent may ask for from then on. It returns the entry that is in the directory then.
func (r *Registrar) Import(ctx context.Context, in Import) (Outcome, directory.Entry, error) {
	if err := r.checkImport(&in); err != nil {
		return 0, directory.Entry{}, err
	}
	for range importTries {
		held, ok := r.cfg.Directory.Get(string(in.AIC))
		var out Outcome
		var err error
		if ok {
			out, held, err = r.importOver(ctx, in, held)
		} else {
			out, held, err = r.importNew(ctx, in)
		}
		if !errors.Is(err, errChanged) {
			return out, held, err
		}
	}
	return 0, directory.Entry{}, frame.Errorf(frame.Overloaded, "its entry changes all the time: import it again")
}

// errChanged says that an entry is another one than a moment ago.
var errChanged = errors.New("the entry has changed")

// checkImport holds an entry against the rules of a registration.
func (r *Registrar) checkImport(in *Import) error {
	if problems := in.Doc.Validate(acs.Options{Draft: true, LoopbackHTTP: r.cfg.Lab}); len(problems) > 0 {
		return frame.Errorf(frame.ReqInvalid, "acs: %w", problems)
	}
	if err := checkVisibility(in.Visibility, in.Allow); err != nil {
		return err
	}
	if in.Skills == nil {
		in.Skills = skillIDs(in.Doc)
	}
	switch {
	case in.State != directory.Active && in.State != directory.Deprecated:
		return frame.Errorf(frame.ReqInvalid, "entry.state: an entry that is %v stays where its AMC can decide about it; only ACTIVE and DEPRECATED ones are imported", in.State)
	case len(in.Skills) > directory.MaxSkills:
		return frame.Errorf(frame.ReqInvalid, "entry.authorizedSkills: %d, the limit is %d", len(in.Skills), directory.MaxSkills)
	case !in.ExpiresAt.IsZero() && !time.Now().Before(in.ExpiresAt):
		return frame.Errorf(frame.ReqInvalid, "entry.expiresAt: it has expired at %s; remove the member if it shall not expire", in.ExpiresAt.UTC().Format(time.RFC3339))
	}
	return nil
}

// granted is the document as the directory keeps it, its last change at a time. Skills that are not allowed are an error here: nobody is there to be
// told that they were removed.
func (in *Import) granted(allowed []string, at time.Time) (*acs.ACS, error) {
	doc, removed, err := acs.Authoritative(in.Doc, in.AIC, allowed, at)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "acs: %w", err)
	}
	if err := in.checkCard(doc, allowed, at); err != nil {
		return nil, err
	}
	if len(removed) > 0 {
		return nil, frame.Errorf(frame.ScopeDenied, "acs.skills: %s not authorised (%s is); add to entry.authorizedSkills or remove them", strings.Join(removed, ", "), strings.Join(allowed, ", "))
	}
	return doc, nil
}

// checkCard holds that the card says what doc does.
func (in *Import) checkCard(doc *acs.ACS, allowed []string, at time.Time) error {
	if in.Card == nil {
		return nil
	}
	made, err := acs.FromCard(in.Card)
	if err != nil {
		return frame.Errorf(frame.ReqInvalid, "card: %w", err)
	}
	if made, _, err = acs.Authoritative(made, in.AIC, allowed, at); err != nil {
		return frame.Errorf(frame.ReqInvalid, "card: %w", err)
	}
	want, err := doc.Hash()
	if err != nil {
		return err
	}
	if got, err := made.Hash(); err != nil || got != want {
		return frame.Errorf(frame.ReqInvalid, "card: acs says something else than what the card comes to; change both alike, or remove the card")
	}
	return nil
}

func (r *Registrar) importNew(ctx context.Context, in Import) (Outcome, directory.Entry, error) {
	now := time.Now()
	at := now
	if t, err := time.Parse(time.RFC3339, in.Doc.LastModifiedTime); err == nil && t.Before(now) { // a document that was exported stays the same one
		at = t
	}
	doc, err := in.granted(in.Skills, at)
	if err != nil {
		return 0, directory.Entry{}, err
	}
	id := string(in.AIC)
	e, err := r.cfg.Directory.Register(ctx, directory.Entry{
		AIC: id, State: in.State, ExpiresAt: in.ExpiresAt, Visibility: in.Visibility, Allow: in.Allow, Skills: in.Skills, Card: in.Card,
		Provenance: directory.Provenance{SubmittedBy: directory.SubmittedByImport, Provider: directory.ProviderUnverified},
	}, doc, func(tx directory.Tx) error { return tx.Reserve(id, now) })
	if errors.Is(err, directory.ErrExists) {
		if _, ok := r.cfg.Directory.Get(id); ok {
			return 0, directory.Entry{}, errChanged
		}
		return 0, directory.Entry{}, frame.Errorf(frame.State, "acs.aic: it has ended here or is reserved, and is never used again; register the agent anew")
	}
	if err != nil {
		return 0, directory.Entry{}, fmt.Errorf("commit: %w", err)
	}
	return Registered, e, nil
}

func (r *Registrar) importOver(ctx context.Context, in Import, held directory.Entry) (Outcome, directory.Entry, error) {
	allowed := in.Skills
	if held.Provenance.SPKI != [32]byte{} { // an agent has a credential under it
		allowed = held.Skills // the AMC's word
	}
	doc, err := acs.Parse(held.ACS)
	if err != nil {
		return 0, held, err
	}
	at, err := time.Parse(time.RFC3339, doc.LastModifiedTime)
	if err != nil {
		return 0, held, err
	}
	same, err := in.granted(allowed, at)
	if err != nil {
		return 0, held, err
	}
	hash, err := same.Hash()
	if err != nil {
		return 0, held, err
	}
	if hash == held.ACSHash && in.Visibility == held.Visibility && slices.Equal(in.Allow, held.Allow) && slices.Equal(allowed, held.Skills) &&
		(in.Card == nil || bytes.Equal(in.Card, held.Card)) {
		return Unchanged, held, nil
	}
	if !in.Update {
		return 0, held, frame.Errorf(frame.State, "acs.aic: it is in this directory with other content; --update replaces that")
	}
	if same, err = in.granted(allowed, time.Now()); err != nil {
		return 0, held, err
	}
	if held.Provenance.SPKI != [32]byte{} && (in.Visibility != held.Visibility || !slices.Equal(in.Allow, held.Allow)) {
		held.Bound = nil
		if in.Visibility != directory.VisiblePublic {
			held.Bound = &directory.Reach{Visibility: in.Visibility, Allow: in.Allow}
		}
	}
	held.Visibility, held.Allow, held.Skills = in.Visibility, in.Allow, allowed
	if in.Card != nil || hash != held.ACSHash { // the card of another specification is none of this one
		held.Card = in.Card
	}
	next, err := r.cfg.Directory.Update(ctx, held, same)
	if errors.Is(err, directory.ErrConflict) || errors.Is(err, directory.ErrNotFound) {
		return 0, held, errChanged
	}
	if err != nil {
		return 0, held, fmt.Errorf("commit: %w", err)
	}
	return Updated, next, nil
}
