package embedding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/registry"
)

const key = "sk-5ecret-0123456789"

// endpoint is a fake of the embeddings API on a real socket: two components a text, how many a's and b's it has.
type endpoint struct {
	*httptest.Server
	calls atomic.Int64
	texts atomic.Int64
	odd   atomic.Value // func(http.ResponseWriter) that answers in its place
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{}
	e.odd.Store(func(http.ResponseWriter) bool { return false })
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.calls.Add(1)
		var in request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer "+key {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		e.texts.Add(int64(len(in.Input)))
		if e.odd.Load().(func(http.ResponseWriter) bool)(w) {
			return
		}
		var data []map[string]any
		for i := len(in.Input) - 1; i >= 0; i-- { // numbered, and not in order
			t := in.Input[i]
			if strings.Contains(t, "poison") {
				http.Error(w, "no", http.StatusBadRequest)
				return
			}
			data = append(data, map[string]any{"index": i, "embedding": []int{1 + strings.Count(t, "a"), 1 + strings.Count(t, "b")}})
		}
		json.NewEncoder(w).Encode(map[string]any{"data": data, "model": in.Model})
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) says(body string) {
	e.odd.Store(func(w http.ResponseWriter) bool { io.WriteString(w, body); return true })
}

func (e *endpoint) heals() { e.odd.Store(func(http.ResponseWriter) bool { return false }) }

func newClient(t *testing.T, url string) *Client {
	t.Helper()
	c, err := NewClient(Config{URL: url + "/v1/embeddings", Model: "m", Key: key + "\n", Dim: 2, Batch: 3, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRightAnswers(t *testing.T) {
	e := newEndpoint(t)
	c := newClient(t, e.URL)
	got, err := c.Embed(t.Context(), []string{"a", "b", "bb", "aaa"})
	if err != nil || fmt.Sprint(got) != "[[2 1] [1 2] [1 3] [4 1]]" {
		t.Errorf("%v, %v", got, err)
	}
	if e.calls.Load() != 2 {
		t.Errorf("%d calls for four texts in batches of three", e.calls.Load())
	}
	if id := c.ID(); !strings.HasSuffix(id, "/v1/embeddings m/2") || strings.Contains(id, key) {
		t.Errorf("id %q", id)
	}
}

func TestWrongAnswersAreErrors(t *testing.T) {
	e := newEndpoint(t)
	c := newClient(t, e.URL)
	for name, body := range map[string]string{
		"another dimension":  `{"data":[{"index":0,"embedding":[1,2,3]}]}`,
		"no vectors":         `{"data":[]}`,
		"too many":           `{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[1,2]}]}`,
		"another number":     `{"data":[{"index":7,"embedding":[1,2]}]}`,
		"a number below":     `{"data":[{"index":-1,"embedding":[1,2]}]}`,
		"NaN":                `{"data":[{"index":0,"embedding":[NaN,2]}]}`,
		"null":               `{"data":[{"index":0,"embedding":null}]}`,
		"too large a number": `{"data":[{"index":0,"embedding":[1e999,2]}]}`,
		"no length":          `{"data":[{"index":0,"embedding":[0,0]}]}`,
		"no JSON":            "your key " + key + " is wrong",
		"a huge body":        strings.Repeat(" ", maxAnswer/64) + `{"data":[{"index":0,"embedding":[1,2]}]}`,
	} {
		e.says(body)
		got, err := c.Embed(t.Context(), []string{"a"})
		if err == nil || got != nil {
			t.Errorf("%s: %v", name, got)
		} else if strings.Contains(err.Error(), key) {
			t.Errorf("%s: the error holds the key: %v", name, err)
		}
	}
	e.odd.Store(func(w http.ResponseWriter) bool {
		http.Error(w, "key "+key, http.StatusInternalServerError)
		return true
	})
	if _, err := c.Embed(t.Context(), []string{"a"}); err == nil || !strings.Contains(err.Error(), "500") || strings.Contains(err.Error(), key) {
		t.Errorf("a 500: %v", err)
	}
}

// TestNoWayToAnotherHost: neither by a redirect nor by an address that is not of the public network.
func TestNoWayToAnotherHost(t *testing.T) {
	other := newEndpoint(t)
	e := newEndpoint(t)
	e.odd.Store(func(w http.ResponseWriter) bool {
		w.Header().Set("Location", other.URL+"/v1/embeddings")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	})
	if _, err := newClient(t, e.URL).Embed(t.Context(), []string{"a"}); err == nil || !strings.Contains(err.Error(), "another host") {
		t.Errorf("a redirect: %v", err)
	}
	if other.calls.Load() != 0 {
		t.Error("the other host was asked")
	}
	for _, url := range []string{other.URL, strings.Replace(other.URL, "http:", "https:", 1)} {
		c, err := NewClient(Config{URL: url, Model: "m", Key: key, Dim: 2, Batch: 3})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Embed(t.Context(), []string{"a"}); err == nil {
			t.Errorf("%s was asked without allow_private", url)
		}
	}
	if other.calls.Load() != 0 {
		t.Error("the other host was asked")
	}
}

func TestKeysAreOneWord(t *testing.T) {
	for _, bad := range []string{"a b", "a\nb", "schlüssel"} {
		if _, err := NewClient(Config{URL: "https://x.example", Model: "m", Key: bad, Dim: 2, Batch: 3}); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// shelf is a directory of entries without more.
type shelf struct {
	mu      sync.Mutex
	list    []registry.Listing
	vectors map[string]match.Embedded
	changed chan struct{}
}

func (s *shelf) Versions() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		s.mu.Lock()
		list := s.list
		s.mu.Unlock()
		for _, l := range list {
			if !yield(l.AIC, l.Version) {
				return
			}
		}
	}
}

func (s *shelf) Capabilities(aic string) []directory.Capability {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.list {
		if l.AIC == aic {
			return l.Capabilities
		}
	}
	return nil
}

func (s *shelf) Subscribe() (<-chan struct{}, func()) { return s.changed, func() {} }

func (s *shelf) SetVectors(_ context.Context, id string, version uint64, e match.Embedded) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.list {
		if l.AIC == id && l.Version == version {
			s.vectors[id] = e
			return nil
		}
	}
	return directory.ErrConflict
}

func kept(id, text string, version uint64) registry.Listing {
	return registry.Listing{Entry: directory.Entry{AIC: id, Version: version},
		Capabilities: []directory.Capability{{Name: text, EntryVersion: version}, {Name: text + text, EntryVersion: version}}}
}

// logged is a logger and what it wrote.
func logged() (*slog.Logger, *strings.Builder) {
	var b strings.Builder
	return slog.New(slog.NewTextHandler(&b, nil)), &b
}

func TestEntriesGetTheirVectors(t *testing.T) {
	e := newEndpoint(t)
	log, text := logged()
	s := &shelf{list: []registry.Listing{kept("one", "a", 1), kept("two", "b", 1), kept("bad", "poison", 1), kept("three", "ab", 4)}, vectors: map[string]match.Embedded{}}
	k := NewKeeper(newClient(t, e.URL), s, 3, time.Second, log)
	k.round(t.Context())                         // the bad one takes the one beside it along
	if err := k.round(t.Context()); err == nil { // now each of these is alone
		t.Error("a text that is refused is no error")
	}
	for id, want := range map[string]string{"one": "[[2 1] [3 1]]", "two": "[[1 2] [1 3]]", "three": "[[2 2] [3 3]]"} {
		if got := s.vectors[id]; fmt.Sprint(got.Vectors) != want || got.ID != k.ID() {
			t.Errorf("%s: %v of %q, want %s", id, got.Vectors, got.ID, want)
		}
	}
	if len(s.vectors) != 3 {
		t.Errorf("%d entries have vectors", len(s.vectors))
	}
	before := e.texts.Load()
	s.list = []registry.Listing{s.list[0], kept("two", "bb", 2)}
	if err := k.round(t.Context()); err != nil || e.texts.Load() != before+2 || fmt.Sprint(s.vectors["two"].Vectors) != "[[1 3] [1 5]]" {
		t.Errorf("after one change: %v, %d more texts, %v", err, e.texts.Load()-before, s.vectors["two"])
	}
	if strings.Contains(text.String(), key) {
		t.Error("the log has the key")
	}
}

// TestTheEndpointIsLeftAloneWhenItIsNotThere: a round ends early, and requests do not wait one after the other.
func TestTheEndpointIsLeftAloneWhenItIsNotThere(t *testing.T) {
	e := newEndpoint(t)
	e.odd.Store(func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusServiceUnavailable); return true })
	log, text := logged()
	s := &shelf{vectors: map[string]match.Embedded{}}
	for i := range 20 {
		s.list = append(s.list, kept(fmt.Sprint(i), "a", 1))
	}
	k := NewKeeper(newClient(t, e.URL), s, 2, time.Second, log)
	if err := k.round(t.Context()); err == nil || e.calls.Load() != givenUp {
		t.Errorf("%v after %d calls, want %d", err, e.calls.Load(), givenUp)
	}
	for range 5 {
		if _, err := k.Ask(t.Context(), "a"); err == nil {
			t.Error("vectors from nowhere")
		}
	}
	if e.calls.Load() != givenUp+1 {
		t.Errorf("%d requests asked an endpoint that had just failed", e.calls.Load()-givenUp)
	}
	if n := strings.Count(text.String(), "\n"); n != 1 || strings.Contains(text.String(), key) {
		t.Errorf("%d lines in the log:\n%s", n, text)
	}
	e.heals()
	k.mu.Lock()
	k.rest = time.Time{}
	k.mu.Unlock()
	got, err := k.Ask(t.Context(), "find an aa. Then do the other bb thing at last")
	if err != nil || got.ID != k.ID() || len(got.Vectors) != len(match.Passages("find an aa. Then do the other bb thing at last")) {
		t.Errorf("%v, %v", got, err)
	}
}

// The standing tells what is done, what is not and why, and since when nothing is answered.
func TestStanding(t *testing.T) {
	e := newEndpoint(t)
	log, _ := logged()
	s := &shelf{list: []registry.Listing{kept("one", "a", 1), kept("two", "b", 1)}, vectors: map[string]match.Embedded{}}
	k := NewKeeper(newClient(t, e.URL), s, 3, time.Second, log)
	if got := k.Standing(); got != (Standing{}) {
		t.Errorf("at first: %+v", got)
	}
	e.odd.Store(func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusServiceUnavailable); return true })
	before := time.Now()
	k.round(t.Context())
	k.Ask(t.Context(), "a")
	got := k.Standing()
	if got.Filled != 0 || got.Wanted != 4 || got.Failing.Before(before) || !got.Tried.After(got.Failing) || got.Err == nil || !strings.Contains(got.Err.Error(), "503") {
		t.Errorf("while it fails: %+v", got)
	}
	e.heals()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	k.mu.Lock()
	k.rest = time.Time{}
	k.mu.Unlock()
	k.Ask(gone, "a") // its asker has gone, and the endpoint did nothing
	if again := k.Standing(); again != got {
		t.Errorf("%+v, before %+v", again, got)
	}
	if _, err := k.Ask(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := k.Standing(); !got.Failing.IsZero() || got.Filled != 0 || got.Wanted != 4 {
		t.Errorf("it answers again: %+v", got)
	}
	if err := k.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := k.Standing(); got != (Standing{Filled: 4, Wanted: 4}) {
		t.Errorf("all done: %+v", got)
	}
	s.list = append(s.list[1:], kept("bad", "poison", 1))
	k.undone = k.round(t.Context())
	if e, err := k.Ask(t.Context(), "a"); err != nil || len(e.Vectors) == 0 {
		t.Fatal(err)
	}
	if got := k.Standing(); got.Filled != 2 || got.Wanted != 4 || !got.Failing.IsZero() || got.Err == nil {
		t.Errorf("one is refused: %+v", got)
	}
}

// What stands behind the question mark of a URL may be a key: it is in no id, no error and no log.
func TestKeysInURLsAreMasked(t *testing.T) {
	e := newEndpoint(t)
	c, err := NewClient(Config{URL: e.URL + "/v1?api-key=h1dden%2F", Model: "m", Key: key, Dim: 2, Batch: 3, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Embed(t.Context(), []string{"a"}); err != nil {
		t.Error(err)
	}
	e.odd.Store(func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusServiceUnavailable); return true })
	_, refused := c.Embed(t.Context(), []string{"a"})
	e.Close()
	_, closed := c.Embed(t.Context(), []string{"a"})
	for _, text := range []string{c.ID(), c.Endpoint(), fmt.Sprint(refused), fmt.Sprint(closed)} {
		if strings.Contains(text, "h1dden") || !strings.Contains(text, "/v1?xxxxx") {
			t.Errorf("%q", text)
		}
	}
}

// TestASlowEndpointCostsTheTimeoutAtMost, and only as many requests as may wait at once.
func TestASlowEndpointCostsTheTimeoutAtMost(t *testing.T) {
	e := newEndpoint(t)
	let := make(chan struct{})
	e.odd.Store(func(http.ResponseWriter) bool { <-let; return true })
	defer close(let) // before the server is closed
	log, _ := logged()
	const timeout = 300 * time.Millisecond
	k := NewKeeper(newClient(t, e.URL), &shelf{}, 2, timeout, log)
	began := time.Now()
	var busy, late atomic.Int64
	var asking sync.WaitGroup
	for range 3 * atOnce {
		asking.Go(func() {
			switch _, err := k.Ask(t.Context(), "a"); {
			case errors.Is(err, errBusy):
				busy.Add(1)
			case errors.Is(err, context.DeadlineExceeded):
				late.Add(1)
			default:
				t.Errorf("%v", err)
			}
		})
	}
	asking.Wait()
	if took := time.Since(began); took < timeout || took > timeout+3*time.Second {
		t.Errorf("it took %v, the timeout is %v", took, timeout)
	}
	if late.Load() != atOnce || busy.Load() != 2*atOnce {
		t.Errorf("%d waited and %d did not, want %d and %d", late.Load(), busy.Load(), atOnce, 2*atOnce)
	}
	// Who goes away is no failure of the endpoint.
	k.rest = time.Time{}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.Ask(gone, "a"); err == nil || !k.rest.IsZero() {
		t.Errorf("%v; rests until %v", err, k.rest)
	}
}

// TestRunEndsAndFollowsChanges embeds what comes while it runs, and ends with its context.
func TestRunEndsAndFollowsChanges(t *testing.T) {
	e := newEndpoint(t)
	log, _ := logged()
	s := &shelf{list: []registry.Listing{kept("one", "a", 1)}, vectors: map[string]match.Embedded{}, changed: make(chan struct{}, 1)}
	k := NewKeeper(newClient(t, e.URL), s, 2, time.Second, log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { k.Run(ctx); close(ended) }()
	has := func(id string) bool {
		for range 500 {
			s.mu.Lock()
			_, ok := s.vectors[id]
			s.mu.Unlock()
			if ok {
				return true
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	}
	if !has("one") {
		t.Error("what was there has no vectors")
	}
	s.mu.Lock()
	s.list = append(s.list[:1:1], kept("two", "b", 1))
	s.mu.Unlock()
	s.changed <- struct{}{}
	if !has("two") {
		t.Error("what came has no vectors")
	}
	cancel()
	<-ended
}
