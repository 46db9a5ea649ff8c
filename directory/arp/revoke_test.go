package arp

import (
	"slices"
	"strings"
	"testing"

	"agentgw/internal/frame"
)

// What a SESSION_REVOKE may name, and that the largest list fits a frame.
func TestSessionRevokeNamesSomething(t *testing.T) {
	full := slices.Repeat([]any{strings.Repeat("A", 64)}, MaxRevoked)
	for name, c := range map[string]struct {
		m  SessionRevoke
		ok bool
	}{
		"a session":              {SessionRevoke{Kind: RevokeSession, Value: make([]byte, 16)}, true},
		"a short sid":            {SessionRevoke{Kind: RevokeSession, Value: make([]byte, 15)}, false},
		"a session by name":      {SessionRevoke{Kind: RevokeSession, Value: "x"}, false},
		"an agent":               {SessionRevoke{Kind: RevokePeer, Value: "1.2.3"}, true},
		"nobody":                 {SessionRevoke{Kind: RevokePeer, Value: ""}, false},
		"many agents":            {SessionRevoke{Kind: RevokePeer, Value: full}, true},
		"too many agents":        {SessionRevoke{Kind: RevokePeer, Value: append(slices.Clone(full), "x")}, false},
		"no agents":              {SessionRevoke{Kind: RevokePeer, Value: []any{}}, false},
		"something else":         {SessionRevoke{Kind: RevokePeer, Value: []any{uint64(1)}}, false},
		"many issuers":           {SessionRevoke{Kind: RevokeIssuer, Value: full}, false},
		"an issuer":              {SessionRevoke{Kind: RevokeIssuer, Value: "1.2.3"}, true},
		"a prefix":               {SessionRevoke{Kind: RevokeUnder, Value: "1.2.3"}, true},
		"a kind that is unknown": {SessionRevoke{Kind: RevokeUnder + 1, Value: "1.2.3"}, false},
	} {
		if err := c.m.Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if b, err := frame.Marshal(&c.m); c.ok && (err != nil || len(b) > frame.Limit(frame.SessionRevoke)) {
			t.Errorf("%s: %d octets, %v", name, len(b), err)
		}
	}
}
