package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// sampleAIC is AIC n of a gateway's domain.
func sampleAIC(t *testing.T, g *gateway, n int) string {
	t.Helper()
	c := g.cfg.AIC
	id, err := aic.New(c.Prefix, c.ARSP, c.Vendor, "1", fmt.Sprint(n+1), c.Salted())
	if err != nil {
		t.Fatal(err)
	}
	return string(id)
}

func sampleLine(t *testing.T, g *gateway, n int, change func(line map[string]any)) json.RawMessage {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(pharmacyACS), &doc); err != nil {
		t.Fatal(err)
	}
	doc["aic"], doc["name"] = sampleAIC(t, g, n), fmt.Sprint("Imported ", n)
	line := map[string]any{"acs": doc, "entry": map[string]any{"visibility": "public"}}
	if change != nil {
		change(line)
	}
	raw, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (g *gateway) imports(update bool, lines ...json.RawMessage) *admin.Imported {
	g.t.Helper()
	r := admin.ImportRequest{File: "/tmp/f", Update: update}
	for i, l := range lines {
		r.Lines = append(r.Lines, admin.ImportLine{Line: i + 1, Entry: l})
	}
	out, err := g.app.Import(g.t.Context(), r)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// export is all lines of an export.
func (g *gateway) export() (lines []json.RawMessage) {
	g.t.Helper()
	page, err := g.app.ExportAgents(admin.AgentsRequest{})
	if err != nil || page.Next != "" {
		g.t.Fatal(page, err)
	}
	for _, e := range page.Entries {
		raw, err := json.Marshal(e)
		if err != nil {
			g.t.Fatal(err)
		}
		lines = append(lines, raw)
	}
	return lines
}

// lasting is an export without what a directory says of itself.
func lasting(t *testing.T, line json.RawMessage) string {
	t.Helper()
	var e admin.ExportedEntry
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatal(err)
	}
	e.Entry.RegisteredAt, e.Entry.LastModified = time.Time{}, time.Time{}
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func counts(i *admin.Imported) string {
	var why []string
	for _, r := range i.Rejected {
		why = append(why, fmt.Sprintf("%d: %s", r.Line, r.Why))
	}
	return fmt.Sprintf("%d %d %d %s", i.Registered, i.Updated, i.Unchanged, strings.Join(why, "; "))
}

func TestImport(t *testing.T) {
	g := newGateway(t, "import.example")
	var lines []json.RawMessage
	for n := range 20 {
		lines = append(lines, sampleLine(t, g, n, nil))
	}
	if got := counts(g.imports(false, lines...)); got != "20 0 0 " {
		t.Error(got)
	}
	if got := counts(g.imports(false, append(lines, lines[0])...)); got != "0 0 21 " {
		t.Error("again: ", got)
	}
	other := sampleLine(t, g, 3, func(l map[string]any) { l["acs"].(map[string]any)["description"] = "Another." })
	if got := counts(g.imports(false, other)); !strings.HasPrefix(got, "0 0 0 1: ") || !strings.Contains(got, "--update") {
		t.Error(got)
	}
	if got := counts(g.imports(true, other, lines[4])); got != "0 1 1 " {
		t.Error(got)
	}
	found, err := g.app.Match(t.Context(), admin.MatchRequest{Ask: semreq.Ask{Query: semreq.Query{Text: "remedy for a sore throat"}}, Offline: true})
	if err != nil || len(found.Candidates) == 0 || !found.Candidates[0].Offline {
		t.Errorf("found %+v, %v", found, err)
	}
	if _, err := g.app.amc.Agent(sampleAIC(t, g, 3)); err == nil {
		t.Error("the AMC knows an imported agent")
	}
	// What has ended is not brought back.
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: sampleAIC(t, g, 5)}); err != nil {
		t.Fatal(err)
	}
	if got := counts(g.imports(true, lines[5])); !strings.Contains(got, "has ended") {
		t.Error(got)
	}
	// An AIC that is reserved for somebody is not taken.
	if err := g.app.store.Reserve(t.Context(), sampleAIC(t, g, 50), now()); err != nil {
		t.Fatal(err)
	}
	if got := counts(g.imports(true, sampleLine(t, g, 50, nil))); !strings.Contains(got, "is reserved") {
		t.Error(got)
	}
	records := slices.DeleteFunc(g.records(), func(kind string) bool { return kind != kindImported })
	if len(records) != 2 {
		t.Errorf("%d records", len(records))
	}
	c, err := g.app.CheckDirectory(t.Context())
	if err != nil || len(c.Problems) > 0 || c.Entries != 19 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A class that the taxonomy has not is taken, and told line by line, and the log hears of what is new.
func TestImportWarnsOfUnknownClasses(t *testing.T) {
	g := newGateway(t, "import.example")
	tagged := func(n int, tag string) json.RawMessage {
		return sampleLine(t, g, n, func(l map[string]any) {
			l["acs"].(map[string]any)["skills"].([]any)[1].(map[string]any)["tags"] = []string{"medicine", tag}
		})
	}
	lines := []json.RawMessage{tagged(1, "oasf:10302"), tagged(2, "oasf:language_procesing"), sampleLine(t, g, 3, nil), tagged(4, "oasf:newer/class")}
	for range 2 { // the second time they are there already
		got := g.imports(false, lines...)
		if len(got.Rejected) > 0 || got.Registered+got.Unchanged != 4 || len(got.Warnings) != 2 {
			t.Fatalf("%+v", got)
		}
		for i, want := range []admin.WarnedLine{
			{Line: 2, AIC: sampleAIC(t, g, 2), What: `acs.skills[1].tags[1]: oasf/1.1.0 has no class "language_procesing", and the tag is kept; did you mean "language_processing"?`},
			{Line: 4, AIC: sampleAIC(t, g, 4), What: `acs.skills[1].tags[1]: oasf/1.1.0 has no class "newer/class", and the tag is kept; name one by its path or the id of a skill's`},
		} {
			if got.Warnings[i].What != want.What || got.Warnings[i].Line != want.Line {
				t.Errorf("%+v, want %+v", got.Warnings[i], want)
			}
		}
	}
	if n := strings.Count(g.logs.String(), "taxonomy has not"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, g.logs.String())
	}
}

// Lists, details and searches tell imported entries from enrolled ones.
func TestImportedEntriesAreMarked(t *testing.T) {
	g := newGateway(t, "import.example")
	enrolled, _ := g.mustEnrol("agw.discover", "acps.skill.invoke:*")
	g.imports(false, sampleLine(t, g, 1, nil))
	id := sampleAIC(t, g, 1)
	want := map[string]bool{enrolled.AIC: false, id: true}
	for _, r := range must(g.app.Agents(admin.AgentsRequest{})).Agents {
		if is, ok := want[r.AIC]; !ok || r.Imported != is {
			t.Errorf("listed: %+v", r)
		}
		if d, err := g.app.Agent(admin.AgentRequest{AIC: r.AIC}); err != nil || d.Entry.Imported != want[r.AIC] {
			t.Errorf("shown: %+v, %v", d.Entry, err)
		}
	}
	m, err := g.app.Match(t.Context(), admin.MatchRequest{Ask: semreq.Ask{Query: semreq.Query{Text: "remedy for a sore throat"}}, Offline: true})
	if err != nil || len(m.Candidates) != 4 {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, c := range m.Candidates {
		if c.Imported != strings.Contains(c.Capability, id) {
			t.Errorf("found: %+v", c)
		}
	}
}

// An enrolled agent's credential, state and authorised skills are nobody else's to change.
func TestImportOverAnEnrolledAgent(t *testing.T) {
	g := newGateway(t, "import.example")
	done, _ := g.mustEnrol("agw.discover", "acps.skill.invoke:medicine.sell")
	export := g.export()
	if got := counts(g.imports(false, export...)); got != "0 0 1 " {
		t.Error(got)
	}
	wider := []byte(strings.NewReplacer(`"medicine.sell"]`, `"medicine.sell","x"]`, `"skills":[`, `"skills":[{"id":"x","name":"X","description":"","tags":["medicine"]},`).Replace(string(export[0])))
	if got := counts(g.imports(true, wider)); !strings.Contains(got, "not authorised") {
		t.Error(got)
	}
	before, err := g.app.registry.Get(done.AIC)
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte(strings.Replace(string(export[0]), "Sells medicine.", "Sells more.", 1))
	if got := counts(g.imports(true, changed)); got != "0 1 0 " {
		t.Error(got)
	}
	after, err := g.app.registry.Get(done.AIC)
	if err != nil || after.Provenance != before.Provenance || !after.ExpiresAt.Equal(before.ExpiresAt) || after.Version != before.Version+1 || !strings.Contains(string(after.ACS), "Sells more.") {
		t.Errorf("%+v, %v", after, err)
	}
}

// Whom an operator shows an agent to is the most that the agent may show itself to, until the operator says otherwise.
func TestTheOperatorsVisibilityStands(t *testing.T) {
	g := newGatewayWith(t, "import.example", func(c *config.Gateway) { c.Limits.UpdateRate = 100 })
	done, cert := g.mustEnrol("agw.discover", "acps.skill.invoke:*")
	s, err := g.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant})
	if err != nil {
		t.Fatal(err)
	}
	says := 0
	put := func(v directory.Visibility, allow ...string) directory.Entry {
		t.Helper()
		says++
		e := must(g.app.registry.Get(done.AIC))
		doc := strings.Replace(pharmacyACS, "Sells medicine.", fmt.Sprint("Says ", says), 1)
		if typ, payload := verb(t, s, &arp.ACSPut{AIC: done.AIC, ACS: []byte(doc), Expected: e.Version, Visibility: uint8(v), Allow: allow}); typ != frame.ACSState {
			t.Fatalf("%v %x", typ, payload)
		}
		return must(g.app.registry.Get(done.AIC))
	}
	sets := func(v directory.Visibility, allow ...string) {
		t.Helper()
		var line map[string]any
		if err := json.Unmarshal(g.export()[0], &line); err != nil {
			t.Fatal(err)
		}
		entry := line["entry"].(map[string]any)
		entry["visibility"], entry["allow"] = v, allow
		if got := counts(g.imports(true, must(json.Marshal(line)))); got != "0 1 0 " {
			t.Fatal(got)
		}
	}
	if e := put(directory.VisiblePublic); e.Visibility != directory.VisiblePublic || e.Bound != nil {
		t.Errorf("before: %v, bound %v", e.Visibility, e.Bound)
	}
	sets(directory.VisibleDomain)
	if e := put(directory.VisiblePublic); e.Visibility != directory.VisibleDomain {
		t.Errorf("its next own update made it %v", e.Visibility)
	}
	if e := put(directory.VisibleListed, "partner.example"); e.Visibility != directory.VisibleDomain || len(e.Allow) > 0 {
		t.Errorf("%v %v", e.Visibility, e.Allow)
	}
	if e := put(directory.VisiblePrivate); e.Visibility != directory.VisiblePrivate {
		t.Errorf("a narrower one: %v", e.Visibility)
	}
	if d, err := g.app.Agent(admin.AgentRequest{AIC: done.AIC}); err != nil || d.Entry.Visibility != "private" || d.Entry.Bound != "domain" {
		t.Errorf("%+v, %v", d.Entry, err)
	}
	// A line that leaves the visibility as it is says nothing of it.
	changed := []byte(strings.Replace(string(g.export()[0]), fmt.Sprint("Says ", says), "The operator's words.", 1))
	if got := counts(g.imports(true, changed)); got != "0 1 0 " {
		t.Fatal(got)
	}
	if e := put(directory.VisiblePublic); e.Visibility != directory.VisibleDomain {
		t.Errorf("back to its bound: %v", e.Visibility)
	}
	sets(directory.VisibleListed, "partner.example", "other.example")
	if e := put(directory.VisibleListed, "other.example", "third.example"); !slices.Equal(e.Allow, []string{"other.example"}) {
		t.Errorf("listed %v", e.Allow)
	}
	sets(directory.VisiblePublic) // the operator takes it back
	if e := put(directory.VisibleListed, "third.example"); !slices.Equal(e.Allow, []string{"third.example"}) || e.Bound != nil {
		t.Errorf("%v %v, bound %v", e.Visibility, e.Allow, e.Bound)
	}
}

func TestImportRefuses(t *testing.T) {
	g := newGateway(t, "import.example")
	set := func(part, member string, v any) json.RawMessage {
		return sampleLine(t, g, 1, func(l map[string]any) { l[part].(map[string]any)[member] = v })
	}
	for want, line := range map[string]json.RawMessage{
		"unknown field":           []byte(`{"acs":{},"x":1}`),
		"acs: is missing":         []byte(`{"entry":{}}`),
		"something follows":       []byte(`{"acs":{}} {}`),
		"acs.aic: is missing":     []byte(`{"acs":{}}`),
		"acs.aic: ":               set("acs", "aic", "1.2.3"),
		"not of the domain":       set("acs", "aic", "2.999.1.1.1.A.1.1.1.0000"),
		"gateway's":               set("acs", "aic", string(g.app.home.gateway)),
		"protocolVersion":         set("acs", "protocolVersion", "9"),
		"is none of":              []byte(strings.Replace(string(set("entry", "visibility", "public")), `"public"`, `"everybody"`, 1)),
		"needs the domains":       set("entry", "visibility", "listed"),
		"only ACTIVE":             set("entry", "state", "SUSPENDED"),
		"entry.expiresAt: it has": set("entry", "expiresAt", "2020-01-01T00:00:00Z"),
		"entry.aad":               set("entry", "aad", "other.example"),
		"not authorised":          set("entry", "authorizedSkills", []string{"medicine.sell"}),
	} {
		got := g.imports(true, line)
		if len(got.Rejected) != 1 || !strings.Contains(strings.ReplaceAll(got.Rejected[0].Why, "is not one of", "is none of"), want) {
			t.Errorf("%s: %+v", want, got)
		}
	}
	if n := g.app.registry.Len(); n != 0 {
		t.Errorf("%d entries", n)
	}
}

// What one directory exports another one of the domain takes, and exports alike.
func TestExportAndImportRoundTrip(t *testing.T) {
	g := newGateway(t, "import.example")
	var lines []json.RawMessage
	for n := range 5 {
		lines = append(lines, sampleLine(t, g, n, func(l map[string]any) {
			switch n {
			case 1:
				l["entry"] = map[string]any{"visibility": "listed", "allow": []string{"partner.example"}, "state": "DEPRECATED"}
			case 2:
				l["entry"] = map[string]any{"visibility": "private", "expiresAt": "2100-01-01T00:00:00Z"}
			}
		}))
	}
	g.imports(false, lines...)
	first := g.export()
	g.stop()
	other := &gateway{t: t, dir: g.dir, tune: g.tune}
	if err := os.Rename(filepath.Join(g.cfg.StateDir, dirDirectory), filepath.Join(t.TempDir(), "before")); err != nil {
		t.Fatal(err)
	}
	other.start()
	t.Cleanup(func() { other.stop() })
	if other.app.registry.Len() != 0 {
		t.Fatal("the other directory is not empty")
	}
	if got := counts(other.imports(false, first...)); got != "5 0 0 " {
		t.Error(got)
	}
	second := other.export()
	if len(second) != 5 {
		t.Fatalf("%d entries", len(second))
	}
	for i := range first {
		if x, y := lasting(t, first[i]), lasting(t, second[i]); x != y {
			t.Errorf("%s\nthen %s", x, y)
		}
	}
}

// What an export writes of an agent that enrolled with an Agent Card is taken as any other line, card and all.
func TestImportTakesCards(t *testing.T) {
	g := newGateway(t, "cards.example")
	key := identitytest.NewKey(t)
	if _, err := g.enrolAs(g.token(), key, arp.Enrol{CSR: must(identity.NewCSR(key)), Draft: []byte(pharmacyCard), DraftKind: arp.DraftCard, Visibility: 2}); err != nil {
		t.Fatal(err)
	}
	exported := g.export()[0]
	change := func(f func(line, doc map[string]any)) json.RawMessage {
		var line map[string]any
		if err := json.Unmarshal(exported, &line); err != nil {
			t.Fatal(err)
		}
		f(line, line["acs"].(map[string]any))
		return must(json.Marshal(line))
	}
	if got := counts(g.imports(true, exported)); got != "0 0 1 " {
		t.Error("what is there: ", got)
	}
	if got := counts(g.imports(true, change(func(l, _ map[string]any) { delete(l, "card") }))); got != "0 0 1 " {
		t.Error("without its card: ", got)
	}
	if got := counts(g.imports(true, change(func(_, doc map[string]any) { doc["description"] = "Another." }))); !strings.Contains(got, "1: card: acs says something else") {
		t.Error("a card that says something else: ", got)
	}
	if got := counts(g.imports(true, change(func(l, _ map[string]any) { l["card"] = "[]" }))); !strings.Contains(got, "1: card: ") {
		t.Error("no card: ", got)
	}
	id := sampleAIC(t, g, 1)
	if got := counts(g.imports(false, change(func(_, doc map[string]any) { doc["aic"] = id }))); got != "1 0 0 " {
		t.Error("a new entry: ", got)
	}
	if e := must(g.app.registry.Get(id)); string(e.Card) != pharmacyCard {
		t.Errorf("its card is %q", e.Card)
	}
	if got := counts(g.imports(true, change(func(l, doc map[string]any) {
		doc["aic"], doc["description"] = id, "Another."
		delete(l, "card")
	}))); got != "0 1 0 " {
		t.Error("another specification: ", got)
	}
	if e := must(g.app.registry.Get(id)); e.Card != nil {
		t.Errorf("the card of before is left: %q", e.Card)
	}
	if got := counts(g.imports(false, json.RawMessage(`[]`))); !strings.Contains(got, "it is no object but array; a line is as") {
		t.Error(got)
	}
}
