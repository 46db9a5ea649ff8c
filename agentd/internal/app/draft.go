package app

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"agentgw/directory/acs"
	"agentgw/directory/arp"
	"agentgw/internal/daemon"
	"agentgw/internal/safehttp"
)

const fetchTime = 10 * time.Second

// ReadDraft reads a capability specification, or the Agent Card of an A2A agent, from a file, or from an https address: then its host must be no machine behind our own
// border unless allowPrivate says so, and its answer no larger than a specification may be.
func ReadDraft(ctx context.Context, source string, allowPrivate bool) ([]byte, error) {
	if !strings.Contains(source, "://") {
		raw, err := os.ReadFile(source)
		if err != nil {
			return nil, daemon.Usagef("read the ACS: %w", err)
		}
		return raw, nil
	}
	c := safehttp.New(safehttp.Config{AllowPrivate: allowPrivate, AllowPlain: allowPrivate, MaxBytes: acs.MaxSize, Timeout: fetchTime})
	raw, err := c.Get(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("fetch the ACS: %w", err)
	}
	return raw, nil
}

// draftWarnings is what a gateway takes of a document and is probably a mistake, by the taxonomy of this program.
func draftWarnings(doc []byte) []string {
	read := acs.Parse
	if acs.IsCard(doc) {
		read = acs.FromCard
	}
	a, err := read(doc)
	if err != nil { // the gateway has said what it makes of it
		return nil
	}
	return a.Warnings().Lines()
}

// draftKind is what ENROL and ACS_PUT call a document.
func draftKind(doc []byte) uint8 {
	if acs.IsCard(doc) {
		return arp.DraftCard
	}
	return arp.DraftACS
}
