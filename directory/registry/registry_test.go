package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/filter"
	"agentgw/directory/match"
	"agentgw/directory/store"
	"agentgw/directory/store/storetest"

	"github.com/google/go-cmp/cmp"
)

var now = storetest.Now.Add(123456 * time.Microsecond)

func open(t *testing.T, m *store.Memory) (*Registry, *store.Store) {
	t.Helper()
	s := store.OpenMemory(m)
	t.Cleanup(func() { s.Close() })
	r, err := Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

func register(t *testing.T, r *Registry, n int, name string) directory.Entry {
	t.Helper()
	e, err := r.Register(t.Context(), storetest.Entry(n, name, "described"), nil, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	r.SetAlive(e.AIC, true, now)
	return e
}

// listed is all entries, in the order of AICs.
func listed(r *Registry) []Listing {
	list, _ := r.Page("", 1<<20, func(Mark) bool { return true })
	return list
}

func ask(text string) Request {
	return Request{Query: match.Query{Text: text, MinScore: 1000}, Asker: "home.example", Home: true}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func found(r *Registry, q Request) []string {
	var out []string
	for _, c := range must(r.Resolve(context.Background(), q, now)) {
		out = append(out, c.AIC)
	}
	return out
}

func TestRegisterResolveWithdraw(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	changed, cancel := r.Subscribe()
	defer cancel()
	e := register(t, r, 0, "Kite")
	register(t, r, 1, "Boat")
	<-changed
	if e.Version != 1 || !e.RegisteredAt.Equal(storetest.Now.Add(123*time.Millisecond)) || e.ACSHash == ([32]byte{}) {
		t.Errorf("stored %+v", e)
	}
	if got := found(r, ask("kite")); !slices.Equal(got, []string{e.AIC}) {
		t.Errorf("found %v", got)
	}
	if _, err := r.Register(t.Context(), storetest.Entry(0, "Kite", ""), nil, nil, now); !errors.Is(err, directory.ErrExists) {
		t.Errorf("registered twice: %v", err)
	}
	again, _ := open(t, &m)
	if got, err := again.Get(e.AIC); err != nil || !cmp.Equal(got, e) {
		t.Errorf("after a restart %+v, %v", got, err)
	}
	if err := r.Withdraw(t.Context(), e.AIC, strings.Repeat("é", 200), now); err != nil {
		t.Fatal(err)
	}
	<-changed
	if got := found(r, ask("kite")); got != nil || r.Len() != 1 {
		t.Errorf("found %v of %d after the withdrawal", got, r.Len())
	}
	if err := r.Withdraw(t.Context(), e.AIC, "", now); !errors.Is(err, directory.ErrNotFound) {
		t.Errorf("withdrawn twice: %v", err)
	}
	if _, err := r.Register(t.Context(), storetest.Entry(0, "Kite", ""), nil, nil, now); !errors.Is(err, directory.ErrExists) {
		t.Errorf("the AIC is used again: %v", err)
	}
}

// What is changed beside a new entry may still refuse it.
func TestRegisterWith(t *testing.T) {
	var m store.Memory
	r, s := open(t, &m)
	refusal := errors.New("no")
	with := func(err error) func(directory.Tx) error {
		return func(tx directory.Tx) error { tx.Set("amc/x", []byte("kept")); return err }
	}
	e := storetest.Entry(0, "Kite", "")
	if _, err := r.Register(t.Context(), e, nil, with(refusal), now); !errors.Is(err, refusal) || r.Len() != 0 {
		t.Errorf("%v, %d entries", err, r.Len())
	}
	if _, err := r.Register(t.Context(), e, nil, with(nil), now); err != nil || r.Len() != 1 {
		t.Errorf("%v, %d entries", err, r.Len())
	}
	var got string
	if err := s.Records("amc/x", func(_ string, value []byte) error { got = string(value); return nil }); err != nil || got != "kept" {
		t.Errorf("record %q, %v", got, err)
	}
}

func TestUpdate(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	e := register(t, r, 0, "Kite")
	next := e
	next.ACS = storetest.Entry(0, "Balloon", "described").ACS
	next.RegisteredAt = time.Time{} // not the caller's to say
	got, err := r.Update(t.Context(), next, nil, now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != 2 || !got.RegisteredAt.Equal(e.RegisteredAt) || got.ACSHash == e.ACSHash {
		t.Errorf("updated %+v", got)
	}
	if found(r, ask("kite")) != nil || !slices.Equal(found(r, ask("balloon")), []string{e.AIC}) {
		t.Error("the index did not follow, or the agent went offline")
	}
	if _, err := r.Update(t.Context(), next, nil, now); !errors.Is(err, directory.ErrConflict) {
		t.Errorf("an old version: %v", err)
	}
	got.State = directory.Revoked
	if _, err := r.Update(t.Context(), got, nil, now); err == nil {
		t.Error("an update ends an entry")
	}
	got.State = directory.Suspended
	if _, err := r.Update(t.Context(), got, nil, now); err != nil {
		t.Fatal(err)
	}
	if found(r, ask("balloon")) != nil {
		t.Error("a suspended agent is offered")
	}
	foreign := storetest.Entry(1, "Boat", "")
	foreign.AIC = e.AIC
	foreign.Version = 3
	if _, err := r.Update(t.Context(), foreign, nil, now); err == nil {
		t.Error("an ACS of another AIC is stored")
	}
	missing := storetest.Entry(5, "Boat", "")
	if _, err := r.Update(t.Context(), missing, nil, now); !errors.Is(err, directory.ErrNotFound) {
		t.Errorf("no entry: %v", err)
	}
}

// A document that the caller has made is stored as it would be if it were read.
func TestMadeDocument(t *testing.T) {
	var m, read store.Memory
	r, _ := open(t, &m)
	other, _ := open(t, &read)
	e := storetest.Entry(0, "Kite", "described")
	draft, err := acs.Parse(e.ACS)
	if err != nil {
		t.Fatal(err)
	}
	doc, _, err := acs.Authoritative(draft, aic.AIC(e.AIC), []string{"*"}, now)
	if err != nil {
		t.Fatal(err)
	}
	e.ACS = []byte("not this")
	got, err := r.Register(t.Context(), e, doc, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	if e.ACS, err = doc.Encode(); err != nil {
		t.Fatal(err)
	}
	want, err := other.Register(t.Context(), e, nil, nil, now)
	if err != nil || !cmp.Equal(got, want) || !cmp.Equal(listed(r), listed(other)) {
		t.Errorf("stored %+v\nread %+v, %v", got, want, err)
	}
	if _, err := r.Register(t.Context(), storetest.Entry(1, "Boat", ""), doc, nil, now); err == nil {
		t.Error("an ACS of another AIC is stored")
	}
}

// Whoever's change has returned is found by it, however many come at once.
func TestManyAtOnce(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	const agents = 64
	word := func(n, version int) string { return fmt.Sprintf("kite%dx%d", n, version) }
	var running sync.WaitGroup
	for n := range agents {
		running.Go(func() {
			e, err := r.Register(context.Background(), storetest.Entry(n, word(n, 1), ""), nil, nil, now)
			r.SetAlive(e.AIC, true, now)
			for version := 1; err == nil && version < 5; version++ {
				if got := found(r, ask(word(n, version))); !slices.Equal(got, []string{e.AIC}) {
					t.Errorf("agent %d at version %d: found %v", n, version, got)
				}
				e.ACS = storetest.Entry(n, word(n, version+1), "").ACS
				e, err = r.Update(context.Background(), e, nil, now)
			}
			if err == nil {
				err = r.Withdraw(context.Background(), e.AIC, "", now)
			}
			if got := found(r, ask(word(n, 5))); err != nil || got != nil {
				t.Errorf("agent %d after its end: found %v, %v", n, got, err)
			}
		})
	}
	running.Wait()
	if n := r.index.Len(); n != 0 {
		t.Errorf("the index keeps %d capabilities of nobody", n)
	}
}

func TestWhoIsOffered(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	add := func(n int, change func(*directory.Entry)) string {
		e := storetest.Entry(n, "Kite", "described")
		change(&e)
		if _, err := r.Register(t.Context(), e, nil, nil, now); err != nil {
			t.Fatal(err)
		}
		r.SetAlive(e.AIC, true, now)
		return e.AIC
	}
	public := add(0, func(*directory.Entry) {})
	domain := add(1, func(e *directory.Entry) { e.Visibility = directory.VisibleDomain })
	listed := add(2, func(e *directory.Entry) { e.Visibility, e.Allow = directory.VisibleListed, []string{"partner.example"} })
	add(3, func(e *directory.Entry) { e.Visibility = directory.VisiblePrivate })
	add(4, func(e *directory.Entry) { e.State = directory.Pending })
	add(5, func(e *directory.Entry) { e.ExpiresAt = now })
	offline := add(6, func(*directory.Entry) {})
	r.SetAlive(offline, false, now)
	for name, c := range map[string]struct {
		q    Request
		want []string
	}{
		"home":            {ask("kite"), []string{public, domain, listed}},
		"partner":         {Request{Query: match.Query{Text: "kite"}, Asker: "partner.example"}, []string{public, listed}},
		"stranger":        {Request{Query: match.Query{Text: "kite"}, Asker: "x.example"}, []string{public}},
		"offline as well": {Request{Query: match.Query{Text: "kite"}, Asker: "x.example", IncludeOffline: true}, []string{public, offline}},
		"own filter": {Request{Query: match.Query{Text: "kite", Refuse: func(c *directory.Capability) string {
			if c.AIC == public {
				return "public"
			}
			return ""
		}}, Home: true},
			[]string{domain, listed}},
	} {
		if got := found(r, c.q); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	list := must(r.Resolve(t.Context(), Request{Query: match.Query{Text: "kite"}, IncludeOffline: true}, now))
	if list[0].Offline || !list[1].Offline {
		t.Errorf("marks %v %v", list[0].Offline, list[1].Offline)
	}
}

func TestLivenessAndList(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	register(t, r, 1, "Boat")
	register(t, r, 0, "Kite")
	r.SetAlive(storetest.AIC(1), false, now.Add(time.Hour))
	list := listed(r)
	if len(list) != 2 || list[0].AIC != storetest.AIC(0) || !list[0].Alive || list[1].Alive || len(list[0].Capabilities) != 1 ||
		!list[1].LastSeen.Equal(now.Truncate(time.Millisecond)) {
		t.Errorf("list %+v", list)
	}
	if r.SetAlive(storetest.AIC(9), true, now) || r.Alive(storetest.AIC(9)) {
		t.Error("an agent without an entry is alive")
	}
	again, _ := open(t, &m)
	if again.Alive(storetest.AIC(0)) {
		t.Error("liveness survived a restart")
	}
}

func TestExpire(t *testing.T) {
	var m store.Memory
	r, s := open(t, &m)
	for n := range 200 {
		e := storetest.Entry(n, "Kite", "described")
		if n > 0 {
			e.ExpiresAt = now.Add(time.Duration(n%2+1) * time.Hour)
		}
		if _, err := r.Register(t.Context(), e, nil, nil, now); err != nil {
			t.Fatal(err)
		}
	}
	ended, err := r.Expire(t.Context(), now.Add(90*time.Minute))
	if err != nil || len(ended) != 99 || r.Len() != 101 {
		t.Errorf("%d ended, %d left, %v", len(ended), r.Len(), err)
	}
	if ended, err = r.Expire(t.Context(), now.Add(24*time.Hour)); err != nil || len(ended) != 100 || r.Len() != 1 {
		t.Errorf("then %d ended, %d left, %v", len(ended), r.Len(), err)
	}
	if tomb, err := s.Ended(storetest.AIC(1)); err != nil || tomb.State != directory.Expired {
		t.Errorf("tombstone %+v, %v", tomb, err)
	}
}

// TestFailedWrites lets every kind of write be lost, and be persisted but reported failed: the registry must show what a restart
// would show.
func TestFailedWrites(t *testing.T) {
	for _, fault := range []store.Fault{store.FaultLost, store.FaultReported} {
		for name, write := range map[string]func(*Registry) error{
			"register": func(r *Registry) error {
				_, err := r.Register(context.Background(), storetest.Entry(1, "Boat", "described"), nil, nil, now)
				return err
			},
			"update": func(r *Registry) error {
				e, err := r.Get(storetest.AIC(0))
				if err != nil {
					return err
				}
				e.ACS = storetest.Entry(0, "Balloon", "described").ACS
				_, err = r.Update(context.Background(), e, nil, now)
				return err
			},
			"withdraw": func(r *Registry) error { return r.Withdraw(context.Background(), storetest.AIC(0), "", now) },
			"expire": func(r *Registry) error {
				_, err := r.Expire(context.Background(), now.Add(24*time.Hour))
				return err
			},
		} {
			var m store.Memory
			r, _ := open(t, &m)
			e := storetest.Entry(0, "Kite", "described")
			e.ExpiresAt = now.Add(time.Hour)
			if _, err := r.Register(t.Context(), e, nil, nil, now); err != nil {
				t.Fatal(err)
			}
			m.Fail(fault)
			if err := write(r); !errors.Is(err, store.ErrFault) {
				t.Errorf("%s, fault %d: error %v", name, fault, err)
			}
			again, _ := open(t, &m)
			if diff := cmp.Diff(listed(again), listed(r)); diff != "" || again.Len() != r.Len() {
				t.Errorf("%s, fault %d (-restarted +running):\n%s", name, fault, diff)
			}
			everything := Request{Query: match.Query{Text: "kite balloon boat"}, Home: true, IncludeOffline: true}
			if got, want := found(r, everything), found(again, everything); !slices.Equal(got, want) {
				t.Errorf("%s, fault %d: finds %v, after a restart %v", name, fault, got, want)
			}
		}
	}
}

// gate is a store whose writes wait.
type gate struct {
	Store
	entered, leave chan struct{}
}

func (g *gate) PutWith(ctx context.Context, e directory.Entry, expected uint64, change func(directory.Tx) error) error {
	g.entered <- struct{}{}
	<-g.leave
	return g.Store.PutWith(ctx, e, expected, change)
}

func TestUncommittedIsInvisible(t *testing.T) {
	s := store.OpenMemory(new(store.Memory))
	defer s.Close()
	g := &gate{s, make(chan struct{}), make(chan struct{})}
	r, err := Open(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := r.Register(ctx, storetest.Entry(0, "Kite", "described"), nil, nil, now)
		done <- err
	}()
	<-g.entered
	everything := Request{Query: match.Query{Text: "kite"}, Home: true, IncludeOffline: true}
	if _, err := r.Get(storetest.AIC(0)); !errors.Is(err, directory.ErrNotFound) || found(r, everything) != nil || r.SetAlive(storetest.AIC(0), true, now) {
		t.Error("visible before the commit")
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Withdraw(gone, storetest.AIC(0), "", now); !errors.Is(err, context.Canceled) {
		t.Errorf("another change does not wait its turn: %v", err)
	}
	cancel() // the caller leaves: the write still ends as it ends, and the registry follows
	close(g.leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := found(r, everything); len(got) != 1 {
		t.Errorf("found %v after the commit", got)
	}
}

// TestOneVersionWins lets many update one version at once.
func TestOneVersionWins(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	e := register(t, r, 0, "Kite")
	var wg sync.WaitGroup
	won := make(chan uint64, 32)
	for range 32 {
		wg.Go(func() {
			got, err := r.Update(context.Background(), e, nil, now)
			if err == nil {
				won <- got.Version
			} else if !errors.Is(err, directory.ErrConflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 || <-won != 2 {
		t.Errorf("%d more won", len(won))
	}
	if len(r.owned) != 0 {
		t.Errorf("%d AICs are still owned", len(r.owned))
	}
}

func TestOpenRefusesADamagedEntry(t *testing.T) {
	s := store.OpenMemory(new(store.Memory))
	defer s.Close()
	if _, err := Open(t.Context(), broken{s}); err == nil || !strings.Contains(err.Error(), storetest.AIC(0)) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(t.Context(), storetest.Entry(0, "Kite", ""), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was called off: %v", err)
	}
}

type broken struct{ Store }

func (broken) All(f func(directory.Entry) error) error {
	return f(directory.Entry{AIC: storetest.AIC(0), ACS: []byte("not JSON")})
}

func TestPagesCoverEverythingOnce(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	for i := range 25 {
		register(t, r, i, "Kite")
	}
	var got []string
	after := ""
	for range 10 {
		list, more := r.Page(after, 4, func(m Mark) bool { return m.AIC != storetest.AIC(3) })
		for _, l := range list {
			got = append(got, l.AIC)
		}
		if !more {
			break
		}
		after = list[len(list)-1].AIC
		if len(got) == 8 { // what comes and goes meanwhile disturbs nobody else
			register(t, r, 90, "Boat")
			if err := r.Withdraw(t.Context(), got[0], "", now); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(got) < 24 || len(got) > 25 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("%d agents in pages: %v", len(got), got)
	}
}

func TestASearchContinuesWhereItEnded(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	for i := range 25 {
		register(t, r, i, fmt.Sprint("Kite ", strings.Repeat("string ", i%5)))
	}
	whole := ask("kite")
	whole.Limit, whole.MinScore = 25, 0
	all := must(r.Resolve(t.Context(), whole, now))
	var got []string
	q := ask("kite")
	q.Limit, q.MinScore = 4, 0
	for range 10 {
		list := must(r.Resolve(t.Context(), q, now))
		if len(list) == 0 {
			break
		}
		for _, c := range list {
			got = append(got, c.AIC)
		}
		last := list[len(list)-1]
		q.After = &match.Place{Score: last.Score, Load: last.Load, CapID: last.CapID}
	}
	var want []string
	for _, c := range all {
		want = append(want, c.AIC)
	}
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("in pages %v, at once %v", got, want)
	}
}

// filteredOf is how many of n agents, each with an extension member, a filter lets through.
func filteredOf(t *testing.T, n int, member, expression string) int {
	t.Helper()
	var m store.Memory
	r, _ := open(t, &m)
	for i := range n {
		e := storetest.Entry(i+1, "kite", "described")
		e.ACS = append(bytes.TrimSuffix(e.ACS, []byte("}")), `,"x-notes":`+member+"}"...)
		if _, err := r.Register(t.Context(), e, nil, nil, now); err != nil {
			t.Fatal(err)
		}
		r.SetAlive(e.AIC, true, now)
	}
	f, err := filter.Parse([]byte(expression))
	if err != nil {
		t.Fatal(err)
	}
	q := ask("kite")
	q.Filter, q.Limit = f, n
	return len(found(r, q))
}

func TestAFilterReadsSoManyOctetsOfARequest(t *testing.T) {
	const size = 60 << 10
	all := `{"conditions":[{"field":"active","op":"eq","value":true}]}`
	if got, most := filteredOf(t, 80, `"`+strings.Repeat("n", size)+`"`, all), maxFilteredOctets/size; got > most || got < most/2 {
		t.Errorf("%d agents of %d octets each were read, at most %d are", got, size, most)
	}
}

func TestAFilterComparesSoMuchOfARequest(t *testing.T) {
	list := "[" + strings.TrimSuffix(strings.Repeat(`"none",`, 5000), ",") + "]"
	condition := `{"field":"x-notes","op":"noneOf","value":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 64), ",") + `]},`
	dear := `{"conditions":[` + strings.TrimSuffix(strings.Repeat(condition, 23), ",") + `]}`
	if got := filteredOf(t, 2, list, dear); got != 0 {
		t.Errorf("%d agents passed a filter that compares millions of values for each", got)
	}
	if got := filteredOf(t, 2, `["some","none"]`, dear); got != 2 {
		t.Errorf("%d of 2 agents passed a filter that compares a few thousand values for each", got)
	}
}

// A program of before there were editions may have written to the database in between: it numbers none, and what follows it begins at the
// first again.
func TestHistoryIsInTheOrderOfVersions(t *testing.T) {
	var m store.Memory
	r, s := open(t, &m)
	e := register(t, r, 1, "first")
	change := func(r *Registry, name string) {
		t.Helper()
		e.ACS = storetest.Entry(1, name, "described").ACS
		var err error
		if e, err = r.Update(t.Context(), e, nil, now); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		change(r, fmt.Sprint("name ", i))
	}
	e.Version++
	e.Edition, e.Taxonomy = directory.Edition{}, ""
	if err := s.Put(t.Context(), e, e.Version-1); err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	change(r, "last")
	list, err := r.History(e.AIC)
	if err != nil {
		t.Fatal(err)
	}
	var versions []uint64
	for _, e := range list {
		versions = append(versions, e.Version)
	}
	if !slices.IsSorted(versions) || versions[len(versions)-1] != e.Version || len(versions) < 3 {
		t.Errorf("versions %d", versions)
	}
}

// More requests at a time than there are processors answer nothing sooner, and each has memory for every capability.
func TestRequestsAtATimeAreBounded(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	register(t, r, 1, "kite")
	var running, most atomic.Int64
	q := ask("kite")
	q.Refuse = func(*directory.Capability) string {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(5 * time.Millisecond)
		running.Add(-1)
		return ""
	}
	var all sync.WaitGroup
	for range 8 * cap(r.resolving) {
		all.Go(func() {
			if got := found(r, q); len(got) != 1 {
				t.Errorf("%q", got)
			}
		})
	}
	all.Wait()
	if n := int(most.Load()); n > cap(r.resolving) {
		t.Errorf("%d at a time, %d are to be", n, cap(r.resolving))
	}
}

// A request that nobody waits for any more does not wait for its turn, and takes none.
func TestACancelledRequestGivesUpItsPlace(t *testing.T) {
	var m store.Memory
	r, _ := open(t, &m)
	register(t, r, 1, "kite")
	for range cap(r.resolving) {
		r.resolving <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() {
		_, err := r.Resolve(ctx, ask("kite"), now)
		waits <- err
	}()
	select {
	case err := <-waits:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	select {
	case err := <-waits:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a request that was cancelled: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a request that was cancelled still waits")
	}
	<-r.resolving // a place is free, and it is not for who has gone
	if _, _, err := r.Explain(ctx, ask("kite"), now); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that had been cancelled before: %v", err)
	}
	if got := found(r, ask("kite")); len(got) != 1 || len(r.resolving) != cap(r.resolving)-1 {
		t.Errorf("%q, %d places taken", got, len(r.resolving))
	}
}
