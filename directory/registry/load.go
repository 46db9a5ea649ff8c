package registry

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/match"
)

// Progress is told from time to time how many entries have been read, while a directory is opened. It must not block. It is called by one
// goroutine at a time.
type Progress func(entries int)

const (
	loadBatch     = 128 // entries that one core reads at a time
	progressEvery = 2 * time.Second
)

// Open reads every entry of the store, over all cores.
func Open(ctx context.Context, store Store) (*Registry, error) {
	return Rebuild(ctx, store, func(int) {})
}

// Rebuild is [Open], which tells how far it is.
func Rebuild(ctx context.Context, store Store, progress Progress) (*Registry, error) {
	r := newRegistry(store)
	builders := make([]*match.Builder, cores())
	for i := range builders {
		builders[i] = new(match.Builder)
	}
	err := inBatches(ctx, store, progress, func(worker int, batch []directory.Entry) error { return r.read(builders[worker], batch) })
	if err != nil {
		return nil, fmt.Errorf("load the directory: %w", err)
	}
	var tables []func()
	for _, b := range builders {
		tables = append(tables, b.Tables()...)
	}
	work(len(tables), func(i int) { tables[i]() })
	r.index.LoadBuilt(builders...)
	return r, nil
}

// cores is how many workers share a long job.
func cores() int { return runtime.GOMAXPROCS(0) }

// inBatches hands every entry of the store to a worker, of which there are as many as cores, until one has an error.
func inBatches(ctx context.Context, store Store, progress Progress, take func(worker int, batch []directory.Entry) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan []directory.Entry, 2)
	var working sync.WaitGroup
	for worker := range cores() {
		working.Go(func() {
			for batch := range batches {
				if err := take(worker, batch); err != nil {
					cancel(err)
				}
			}
		})
	}
	err := feed(ctx, store, batches, progress)
	close(batches)
	working.Wait()
	if cause := context.Cause(ctx); err == nil || cause != nil {
		err = cause
	}
	return err
}

func newRegistry(store Store) *Registry {
	return &Registry{store: store, resolving: make(chan struct{}, 2*max(runtime.GOMAXPROCS(0), 2)), owned: map[string]chan struct{}{}, subs: map[chan struct{}]bool{}}
}

// feed hands the store's entries out in batches.
func feed(ctx context.Context, store Store, to chan<- []directory.Entry, progress Progress) error {
	n, told := 0, time.Now()
	batch := make([]directory.Entry, 0, loadBatch)
	send := func() error {
		select {
		case to <- batch:
			batch = make([]directory.Entry, 0, loadBatch)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if time.Since(told) >= progressEvery {
			told = time.Now()
			progress(n)
		}
		return nil
	}
	err := store.All(func(e directory.Entry) error {
		n++
		if batch = append(batch, e); len(batch) < loadBatch {
			return nil
		}
		return send()
	})
	if err == nil {
		err = send()
	}
	return err
}

// read takes entries into the records and a builder.
func (r *Registry) read(b *match.Builder, batch []directory.Entry) error {
	for _, e := range batch {
		caps, err := directory.Capabilities(e)
		if err != nil {
			return err
		}
		for _, c := range caps {
			b.Add(c)
		}
		r.records.Store(e.AIC, newRecord(&e))
		r.count.Add(1)
	}
	return nil
}
