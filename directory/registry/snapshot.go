package registry

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/snapshot"
)

// The blocks of a registry's snapshot: first its records, then those of the matcher's index. Numbers, texts and lists are package snapshot's.
//
//	blockRecords  number; of each: AIC, version, expiry in unix ms (0 for never), state, visibility, flags (1 credential, 2 adopted), allowed domains
const blockRecords = 1

const (
	recordsInBlock = 8192
	leastRecord    = 7 // octets

	flagCredential = 1
	flagAdopted    = 2
)

// ErrStale is the error of a snapshot that is whole, and of another state of the directory or by another program.
var ErrStale = errors.New("the snapshot is of another state of the directory, or another program's")

// WriteSnapshot writes what [OpenSnapshot] starts from, in the state of the store's last change. Nothing may change meanwhile, and nothing
// may be under change: it is for the end of a process. The key is the database's. It returns the sequence that the snapshot has.
func (r *Registry) WriteSnapshot(ctx context.Context, to io.Writer, id [16]byte, key []byte) (seq uint64, err error) {
	if seq, err = r.quiet(); err != nil {
		return 0, err
	}
	if r.unsure.Load() {
		return 0, errors.New("an entry could not be read back: what is at hand may lack it")
	}
	h := snapshot.Header{ID: id, Sequence: seq, Entries: uint64(r.Len()), Matcher: match.SnapshotID()}
	w, err := snapshot.NewWriter(to, h, key)
	if err != nil {
		return 0, err
	}
	put := func(kind byte, body []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return w.Block(kind, body)
	}
	if err := r.writeRecords(put); err != nil {
		return 0, err
	}
	if err := r.index.Snapshot(put); err != nil {
		return 0, err
	}
	if after, err := r.store.Sequence(); err != nil || after != seq {
		return 0, errors.Join(ErrBusy, err)
	}
	return seq, w.Close()
}

func (r *Registry) writeRecords(put func(kind byte, body []byte) error) (err error) {
	n, body := 0, []byte(nil)
	flush := func() {
		if n > 0 {
			err = put(blockRecords, append(binary.AppendUvarint(nil, uint64(n)), body...))
			n, body = 0, body[:0]
		}
	}
	r.records.Range(func(id, v any) bool {
		n++
		if body = appendRecord(body, id.(string), v.(*record)); n == recordsInBlock || len(body) > snapshot.MaxBody/2 {
			flush()
		}
		return err == nil
	})
	if err == nil {
		flush()
	}
	return err
}

func appendRecord(b []byte, aic string, r *record) []byte {
	b = snapshot.AppendText(b, aic)
	b = binary.AppendUvarint(b, r.version)
	b = binary.AppendUvarint(b, uint64(max(r.expires, 0)))
	flags := byte(0)
	if r.credential {
		flags |= flagCredential
	}
	if r.adopted {
		flags |= flagAdopted
	}
	return snapshot.AppendList(append(b, byte(r.state), byte(r.visibility), flags), r.allow)
}

// OpenSnapshot opens a registry from a snapshot of size octets, where it is the one that the id names, whole, in the state of the store, and
// by this program's matcher; any other is an error, [ErrStale] or [snapshot.ErrDamaged] among them, after which [Rebuild] is due.
func OpenSnapshot(ctx context.Context, store Store, from io.Reader, size int64, id [16]byte, key []byte, progress Progress) (*Registry, error) {
	in, h, err := snapshot.NewReader(from, key)
	if err != nil {
		return nil, err
	}
	seq, err := store.Sequence()
	if err != nil {
		return nil, err
	}
	if h.ID != id || h.Sequence != seq || h.Matcher != match.SnapshotID() {
		return nil, fmt.Errorf("%w: it has change %d by %q, the directory is at %d by %q", ErrStale, h.Sequence, h.Matcher, seq, match.SnapshotID())
	}
	l := &loading{r: newRegistry(store), index: match.Loader{Octets: size}, progress: progress, told: time.Now()}
	if err := l.run(ctx, in); err != nil {
		return nil, err
	}
	if uint64(l.r.Len()) != h.Entries {
		return nil, fmt.Errorf("%w: %d entries of %d", snapshot.ErrDamaged, l.r.Len(), h.Entries)
	}
	tables := l.index.Tables()
	work(len(tables), func(i int) { tables[i]() })
	return l.r, l.r.index.LoadSnapshot(&l.index)
}

// loading is a snapshot that is read: one goroutine reads blocks, all cores take them apart, one puts the index together in their order.
type loading struct {
	r        *Registry
	index    match.Loader
	progress Progress
	told     time.Time
}

// job is a block on its way.
type job struct {
	body  []byte
	piece *match.Piece // nil: it has records
	err   error
	done  chan struct{}
}

func (l *loading) run(ctx context.Context, in *snapshot.Reader) error {
	todo, order, spare := make(chan *job, 2*cores()), make(chan *job, 2*cores()), make(chan []byte, 4*cores())
	var working sync.WaitGroup
	for range cores() {
		working.Go(func() {
			for j := range todo {
				j.err = l.take(j)
				select {
				case spare <- j.body:
				default:
				}
				close(j.done)
			}
		})
	}
	added := make(chan error, 1)
	go func() { added <- l.add(order) }()
	err := l.read(ctx, in, todo, order, spare)
	close(todo)
	close(order)
	working.Wait()
	return errors.Join(err, <-added)
}

func (l *loading) read(ctx context.Context, in *snapshot.Reader, todo, order chan<- *job, spare <-chan []byte) error {
	for {
		var buf []byte
		select {
		case buf = <-spare:
		default:
		}
		kind, body, err := in.Next(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		j := &job{body: body, done: make(chan struct{})}
		if kind != blockRecords {
			if j.piece, err = l.index.Next(kind, body); err != nil {
				return err
			}
		}
		todo <- j
		order <- j
		if time.Since(l.told) >= progressEvery {
			l.told = time.Now()
			l.progress(l.r.Len())
		}
	}
}

func (l *loading) take(j *job) error {
	if j.piece == nil {
		return l.r.readRecords(j.body)
	}
	return j.piece.Read(j.body)
}

// add puts the pieces together; after a mistake it lets the others go by.
func (l *loading) add(order <-chan *job) (err error) {
	for j := range order {
		<-j.done
		if err == nil {
			err = j.err
		}
		if err == nil && j.piece != nil {
			err = l.index.Add(j.piece)
		}
	}
	return err
}

func (r *Registry) readRecords(body []byte) error {
	c := snapshot.NewCursor(body)
	n := c.Number(c.Len() / leastRecord)
	for range n {
		id := c.Text()
		rec := &record{
			version: uint64(c.Number(math.MaxInt64)), expires: int64(c.Number(math.MaxInt64)), state: directory.State(c.Number(int(directory.Expired))),
			visibility: directory.Visibility(c.Number(int(directory.VisiblePrivate))), live: new(liveness),
		}
		flags := c.Number(flagCredential | flagAdopted)
		rec.credential, rec.adopted, rec.allow = flags&flagCredential != 0, flags&flagAdopted != 0, c.List()
		if c.Bad() || id == "" || len(rec.allow) > directory.MaxAllow {
			break
		}
		if _, twice := r.records.LoadOrStore(id, rec); !twice { // else the number does not fit in the end
			r.count.Add(1)
		}
	}
	if !c.Done() {
		return fmt.Errorf("%w: a block of records is malformed", snapshot.ErrDamaged)
	}
	return nil
}

// work calls f with 0 to n-1, over all cores.
func work(n int, f func(int)) {
	var working sync.WaitGroup
	next := make(chan int)
	for range min(n, cores()) {
		working.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	working.Wait()
}
