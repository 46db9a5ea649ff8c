package app

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/monitor"
	"agentgw/internal/control"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// mustBe checks the code of an error, and what it says.
func mustBe(t *testing.T, err error, code frame.Code, say string) {
	t.Helper()
	if frame.CodeOf(err) != code || code != frame.OK && !strings.Contains(err.Error(), say) {
		t.Errorf("%v: want %v with %q", err, code, say)
	}
}

// routesOf are the routes to a label.
func (g *gateway) routesOf(label string) (rows []admin.KnownRow) {
	page, err := g.app.Routes(g.t.Context(), admin.RoutesRequest{Name: label})
	if err != nil {
		return nil
	}
	return page.Routes
}

// finds says whether a request of the gateway's own finds an agent elsewhere.
func (g *gateway) finds(aic string) bool {
	out, err := g.app.Resolve(g.t.Context(), semreq.Ask{NoCache: true, Query: semreq.Query{Text: "sore throat remedies"}})
	return err == nil && len(out.Results) > 0 && out.Results[0].AIC == aic
}

// threeInARow is home and far, both customers of hub, far with an agent that is attached.
func threeInARow(t *testing.T) (home, hub, far *gateway, aic string) {
	t.Helper()
	home, hub, far = newGateway(t, "home.example"), newGateway(t, "hub.example"), newGateway(t, "far.example")
	done, cert := far.mustEnrol()
	if _, err := far.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err != nil {
		t.Fatal(err)
	}
	hub.addPeer(home, PeerOptions{Role: "customer", Transit: true})
	hub.addPeer(far, PeerOptions{Role: "customer", Transit: true})
	for _, g := range []*gateway{home, far} {
		g.addPeer(hub, PeerOptions{Role: "provider", Addresses: []string{hub.cfg.Listen}, Introduces: []string{"*.example"}, FirstUse: "auto"})
	}
	eventually(t, "home finds the agent of far", func() bool { return home.finds(done.AIC) })
	return home, hub, far, done.AIC
}

// watch collects the events of a gateway over its control socket until the test ends.
func (g *gateway) watch(kinds ...string) func(is func(monitor.Event) bool) bool {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var seen []monitor.Event
	ended := make(chan error, 1)
	before := g.app.events.Watched()
	go func() {
		ended <- control.NewClient(g.cfg.Control).Stream(ctx, "/v1/monitor", admin.MonitorRequest{Kinds: kinds}, func(line json.RawMessage) error {
			var e monitor.Event
			if err := json.Unmarshal(line, &e); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e)
			return nil
		})
	}()
	g.t.Cleanup(func() {
		cancel()
		<-ended
	})
	if !before {
		eventually(g.t.(*testing.T), "somebody watches", g.app.events.Watched)
	}
	return func(is func(monitor.Event) bool) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(seen, is)
	}
}

func TestRoutesAndPeers(t *testing.T) {
	t.Parallel()
	home, hub, far, _ := threeInARow(t)
	rows := home.routesOf("medicine")
	if len(rows) != 1 || len(rows[0].Routes) != 1 {
		t.Fatalf("%+v", rows)
	}
	k, r := rows[0], rows[0].Routes[0]
	if k.Domain != "far.example" || k.Origin != string(far.app.home.gateway) || k.NS != "tag" || k.LeftS <= 0 || k.Own {
		t.Errorf("%+v", k)
	}
	if !r.Best || r.By != "" || r.Domain != "hub.example" || r.Role != "provider" || !slices.Equal(r.Path, []string{"hub.example", "far.example"}) || r.Stale || r.Lame {
		t.Errorf("%+v", r)
	}
	if told := hub.routesOf("far.example"); len(told) == 0 || !slices.Equal(told[0].ToldTo, []string{string(home.app.home.gateway)}) {
		t.Errorf("hub has told %+v", told)
	}
	if own := far.routesOf("medicine"); len(own) != 1 || !own[0].Own || len(own[0].Routes) != 0 || !slices.Equal(own[0].ToldTo, []string{string(hub.app.home.gateway)}) {
		t.Errorf("its own: %+v", own)
	}
	// In pages.
	all, err := far.app.Routes(t.Context(), admin.RoutesRequest{})
	if err != nil || all.Next != "" || len(all.Routes) < 2 {
		t.Fatalf("%+v %v", all, err)
	}
	var paged []admin.KnownRow
	for r := (admin.RoutesRequest{Limit: 1}); len(paged) <= len(all.Routes); {
		page, err := far.app.Routes(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if paged = append(paged, page.Routes...); page.Next == "" {
			break
		}
		r.After = page.Next
	}
	if len(paged) != len(all.Routes) {
		t.Errorf("%d in pages, %d at once", len(paged), len(all.Routes))
	}
	_, err = home.app.Routes(t.Context(), admin.RoutesRequest{Name: "medicin"})
	mustBe(t, err, frame.NotFound, "did you mean medicine?")
	_, err = home.app.Routes(t.Context(), admin.RoutesRequest{Name: "weather"})
	mustBe(t, err, frame.NotFound, "gatewayd routes")
	for _, after := range []string{"x", "x/zz", "x/00"} {
		_, err = home.app.Routes(t.Context(), admin.RoutesRequest{After: after})
		mustBe(t, err, frame.ReqInvalid, "next of the page before")
	}

	p := home.peerState("hub.example")
	if p.Since == nil || p.Entries == 0 || p.Accepted < uint64(p.Entries) || p.Stale != 0 || p.Ended != "" || p.Drained || p.Lame {
		t.Errorf("%+v", p)
	}
	eventually(t, "hub has acknowledged", func() bool {
		return far.peerState("hub.example").LastAck != nil && far.peerState("hub.example").Sent > 0
	})
	show, err := home.app.Peer(admin.PeerRequest{Peer: string(hub.app.home.gateway)})
	if err != nil || len(show) != 1 || show[0].Domain != "hub.example" {
		t.Errorf("%+v %v", show, err)
	}
	_, err = home.app.Peer(admin.PeerRequest{Peer: "hubb.example"})
	mustBe(t, err, frame.NotFound, "did you mean hub.example?")
	hub.stop()
	eventually(t, "why it ended, and what is kept", func() bool {
		p := home.peerState("hub.example")
		return strings.Contains(p.Ended, "GOODBYE SHUTDOWN") && p.EndedAt != nil && p.Since == nil && p.Stale == p.Entries && p.Stale > 0
	})
	if rows := home.routesOf("medicine"); len(rows) != 1 || !rows[0].Routes[0].Stale {
		t.Errorf("while it is away: %+v", rows)
	}
}

func TestResetAndRefreshPeer(t *testing.T) {
	t.Parallel()
	home, hub, _, aic := threeInARow(t)
	seen := home.watch()
	before := *home.peerState("hub.example").Since
	ask, err := home.app.RefreshPeer(t.Context(), admin.PeerRequest{Peer: "hub.example"})
	if err != nil || ask.Asked != 1 {
		t.Fatalf("%+v %v", ask, err)
	}
	eventually(t, "a whole synchronisation", func() bool {
		return seen(func(e monitor.Event) bool {
			return e.Kind == monitor.SyncEnded && e.Text == "full" && e.Domain == "hub.example" && e.Count > 0
		})
	})
	if p := home.peerState("hub.example"); p.State != "up" || !p.Since.Equal(before) || !home.finds(aic) {
		t.Errorf("a refresh has cost the session: %+v", p)
	}
	done, err := home.app.ResetPeer(t.Context(), admin.PeerRequest{Peer: string(hub.app.home.gateway)})
	if err != nil || done.Ended != 1 || !done.Dials {
		t.Fatalf("%+v %v", done, err)
	}
	eventually(t, "another session", func() bool {
		p := home.peerState("hub.example")
		return p.State == "up" && p.Since != nil && p.Since.After(before) && p.Acked && home.finds(aic)
	})
	if p := hub.peerState("home.example"); !strings.Contains(p.Ended, "reset by its operator") {
		t.Errorf("hub was told %q", p.Ended)
	}
	if !seen(func(e monitor.Event) bool {
		return e.Kind == monitor.PeerDown && e.Domain == "hub.example" && e.Text != ""
	}) ||
		!seen(func(e monitor.Event) bool {
			return e.Kind == monitor.PeerUp && e.Gateway == string(hub.app.home.gateway)
		}) {
		t.Error("the end and the beginning are not told")
	}
	for began, n := time.Now(), 0; n < 6; n++ { // the back-off would have come to more than 12 s
		since := *home.peerState("hub.example").Since
		if done, err := home.app.ResetPeer(t.Context(), admin.PeerRequest{Peer: "hub.example"}); err != nil || done.Ended != 1 {
			t.Fatalf("%+v %v", done, err)
		}
		eventually(t, "another session, at once", func() bool {
			p := home.peerState("hub.example")
			return p.State == "up" && p.Since != nil && p.Since.After(since)
		})
		if took := time.Since(began); took > 9*time.Second {
			t.Fatalf("%d resets took %v", n+1, took)
		}
	}
	// The side that is dialled can only wait.
	back, err := hub.app.ResetPeer(t.Context(), admin.PeerRequest{Peer: "home.example"})
	if err != nil || back.Ended != 1 || back.Dials {
		t.Errorf("%+v %v", back, err)
	}
	eventually(t, "home comes back", func() bool { return hub.peerState("home.example").State == "up" })
	home.stop()
	eventually(t, "home is gone", func() bool { return hub.peerState("home.example").State != "up" })
	_, err = hub.app.ResetPeer(t.Context(), admin.PeerRequest{Peer: "home.example"})
	mustBe(t, err, frame.State, "names no address")
	_, err = hub.app.RefreshPeer(t.Context(), admin.PeerRequest{Peer: "home.example"})
	mustBe(t, err, frame.State, "no session with home.example")
	_, err = hub.app.RefreshPeer(t.Context(), admin.PeerRequest{Peer: "hom.example"})
	mustBe(t, err, frame.NotFound, "did you mean home.example?")
	_, err = hub.app.ResetPeer(t.Context(), admin.PeerRequest{})
	mustBe(t, err, frame.NotFound, "peer list")
}

// A peer that is drained hears of nothing and is asked nothing; the session stays, and everything comes back.
func TestDrainPeer(t *testing.T) {
	t.Parallel()
	home, hub, far, aic := threeInARow(t)
	before := *hub.peerState("far.example").Since
	seen := far.watch("peer.lame")
	if err := hub.app.DrainPeer(t.Context(), admin.PeerRequest{Peer: "far.example"}); err != nil {
		t.Fatal(err)
	}
	mustBe(t, hub.app.DrainPeer(t.Context(), admin.PeerRequest{Peer: "far.example"}), frame.State, "drained already")
	eventually(t, "the way to far is closed", func() bool { return len(home.routesOf("medicine")) == 0 && !home.finds(aic) && !hub.finds(aic) })
	eventually(t, "far is told", func() bool {
		p := far.peerState("hub.example")
		return p.Lame && p.Entries == 0 && p.State == "up" && seen(func(e monitor.Event) bool { return e.Kind == monitor.PeerLame })
	})
	if rows := hub.routesOf("medicine"); len(rows) != 1 || !rows[0].Routes[0].Lame || rows[0].Routes[0].Best {
		t.Errorf("%+v", rows)
	}
	if p := hub.peerState("far.example"); !p.Drained || p.State != "up" || !p.Since.Equal(before) || hub.peerState("home.example").Drained {
		t.Errorf("%+v", p)
	}
	if err := hub.app.DrainPeer(t.Context(), admin.PeerRequest{Peer: "far.example", Undo: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "home finds it again", func() bool { return home.finds(aic) && !far.peerState("hub.example").Lame })
	mustBe(t, hub.app.DrainPeer(t.Context(), admin.PeerRequest{Peer: "far.example", Undo: true}), frame.State, "is not drained")
	mustBe(t, hub.app.DrainPeer(t.Context(), admin.PeerRequest{Peer: "far.exampel"}), frame.NotFound, "did you mean far.example?")
}

// A drained gateway is a lame duck to everybody, and takes part again when that is undone.
func TestDrainGateway(t *testing.T) {
	t.Parallel()
	hub := newGatewayWith(t, "hub.example", func(c *config.Gateway) {
		c.DNS = config.DNS{Listen: []string{"127.0.0.1:0"}, Zone: "hub.example", Host: "gw.hub.example", Names: []string{"gw.hub.example"},
			Addresses: []string{"127.0.0.1"}, TTL: config.Duration(time.Minute)}
	})
	home := newGateway(t, "home.example")
	done, cert := hub.mustEnrol()
	m := arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}
	if _, err := hub.attach(cert, &m); err != nil {
		t.Fatal(err)
	}
	hub.addPeer(home, PeerOptions{Role: "peer"})
	home.addPeer(hub, PeerOptions{Role: "peer", Addresses: []string{hub.cfg.Listen}, Upstream: true})
	eventually(t, "home finds the agent", func() bool { return home.finds(done.AIC) })
	named := func() bool { return strings.Contains(strings.Join(hub.app.names.Records(), "\n"), " IN SVCB 1 ") }
	if !named() {
		t.Fatal("the records do not name it at first")
	}
	mustBe(t, hub.app.Drain(t.Context(), admin.DrainRequest{Undo: true}), frame.State, "not drained")
	if err := hub.app.Drain(t.Context(), admin.DrainRequest{}); err != nil {
		t.Fatal(err)
	}
	mustBe(t, hub.app.Drain(t.Context(), admin.DrainRequest{}), frame.State, "--undo")
	eventually(t, "agents are sent away, peers are told", func() bool {
		p := home.peerState("hub.example")
		return hub.app.Status().Attached == 0 && p.Lame && p.Entries == 0 && p.State == "up"
	})
	if hub.app.Status().Drained == nil || named() {
		t.Errorf("status says drained %v; the records name it: %v", hub.app.Status().Drained, named())
	}
	if asked := home.app.relay.Forwarded.Load(); home.finds(done.AIC) || home.app.relay.Forwarded.Load() != asked {
		t.Error("the last resort is asked though it is lame")
	}
	_, err := hub.attach(cert, &m)
	mustBe(t, err, frame.Shutdown, "")
	key := identitytest.NewKey(t)
	csr, err := identity.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = hub.enrol(hub.token(), key, csr, pharmacyACS)
	mustBe(t, err, frame.Shutdown, "drained")
	if err := hub.app.Drain(t.Context(), admin.DrainRequest{Undo: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := hub.attach(cert, &m); err != nil {
		t.Fatal(err)
	}
	eventually(t, "home finds it again", func() bool { return home.finds(done.AIC) })
	if hub.app.Status().Drained != nil || !named() {
		t.Error("it is not taken back everywhere")
	}
}

// The gateways of a domain hear by the gossip that one is drained, and its records name the others.
func TestDrainInACluster(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 2)
	seen := list[0].watch("member")
	lame := func(at *gateway, who *gateway) bool {
		rows, err := at.app.Members()
		return err == nil && slices.ContainsFunc(rows, func(m admin.Member) bool { return m.Gateway == string(who.app.home.gateway) && m.Lame })
	}
	named := func() int {
		return strings.Count(strings.Join(list[0].app.names.Records(), "\n"), " IN SVCB 1 ")
	}
	eventually(t, "both are named", func() bool { return named() == 2 })
	drain := func(g *gateway, undo bool) {
		t.Helper()
		if err := g.app.Drain(t.Context(), admin.DrainRequest{Undo: undo}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both say so", func() bool { return lame(list[0], g) != undo && lame(list[1], g) != undo })
		eventually(t, "the records name who is not drained", func() bool { return undo == (named() == 2) && named() > 0 })
	}
	drain(list[0], false)
	drain(list[0], true)
	drain(list[1], false)
	list[1].stop()
	eventually(t, "a member has left", func() bool { return seen(func(e monitor.Event) bool { return e.Kind == monitor.MemberLeft }) })
	list[1].start()
	eventually(t, "it is back, and not drained", func() bool {
		return seen(func(e monitor.Event) bool { return e.Kind == monitor.MemberJoined }) && named() == 2
	})
}

func TestMonitor(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	seen, agents := one.watch(), two.watch("agent", "gateway")
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}})
	two.addPeer(one, PeerOptions{Role: "peer"})
	done, cert := two.mustEnrol()
	_, err := two.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant})
	if err != nil {
		t.Fatal(err)
	}
	gw := string(two.app.home.gateway)
	for what, is := range map[string]func(monitor.Event) bool{
		"up": func(e monitor.Event) bool {
			return e.Kind == monitor.PeerUp && e.Gateway == gw && e.Domain == "two.example"
		},
		"begun": func(e monitor.Event) bool { return e.Kind == monitor.SyncBegun && e.Gateway == gw },
		"accepted": func(e monitor.Event) bool {
			return e.Kind == monitor.DigestAccepted && e.Label == "medicine" && e.Of == "two.example" && e.Origin == gw
		},
		"route": func(e monitor.Event) bool {
			return e.Kind == monitor.RouteChanged && e.Label == "medicine" && e.From == "" && e.To == gw
		},
	} {
		eventually(t, what, func() bool { return seen(is) })
	}
	two.app.agents.Drop(done.AIC, frame.Shutdown)
	for _, kind := range []string{monitor.AgentEnrolled, monitor.AgentAttached, monitor.AgentDetached} {
		eventually(t, kind, func() bool {
			return agents(func(e monitor.Event) bool { return e.Kind == kind && e.Agent == done.AIC })
		})
	}
	if agents(func(e monitor.Event) bool { return strings.HasPrefix(e.Kind, "peer") }) {
		t.Error("what was not asked for is told")
	}
	if err := two.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "withdrawn", func() bool {
		return seen(func(e monitor.Event) bool {
			return e.Kind == monitor.DigestWithdrawn && e.Label == "medicine" || e.Kind == monitor.RouteChanged && e.To == ""
		})
	})
	call := func(kinds ...string) error {
		return control.NewClient(one.cfg.Control).Stream(t.Context(), "/v1/monitor", admin.MonitorRequest{Kinds: kinds}, func(json.RawMessage) error { return nil })
	}
	mustBe(t, call("peeer.up"), frame.ReqInvalid, "did you mean peer.up?")
	var held []*monitor.Listener
	for {
		l, err := one.app.events.Listen(nil)
		if err != nil {
			break
		}
		held = append(held, l)
	}
	if len(held) != monitor.MaxListeners-1 {
		t.Errorf("%d more may listen", len(held))
	}
	mustBe(t, call(), frame.Overloaded, "monitors run already")
	// Two that do not read lose events, without holding up anybody; one reads on after a while, and is told.
	stall, told, stalled := make(chan struct{}), make(chan int, 1), make(chan struct{}, 2)
	forever := make(chan struct{})
	defer close(forever)
	slow := func(wait chan struct{}) {
		first := true
		control.NewClient(one.cfg.Control).Stream(context.Background(), "/v1/monitor", admin.MonitorRequest{Kinds: []string{"alarm"}}, func(line json.RawMessage) error {
			if first {
				first = false
				stalled <- struct{}{}
				<-wait
			}
			var e monitor.Event
			if json.Unmarshal(line, &e) == nil && e.Kind == monitor.Lost {
				select {
				case told <- e.Count:
				default:
				}
			}
			return nil
		})
	}
	for i, wait := range []chan struct{}{stall, forever} {
		held[i+1].Close()
		go slow(wait)
	}
	for n := 0; n < 2; {
		one.app.events.Publish(monitor.Event{Kind: monitor.Alarm})
		select {
		case <-stalled:
			n++
		case <-time.After(time.Millisecond):
		}
	}
	for range 20_000 {
		one.app.events.Publish(monitor.Event{Kind: monitor.Alarm, Text: strings.Repeat("x", 100)})
	}
	close(stall)
	select {
	case n := <-told:
		if n < 1 || n > 20_000 {
			t.Errorf("it is told that %d events are missing", n)
		}
	case <-time.After(10 * time.Second):
		t.Error("who did not read is not told of what it has missed")
	}
	// A stop does not wait for those who watch, and they hear of it by the end of their stream.
	held[0].Close()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	began := time.Now()
	one.stop()
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the stop took %v with monitors open", took)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("a monitor goes on though its gateway has stopped")
	}
}
