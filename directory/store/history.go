package store

import (
	"slices"

	"agentgw/directory"
)

// Editions visits the last versions of the kept earlier editions of an entry, oldest first, until f returns an error, which it returns.
// The current one is not among them; of an ended entry all are earlier.
func (s *Store) Editions(aic string, f func(directory.Entry) error) error {
	return s.read(func(r reader) error {
		return r.scan(prefixOld+aic+"/", func(_, value []byte) error {
			e, err := directory.DecodeEntry(slices.Clone(value))
			if err != nil {
				return err
			}
			return f(e)
		})
	})
}

// outdate keeps a stored record as the last of its edition, and forgets the oldest one.
func outdate(aic string, edition uint64, record []byte) []mutation {
	list := []mutation{{oldKey(aic, edition), slices.Clone(record)}}
	if edition >= keepEditions {
		list = append(list, mutation{oldKey(aic, edition-keepEditions), nil})
	}
	return list
}

// end keeps the stored record of an entry that ends, with the few editions before it, and forgets the others.
func end(aic string, edition uint64, record []byte) []mutation {
	list := outdate(aic, edition, record)
	for old := uint64(keepEnded); old < keepEditions && old <= edition; old++ {
		list = append(list, mutation{oldKey(aic, edition-old), nil})
	}
	return list
}
