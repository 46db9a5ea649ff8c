package replica

import (
	"fmt"
	"slices"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Two gateways with one identity, such as a copy of a state folder that was started elsewhere, take turns in ousting each other:
// each comes with its own boot_id, and another boot_id wins. One gateway that restarts, however often, never comes back to a
// boot_id that it had before.
const (
	maxFlips   = 3           // changes of a neighbour's boot_id, one of them back to an earlier one
	flipWindow = time.Minute // within it
	twinHold   = time.Minute // then no connection of it is accepted for so long
	maxBoots   = 8           // boot_ids of a neighbour that are remembered
)

// noteBoot remembers the neighbour's boot_id. It says whether two gateways seem to share its identity.
func (p *peer) noteBoot(now time.Time, boot wire.ID16) (twins bool) {
	last := len(p.boots) - 1
	if last >= 0 && p.boots[last] == boot {
		return false
	}
	before := slices.Contains(p.boots, boot)
	p.boots = append(p.boots, boot)
	if last < 0 {
		return false
	}
	p.boots = p.boots[max(0, len(p.boots)-maxBoots):]
	p.flips = append(p.flips, now)
	for now.Sub(p.flips[0]) > flipWindow {
		p.flips = p.flips[1:]
	}
	p.flips = p.flips[max(0, len(p.flips)-maxBoots):]
	return before && len(p.flips) >= maxFlips
}

// holdTwins refuses both until somebody has had time to look: every connection ends, and what it told stays, stale.
func (r *Replica) holdTwins(now time.Time, p *peer) {
	r.alarm(p.gateway, "its boot_id changed %d times within %v: two gateways seem to run with one identity; none is accepted for %v",
		len(p.flips), flipWindow, twinHold)
	p.heldUntil, p.heldCode, p.held, p.flips, p.boots = now.Add(twinHold), frame.Collision, twinReason, nil, nil
	r.closeAll(now, p, frame.Collision, twinReason)
}

const twinReason = "two gateways seem to run with this identity"

// noteClock remembers how far the neighbour's clock is ahead of ours, by its HELLO.
func (p *peer) noteClock(now time.Time, h *wire.Hello) {
	const most = 1 << 32 // seconds; what differs more differs enough
	ahead := int64(min(h.Now, 1<<40)) - now.Unix()
	p.skew = time.Duration(min(max(ahead, -most), most)) * time.Second
}

// skewReason names the two clocks, for both sides' logs.
func skewReason(now time.Time, p *peer, limit time.Duration) string {
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	return fmt.Sprintf("clocks differ by %v, over %v: %s here, %s there", p.skew.Abs(), limit, text(now), text(now.Add(p.skew)))
}
