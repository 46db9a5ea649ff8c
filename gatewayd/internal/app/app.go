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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/config"
	"agentgw/directory/arp"
	"agentgw/directory/match"
	"agentgw/directory/registry"
	"agentgw/directory/semreq"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/aaap"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/amc"
	"agentgw/gatewayd/internal/embedding"
	"agentgw/gatewayd/internal/members"
	"agentgw/gatewayd/internal/monitor"
	"agentgw/gatewayd/internal/nameserver"
	"agentgw/gatewayd/internal/peering"
	"agentgw/gatewayd/internal/registrar"
	"agentgw/gatewayd/internal/relay"
	"agentgw/gatewayd/internal/revocation"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/discovery"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

const (
	drainTime   = 12 * time.Second // 10 s for running requests, and a little
	expireEvery = time.Minute
	pinTime     = 5 * time.Second
)

func now() time.Time { return time.Now() }

// app is a running gatewayd.
type app struct {
	cfg       *config.Gateway
	log       *slog.Logger
	started   time.Time
	home      *home
	trust     *identity.Trust
	statuses  *identity.Statuses
	lists     newest
	store     *store.Store
	learned   learned
	registry  *registry.Registry
	loaded    string            // what that was loaded from
	meanings  *embedding.Keeper // nil without an embeddings endpoint
	endpoint  string            // its URL, without credentials
	amc       *amc.AMC          // nil without the role
	center    amc.Center        // the AMC, wherever it is
	remote    *aaap.Client      // it, when it is on another host
	events    monitor.Hub       // what operators watch
	drain     drain             // the operator lets it take nothing new
	ctx       context.Context   // ends when the stop begins
	leaving   atomic.Bool       // it is about to stop: its domain's records name the others alone
	cluster   *members.List     // the domain's gateways that are alive; nil without a cluster
	members   *aaap.Server      // the gateways on other hosts, where this is their AMC
	siblings  siblings          // the other AMCs of the domain, where this is one
	agents    *registrar.Registrar
	relay     *relay.Relay
	peers     *peering.Peering
	bundles   *fetcher
	outside   *revocation.Service // nil where no CRLs and OCSP are served
	resolver  *discovery.Resolver // finds the gateways of other domains
	names     *nameserver.Server  // nil where no records are served
	revoked   *revocations
	auditor   auditor
	recovery  *recovery  // nil: the database was not restored
	renewing  sync.Mutex // one look after the CA and the own certificate at a time
	turning   sync.Mutex // one change of the own bundle at a time
	reloading sync.Mutex // one reading of the peers' and other AMCs' files at a time

	rowsChanged chan struct{} // holds one when digests have to be built anew for other rows
	ep          *endpoint.Endpoint
	running     sync.WaitGroup
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
	a := &app{cfg: cfg, log: log, ctx: ctx, started: now(), lists: newest{ready: make(chan struct{}, 1)}, revoked: newRevocations(), rowsChanged: make(chan struct{}, 1)}
	if err := a.open(ctx, cleanup); err != nil {
		return nil, err
	}
	a.logRotation(a.home.events)
	if err := a.wire(ctx); err != nil {
		return nil, err
	}
	if err := a.serve(ctx, cleanup); err != nil {
		return nil, err
	}
	log.Info("gatewayd serves", "domain", cfg.Domain, "gateway", string(a.home.gateway), "listen", a.ep.Addr().String(), "version", daemon.Version())
	return a, nil
}

// open reads everything that the gateway keeps.
func (a *app) open(ctx context.Context, cleanup *daemon.Cleanup) (err error) {
	if a.store, err = openStore(a.cfg, a.log); err != nil { // its lock is the folder's
		return err
	}
	cleanup.Add("close directory", drainTime, func(context.Context) error { return a.store.Close() })
	if a.home, err = loadHome(a.cfg, now()); err != nil {
		return err
	}
	if a.home.bundle.Domain != a.cfg.Domain {
		return fmt.Errorf("the configuration says domain %s, the state in %s is of %s", a.cfg.Domain, a.cfg.StateDir, a.home.bundle.Domain)
	}
	if err = a.openRIB(cleanup); err != nil {
		return err
	}
	a.logRotation(a.home.events)
	if a.recovery, err = readRecovery(a.store, a.cfg.StateDir, a.home.bundle); err != nil {
		return err
	}
	if err = a.openAudit(cleanup); err != nil {
		return err
	}
	if a.trust, err = identity.NewTrust(a.home.bundle.Raw, now); err != nil {
		return err
	}
	a.statuses = identity.NewStatuses(a.trust, now)
	if err := a.loadPins(); err != nil {
		return err
	}
	if err := a.loadSiblings(); err != nil {
		return err
	}
	if err = a.openDirectory(ctx, cleanup); err != nil {
		return err
	}
	if err := a.openEmbedder(); err != nil {
		return err
	}
	return a.begin(ctx)
}

// wire makes the packages and hands them to each other. Nothing runs yet.
func (a *app) wire(ctx context.Context) error {
	h, l := a.home, a.cfg.Limits
	gateway := a.cfg.HasRole(config.RoleGateway)
	if a.cfg.HasRole(config.RoleAMC) {
		if err := a.openAMC(ctx); err != nil {
			return err
		}
	} else {
		a.joinAMC()
	}
	var gateways registrar.Gateways
	if a.members != nil { // else the interface would hold a nil pointer
		gateways = a.members
	}
	if err := a.recover(ctx); err != nil {
		return err
	}
	life := time.Duration(l.MaxSessionS) * time.Second
	a.agents = registrar.New(registrar.Config{
		Domain: a.cfg.Domain, Gateway: h.gateway, Certificate: h.current,
		Codes: registrar.Codes{Prefix: a.cfg.AIC.Prefix, ARSP: a.cfg.AIC.ARSP, Vendor: a.cfg.AIC.Vendor, Salt: a.cfg.AIC.Salted()},
		AMC:   a.center, Directory: glue{a.registry, a.store, a.meanings}, Trust: a.trust, Statuses: a.statuses, Answer: a.answerAgent, Lab: a.cfg.Lab, SessionLife: life,
		EnrolRate: l.EnrolRate, UpdateRate: l.UpdateRate, Gateways: gateways, NoAgents: !gateway, Roam: a.roam(), Audit: a.audit, AuditSoon: a.auditSoon,
		Observe: a.observeAgent, Log: a.log,
	})
	a.resolver = a.newResolver()
	a.peers = peering.New(peering.Config{
		Gateway: string(h.gateway), Domain: a.cfg.Domain, Certificate: h.current, Trust: a.trust, Signer: h.signer(identity.UseDigest),
		KeepPin: a.keepPin, Find: a.findGateways, Answer: a.answerNeighbour, Audit: a.audit, Log: a.log,
		KeepBundle: a.keepBundle, KeptBundle: a.keptBundle, KeepIssuer: a.keepIssuer,
		Statuses: a.statuses, OnStanding: a.foreignStanding, OnDistrusted: a.distrusted, Mesh: a.cfg.Cluster.On(), Holds: a.holds,
		OnMoved: a.hearMoved, Moves: a.moves,
		Kept: a.learned.kept, Keep: a.learned.keep(), Observe: a.observePeers, Watched: a.events.Watched,
	})
	a.learned.kept = nil
	a.bundles = a.newFetcher()
	a.relay = relay.New(relay.Config{
		Gateway: string(h.gateway), Domain: a.cfg.Domain,
		Result: h.signer(identity.UseDigest), RAT: h.signer(identity.UseRAT), SAT: h.signer(identity.UseSAT),
		Directory: glue{a.registry, a.store, a.meanings}, Agents: sessions{a.agents}, Network: a.peers, SessionLife: life,
		AgentRate: l.AgentRequestRate, PeerRate: l.PeerRequestRate, AnswerBar: match.AnswerBar, Lab: a.cfg.Lab,
		Lame: a.peers.Drained, AuditSoon: a.auditSoon, Log: a.log,
	})
	return nil
}

// openAMC makes the AMC of this process.
func (a *app) openAMC(ctx context.Context) (err error) {
	h := a.home
	deciders, err := deciders(a.cfg.AMC)
	if err != nil {
		return err
	}
	a.amc, err = amc.New(amc.Config{
		Domain: a.cfg.Domain, Issuer: h.issuer, Prefixes: h.bundle.Prefixes, Signer: h.authority,
		Grant: h.signer(identity.UseGrant), Status: h.signer(identity.UseStatus), Bundle: func() *identity.Accepted { return a.trust.Own() },
		Audit: a.audit, AuditSoon: a.auditor.log.RecordSoon, Gateway: h.gateway,
		Store: a.store, Deciders: deciders, Publish: a.putStatus, Now: now, Log: a.log,
		AgentLife: time.Duration(a.cfg.AMC.AgentLife), GatewayLife: time.Duration(a.cfg.AMC.GatewayLife), StatusLife: a.cfg.AMC.StatusLife.Or(identity.MaxStatusLife),
	})
	if err != nil {
		return err
	}
	a.center = a.amc
	c := a.cfg.AIC
	a.members = aaap.NewServer(aaap.ServerConfig{
		AMC: a.amc, Issuer: h.issuer, Trust: a.trust, Statuses: a.statuses, Publish: a.publishKeys, Now: now, Log: a.log,
		Codes: arp.GatewayCodes{Prefix: c.Prefix, ARSP: c.ARSP, Vendor: c.Vendor, Salt: c.Salted(), Domain: a.cfg.Domain},
	})
	if _, err := a.amc.OpenRequests(); err != nil {
		return err
	}
	if err := a.amc.Keep(ctx, h.gateway, h.current().Leaf); err != nil {
		return err
	}
	if err := a.openOutside(); err != nil {
		return err
	}
	return a.catchUp(ctx)
}

// deciders are who decides about registrations, in the configured order.
func deciders(c config.AMC) ([]amc.Decider, error) {
	var out []amc.Decider
	for _, name := range c.Deciders {
		switch name {
		case "token":
			out = append(out, amc.TokenRules{})
		case "manual":
			out = append(out, amc.NewManual())
		case "cel":
			rules := make([]amc.Rule, len(c.Rules))
			for i, r := range c.Rules {
				rules[i] = amc.Rule{Name: r.Name, When: r.When, Allow: r.Allow, Deny: r.Deny, Reason: r.Reason, Life: r.Life.Or(0)}
			}
			d, err := amc.NewCELRules(rules)
			if err != nil {
				return nil, daemon.Usagef("amc.rules: %w", err)
			}
			out = append(out, d)
		}
	}
	return out, nil
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
		Faces:    a.faces(),
		MaxConns: a.cfg.Limits.MaxConnections, HandshakeRate: a.cfg.Limits.HandshakeRate, HandshakeBurst: int(2 * a.cfg.Limits.HandshakeRate),
		Log: a.log,
	})
	if err != nil {
		return err
	}
	cleanup.Add("close socket", drainTime, a.ep.Close)
	cleanup.Add("end look-ups", drainTime, func(context.Context) error {
		a.resolver.Close()
		return nil
	})
	if a.cfg.HasRole(config.RoleGateway) {
		if err := a.servePeers(ctx, cleanup, epoch, rows); err != nil {
			return err
		}
	}
	if err := a.serveNames(ctx, cleanup); err != nil {
		return err
	}
	cleanup.Add("stop housekeeping", drainTime, func(context.Context) error {
		a.running.Wait()
		return nil
	})
	if a.outside != nil {
		if err := a.outside.Listen(); err != nil {
			return err
		}
		a.running.Go(func() { a.outside.Run(ctx) })
	}
	if a.remote != nil {
		a.running.Go(func() { a.remote.Run(ctx, a.ep) })
	}
	a.attachSiblings(ctx)
	a.running.Go(func() { a.housekeeping(ctx) })
	a.running.Go(func() { a.spread(ctx) })
	a.running.Go(func() { a.keepKeys(ctx) })
	a.running.Go(func() { a.review(ctx) })
	a.running.Go(func() { a.checkAudit(ctx) })
	a.running.Go(func() { a.revoked.run(ctx, func(ids []string) { a.agents.RevokePeers(ids, frame.Revoked) }) })
	if a.amc != nil {
		a.running.Go(func() { a.amc.Run(ctx) })
	}
	a.running.Go(func() { // the control socket waits for its calls to end
		<-ctx.Done()
		a.events.Close()
	})
	socket, err := control.Listen(a.cfg.Control, admin.Handler(a))
	if err != nil {
		return err
	}
	cleanup.Add("close control socket", drainTime, socket.Close)
	cleanup.Add("tell the cluster", drainTime, func(context.Context) error {
		a.leaving.Store(true)
		if a.cluster == nil {
			return nil
		}
		if err := a.cluster.SetLame(true); err != nil { // no reason to call the stop a failed one
			a.log.Info("the domain's other gateways may not have heard that this one stops", "err", err)
		}
		return nil
	})
	return nil
}

// faces are the protocols of this process: an AMC alone speaks to no other domain.
func (a *app) faces() []endpoint.Face {
	if !a.cfg.HasRole(config.RoleGateway) {
		return []endpoint.Face{a.agents.Face()}
	}
	return []endpoint.Face{a.agents.Face(), a.peers.Face()}
}

// servePeers starts what a gateway does with other domains.
func (a *app) servePeers(ctx context.Context, cleanup *daemon.Cleanup, epoch uint64, rows []peering.Row) error {
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
	if err := a.openCluster(cleanup); err != nil {
		return err
	}
	if err := a.peers.SetRows(ctx, rows); err != nil {
		return err
	}
	if a.cluster != nil {
		a.running.Go(func() { a.followCluster(ctx) })
	}
	a.running.Go(func() { a.publish(ctx) })
	if a.meanings != nil {
		a.running.Go(func() { a.meanings.Run(ctx) })
	}
	a.running.Go(func() { a.bundles.run(ctx, a.logFetch) })
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

// loadPins restores what was last accepted of the introduced domains: a fingerprint, and after it the bundle.
func (a *app) loadPins() error {
	pins, err := a.store.Metas(pinPrefix)
	if err != nil {
		return fmt.Errorf("read pins: %w", err)
	}
	for name, pin := range pins {
		if len(pin) >= 32 {
			a.trust.Pin(strings.TrimPrefix(name, pinPrefix), [32]byte(pin), pin[32:])
		}
	}
	return nil
}

func (a *app) keepPin(domain string, last *identity.Accepted) {
	ctx, cancel := context.WithTimeout(context.Background(), pinTime)
	defer cancel()
	var value []byte
	if last != nil {
		value = slices.Concat(last.Fingerprint[:], last.Raw)
	}
	if err := a.store.SetMeta(ctx, pinPrefix+domain, value); err != nil {
		a.log.Error("keep pin", "domain", domain, "err", err)
	}
}

// housekeeping expires entries and pays what is owed.
func (a *app) housekeeping(ctx context.Context) {
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
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
			a.payOwed(ctx)
		}
	}
}

// logRotation tells the operator what became of the domain's CA. What only the operator can do is a warning.
func (a *app) logRotation(events []pki.Event) {
	for _, e := range events {
		level := slog.LevelInfo
		if e.Action == pki.AskSignature || e.Action == pki.AskRoot {
			level = slog.LevelWarn
		}
		a.log.Log(context.Background(), level, "certification authority", "action", e.Action.String(), "ca", e.Name, "until", e.Until, "file", e.File)
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
	if len(files) > 0 && !a.cfg.HasRole(config.RoleGateway) {
		return nil, daemon.Usagef("%s: %w; remove its row", a.cfg.PeersDir, errNoPeers)
	}
	var rows []peering.Row
	for _, f := range files {
		raw, err := os.ReadFile(f.Bundle)
		if err != nil {
			return nil, fmt.Errorf("bundle of the peer %s: %w", f.Domain, err)
		}
		disclose, _ := wire.ParseLevel(f.Disclose) // the configuration was checked
		row := peering.Row{
			Domain: f.Domain, Role: f.Role, Addresses: f.Addresses, Discover: f.Discover, Bundle: raw, Gateways: f.Gateways, MayQuery: f.MayQuery,
			Transit: f.Export == "transit", Disclose: disclose, Introduces: f.Introduces, AskFirst: f.FirstUse == "ask", Upstream: f.Upstream, Explain: f.Explain, BundleURL: f.BundleURL,
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
