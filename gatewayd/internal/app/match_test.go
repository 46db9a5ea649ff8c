package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
)

// explained are agents of our own making; the last three are held back, each for its own reason.
var explained = []struct {
	agent, skill, description string
	tags, examples            []string
	visibility                directory.Visibility
	offline                   bool
	state                     directory.State
}{
	{"Corner pharmacy", "Sell over-the-counter medicine", "Lozenges, pain relief and cough syrup, delivered within the hour.", []string{"health", "pharmacy"}, []string{"something against a sore throat"}, directory.VisiblePublic, false, directory.Active},
	{"City clinic", "Disease diagnosis", "Names the likely disease for symptoms that a patient describes.", []string{"health"}, nil, directory.VisiblePublic, false, directory.Active},
	{"Night desk", "Hotel booking", "Finds and books a hotel room in a city for some nights.", []string{"travel", "oasf:10302"}, nil, directory.VisiblePublic, false, directory.Active},
	{"Wing", "Flight booking", "Finds and books flights between two airports.", []string{"travel"}, nil, directory.VisiblePublic, false, directory.Active},
	{"Old chemist", "Sell medicine", "Medicine for a sore throat, sold over the counter.", []string{"health"}, nil, directory.VisiblePublic, true, directory.Active},
	{"House doctor", "Throat examination", "Looks at a sore throat and names the medicine for it.", []string{"health"}, nil, directory.VisibleDomain, false, directory.Active},
	{"Closed pharmacy", "Sell throat medicine", "Medicine for the throat.", []string{"health"}, nil, directory.VisiblePublic, false, directory.Suspended},
}

func TestExplainIsGolden(t *testing.T) {
	g := newGateway(t, "clinic.example")
	for i, e := range explained {
		id, err := aic.New("2.999.1.1", "EXPLN", "1", "1", fmt.Sprint(i+1), []byte{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		quote := func(v any) string { b, _ := json.Marshal(v); return string(b) }
		doc := fmt.Sprintf(`{"aic":%q,"active":true,"lastModifiedTime":"2026-11-30T10:00:00+00:00","protocolVersion":"02.02","name":%q,"description":"","version":"1.%d.0",
			"provider":{"organization":"Provider %d"},"securitySchemes":{},"endPoints":[],"capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
			"skills":[{"id":"skill","name":%q,"description":%q,"tags":%s,"examples":%s}]}`, id, e.agent, i, i+1, e.skill, e.description, quote(e.tags), quote(append([]string{}, e.examples...)))
		entry := directory.Entry{AIC: string(id), ACS: []byte(doc), State: e.state, Visibility: e.visibility, Skills: []string{"skill"}}
		if _, err := g.app.registry.Register(t.Context(), entry, nil, nil, now()); err != nil {
			t.Fatal(err)
		}
		g.app.registry.SetAlive(string(id), !e.offline, now())
	}
	var out []*admin.Match
	for _, r := range []admin.MatchRequest{
		{Ask: semreq.Ask{Query: semreq.Query{Text: "medicine for a sore throat"}}, Domain: "far.example"},
		{Ask: semreq.Ask{Query: semreq.Query{Text: "book a hottel for two nights", Tags: []string{"travel"}}}},
		{Ask: semreq.Ask{Query: semreq.Query{Text: "which disease do these symptoms mean", Filter: json.RawMessage(`{"conditions":[{"field":"version","op":"lt","value":"1.1.0"}]}`)}}},
	} {
		m, err := g.app.Match(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.Candidates {
			c := &m.Candidates[i]
			for _, f := range []*float64{&c.Score, &c.Words, &c.Pairs, &c.Cosine} {
				*f = math.Round(*f*1000) / 1000
			}
		}
		for i := range m.Refused {
			m.Refused[i].Score = math.Round(m.Refused[i].Score*1000) / 1000
		}
		out = append(out, m)
	}
	got, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/explain.json"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the explanations are others than before (UPDATE_GOLDEN=1 writes them anew: look at the difference):\n%s", got)
	}
	// What only a person can judge, and what no golden file may lose.
	if c := out[0].Candidates; len(c) == 0 || c[0].Agent != "Corner pharmacy" {
		t.Errorf("the first question: %+v", c)
	}
	for _, why := range []string{"offline", "not visible to far.example", "SUSPENDED"} {
		if !strings.Contains(strings.ToUpper(string(got)), strings.ToUpper(why)) {
			t.Errorf("nothing is held back because it is %s", why)
		}
	}
}

// Requests that nobody should send: each is refused with its code and a message that says where, or finds nothing and says why.
func TestBadRequestsAreTold(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "clinic.example")
	g.mustEnrol()
	match := func(q semreq.Query) (*admin.Match, error) {
		return g.app.Match(t.Context(), admin.MatchRequest{Offline: true, Ask: semreq.Ask{Query: q}})
	}
	for name, c := range map[string]struct {
		q    semreq.Query
		says string
	}{
		"a megabyte":             {semreq.Query{Text: strings.Repeat("medicine ", 1<<17)}, "say it shorter"},
		"nothing":                {semreq.Query{}, ""},
		"text that is no UTF-8":  {semreq.Query{Text: "medicine \xff"}, "UTF-8"},
		"unknown operator":       {semreq.Query{Text: "medicine", Filter: json.RawMessage(`{"groups":[{"conditions":[{"field":"version","op":"like","value":"1"}]}]}`)}, "groups[0].conditions[0].op"},
		"filter that is no JSON": {semreq.Query{Text: "medicine", Filter: json.RawMessage(`{`)}, "filter"},
	} {
		if _, err := match(c.q); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want one that says %q", name, err, c.says)
		} else if code := frame.CodeOf(err); code != frame.ReqInvalid && code != frame.Malformed {
			t.Errorf("%s: code %v", name, code)
		}
	}
	for _, text := range []string{"the of and", "\U0001F600\U0001F600"} {
		m, err := match(semreq.Query{Text: text})
		if err != nil || len(m.Terms) != 0 || m.Terms == nil || len(m.Candidates) != 0 {
			t.Errorf("%q: %+v %v", text, m, err)
		}
	}
	if m, err := match(semreq.Query{Text: "أريد medicine \U0001F48A\u202e for a sore throat"}); err != nil || len(m.Candidates) == 0 {
		t.Errorf("two scripts, a pill and a mark that turns the line round: %+v %v", m, err)
	}
}
