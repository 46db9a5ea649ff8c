package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Registration: what agents do to the directory, durable before it is answered.

const (
	putClients = 64
	putRounds  = 4 // of each client in one sample of the throughput rows
	putSkills  = 3 // of an ACS of about 1.3 KB
)

// putter is an attached agent that replaces its ACS again and again.
type putter struct {
	*agent
	bodies  [2][]byte // two versions in turn: each changes something
	version uint64
}

// registrations enrols the agents and returns the rows of ACS_PUT and ENROL.
func (w *world) registrations(ctx context.Context) ([]row, error) {
	var list []*putter
	for i := range putClients {
		p, err := w.newPutter(ctx, fmt.Sprintf("Putter %d", i))
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	w.stopAlive()
	for _, p := range list {
		w.agents = append(w.agents, p.agent)
	}
	w.stopAlive = keepAlive(w.agents)
	body := list[0].bodies[0]
	fmt.Printf("registration: an ACS of %d bytes; with %d clients each sample is %d puts, its time is of one\n", len(body), putClients, putClients*putRounds)
	var floors []*floorPutter
	for range putClients {
		conn, err := dialFloor(ctx, w.floor.conn.RemoteAddr().String()) // an agent has a connection of its own
		if err != nil {
			return nil, err
		}
		w.putters = append(w.putters, conn)
		f, err := conn.newPutter(ctx, body)
		if err != nil {
			return nil, err
		}
		floors = append(floors, f)
	}
	ours := together(putClients, func(ctx context.Context, i int) error { return list[i].put(ctx) })
	enrol, floorEnrol, err := w.enrolment(body)
	if err != nil {
		return nil, err
	}
	return []row{
		{name: "ACS_PUT, one client", bar: 1.4, blocks: 100, ours: timed(list[0].put), floor: timed(func(context.Context) error { return floors[0].put(floorPut) })},
		{name: "ENROL", bar: 1.3, blocks: 40, ours: enrol, floor: floorEnrol},
		{
			name: "ACS_PUT, 64 clients, to its CPU floor", bar: 1 / .35, blocks: 8, ours: ours, wide: true,
			floor: together(putClients, func(_ context.Context, i int) error { return floors[i].put(floorPutCPU) }),
		},
		{name: "ACS_PUT, 64 clients, to Badger one by one", bar: 1 / 2.5, blocks: 8, ours: ours, floor: w.floor.oneByOne, wide: true},
	}, nil
}

// together has n clients do something putRounds times each at once; the time is that of one.
func together(n int, do func(ctx context.Context, client int) error) op {
	return func(ctx context.Context) (time.Duration, error) {
		errs := make([]error, n)
		at := time.Now()
		var running sync.WaitGroup
		for i := range n {
			running.Go(func() {
				for range putRounds {
					if errs[i] = do(ctx, i); errs[i] != nil {
						return
					}
				}
			})
		}
		running.Wait()
		took := time.Since(at) / time.Duration(n*putRounds)
		if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
			return 0, errs[i]
		}
		return took, nil
	}
}

func putSample(name, version string) ([]byte, error) {
	var skills []skill
	for i := range putSkills {
		skills = append(skills, skill{
			ID: fmt.Sprintf("medicine.%d", i), Name: fmt.Sprintf("Sell medicine of class %d", i), Tags: []string{"medicine", "shopping", "pharmacy"},
			Description: "Sells the medicine of a prescription, tells its price and when it can be had, and which other ones have the same substance. " + version,
		})
	}
	return draft(name, skills)
}

func (w *world) newPutter(ctx context.Context, name string) (*putter, error) {
	p := &putter{version: 1}
	for i, version := range []string{"One.", "Two."} {
		var err error
		if p.bodies[i], err = putSample(name, version); err != nil {
			return nil, err
		}
	}
	var err error
	p.agent, err = w.joinWith(ctx, w.b, directory.VisibleDomain, p.bodies[0])
	if err != nil {
		return nil, fmt.Errorf("enrol and attach %s: %w", name, err)
	}
	return p, nil
}

// put replaces the ACS, as agentd does.
func (p *putter) put(ctx context.Context) error {
	s, err := p.conn.Open(ctx, frame.StreamRegistration)
	if err != nil {
		return err
	}
	m := &arp.ACSPut{AIC: p.aic, ACS: p.bodies[p.version%2], Expected: p.version, Visibility: uint8(directory.VisibleDomain)}
	if err := s.WriteMessage(wait, m); err != nil {
		return err
	}
	s.CloseWrite()
	t, payload, err := s.ReadFrame(wait)
	if err != nil {
		return err
	}
	if t == frame.Answer {
		var refusal arp.Answer
		if err := frame.Unmarshal(payload, &refusal); err != nil {
			return err
		}
		return refusal.Err()
	}
	var out arp.ACSState
	if err := frame.Unmarshal(payload, &out); err != nil {
		return err
	}
	p.version = out.EntryVersion
	return nil
}

// enrolment is one whole enrolment from the first packet to the answer. Key, request and token are there before.
func (w *world) enrolment(body []byte) (ours, floor op, err error) {
	ours = func(ctx context.Context) (time.Duration, error) {
		self, csr, err := applicant()
		if err != nil {
			return 0, err
		}
		token, err := w.token(ctx, w.b)
		if err != nil {
			return 0, err
		}
		m := &arp.Enrol{CSR: csr, Draft: body, DraftKind: arp.DraftACS, Visibility: uint8(directory.VisibleDomain)}
		at := time.Now()
		_, err = w.present(ctx, w.b, self, token, m)
		return time.Since(at), err
	}
	dial, err := w.floor.enroller()
	if err != nil {
		return nil, nil, err
	}
	w.enroller = dial
	floor = func(ctx context.Context) (time.Duration, error) {
		self, csr, err := applicant()
		if err != nil {
			return 0, err
		}
		at := time.Now()
		err = dial.enrol(ctx, self, csr, body)
		return time.Since(at), err
	}
	return ours, floor, nil
}

// applicant is a new key's certificate over itself and its request.
func applicant() (tls.Certificate, []byte, error) {
	key, err := identity.NewLeafKey()
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	self, err := identity.SelfSigned(key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	csr, err := identity.NewCSR(key)
	return self, csr, err
}
