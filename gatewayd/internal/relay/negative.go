package relay

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"agentgw/directory/semreq"
	"agentgw/internal/frame"
)

const (
	negativesKept = 8192
	maxNegative   = 30 * time.Second
	// tellNegative is how long others may remember our own: an agent that comes back is found again after that, and no digest tells of it.
	tellNegative = 5 * time.Second
)

// negatives remembers which neighbours have said for good that nothing was found. What one said counts for the same question of the same
// domain under the same scope and constraints, until its time is over or any accepted digest has changed.
type negatives struct {
	kept *lru.Cache[[32]byte, negative]
}

type negative struct {
	until   time.Time
	version uint64 // of the accepted digests
}

func newNegatives() *negatives {
	kept, _ := lru.New[[32]byte, negative](negativesKept) // fails on a size below 1 only
	return &negatives{kept}
}

// negativeKey is what an answer depends on.
func negativeKey(j *job, gateway string) [32]byte {
	scope := slices.Clone(j.scope)
	slices.Sort(scope)
	return sha256.Sum256(fmt.Appendf(nil, "%s\x00%x\x00%s\x00%s\x00%x\x00%d\x00%t", gateway, j.req.QHash, strings.Join(scope, " "), j.asker.Domain,
		j.req.Constraints, j.req.Flags, j.provision != nil))
}

func (n *negatives) has(j *job, gateway string, version uint64, now time.Time) bool {
	if j.req.Flags&semreq.FlagNoCache != 0 {
		return false
	}
	v, ok := n.kept.Get(negativeKey(j, gateway))
	return ok && v.version == version && now.Before(v.until)
}

// note keeps what a neighbour said, where it said it for good. version is of before it was asked.
func (n *negatives) note(j *job, gateway string, resp *semreq.Response, version uint64, now time.Time) {
	if resp.Status != frame.NotFound || !resp.Definitive || resp.NegTTLMS == 0 {
		return
	}
	ttl := min(time.Duration(min(resp.NegTTLMS, uint64(maxNegative.Milliseconds())))*time.Millisecond, maxNegative)
	n.kept.Add(negativeKey(j, gateway), negative{now.Add(ttl), version})
}
