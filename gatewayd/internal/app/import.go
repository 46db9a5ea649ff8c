package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/taxonomy"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/registrar"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const kindImported = "directory.imported" // one call's lines of an import

// importWriters is how many entries of a call are on their way to the disk at a time: a commit takes as many.
const importWriters = 128

// maxToldClasses bounds a line of the log.
const maxToldClasses = 8

// importedRecord is what the audit log keeps of one call. The sum is SHA-256 over a line `AIC version hash` for each entry that was registered or
// updated, in the order of AICs; the hash is the ACS's, in hexadecimal.
type importedRecord struct {
	File       string `json:"file"`
	From       int    `json:"from"` // lines of it
	To         int    `json:"to"`
	Registered int    `json:"registered"`
	Updated    int    `json:"updated"`
	SHA256     string `json:"sha256"`
}

// Import implements admin.Gateway: it takes entries, each for itself. What it has counted is on the disk, found, and in the audit log when it
// returns; whoever gets no answer imports again.
func (a *app) Import(ctx context.Context, r admin.ImportRequest) (*admin.Imported, error) {
	if !a.cfg.HasRole(config.RoleGateway) {
		return nil, frame.Errorf(frame.State, "this process is an AMC alone and has no directory: import at a gateway")
	}
	if len(r.Lines) == 0 || len(r.Lines) > admin.MaxImportBatch {
		return nil, frame.Errorf(frame.ReqInvalid, "%d lines in one call: 1 to %d are taken", len(r.Lines), admin.MaxImportBatch)
	}
	out := &admin.Imported{Rejected: []admin.RejectedLine{}, Warnings: []admin.WarnedLine{}}
	var mu sync.Mutex // guards out, written and filed
	var written, filed []string
	each(r.Lines, importWriters, func(line admin.ImportLine) {
		in, outcome, e, err := a.importLine(ctx, line.Entry, r.Update)
		var warnings, unknown []string
		if err == nil {
			warnings, unknown = in.Doc.Warnings().Lines(), in.Doc.UnknownClasses()
		}
		mu.Lock()
		defer mu.Unlock()
		for _, w := range warnings {
			out.Warnings = append(out.Warnings, admin.WarnedLine{Line: line.Line, AIC: e.AIC, What: "acs." + w})
		}
		switch {
		case err != nil:
			id := ""
			if in.Doc != nil {
				id = in.Doc.AIC
			}
			out.Rejected = append(out.Rejected, admin.RejectedLine{Line: line.Line, AIC: id, Why: frame.Text(err)})
			return
		case outcome == registrar.Unchanged:
			out.Unchanged++
			return
		case outcome == registrar.Registered:
			out.Registered++
		default:
			out.Updated++
		}
		filed = append(filed, unknown...)
		written = append(written, fmt.Sprintf("%s %d %x\n", e.AIC, e.Version, e.ACSHash))
	})
	slices.SortStableFunc(out.Warnings, func(x, y admin.WarnedLine) int { return x.Line - y.Line })
	slices.SortFunc(out.Rejected, func(x, y admin.RejectedLine) int { return x.Line - y.Line })
	if len(written) == 0 {
		return out, nil
	}
	if len(filed) > 0 {
		slices.Sort(filed)
		filed = slices.Compact(filed)
		a.log.Warn("imported skills are filed under classes that the taxonomy has not", "file", filepath.Base(r.File), "taxonomy", taxonomy.Version,
			"classes", filed[:min(len(filed), maxToldClasses)], "in_all", len(filed))
	}
	slices.Sort(written)
	sum := sha256.Sum256([]byte(strings.Join(written, "")))
	return out, a.audit(context.WithoutCancel(ctx), kindImported, importedRecord{
		File: filepath.Base(r.File), From: r.Lines[0].Line, To: r.Lines[len(r.Lines)-1].Line,
		Registered: out.Registered, Updated: out.Updated, SHA256: hex.EncodeToString(sum[:]),
	})
}

// each calls f for every element, so many at a time.
func each[T any](list []T, atOnce int, f func(T)) {
	var running sync.WaitGroup
	next := make(chan T)
	for range min(atOnce, len(list)) {
		running.Go(func() {
			for v := range next {
				f(v)
			}
		})
	}
	for _, v := range list {
		next <- v
	}
	close(next)
	running.Wait()
}

// importLine takes one entry; in is what could be read of it.
func (a *app) importLine(ctx context.Context, raw []byte, update bool) (in registrar.Import, outcome registrar.Outcome, e directory.Entry, err error) {
	if in, err = a.readImport(raw); err != nil {
		return in, 0, e, err
	}
	in.Update = update
	outcome, e, err = a.agents.Import(ctx, in)
	return in, outcome, e, err
}

// readImport reads a line, and holds that its AIC is one that this directory may have.
func (a *app) readImport(raw []byte) (in registrar.Import, err error) {
	if len(raw) > admin.MaxImportLine {
		return in, frame.Errorf(frame.ReqInvalid, "%d octets, the limit is %d", len(raw), admin.MaxImportLine)
	}
	line := struct {
		ACS   json.RawMessage `json:"acs"`
		Entry *importedEntry  `json:"entry"`
		Card  string          `json:"card"`
	}{}
	if err := strictJSON(raw, &line); err != nil {
		return in, frame.Errorf(frame.ReqInvalid, "%w; a line is as `gatewayd agents export` writes it", err)
	}
	if line.ACS == nil {
		return in, frame.Errorf(frame.ReqInvalid, "acs: is missing; a line is as `gatewayd agents export` writes it")
	}
	if in.Doc, err = acs.Parse(line.ACS); err != nil {
		return in, frame.Errorf(frame.ReqInvalid, "acs: %w", err)
	}
	if in.AIC, err = a.importable(in.Doc.AIC); err != nil {
		return in, err
	}
	if line.Card != "" {
		in.Card = []byte(line.Card)
	}
	in.State, in.Visibility = directory.Active, directory.VisibleDomain
	if line.Entry != nil {
		err = line.Entry.into(&in, a.cfg.Domain)
	}
	return in, err
}

// importedEntry is [admin.EntryView] as an import reads it: what is not there is told from what is empty. Members that follow from others, or are
// this gateway's to say, are read and not used.
type importedEntry struct {
	State            *directory.State      `json:"state"`
	Visibility       *directory.Visibility `json:"visibility"`
	Allow            []string              `json:"allow"`
	AuthorizedSkills []string              `json:"authorizedSkills"`
	ExpiresAt        time.Time             `json:"expiresAt"`
	Domain           string                `json:"aad"`

	CapabilityIDs, Gateway, Version, RegisteredAt, LastModifiedTime, Provider, ACSSHA256, Taxonomy, Alive, LastSeenAt json.RawMessage
}

func (e *importedEntry) into(in *registrar.Import, domain string) error {
	if e.Domain != "" && e.Domain != domain {
		return frame.Errorf(frame.ReqInvalid, "entry.aad: it is of the domain %q, and this gateway is of %q", e.Domain, domain)
	}
	if e.State != nil {
		in.State = *e.State
	}
	if e.Visibility != nil {
		in.Visibility = *e.Visibility
	}
	in.Allow, in.Skills, in.ExpiresAt = e.Allow, e.AuthorizedSkills, e.ExpiresAt
	return nil
}

// importable holds that an AIC is an agent's of this domain, well formed, and that its AMC has not ended or suspended it.
func (a *app) importable(text string) (id aic.AIC, err error) {
	if text == "" {
		return "", frame.Errorf(frame.ReqInvalid, "acs.aic: is missing; an agent without one has to enrol")
	}
	if id, err = a.cfg.AIC.CheckAIC(text); err != nil {
		return "", frame.Errorf(frame.ReqInvalid, "acs.aic: %w", err)
	}
	if string(id) != text {
		return "", frame.Errorf(frame.ReqInvalid, "acs.aic: write it %s", id)
	}
	switch domain := a.trust.DomainOf(text); {
	case domain != a.cfg.Domain:
		return "", frame.Errorf(frame.IdentityMismatch, "acs.aic: it is not of the domain %s: only entries of the own domain are imported", a.cfg.Domain)
	case a.trust.Own().IsGateway(text) || text == a.trust.Own().Issuer:
		return "", frame.Errorf(frame.IdentityMismatch, "acs.aic: it is a gateway's or an AMC's")
	}
	if s := a.statuses.Of(text); s != identity.Good {
		return "", frame.Errorf(frame.CertStatus, "acs.aic: its AMC says that it is %v", s)
	}
	return id, nil
}

// strictJSON decodes one JSON value without members that v has not.
func strictJSON(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var wrong *json.UnmarshalTypeError
	switch err := dec.Decode(v); {
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("it is no object but %s", wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: %s does not belong there", wrong.Field, wrong.Value)
	case err != nil:
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}
