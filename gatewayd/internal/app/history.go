package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
)

// AgentHistory implements admin.Gateway.
func (a *app) AgentHistory(r admin.AgentRequest) (*admin.AgentHistory, error) {
	list, err := a.history(r.AIC)
	if err != nil {
		return nil, err
	}
	out := &admin.AgentHistory{AIC: list[0].AIC}
	for i, e := range list {
		row := admin.EditionRow{
			First: 1, Last: e.Version, Since: e.RegisteredAt, State: e.State.String(), Visibility: e.Visibility.String(),
			Skills: admin.List(e.Skills), Changed: []string{},
		}
		if !e.Edition.Since.IsZero() {
			row.Since = e.Edition.Since
		}
		if i > 0 {
			row.First = list[i-1].Version + 1
			changes, err := differences(list[i-1], e)
			if err != nil {
				return nil, err
			}
			for _, c := range changes[:min(len(changes), admin.MaxChanged)] {
				row.Changed = append(row.Changed, c.Path)
			}
		} else if e.Edition.Number > 0 { // those before it are forgotten
			row.First = 0
		}
		out.Editions = append(out.Editions, row)
	}
	if t, err := a.store.Ended(out.AIC); err == nil {
		out.Ended = &admin.Ended{State: t.State.String(), At: t.At, Reason: t.Reason}
	}
	return out, nil
}

// AgentDiff implements admin.Gateway.
func (a *app) AgentDiff(r admin.DiffRequest) (*admin.AgentDiff, error) {
	list, err := a.history(r.AIC)
	if err != nil {
		return nil, err
	}
	last := len(list) - 1
	from, to := max(last-1, 0), last
	for _, w := range []struct {
		version uint64
		at      *int
	}{{r.From, &from}, {r.To, &to}} {
		if w.version == 0 {
			continue
		}
		// The version may be one of an edition of which a later one is kept.
		*w.at = slices.IndexFunc(list, func(e directory.Entry) bool { return e.Version >= w.version })
		if *w.at < 0 {
			return nil, frame.Errorf(frame.NotFound, "version %d of %s does not exist: the last is %d", w.version, list[0].AIC, list[last].Version)
		}
		if *w.at == 0 && w.version < list[0].Version && list[0].Edition.Number > 0 {
			return nil, frame.Errorf(frame.NotFound, "version %d of %s is not kept any more: the oldest is %d", w.version, list[0].AIC, list[0].Version)
		}
	}
	changes, err := differences(list[from], list[to])
	if err != nil {
		return nil, err
	}
	return &admin.AgentDiff{AIC: list[0].AIC, From: list[from].Version, To: list[to].Version, Changes: admin.List(changes)}, nil
}

// history is the kept editions of an agent that an operator names.
func (a *app) history(name string) ([]directory.Entry, error) {
	id, err := a.cfg.AIC.CheckAIC(name)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	list, err := a.registry.History(string(id))
	if errors.Is(err, directory.ErrNotFound) {
		return nil, frame.Errorf(frame.NotFound, "the directory keeps nothing of what %s has said", id)
	}
	return list, err
}

// differences compares what two versions of an entry tell their readers.
func differences(from, to directory.Entry) ([]acs.Difference, error) {
	var docs [2][]byte
	for i, e := range []directory.Entry{from, to} {
		b, err := json.Marshal(struct {
			ACS        json.RawMessage      `json:"acs"`
			State      directory.State      `json:"state"`
			Visibility directory.Visibility `json:"visibility"`
			Allow      []string             `json:"allow"`
			Skills     []string             `json:"authorizedSkills"`
			Provider   string               `json:"provider"`
		}{e.ACS, e.State, e.Visibility, admin.List(e.Allow), admin.List(e.Skills), or(e.Provenance.Provider, directory.ProviderUnverified)})
		if err != nil {
			return nil, fmt.Errorf("version %d of %s: %w", e.Version, e.AIC, err)
		}
		docs[i] = b
	}
	list, err := acs.Diff(docs[0], docs[1])
	// The gateway's own stamp is in every new ACS; a history says it beside.
	return slices.DeleteFunc(list, func(d acs.Difference) bool { return d.Path == "acs.lastModifiedTime" }), err
}
