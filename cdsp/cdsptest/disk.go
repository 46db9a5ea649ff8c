package cdsptest

import (
	"fmt"
	"maps"
	"slices"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
)

// Disk is what a gateway has written down of its neighbours, by their AICs.
type Disk map[string]*Written

// Written is what it has of one.
type Written struct {
	Domain  string
	Transit bool
	Cookie  *wire.Cookie
	Entries map[replica.Ref]replica.KeptEntry
}

// Clone is a copy that later writes do not change.
func (d Disk) Clone() Disk {
	out := Disk{}
	for gw, w := range d {
		c := *w
		c.Entries = maps.Clone(w.Entries)
		out[gw] = &c
	}
	return out
}

// Apply writes one part.
func (d Disk) Apply(l replica.Learned) {
	if l.Forget {
		delete(d, l.Gateway)
	}
	if len(l.Put)+len(l.Drop) == 0 && l.Cookie == nil && d[l.Gateway] == nil {
		return
	}
	w := d[l.Gateway]
	if w == nil {
		w = &Written{Entries: map[replica.Ref]replica.KeptEntry{}}
		d[l.Gateway] = w
	}
	for _, e := range l.Put {
		w.Entries[e.Ref] = e
	}
	for _, ref := range l.Drop {
		delete(w.Entries, ref)
	}
	w.Domain, w.Transit, w.Cookie = l.Domain, l.Transit, l.Cookie
}

// Kept is what it hands in at a start, in the order of names and keys.
func (d Disk) Kept() (out []replica.Kept) {
	for _, gw := range slices.Sorted(maps.Keys(d)) {
		k := replica.Kept{Gateway: gw, Domain: d[gw].Domain, Transit: d[gw].Transit, Cookie: d[gw].Cookie}
		for _, ref := range slices.SortedFunc(maps.Keys(d[gw].Entries), replica.Ref.Compare) {
			k.Entries = append(k.Entries, d[gw].Entries[ref])
		}
		out = append(out, k)
	}
	return out
}

// write writes some parts of what has changed: often none, so that what is written lags behind. The same seed has the same lags.
func (node *Node) write() {
	if !node.net.Keep {
		return
	}
	for range node.net.rng.IntN(3) {
		l, some := node.Replica.TakeLearned()
		if !some {
			return
		}
		node.disk.Apply(l)
	}
}

// maxParts bounds the parts in which a gateway writes everything down.
const maxParts = 10_000

// WriteAll writes everything that has changed.
func (node *Node) WriteAll() {
	for range maxParts {
		l, some := node.Replica.TakeLearned()
		if !some {
			return
		}
		node.disk.Apply(l)
	}
	panic(fmt.Sprintf("%s never has all written", node.Name))
}

// Disk is a copy of what a gateway has written down.
func (node *Node) Disk() Disk { return node.disk.Clone() }

// RestartFrom stops a gateway and starts it from a disk: its own as it is, an older copy, or none. One that stops politely writes everything first.
func (n *Network) RestartFrom(name string, polite bool, from func(Disk) Disk) {
	node := n.nodes[name]
	n.stop(node, polite)
	if polite {
		node.WriteAll()
	}
	node.disk = from(node.disk).Clone()
	node.start()
}

// checkKept says where what a gateway has written down is not what it holds.
func (node *Node) checkKept() error {
	node.WriteAll()
	for gw, w := range node.disk {
		held := node.Replica.Held(gw)
		if len(held) != len(w.Entries) || len(held) == 0 {
			return fmt.Errorf("%s holds %d entries of %s and has written %d", node.Name, len(held), gw, len(w.Entries))
		}
		for ref := range held {
			if _, ok := w.Entries[ref]; !ok {
				return fmt.Errorf("%s holds %v of %s and has not written it", node.Name, ref, gw)
			}
		}
		if in := node.Status(gw); w.Cookie != nil && w.Cookie.TableHash != in.InHash {
			return fmt.Errorf("%s has written a cookie of %s for the table %v and holds %v", node.Name, gw, w.Cookie.TableHash, in.InHash)
		}
	}
	for _, st := range node.Replica.Snapshot().Neighbours {
		if st.Received > 0 && node.disk[st.Gateway] == nil {
			return fmt.Errorf("%s holds %d entries of %s and has written nothing", node.Name, st.Received, st.Gateway)
		}
	}
	return nil
}
