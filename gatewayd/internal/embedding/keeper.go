package embedding

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/match"
)

// Pace of the work beside the requests.
const (
	gather      = time.Second     // a burst of changes is one round
	firstWait   = 2 * time.Second // after a failed round, then twice as long each time
	longestWait = 5 * time.Minute
	givenUp     = 3 // failures in a row that end a round: the endpoint is not there
)

// Requests and the endpoint.
const (
	restAfterFailure = 10 * time.Second // requests leave the endpoint alone
	atOnce           = 16               // requests that wait for it; one more is ranked by its words
	complainEvery    = time.Minute      // the log hears of failures
)

// Directory is what a keeper needs of a registry.
type Directory interface {
	// Versions are the AICs with an entry and its version, in no order.
	Versions() iter.Seq2[string, uint64]
	// Capabilities are those of an AIC, nil for none.
	Capabilities(aic string) []directory.Capability
	Subscribe() (changed <-chan struct{}, cancel func())
	SetVectors(ctx context.Context, aic string, version uint64, e match.Embedded) error
}

// entry is one version of an entry.
type entry struct {
	aic     string
	version uint64
}

// filled is the version of an entry that has its vectors, and how many.
type filled struct {
	version uint64
	vectors int
}

// Keeper gives requests and entries their vectors.
type Keeper struct {
	embedder match.Embedder
	dir      Directory
	batch    int
	timeout  time.Duration
	log      *slog.Logger
	slots    chan struct{}

	mu        sync.Mutex // guards what follows
	rest      time.Time  // until then requests do not ask
	complains time.Time  // from then on the log hears of failures again
	silent    int        // failures that it did not hear of
	failing   time.Time  // since when every call has failed; zero: the last one was answered, or there was none yet
	why       error      // of the last call that failed, and when it did
	tried     time.Time
	undone    error // why the last round has left entries without vectors; nil: it has not
	filled    int   // vectors of entries
	wanted    int   // vectors that all entries have, when all have theirs; as the last round began

	// Of Run alone.
	done   map[string]filled // AIC → version that has its vectors
	failed map[string]bool   // AICs of a batch that failed: each is tried alone next time, so that one cannot hold up others
}

// NewKeeper makes a keeper for an embedder that the directory uses.
func NewKeeper(e match.Embedder, dir Directory, batch int, timeout time.Duration, log *slog.Logger) *Keeper {
	return &Keeper{
		embedder: e, dir: dir, batch: batch, timeout: timeout, log: log, slots: make(chan struct{}, atOnce),
		done: map[string]filled{}, failed: map[string]bool{},
	}
}

// ID is the embedder's.
func (k *Keeper) ID() string { return k.embedder.ID() }

// Standing is how an embedder does.
type Standing struct {
	Filled, Wanted int       // vectors of entries: those that there are, and those that there will be
	Failing        time.Time // since when the endpoint has answered nothing; zero: it answers, as far as is known
	Tried          time.Time // when it failed last
	Err            error     // the last failure while it fails, or why the last round has left entries without vectors; nil for none
}

// Standing says how the embedder does.
func (k *Keeper) Standing() Standing {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Standing{Filled: k.filled, Wanted: k.wanted, Failing: k.failing, Tried: k.tried}
	switch {
	case !k.failing.IsZero():
		s.Err = k.why
	case k.filled < k.wanted:
		s.Err = k.undone
	}
	return s
}

// call has the endpoint embed texts, and notes how it does. A call that its asker breaks off says nothing of the endpoint.
func (k *Keeper) call(ctx, asker context.Context, texts []string) ([][]float32, error) {
	vectors, err := k.embedder.Embed(ctx, texts)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err == nil && len(texts) > 0:
		k.failing, k.tried, k.why = time.Time{}, time.Time{}, nil
	case err != nil && asker.Err() == nil:
		k.tried, k.why = time.Now(), err
		if k.failing.IsZero() {
			k.failing = k.tried
		}
	}
	return vectors, err
}

// Why a request goes without vectors although the endpoint was not asked.
var (
	errResting = errors.New("the embeddings endpoint failed a moment ago")
	errBusy    = errors.New("too many requests wait for the embeddings endpoint")
)

// Ask is the vectors of a request's text. It returns within the timeout.
func (k *Keeper) Ask(ctx context.Context, text string) (match.Embedded, error) {
	k.mu.Lock()
	resting := time.Now().Before(k.rest)
	k.mu.Unlock()
	if resting {
		return match.Embedded{}, errResting
	}
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
	default:
		k.complain(errBusy)
		return match.Embedded{}, errBusy
	}
	asked, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	vectors, err := k.call(asked, ctx, match.Passages(text))
	if err == nil {
		return match.Embedded{ID: k.embedder.ID(), Vectors: vectors}, nil
	}
	if ctx.Err() == nil { // else the asker has gone, and the endpoint did nothing
		k.mu.Lock()
		k.rest = time.Now().Add(restAfterFailure)
		k.mu.Unlock()
		k.complain(err)
	}
	return match.Embedded{}, err
}

// complain tells the log of a failure, at most once in complainEvery.
func (k *Keeper) complain(err error) {
	k.mu.Lock()
	now := time.Now()
	if now.Before(k.complains) {
		k.silent++
		k.mu.Unlock()
		return
	}
	silent := k.silent
	k.complains, k.silent = now.Add(complainEvery), 0
	k.mu.Unlock()
	k.log.Warn("embeddings: ranked by words alone", "err", err, "more_since", silent)
}

// Run gives the entries their vectors until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	changed, cancel := k.dir.Subscribe()
	defer cancel()
	wait := time.Duration(0)
	for {
		err := k.round(ctx)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		k.undone = err
		k.mu.Unlock()
		if err != nil {
			wait = min(max(2*wait, firstWait), longestWait)
			k.complain(err)
			if !sleep(ctx, wait*9/10+rand.N(wait/5)) {
				return
			}
			continue
		}
		wait = 0
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if !sleep(ctx, gather) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// round embeds every entry that has no vectors in its version. The last error is that of the round; what failed is tried again.
func (k *Keeper) round(ctx context.Context) (last error) {
	row := 0
	for _, group := range k.due() {
		err := k.embed(ctx, group)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			row = 0
			continue
		}
		for _, e := range group {
			k.failed[e.aic] = true
		}
		last = err
		if row++; row == givenUp {
			break
		}
	}
	return last
}

// due are the entries without vectors, in groups of about a batch; what has gone is forgotten.
func (k *Keeper) due() (groups [][]entry) {
	here := map[string]bool{}
	var group []entry
	var alone [][]entry
	texts, have, wanted := 0, 0, 0
	for aic, version := range k.dir.Versions() {
		here[aic] = true
		if f, ok := k.done[aic]; ok && f.version == version {
			have, wanted = have+f.vectors, wanted+f.vectors
			continue
		}
		e := entry{aic, version}
		n := len(k.dir.Capabilities(aic))
		wanted += n
		switch {
		case n == 0:
		case k.failed[aic]:
			alone = append(alone, []entry{e})
		default:
			group, texts = append(group, e), texts+n
			if texts >= k.batch {
				groups, group, texts = append(groups, group), nil, 0
			}
		}
	}
	if group != nil {
		groups = append(groups, group)
	}
	for aic := range k.done {
		if !here[aic] {
			delete(k.done, aic)
		}
	}
	for aic := range k.failed {
		if !here[aic] {
			delete(k.failed, aic)
		}
	}
	k.mu.Lock()
	k.filled, k.wanted = have, wanted
	k.mu.Unlock()
	rand.Shuffle(len(alone), func(i, j int) { alone[i], alone[j] = alone[j], alone[i] }) // not always the same ones before it is given up
	return append(groups, alone...)
}

// embed gives the entries of a group their vectors.
func (k *Keeper) embed(ctx context.Context, group []entry) error {
	var texts []string
	counts := make([]int, len(group))
	for i, e := range group {
		caps := k.dir.Capabilities(e.aic)
		if len(caps) > 0 && caps[0].EntryVersion != e.version { // the matcher follows in a moment, and the next round hears of it
			continue
		}
		for j := range caps {
			texts = append(texts, match.Passage(&caps[j]))
		}
		counts[i] = len(caps)
	}
	vectors, err := k.call(ctx, ctx, texts)
	if err != nil {
		return err
	}
	for i, e := range group {
		n := counts[i]
		if n == 0 {
			continue
		}
		err := k.dir.SetVectors(ctx, e.aic, e.version, match.Embedded{ID: k.embedder.ID(), Vectors: vectors[:n]})
		vectors = vectors[n:]
		switch {
		case errors.Is(err, directory.ErrConflict): // it has changed meanwhile, which the next round hears of
		case err != nil:
			return err
		default:
			k.done[e.aic] = filled{e.version, n}
			delete(k.failed, e.aic)
			k.mu.Lock()
			k.filled += n
			k.mu.Unlock()
		}
	}
	return nil
}
