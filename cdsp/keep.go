package cdsp

import (
	"time"

	"agentgw/cdsp/replica"
)

// keeper is the goroutine that writes down what neighbours tell. It has one part at a time; what changes meanwhile waits in the machine, each key once.
type keeper struct {
	parts chan replica.Learned // one that the keeper has not taken yet, at most
	kept  chan error           // what became of it
	busy  string               // gateway of the part that it has; empty: none
	again time.Time            // after a failure nothing is written before; zero: it may be
	pause time.Duration        // the last one
}

// Pauses after failures: the first, and what they double up to.
const (
	keepPause    = 10 * time.Second
	maxKeepPause = 10 * time.Minute
)

// keepRestTime is how long the end of a node is held up at most by what is still to be written, and a part that has begun. What is not written by then leaves an older state behind, which is
// one that a start can go on from.
const keepRestTime = 5 * time.Second

func (n *Node) startKeeper() {
	k := &n.keeper
	k.parts, k.kept = make(chan replica.Learned, 1), make(chan error, 1)
	if n.cfg.Keep == nil {
		return
	}
	parts, kept, keep := k.parts, k.kept, n.cfg.Keep
	go func() { // keepRest waits for its end
		defer close(kept)
		for l := range parts {
			kept <- keep(l)
		}
	}()
}

// restore hands in what was kept, once.
func (n *Node) restore() {
	for _, k := range n.cfg.Kept {
		n.step(replica.Restored{Kept: k})
	}
	n.cfg.Kept = nil
}

// keepNext gives the keeper the next part, if it is idle and there is one.
func (n *Node) keepNext() {
	k := &n.keeper
	if n.cfg.Keep == nil || k.busy != "" || time.Now().Before(k.again) {
		return
	}
	k.again = time.Time{}
	if l, some := n.machine.TakeLearned(); some {
		k.busy = l.Gateway
		k.parts <- l
	}
}

// keptOne hears what became of a part.
func (n *Node) keptOne(err error) {
	k := &n.keeper
	gateway := k.busy
	k.busy = ""
	if err == nil {
		k.pause = 0
		return
	}
	k.pause = min(max(2*k.pause, keepPause), maxKeepPause)
	k.again = time.Now().Add(k.pause)
	n.log.Warn("what a neighbour told is not written down; a restart asks it for everything", "peer", gateway, "again_in", k.pause.String(), "error", err)
	n.step(replica.KeepFailed{Gateway: gateway})
}

// keepRest writes what is left and ends the keeper.
func (n *Node) keepRest() {
	if n.cfg.Keep == nil {
		return
	}
	k := &n.keeper
	for end := time.Now().Add(keepRestTime); time.Now().Before(end); {
		if k.busy == "" {
			n.keepNext()
		}
		if k.busy == "" {
			break
		}
		n.keptOne(<-k.kept)
	}
	close(k.parts)
	for range k.kept { // what it has is written to its end
	}
}
