package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/a2a/task"
	"agentgw/directory/acs"
	"agentgw/directory/match"

	"github.com/google/go-cmp/cmp"
)

// echo is a UDP server that sends everything back.
func echo(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-ended })
	go func() {
		defer close(ended)
		buf := make([]byte, 1024)
		for {
			n, from, err := c.ReadFromUDP(buf)
			if err != nil {
				return
			}
			c.WriteToUDP(buf[:n], from)
		}
	}()
	return c
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn) string {
	t.Helper()
	buf := make([]byte, 1024)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.After(10 * time.Second); !is(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

func TestRelayCarriesEachClientsDatagrams(t *testing.T) {
	r, err := newRelay(echo(t).LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	one, two := dial(t, r.addr()), dial(t, r.addr())
	say(t, one, "from one")
	say(t, two, "from two")
	if got := hear(t, one); got != "from one" {
		t.Errorf("one heard %q", got)
	}
	if got := hear(t, two); got != "from two" {
		t.Errorf("two heard %q", got)
	}
}

func TestSilentRelayDropsUntilItIsHealed(t *testing.T) {
	r, err := newRelay(echo(t).LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	c := dial(t, r.addr())
	r.silence()
	say(t, c, "lost")
	eventually(t, "the datagram is dropped", func() bool { return r.dropped.Load() == 1 })
	r.heal()
	say(t, c, "carried")
	if got := hear(t, c); got != "carried" {
		t.Errorf("heard %q", got)
	}
}

func TestRelayHasRoomForSomeClientsOnly(t *testing.T) {
	r, err := newRelay(echo(t).LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for port := range uint16(maxClients) {
		if r.upstream(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port+1)) == nil {
			t.Fatalf("client %d was refused", port)
		}
	}
	if r.upstream(netip.MustParseAddrPort("127.0.0.1:9999")) != nil {
		t.Error("one client too many got a socket")
	}
	if r.upstream(netip.MustParseAddrPort("127.0.0.1:1")) == nil {
		t.Error("a known client was refused")
	}
}

func TestRelayWithoutTargetEnds(t *testing.T) {
	r, err := newRelay("127.0.0.1:9") // nobody listens: its sockets get errors
	if err != nil {
		t.Fatal(err)
	}
	say(t, dial(t, r.addr()), "x")
	r.close()
	r.close()
}

func skillText(s skill) match.SkillText {
	return match.SkillText{Name: s.Name, Description: s.Description, Tags: s.Tags}
}

func loadPlans(t *testing.T) (out []*task.Plan) {
	t.Helper()
	for _, file := range planFiles {
		text, err := plans.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := task.LoadPlan(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, p)
	}
	return out
}

// Each subtask's request must be answered by the agent that is named like it, and by no gateway on the way to it.
func TestRequestsFindTheirAgentsAndNoOthers(t *testing.T) {
	hops := map[int]bool{}
	for _, p := range loadPlans(t) {
		for _, s := range p.Subtasks {
			q := match.Query{Text: s.Request.Text}
			for _, a := range cast {
				score := match.ScoreText(q, skillText(a.skills[0]))
				if right := a.name == s.ID; right != (score >= match.AnswerBar) {
					t.Errorf("%q: agent %s scores %d, the bar is %d", s.Request.Text, a.name, score, match.AnswerBar)
				} else if right {
					hops[a.domain] = true
				}
			}
		}
	}
	if len(hops) != len(domains) {
		t.Errorf("the plans use agents of %d domains, not of %d", len(hops), len(domains))
	}
}

func checkACS(t *testing.T, a agent) {
	t.Helper()
	raw, err := a.acs()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := acs.Parse(raw)
	if err != nil {
		t.Fatalf("%s: %v", a.name, err)
	}
	if problems := doc.Validate(acs.Options{Draft: true}); len(problems) > 0 {
		t.Errorf("%s (%s): %v", a.name, a.title, problems)
	}
}

func TestCastPresentsValidSpecifications(t *testing.T) {
	for _, a := range append([]agent{assistant}, cast...) {
		checkACS(t, a)
	}
}

// monster is a corpus of everything that an ACS does not take as it is.
func monster() []tool {
	long := strings.Repeat("words and ", 2000)
	tools := []tool{
		{ID: "A|b c", Name: "tab\there", Description: "bell \a rings", Category: "Data/" + strings.Repeat("x", 90), Server: "S"},
		{ID: "A|b-c", Name: strings.Repeat("ü", 300), Description: long, Server: "S", ServerDescription: long},
		{ID: "_under", Description: "no name", Server: "S"},
		{ID: "使用", Name: "使用", Description: "必应搜索", Server: "S"},
		{ID: strings.Repeat("i", 300), Name: "long id", Server: "S"},
		{ID: "alone", Name: "without server and category"},
	}
	for i := range 300 {
		tools = append(tools, tool{ID: fmt.Sprintf("many/%d", i), Name: "one of many", Category: "Many", Description: long[:300]})
	}
	return tools
}

func TestCorpusBecomesValidAgents(t *testing.T) {
	tools := monster()
	all, err := groups(tools)
	if err != nil {
		t.Fatal(err)
	}
	seen, perDomain := map[string]bool{}, make([]int, len(domains))
	for _, g := range all {
		checkACS(t, g.agent)
		perDomain[g.domain]++
		if len(g.skills) != len(g.tools) {
			t.Errorf("%s: %d skills for %d tools", g.name, len(g.skills), len(g.tools))
		}
		for _, id := range g.tools {
			seen[id] = true
		}
	}
	if len(seen) != len(tools) {
		t.Errorf("%d of %d tools are offered", len(seen), len(tools))
	}
	if len(all) < 5 || perDomain[0]-perDomain[2] > 1 || perDomain[2] == 0 {
		t.Errorf("%d agents, dealt %v", len(all), perDomain)
	}
}

func TestSkillIDs(t *testing.T) {
	used := map[string]bool{}
	var got []string
	for _, s := range []string{"a/b.c_d:e-f", "A|b c", "A-b-c", "_x", "", "使", strings.Repeat("y", 200)} {
		id := skillID(s, used)
		if !acs.ValidSkillID(id) {
			t.Errorf("%q became %q, which is no skill id", s, id)
		}
		got = append(got, id)
	}
	want := []string{"a/b.c_d:e-f", "A-b-c", "A-b-c-2", "t_x", "t", "t-", strings.Repeat("y", maxSkillID)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadInput(t *testing.T) {
	corpus := write(t, `{"id":"a","name":"n","description":"d","unknown":1}`+"\n\n"+`{"id":"b","name":"n"}`+"\n")
	queries := write(t, `{"id":"q","text":"t","gold":["a"],"split":"x"}`)
	in, err := readInput(options{corpus: corpus, queries: queries})
	if err != nil {
		t.Fatal(err)
	}
	if len(in.corpus) != 2 || len(in.queries) != 1 || in.queries[0].Gold[0] != "a" {
		t.Errorf("read %+v", in)
	}
	for _, bad := range []string{"", "{", `{"name":"no id"}`, `{"id":"nothing else"}`} {
		if _, err := readInput(options{corpus: write(t, bad)}); err == nil || !strings.Contains(err.Error(), "LiveMCPBench") {
			t.Errorf("corpus %q: %v", bad, err)
		}
	}
	if _, err := readInput(options{corpus: write(t, `{"id":"a","name":"n"}`+"\n"+`{"id":"a","name":"n"}`)}); err == nil {
		t.Error("a tool that is there twice was taken")
	}
}

func TestUsageExitsWith2(t *testing.T) {
	for _, args := range [][]string{
		{"-corpus", filepath.Join(t.TempDir(), "absent.jsonl")}, {"-o", "xml"}, {"-break", "AG1-AG2"}, {"-queries", "x"}, {"extra"},
		{"-unknown"}, {"-break", "AG3-AG2", "-corpus", "x"},
	} {
		var out, errs bytes.Buffer
		if code := mainExit(args, &out, &errs); code != exitUsage || errs.Len() == 0 || out.Len() > 0 {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, out.String(), errs.String())
		}
	}
	if linkNamed("ag2-ag3") != 1 || linkNamed("AG1-AG3") != 0 {
		t.Error("a link is not found by its name")
	}
}

func TestRanksAndLatencies(t *testing.T) {
	var a found
	if err := json.Unmarshal([]byte(`{"results":[{"capability":"x"},{"capability":"y"}]}`), &a); err != nil {
		t.Fatal(err)
	}
	toolOf := map[string]string{"x": "one", "y": "two"}
	if r := rankOf(query{Gold: []string{"two"}}, a, toolOf); r != 1 {
		t.Errorf("rank %d", r)
	}
	if r := rankOf(query{Gold: []string{"three", ""}}, found{}, toolOf); r != -1 {
		t.Errorf("rank %d", r)
	}
	if diff := cmp.Diff(latency{P50: 3, P99: 4, N: 4}, summary([]float64{4, 1, 3, 2})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// doneEvent is how agentd ends a task of two subtasks, the second of which failed.
const doneEvent = `{"event":"done","task":"T","state":{"plan":{"name":"P","query":"Q","subtasks":[{"id":"a","name":"A","request":{"text":"ta"}},
{"id":"b","name":"B","request":{"text":"tb"}}]},"TaskContext":{"TaskID":"T","UserQuery":"Q","TaskName":"P","TaskDescription":"",
"GoalStatus":[],"OverallStatus":"failed"},"subtasks":[{"id":"a","name":"A","status":"completed","agent_id":"X","capability":"acps://X/s","sid":"01",
"hops":1,"gateways":["G3","G1"],"resolve_ms":4,"setup_ms":5,"elapsed_ms":9,"AgentContext":{"AgentID":"X","AgentName":"x","SubTaskID":"a","SubTaskName":"A",
"Dependencies":[],"ContextItems":[],"todoItems":[],"ItemStateUpdates":[],"KeyInformation":[],"EvaluationPolicy":{"SuccessCriteria":[],"ConfidenceThreshold":0},
"EvaluationResult":{"Status":"passed","Confidence":1}}},{"id":"b","name":"B","status":"failed","reason":{"code":"48","message":"gone"},
"hops":0,"resolve_ms":0,"setup_ms":0,"elapsed_ms":1}]},"failed":{"code":"48","message":"B: gone"}}`

func TestReportOfATask(t *testing.T) {
	var e event
	if err := json.Unmarshal([]byte(doneEvent), &e); err != nil {
		t.Fatal(err)
	}
	w := &world{names: map[string]string{"G1": "AG1", "G3": "AG3", "X": "x", "ME": assistant.name}}
	r := &report{}
	w.record(e.State.Plan, e, 12*time.Millisecond, r)
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"tasks":[{"name":"P","task_id":"T","status":"failed","subtasks":[` +
		`{"id":"a","name":"A","status":"completed","agent":"x","hops":1,"elapsed_ms":9,"reason":null},` +
		`{"id":"b","name":"B","status":"failed","hops":0,"elapsed_ms":1,"reason":{"code":"48","message":"gone"}}],` +
		`"elapsed_ms":12,"reason":{"code":"48","message":"B: gone"}}],` +
		`"resolutions":[{"query":"ta","hops":1,"gateways":["AG1","AG3"],"capability":"acps://X/s","elapsed_ms":4}],` +
		`"sessions":[{"sid":"01","initiator":"ME","target":"X","setup_ms":5}],"build_ms":0,"run_ms":0}`
	if string(got) != want {
		t.Errorf("report\n%s, want\n%s", got, want)
	}
	if r.complete() {
		t.Error("a failed task counts as complete")
	}
}
