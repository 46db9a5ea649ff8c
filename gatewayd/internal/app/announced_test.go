package app

import (
	"runtime"
	"testing"
	"time"

	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
)

// Whoever hears of an agent two domains away can ask for it in the same moment: every gateway on the way, and the agent's own, knows
// by then what it needs to answer.
func TestWhatIsAnnouncedIsAnswered(t *testing.T) {
	t.Parallel()
	for range 3 {
		home, hub, far := newGateway(t, "home.example"), newGateway(t, "hub.example"), newGateway(t, "far.example")
		done, cert := far.mustEnrol()
		if _, err := far.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err != nil {
			t.Fatal(err)
		}
		hub.addPeer(home, PeerOptions{Role: "customer", Transit: true})
		hub.addPeer(far, PeerOptions{Role: "customer", Transit: true})
		home.addPeer(hub, PeerOptions{Role: "provider", Addresses: []string{hub.cfg.Listen}, Introduces: []string{"*.example"}, FirstUse: "auto"})
		eventually(t, "home is connected", func() bool { return home.peerState("hub.example").State == "up" })
		far.addPeer(hub, PeerOptions{Role: "provider", Addresses: []string{hub.cfg.Listen}, Introduces: []string{"*.example"}, FirstUse: "auto"})

		query := semreq.Query{Text: "sore throat remedies"}
		for end := time.Now().Add(15 * time.Second); len(home.app.peers.Candidates(query)) == 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("home never hears of the agent")
			}
		}
		out, err := home.app.Resolve(t.Context(), semreq.Ask{Query: query})
		if err != nil || out.Status != frame.OK.String() || len(out.Results) == 0 {
			t.Fatalf("%+v %v", out, err)
		}
	}
}
