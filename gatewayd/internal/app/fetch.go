package app

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"agentgw/gatewayd/internal/peering"
	"agentgw/internal/identity"
	"agentgw/internal/safehttp"
)

// Bounds of fetching bundles. How often a bundle is due is its own word, within these.
const (
	fetchLook    = 5 * time.Second // how often it is looked what is due
	fetchTimeout = 10 * time.Second
	fetchLeast   = time.Minute
	fetchMost    = 24 * time.Hour
	fetchAtOnce  = 4
)

// fetcher keeps the bundles of peers whose rows name a URL.
type fetcher struct {
	client *safehttp.Client
	rows   func() []peering.Row
	renew  func(domain string, raw []byte) (changed bool, err error)
	every  func(domain string) time.Duration // how often the domain wants to be asked

	mu   sync.Mutex // guards last
	last map[string]fetched
}

// fetched is how the last fetch of a domain's bundle went.
type fetched struct {
	URL string
	At  time.Time
	Err error
	due time.Time
}

func (a *app) newFetcher() *fetcher {
	return &fetcher{
		client: safehttp.New(safehttp.Config{AllowPrivate: a.cfg.AllowPrivate, AllowPlain: a.cfg.Lab, MaxBytes: identity.MaxBundle, Timeout: fetchTimeout}),
		rows:   a.peers.Rows, renew: a.peers.Renew, last: map[string]fetched{},
		every: func(domain string) time.Duration {
			if b := a.trust.Domain(domain); b != nil {
				return time.Duration(min(b.RefreshS, uint64(fetchMost/time.Second))) * time.Second
			}
			return fetchLeast
		},
	}
}

// run fetches what is due until ctx ends.
func (f *fetcher) run(ctx context.Context, log func(domain string, changed bool, err error)) {
	tick := time.NewTicker(fetchLook)
	defer tick.Stop()
	for {
		f.round(ctx, log)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// round fetches everything that is due, a few at a time, and returns when all is done.
func (f *fetcher) round(ctx context.Context, log func(domain string, changed bool, err error)) {
	var running sync.WaitGroup
	slots := make(chan struct{}, fetchAtOnce)
	for _, r := range f.due(time.Now()) {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			changed, err := f.fetch(ctx, r)
			if ctx.Err() == nil {
				f.keep(r, err)
				log(r.Domain, changed, err)
			}
		})
	}
	running.Wait()
}

// due are the rows whose bundle is to be fetched now; what a row no longer names is forgotten.
func (f *fetcher) due(now time.Time) (out []peering.Row) {
	f.mu.Lock()
	defer f.mu.Unlock()
	named := map[string]bool{}
	for _, r := range f.rows() {
		if r.BundleURL == "" {
			continue
		}
		named[r.Domain] = true
		if last, ok := f.last[r.Domain]; !ok || last.URL != r.BundleURL || !now.Before(last.due) {
			out = append(out, r)
		}
	}
	for domain := range f.last {
		if !named[domain] {
			delete(f.last, domain)
		}
	}
	return out
}

func (f *fetcher) fetch(ctx context.Context, r peering.Row) (changed bool, err error) {
	raw, err := f.client.Get(ctx, r.BundleURL)
	if err != nil {
		return false, err
	}
	return f.renew(r.Domain, raw)
}

func (f *fetcher) keep(r peering.Row, err error) {
	every := min(max(f.every(r.Domain), fetchLeast), fetchMost)
	every = every*9/10 + rand.N(every/5) // ±10 %, so that a domain's peers do not come together
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.last[r.Domain] = fetched{URL: r.BundleURL, At: now, Err: err, due: now.Add(every)}
}

// of is how the last fetch of a domain's bundle went; false when there was none.
func (f *fetcher) of(domain string) (fetched, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, ok := f.last[domain]
	return last, ok
}

// logFetch says what came of a fetch.
func (a *app) logFetch(domain string, changed bool, err error) {
	switch {
	case err != nil:
		a.log.Warn("fetch a peer's bundle", "domain", domain, "err", err)
	case changed:
		a.log.Info("a peer's newer bundle was fetched", "domain", domain)
	}
}
