package aaap

import (
	"strings"
	"testing"
	"time"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

func TestPaceNeverStopsARotation(t *testing.T) {
	p, at := newPace(), time.Now()
	for range 1000 { // one by hand after the other, as fast as the bundle's refresh lets them
		for range 2 {
			if err := allow(p.keys, at, "changes its keys"); err != nil {
				t.Fatal(err)
			}
		}
		at = at.Add(time.Minute)
	}
}

func TestPaceStopsWhoDoesNotStop(t *testing.T) {
	p, at := newPace(), time.Now()
	for range keysBurst {
		if err := allow(p.keys, at, "changes its keys"); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // being refused costs no turn
		if err := allow(p.keys, at, "changes its keys"); frame.CodeOf(err) != frame.RateLimited || !strings.Contains(err.Error(), "try again in 10s") {
			t.Fatal(err)
		}
	}
	if err := allow(p.keys, at.Add(keysEvery), "changes its keys"); err != nil {
		t.Error(err)
	}
	if err := allow(p.connects, at, "connects"); err != nil {
		t.Errorf("one bound counts for the other: %v", err)
	}
}

func TestPacesAreBounded(t *testing.T) {
	d := identitytest.New(t, "home.example", "A")
	trust, err := identity.NewTrust(d.Raw, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(ServerConfig{Trust: trust})
	own := s.paceOf(string(d.Gateway))
	for range 10 * maxGateways {
		s.paceOf(string(d.AIC(t)))
	}
	if len(s.paces) > 2*maxGateways+1 || s.paceOf(string(d.Gateway)) != own {
		t.Errorf("%d paces, or that of a gateway of the domain is forgotten", len(s.paces))
	}
}
