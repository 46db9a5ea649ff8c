package store

import (
	"context"
	"fmt"

	"agentgw/directory"
)

const (
	maxGroup      = 128     // writes in one commit, and in the queue
	maxGroupBytes = 1 << 20 // Badger takes 15 % of a memtable (2.4 MiB); the largest single write is about 1.4 MiB
)

// write is one change that waits for its commit. plan reads a state and says what to change, or why not.
type write struct {
	plan func(reader) ([]mutation, error)
	done chan error // buffered: the committer never waits
}

// write queues a change and waits until it is on the disk.
func (s *Store) write(ctx context.Context, plan func(reader) ([]mutation, error)) error {
	w := &write{plan, make(chan error, 1)}
	select {
	case <-s.closing:
		return directory.ErrClosed
	default:
	}
	select {
	case s.queue <- w:
	case <-s.closing:
		return directory.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("queue write: %w", ctx.Err())
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for commit, it may still happen: %w", ctx.Err())
	case <-s.ended:
	}
	select {
	case err := <-w.done: // answered just before the end
		return err
	default:
		return directory.ErrClosed
	}
}

// commitLoop is the committer: the only goroutine that writes. It ends when the store is closed; whoever is still queued then
// learns it by ended.
func (s *Store) commitLoop() {
	defer close(s.ended)
	for {
		select {
		case <-s.closing:
			return
		case w := <-s.queue:
			for group := s.gather(w); len(group) > 0; {
				group = s.commit(group)
			}
		}
	}
}

// gather takes what has queued meanwhile.
func (s *Store) gather(first *write) []*write {
	group := []*write{first}
	for len(group) < maxGroup {
		select {
		case w := <-s.queue:
			group = append(group, w)
		default:
			return group
		}
	}
	return group
}

// commit plans writes in order until their size is reached, commits them as one, answers them, and returns the others. A write
// sees those before it. Refusals are answered after the commit too, because they may rest on a write of the same group.
func (s *Store) commit(group []*write) (rest []*write) {
	var list []mutation
	var refused []error
	err := s.back.view(func(r reader) error {
		o := &overlay{under: r, over: map[string][]byte{}}
		size := 0
		for _, w := range group {
			changes, err := w.plan(o)
			if len(refused) > 0 && size+bytesOf(changes) > maxGroupBytes {
				return nil // plans anew in the next round
			}
			if err == nil {
				list = append(list, changes...)
				o.apply(changes)
				size += bytesOf(changes)
			}
			refused = append(refused, err)
		}
		return nil
	})
	if err == nil && len(list) > 0 {
		err = s.back.update(list)
	}
	if err != nil {
		err = fmt.Errorf("commit to the directory database: %w", err)
		refused = make([]error, max(len(refused), 1))
	}
	for i, refusal := range refused {
		if err != nil {
			refusal = err
		}
		group[i].done <- refusal
	}
	return group[len(refused):]
}

func bytesOf(list []mutation) int {
	n := 0
	for _, m := range list {
		n += len(m.key) + len(m.value) + 32
	}
	return n
}

// overlay is a state with the changes of earlier writes of a group on top. Plans only get; they do not scan.
type overlay struct {
	under reader
	over  map[string][]byte
}

func (o *overlay) get(key string) ([]byte, error) {
	if v, ok := o.over[key]; ok {
		if v == nil {
			return nil, errAbsent
		}
		return v, nil
	}
	return o.under.get(key)
}

func (o *overlay) scan(prefix string, f func(key, value []byte) error) error {
	return o.under.scan(prefix, f)
}

func (o *overlay) apply(list []mutation) {
	for _, m := range list {
		o.over[m.key] = m.value
	}
}
