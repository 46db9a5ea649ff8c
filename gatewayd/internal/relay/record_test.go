package relay

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"agentgw/internal/frame"
)

// What crosses a border is recorded at every gateway on the way, and a session where it is provisioned: by ids and hashes.
func TestCrossingsAndSessionsAreRecorded(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example", "three.example")
	got := map[string]map[string]string{} // domain, kind, data
	for name, g := range s.gateways {
		got[name] = map[string]string{}
		g.relay.cfg.AuditSoon = func(kind string, data any) {
			raw, err := json.Marshal(data)
			if err != nil {
				t.Error(err)
			}
			got[name][kind] += string(raw)
		}
	}
	a, there := s.agentOf("one.example"), s.offers("three.example", "sell", "9000")
	req := request(t, a, true)
	g := s.gateways["one.example"].relay
	if out := g.FromAgent(t.Context(), a, req); out.Status != frame.OK {
		t.Fatal(out.Status, out.Reasons)
	}
	for domain, kinds := range map[string][]string{
		"one.example": {kindForwarded}, "two.example": {kindAnswered}, "three.example": {kindAnswered, kindSession},
	} {
		for _, kind := range kinds {
			raw := got[domain][kind]
			for _, part := range []string{`"req":"` + hex.EncodeToString(req.ReqID) + `"`, "one.example"} {
				if !strings.Contains(raw, part) {
					t.Errorf("%s, %s: %s lacks %s", domain, kind, raw, part)
				}
			}
			if strings.Contains(raw, "sore throat") {
				t.Errorf("%s, %s: it has the text", domain, kind)
			}
		}
		if len(got[domain]) != len(kinds) {
			t.Errorf("%s: %v", domain, got[domain])
		}
	}
	if raw := got["three.example"][kindAnswered]; !strings.Contains(raw, hashed(there.AIC)) || !strings.Contains(raw, `"code":"00"`) || !strings.Contains(raw, `"from":"two.example"`) {
		t.Error(raw)
	}
	if raw := got["three.example"][kindSession]; !strings.Contains(raw, `"aud":"`+there.AIC+`"`) || !strings.Contains(raw, hashed(there.CapID)) {
		t.Error(raw)
	}
	clear(got["one.example"])
	s.offers("one.example", "sell", "9000")
	if out := g.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.OK {
		t.Fatal(out.Status)
	}
	if len(got["one.example"]) != 0 {
		t.Errorf("a request that stayed at home: %v", got["one.example"])
	}
}
