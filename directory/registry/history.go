package registry

import (
	"cmp"
	"fmt"
	"slices"

	"agentgw/directory"
)

// History is the last version of each kept edition of an entry, oldest first; the current version is the last of them, unless the entry
// has ended. ErrNotFound if nothing is kept of the AIC.
func (r *Registry) History(aic string) ([]directory.Entry, error) {
	now, gone := r.Get(aic) // first: what is replaced meanwhile is found among the earlier ones
	var list []directory.Entry
	err := r.store.Editions(aic, func(e directory.Entry) error {
		list = append(list, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", aic, err)
	}
	// By edition they are in order already, but where a program that numbered none has written in between.
	slices.SortStableFunc(list, func(x, y directory.Entry) int { return cmp.Compare(x.Version, y.Version) })
	if gone == nil && (len(list) == 0 || list[len(list)-1].Version < now.Version) {
		list = append(list, now)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("history of %s: %w", aic, directory.ErrNotFound)
	}
	return list, nil
}
