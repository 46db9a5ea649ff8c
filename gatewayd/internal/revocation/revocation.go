// Package revocation tells relying parties outside of the system what certificates of the domain are worth: it publishes CRLs,
// full and delta, and serves them with OCSP and the CAs' certificates over plain HTTP.
//
// The contract: new lists are out a second after a change at the latest, and every [Config.Period] without one. Numbers are
// times in milliseconds, so they grow over restarts too. A delta is over the oldest full list that is still valid, and lifts
// every hold that any list since then has had (RFC 5280, section 5.2.4). Lists that cannot be made leave the ones before in place.
//
// Who asks is bounded by address and in all, in connections and in requests: everything that is answered anew costs a signature.
// [Service.Run] serves until its context ends and waits for what it has started. Safe for concurrent use.
//
// Source: seed 002, section 4.2; RFC 5280, RFC 6960; cdsp/PROTOCOL.md, "PKI profile".
package revocation

import (
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"

	"agentgw/internal/pki"
)

// Config of a service.
type Config struct {
	CA      *pki.CA
	Status  func(serial *big.Int) (s pki.Status, known bool) // quick, from any goroutine
	Revoked func() []pki.Revoked                             // all that is revoked or suspended, and has not ended
	Listen  string                                           // TCP address
	Period  time.Duration                                    // between full lists when nothing changes
	Now     func() time.Time
	Log     *slog.Logger
}

const (
	gap     = time.Second // between two publications: changes within it are one
	retryIn = 10 * time.Second
)

// Service publishes and serves.
type Service struct {
	cfg     Config
	site    *pki.Site
	listen  net.Listener
	changed chan struct{}
	renewed chan struct{}

	lists history // of New, and then of the publishing goroutine
}

// New makes the first lists.
func New(cfg Config) (*Service, error) {
	responder, err := pki.NewResponder(cfg.CA, cfg.Status, cfg.Log)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, site: pki.NewSite(cfg.CA, responder), changed: make(chan struct{}, 1), renewed: make(chan struct{}, 1)}
	if err := s.publish(true); err != nil {
		return nil, fmt.Errorf("publish CRLs: %w", err)
	}
	return s, nil
}

// Listen opens the socket; [Service.Run] closes it.
func (s *Service) Listen() (err error) {
	if s.listen, err = net.Listen("tcp", s.cfg.Listen); err != nil {
		return fmt.Errorf("serve CRLs and OCSP (amc.pki_listen): %w", err)
	}
	return nil
}

// Addr is where it listens after Listen.
func (s *Service) Addr() net.Addr { return s.listen.Addr() }

// Changed says that the standing of some certificate may have changed: where one has, new lists come out.
func (s *Service) Changed() { signal(s.changed) }

// Renewed says that the CA has changed: new lists come out.
func (s *Service) Renewed() { signal(s.renewed) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one that waits already is enough
	}
}

// Run publishes and serves until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var serving sync.WaitGroup
	serving.Go(func() { s.serve(ctx) })
	s.keepPublishing(ctx)
	serving.Wait()
}

func (s *Service) keepPublishing(ctx context.Context) {
	due := time.NewTimer(s.cfg.Period)
	defer due.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-due.C:
			err = s.publish(true)
			due.Reset(s.cfg.Period)
		case <-s.renewed:
			err = s.publish(false)
		case <-s.changed:
			if slices.EqualFunc(s.cfg.Revoked(), s.lists.last, same) {
				continue
			}
			err = s.publish(false)
		}
		if err != nil {
			s.cfg.Log.Error("publish CRLs", "err", err)
			due.Reset(retryIn)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
	}
}

// publish signs the lists of now. base makes the full ones such that later deltas may be over them.
func (s *Service) publish(base bool) error {
	h, now := &s.lists, s.cfg.Now()
	entries := s.cfg.Revoked()
	number := max(h.number+1, now.UnixMilli())
	full, err := s.cfg.CA.CRL(entries, big.NewInt(number), now, now.Add(2*s.cfg.Period))
	if err != nil {
		return err
	}
	h.forget(now.Add(-2 * s.cfg.Period))
	var delta pki.CRLs
	if len(h.bases) > 0 {
		over := h.bases[0]
		until := now.Add(s.cfg.Period + s.cfg.Period/2)
		if delta, err = s.cfg.CA.DeltaCRL(over.was(entries), entries, big.NewInt(over.number), big.NewInt(number), now, until); err != nil {
			return err
		}
	}
	h.add(number, now, entries, base)
	s.site.Publish(full, delta)
	return nil
}
