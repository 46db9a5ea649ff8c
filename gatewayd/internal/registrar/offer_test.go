package registrar

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
)

func TestCase60OfferFlood(t *testing.T) {
	a := &attachment{agent: Agent{AIC: "T"}, offers: map[[16]byte]*offer{}}
	minted := 0
	mint := func() ([16]byte, []byte, error) {
		minted++
		return [16]byte{byte(minted), byte(minted >> 8)}, []byte("sat"), nil
	}
	now := time.Now()
	place := func(origin string, at time.Time) error {
		_, _, _, err := a.place(origin, at, mint)
		return err
	}
	for i := range maxOffersDomain {
		if err := place("flood.example", now); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := place("flood.example", now); frame.CodeOf(err) != frame.Overloaded || minted != maxOffersDomain {
		t.Errorf("offer %d of one domain: %v, %d minted", maxOffersDomain+1, err, minted)
	}
	for i := range maxOffers - maxOffersDomain {
		if err := place(fmt.Sprintf("d%d.example", i), now); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := place("late.example", now); frame.CodeOf(err) != frame.Overloaded || minted != maxOffers {
		t.Errorf("offer %d of a target: %v, %d minted", maxOffers+1, err, minted)
	}
	a.acknowledge(arp.OfferAck{CTI: append([]byte{1, 0}, make([]byte, 14)...), Code: frame.TokenReplayed}) // the first has become a session
	if err := place("flood.example", now); err != nil {
		t.Errorf("a used offer still takes its place: %v", err)
	}
	if err := place("flood.example", now.Add(offerLife+time.Second)); err != nil || len(a.offers) != 1 {
		t.Errorf("offers outlive their tokens: %v, %d left", err, len(a.offers))
	}
}

func TestOffersThatFailLeaveNothing(t *testing.T) {
	a := &attachment{agent: Agent{AIC: "T"}, offers: map[[16]byte]*offer{}}
	if _, _, _, err := a.place("d.example", time.Now(), func() ([16]byte, []byte, error) {
		return [16]byte{}, nil, frame.Errorf(frame.Internal, "no key")
	}); err == nil || len(a.offers) != 0 {
		t.Errorf("%v, %d offers", err, len(a.offers))
	}
}

func TestScreen(t *testing.T) {
	observed := netip.MustParseAddr("198.51.100.7")
	ep := func(host string) semreq.Endpoint {
		return semreq.Endpoint{Host: host, Port: 4434, ALPN: frame.ALPNAgent}
	}
	r := &Registrar{}
	got := r.screen([]semreq.Endpoint{
		ep("127.0.0.1"), ep("::1"), ep("224.0.0.1"), ep("169.254.1.1"), ep("fe80::1"), ep("0.0.0.0"), ep("host.example"),
		{Host: "198.51.100.7", Port: 0, ALPN: frame.ALPNAgent}, {Host: "198.51.100.7", Port: 1, ALPN: "h3"}, ep("198.51.100.7"), ep("10.0.0.1"),
	}, observed)
	if got := r.screen([]semreq.Endpoint{ep("8.8.8.8")}, observed); len(got) != 0 {
		t.Error("an agent may name a machine that it is not")
	}
	if len(got) != 2 || got[0].Host != "198.51.100.7" || got[1].Host != "10.0.0.1" {
		t.Errorf("kept %v", got)
	}
	many := make([]semreq.Endpoint, 20)
	for i := range many {
		many[i] = ep(fmt.Sprintf("10.0.0.%d", i+1))
	}
	if got := r.screen(many, observed); len(got) != semreq.MaxEndpoints {
		t.Errorf("%d endpoints kept", len(got))
	}
	lab := &Registrar{cfg: Config{Lab: true}}
	if got := lab.screen([]semreq.Endpoint{ep("127.0.0.1")}, netip.MustParseAddr("127.0.0.1")); len(got) != 1 {
		t.Error("a lab's loopback agents cannot be reached")
	}
	if got := lab.screen([]semreq.Endpoint{ep("127.0.0.1")}, observed); len(got) != 0 {
		t.Error("a remote agent may claim our loopback")
	}
}
