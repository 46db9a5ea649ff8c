// Package app is gatewayd put together: it translates the configuration into each package's own settings, wires the packages
// to each other, and starts and stops them. See ARCHITECTURE.md for the journey of a request through these parts.
package app

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"agentgw/config"
	"agentgw/directory/match"
	"agentgw/directory/registry"
	"agentgw/directory/semreq"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/amc"
	"agentgw/gatewayd/internal/peering"
	"agentgw/gatewayd/internal/registrar"
	"agentgw/gatewayd/internal/relay"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const (
	drainTime   = 12 * time.Second // 10 s for running requests, and a little
	expireEvery = time.Minute
	renewEvery  = time.Hour
	pinTime     = 5 * time.Second
)

func now() time.Time { return time.Now() }

// app is a running gatewayd.
type app struct {
	cfg      *config.Gateway
	log      *slog.Logger
	started  time.Time
	home     *home
	trust    *identity.Trust
	statuses *identity.Statuses // nil: this domain signs none
	store    *store.Store
	registry *registry.Registry
	amc      *amc.AMC
	agents   *registrar.Registrar
	relay    *relay.Relay
	peers    *peering.Peering
	bundles  *fetcher
	ep       *endpoint.Endpoint
	running  sync.WaitGroup
}

// Run runs the gateway until SIGINT or SIGTERM.
func Run(cfg *config.Gateway, stderr io.Writer) error {
	log, err := daemon.NewLogger(stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	ctx, cancel := daemon.SignalContext(log)
	defer cancel()
	var cleanup daemon.Cleanup
	_, err = Start(ctx, cfg, log, &cleanup)
	if err == nil {
		defer daemon.Ready(ctx, log)()
		<-ctx.Done()
	}
	cancel()
	return errors.Join(err, cleanup.Run())
}

// Start starts a gateway; it serves until ctx ends and cleanup has run. It returns the socket's calls, for tests.
func Start(ctx context.Context, cfg *config.Gateway, log *slog.Logger, cleanup *daemon.Cleanup) (admin.Gateway, error) {
	a := &app{cfg: cfg, log: log, started: now()}
	if err := a.open(ctx, cleanup); err != nil {
		return nil, err
	}
	a.wire()
	if err := a.serve(ctx, cleanup); err != nil {
		return nil, err
	}
	log.Info("gatewayd serves", "domain", cfg.Domain, "gateway", string(a.home.gateway), "listen", a.ep.Addr().String(), "version", daemon.Version())
	return a, nil
}

// open reads everything that the gateway keeps.
func (a *app) open(ctx context.Context, cleanup *daemon.Cleanup) (err error) {
	if a.home, err = loadHome(a.cfg.StateDir, a.cfg.Advertise, now()); err != nil {
		return err
	}
	if a.home.bundle.Domain != a.cfg.Domain {
		return fmt.Errorf("the configuration says domain %s, the state in %s is of %s", a.cfg.Domain, a.cfg.StateDir, a.home.bundle.Domain)
	}
	if a.trust, err = identity.NewTrust(a.home.bundle.Raw, now); err != nil {
		return err
	}
	a.statuses = a.newStatuses()
	if a.store, err = store.Open(filepath.Join(a.cfg.StateDir, dirDirectory), a.log); err != nil {
		return err
	}
	cleanup.Add("close directory", drainTime, func(context.Context) error { return a.store.Close() })
	if err := a.loadPins(); err != nil {
		return err
	}
	a.registry, err = registry.Open(ctx, a.store)
	return err
}

// wire makes the packages and hands them to each other. Nothing runs yet.
func (a *app) wire() {
	h, l := a.home, a.cfg.Limits
	a.amc = amc.New(amc.Config{Issuer: h.issuer, Authority: h.authority, Grant: h.sign[identity.UseGrant], Store: a.store, Now: now})
	life := time.Duration(l.MaxSessionS) * time.Second
	a.agents = registrar.New(registrar.Config{
		Domain: a.cfg.Domain, Gateway: h.gateway, Certificate: h.current,
		Codes: registrar.Codes{Prefix: a.cfg.AIC.Prefix, ARSP: a.cfg.AIC.ARSP, Vendor: a.cfg.AIC.Vendor, Salt: a.cfg.AIC.Salted()},
		AMC:   a.amc, Directory: glue{a.registry, a.store}, Trust: a.trust, Answer: a.answerAgent, Lab: a.cfg.Lab, SessionLife: life,
		EnrolRate: l.EnrolRate, Log: a.log,
	})
	a.peers = peering.New(peering.Config{
		Gateway: string(h.gateway), Domain: a.cfg.Domain, Certificate: h.current, Trust: a.trust, Signer: h.sign[identity.UseDigest],
		KeepPin: a.keepPin, Answer: a.answerNeighbour, Log: a.log,
		Statuses: a.statuses, OnStanding: a.standingChanged, OnDistrusted: a.distrusted,
	})
	a.bundles = a.newFetcher()
	a.relay = relay.New(relay.Config{
		Gateway: string(h.gateway), Domain: a.cfg.Domain,
		Result: h.sign[identity.UseDigest], RAT: h.sign[identity.UseRAT], SAT: h.sign[identity.UseSAT],
		Directory: glue{a.registry, a.store}, Agents: sessions{a.agents}, Network: a.peers, SessionLife: life,
		AgentRate: l.AgentRequestRate, PeerRate: l.PeerRequestRate, AnswerBar: match.AnswerBar, Lab: a.cfg.Lab,
		Log: a.log,
	})
}

// serve opens the sockets and starts what runs beside them.
func (a *app) serve(ctx context.Context, cleanup *daemon.Cleanup) (err error) {
	epoch, err := a.nextEpoch(ctx)
	if err != nil {
		return err
	}
	rows, err := a.peerRows()
	if err != nil {
		return err
	}
	a.ep, err = endpoint.Open(endpoint.Config{
		Addr: a.cfg.Listen, StateDir: a.cfg.StateDir, Profile: endpoint.Gateway,
		Faces:    []endpoint.Face{a.agents.Face(), a.peers.Face()},
		MaxConns: a.cfg.Limits.MaxConnections, HandshakeRate: a.cfg.Limits.HandshakeRate, HandshakeBurst: int(2 * a.cfg.Limits.HandshakeRate),
		Log: a.log,
	})
	if err != nil {
		return err
	}
	cleanup.Add("close socket", drainTime, a.ep.Close)
	peersCtx, stopPeers := context.WithCancel(context.WithoutCancel(ctx))
	peersDone := make(chan struct{})
	go func() {
		defer close(peersDone)
		a.peers.Run(peersCtx, a.ep, epoch)
	}()
	cleanup.Add("say goodbye to peers", drainTime, func(context.Context) error {
		stopPeers()
		<-peersDone
		return nil
	})
	cleanup.Add("finish requests", drainTime, a.relay.Drain)
	if err := a.peers.SetRows(ctx, rows); err != nil {
		return err
	}
	a.running.Go(func() { a.publish(ctx) })
	a.running.Go(func() { a.housekeeping(ctx) })
	a.running.Go(func() { a.bundles.run(ctx, a.logFetch) })
	cleanup.Add("stop housekeeping", drainTime, func(context.Context) error {
		a.running.Wait()
		return nil
	})
	socket, err := control.Listen(a.cfg.Control, admin.Handler(a))
	if err != nil {
		return err
	}
	cleanup.Add("close control socket", drainTime, socket.Close)
	return nil
}

// nextEpoch makes the epoch of this start's digests: above any before, and kept before anything is sent under it.
func (a *app) nextEpoch(ctx context.Context) (uint64, error) {
	const name = "digest-epoch"
	epoch := uint64(now().UnixMilli())
	if before, err := a.store.Meta(name); err == nil && len(before) == 8 {
		epoch = max(epoch, binary.BigEndian.Uint64(before)+1)
	}
	if err := a.store.SetMeta(ctx, name, binary.BigEndian.AppendUint64(nil, epoch)); err != nil {
		return 0, fmt.Errorf("keep the digest epoch: %w", err)
	}
	return epoch, nil
}

const pinPrefix = "pin/"

// loadPins restores which keys the introduced domains were first accepted under.
func (a *app) loadPins() error {
	pins, err := a.store.Metas(pinPrefix)
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	for name, fingerprint := range pins {
		if len(fingerprint) == 32 {
			a.trust.Pin(strings.TrimPrefix(name, pinPrefix), [32]byte(fingerprint))
		}
	}
	return nil
}

func (a *app) keepPin(domain string, fingerprint *[32]byte) {
	ctx, cancel := context.WithTimeout(context.Background(), pinTime)
	defer cancel()
	var value []byte
	if fingerprint != nil {
		value = fingerprint[:]
	}
	if err := a.store.SetMeta(ctx, pinPrefix+domain, value); err != nil {
		a.log.Error("keep pin", "domain", domain, "err", err)
	}
}

// housekeeping expires entries and renews this gateway's own certificate.
func (a *app) housekeeping(ctx context.Context) {
	expire, renew := time.NewTicker(expireEvery), time.NewTicker(renewEvery)
	defer expire.Stop()
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-expire.C:
			gone, err := a.registry.Expire(ctx, at)
			if err != nil {
				a.log.Error("expire entries", "err", err)
			}
			for _, id := range gone {
				a.log.Info("entry expired", "aic", id)
				a.agents.Drop(id, frame.Expired)
			}
		case at := <-renew.C:
			if err := a.home.renew(a.cfg.StateDir, a.cfg.Advertise, at); err != nil {
				a.log.Error("renew own certificate", "err", err)
			}
		}
	}
}

// answerAgent joins the registrar's agents to the relay.
func (a *app) answerAgent(ctx context.Context, ag registrar.Agent, r *semreq.Request) *semreq.Response {
	return a.relay.FromAgent(ctx, relay.Agent{AIC: ag.AIC, SPKI: ag.SPKI, Scope: ag.Scope}, r)
}

func (a *app) answerNeighbour(ctx context.Context, n relay.Neighbour, r *semreq.Request) *semreq.Response {
	return a.relay.FromNeighbour(ctx, n, r)
}

func (a *app) peerRows() ([]peering.Row, error) {
	files, err := config.LoadPeers(a.cfg.PeersDir)
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	var rows []peering.Row
	for _, f := range files {
		raw, err := os.ReadFile(f.Bundle)
		if err != nil {
			return nil, fmt.Errorf("bundle of the peer %s: %w", f.Domain, err)
		}
		row := peering.Row{
			Domain: f.Domain, Role: f.Role, Addresses: f.Addresses, Bundle: raw, Gateways: f.Gateways, MayQuery: f.MayQuery,
			Transit: f.Export == "transit", Introduces: f.Introduces, AskFirst: f.FirstUse == "ask", Upstream: f.Upstream, BundleURL: f.BundleURL,
		}
		if f.Fingerprint != "" {
			if row.Fingerprint, err = identity.ParseFingerprint(f.Fingerprint); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
