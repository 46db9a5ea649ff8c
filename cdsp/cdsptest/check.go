package cdsptest

import (
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"agentgw/cdsp/replica"
)

// Check says which invariant is broken once the network should have come to rest: every link that is up has a session that
// is synchronised and acknowledged both ways, the two tables of each are equal by count and hash, and what each end holds is what the
// other, asked today, exports to it; nothing is stale, and no entry came around to the domain where it started.
func (n *Network) Check() error {
	for _, l := range n.links {
		if !l.up {
			continue
		}
		if err := checkPair(l.a, l.b); err != nil {
			return err
		}
		if err := checkPair(l.b, l.a); err != nil {
			return err
		}
	}
	for _, node := range n.Nodes() {
		if n.Keep {
			if err := node.checkKept(); err != nil {
				return err
			}
		}
		for _, e := range node.Replica.Snapshot().Entries {
			if slices.Contains(e.Path, node.Domain) {
				return fmt.Errorf("%s holds %s of %s over %v, which is its own domain", node.Name, e.Item.Label, e.Origin, e.Path)
			}
			if e.Stale {
				return fmt.Errorf("%s holds %s of %s stale", node.Name, e.Item.Label, e.Origin)
			}
		}
	}
	return nil
}

func checkPair(from, to *Node) error {
	out, in := from.Status(to.Name), to.Status(from.Name)
	switch {
	case out.State != replica.Established || !out.Acked || !in.Synced:
		return fmt.Errorf("%s to %s: state %v, acked %v, synchronised %v", from.Name, to.Name, out.State, out.Acked, in.Synced)
	case out.Sent != in.Received || out.OutHash != in.InHash:
		return fmt.Errorf("%s sent %s %d entries (%v), it holds %d (%v)", from.Name, to.Name, out.Sent, out.OutHash, in.Received, in.InHash)
	}
	if diff := cmp.Diff(from.Replica.Exported(from.net.Now, to.Name), to.Replica.Held(from.Name)); diff != "" {
		return fmt.Errorf("%s holds what %s does not export to it (-exported +held):\n%s", to.Name, from.Name, diff)
	}
	return nil
}

// Status is how a neighbour stands at node.
func (node *Node) Status(gateway string) replica.NeighbourStatus {
	for _, st := range node.Replica.Snapshot().Neighbours {
		if st.Gateway == gateway {
			return st
		}
	}
	return replica.NeighbourStatus{}
}

// Knows lists the labels of an origin that node could ask for, in order.
func (node *Node) Knows(origin string) []string {
	var labels []string
	for _, e := range node.Replica.Snapshot().Entries {
		if e.Origin == origin {
			labels = append(labels, e.Item.Label)
		}
	}
	slices.Sort(labels)
	return labels
}
