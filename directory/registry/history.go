package registry

import (
	"fmt"

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
	if gone == nil && (len(list) == 0 || list[len(list)-1].Version < now.Version) {
		list = append(list, now)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("history of %s: %w", aic, directory.ErrNotFound)
	}
	return list, nil
}
