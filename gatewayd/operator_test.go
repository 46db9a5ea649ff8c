package main

import (
	"strings"
	"testing"
	"time"

	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/monitor"
)

func TestRoutesAsText(t *testing.T) {
	var out strings.Builder
	printRoutes(&out, []admin.KnownRow{
		{Origin: "AG2", Domain: "far.example", NS: "tag", Label: "medicine", Level: "full", Version: "7.1", LeftS: 90, ToldTo: []string{"AG9", "AG8"}, Routes: []admin.RouteRow{
			{Gateway: "AG3", Domain: "hub.example", Role: "customer", Path: []string{"hub.example", "far.example"}, MetricMS: 12, AgeS: 61, Best: true, By: "role"},
			{Gateway: "AG4", Domain: "up.example", Role: "provider", Path: []string{"up.example", "far.example"}, AgeS: 5, Stale: true, By: "role"},
			{Gateway: "AG5", Domain: "off.example", Role: "peer", Lame: true, By: "lame"},
		}},
		{Origin: "AG1", Domain: "own.example", NS: "sketch", Own: true, Quarantined: true},
		{Origin: "AG6", Label: "x", Routes: []admin.RouteRow{{Best: true}}},
	})
	for _, say := range []string{
		"medicine  far.example  tag, level full, of AG2, version 7.1, 1m30s left\n", "  * via hub.example AG3 (customer)  path [hub.example far.example]  12 ms  age 1m1s  best by role\n",
		"    via up.example AG4 (provider)  path [up.example far.example]  0 ms  age 5s  stale  behind the best by role\n", "closed: the neighbour takes nothing new, or is drained here  behind the best by lame\n",
		"    told to AG9, AG8\n", "(sketch)  own.example", "quarantined", "  * own\n", "best: the only one\n",
	} {
		if !strings.Contains(out.String(), say) {
			t.Errorf("%q is not in\n%s", say, out.String())
		}
	}
}

func TestPeersAsText(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	rows := []admin.PeerRow{
		{Domain: "hub.example", Gateway: "AG3", Role: "provider", State: "up", Since: &at, Acked: true, Entries: 9, Sent: 4, Accepted: 20, LastAck: &at, Drained: true, Lame: true,
			Rejected: map[string]uint64{"POLICY": 2, "EXPIRED": 1}, Refused: map[string]uint64{"BAD_PATH": 3}, Ended: "it said GOODBYE SHUTDOWN", EndedAt: &at, Until: &at},
		{Domain: "far.example", Role: "peer", State: "stale", Entries: 5, Stale: 5, Error: "no route"},
	}
	var short, long strings.Builder
	printPeers(&short, rows)
	for _, say := range []string{"up, drained, lame", "it said GOODBYE SHUTDOWN", "no route", "RECEIVED"} {
		if !strings.Contains(short.String(), say) {
			t.Errorf("%q is not in\n%s", say, short.String())
		}
	}
	printPeerDetails(&long, rows)
	for _, say := range []string{
		"state        up, drained, lame since 2026-12-01T10:00:00Z\n", "9 digests held, 0 of them stale; 20 entries taken, refused 1 EXPIRED, 2 POLICY\n",
		"4 digests it holds, all acknowledged: true, it refused 3 BAD_PATH\n", "last ack     2026", "last end     2026-12-01T10:00:00Z: it said GOODBYE SHUTDOWN\n",
		"5 digests held, 5 of them stale; 0 entries taken\n", "last error   no route\n",
	} {
		if !strings.Contains(long.String(), say) {
			t.Errorf("%q is not in\n%s", say, long.String())
		}
	}
}

func TestEventsAsText(t *testing.T) {
	for want, e := range map[string]monitor.Event{
		"peer.down         hub.example  AG3  HOLD_EXPIRED: hold time is over":             {Kind: monitor.PeerDown, Domain: "hub.example", Gateway: "AG3", Text: "HOLD_EXPIRED: hold time is over"},
		`digest.rejected   hub.example  AG3  "tag medicine" of far.example AG2  POLICY`:   {Kind: monitor.DigestRejected, Domain: "hub.example", Gateway: "AG3", NS: "tag", Label: "medicine", Of: "far.example", Origin: "AG2", Code: "POLICY"},
		`route.changed     "tag medicine" of far.example AG2  from AG3 to nobody`:         {Kind: monitor.RouteChanged, NS: "tag", Label: "medicine", Of: "far.example", Origin: "AG2", From: "AG3"},
		"sync.ended        hub.example  AG3  full  7 digests held":                        {Kind: monitor.SyncEnded, Domain: "hub.example", Gateway: "AG3", Text: "full", Count: 7},
		"agent.attached    agent A1  192.0.2.1:99":                                        {Kind: monitor.AgentAttached, Agent: "A1", Text: "192.0.2.1:99"},
		"lost              3 events were lost here: they came faster than they were read": {Kind: monitor.Lost, Count: 3, Text: "3 events were lost here: they came faster than they were read"},
	} {
		e.Time = time.Date(2026, 12, 1, 10, 0, 0, 1e6, time.Local)
		if got := eventText(e); got != "10:00:00.001  "+want {
			t.Errorf("got  %s\nwant 10:00:00.001  %s", got, want)
		}
	}
}
