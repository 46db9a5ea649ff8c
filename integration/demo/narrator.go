package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// narrator tells people what happens, with the time since the run began. Safe for concurrent use.
type narrator struct {
	w io.Writer

	mu    sync.Mutex // guards the rest, and the order of lines
	began time.Time
}

// begin starts the clock.
func (n *narrator) begin(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.began = time.Now()
	fmt.Fprintf(n.w, "%s\n", text)
}

// headline opens a part.
func (n *narrator) headline(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(n.w, "\n== %s\n", text)
}

// say tells one step, and details below it.
func (n *narrator) say(text string, details ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(n.w, "%7.3f s  %s\n", time.Since(n.began).Seconds(), text)
	for _, d := range details {
		fmt.Fprintf(n.w, "             %s\n", strings.ReplaceAll(d, "\n", "\n             "))
	}
}

// text prints something as it is.
func (n *narrator) text(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintln(n.w, s)
}

// end says how it went.
func (n *narrator) end(r *report) {
	how := "all is complete"
	if r.Error != nil || !r.complete() {
		how = "not everything is complete"
	}
	n.text(fmt.Sprintf("\nEverything that was started has stopped; %s. Build %.1f s, run %.1f s.", how, float64(r.BuildMS)/1000, float64(r.RunMS)/1000))
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
