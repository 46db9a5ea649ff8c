package match

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A board that has counted through its rounds must not take an account of long ago for one of now.
func TestBoardForgetsAfterItsLastRound(t *testing.T) {
	x := index(town())
	x.Resolve(Query{Text: "book a hotel room"})
	kept := x.boards[0].Load()
	if kept == nil || kept.round != 1 || len(kept.hits) != 0 {
		t.Fatalf("the first request left the board %+v", kept)
	}
	kept.round = math.MaxUint32 // the next request is round 1 again, and touches what the first one did and more
	q := Query{Text: "tomorrow's weather in the city of my hotel"}
	if d := cmp.Diff(index(town()).Resolve(q), x.Resolve(q)); d != "" {
		t.Errorf("after the last round (-want +got):\n%s", d)
	}
}

// A board grows with the directory, and readers at the same time do not share one.
func TestBoardsOfManyReaders(t *testing.T) {
	x := index(thousands(300)[:1])
	x.Resolve(Query{Text: "w"})
	caps := thousands(300)
	x.Load(caps)
	want := x.Resolve(Query{Text: caps[7].Description})
	got := make(chan string)
	const readers = 3 * len(x.boards)
	for range readers {
		go func() { got <- cmp.Diff(want, x.Resolve(Query{Text: caps[7].Description})) }()
	}
	for range readers {
		if d := <-got; d != "" {
			t.Errorf("a reader among others (-want +got):\n%s", d)
		}
	}
}
