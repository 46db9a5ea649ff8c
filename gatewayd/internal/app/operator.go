package app

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/cdsp"
	"agentgw/cdsp/replica"
	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/members"
	"agentgw/gatewayd/internal/monitor"
	"agentgw/gatewayd/internal/peering"
	"agentgw/gatewayd/internal/registrar"
	"agentgw/internal/frame"
)

// releaseTime is how long the requests of attached agents may run on when the gateway is drained.
const releaseTime = 10 * time.Second

// drain is whether the whole gateway is a lame duck. It is forgotten with the process.
type drain struct {
	since atomic.Pointer[time.Time] // nil: it is not

	mu   sync.Mutex         // one change at a time; guards stop
	stop context.CancelFunc // of the release of agents
}

var errNoFederation = frame.Errorf(frame.State, "an AMC alone (roles: [amc]) has no peers and no agents: ask a gateway of the domain")

func byName(counts map[frame.Code]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(counts))
	for code, n := range counts {
		out[code.String()] += n
	}
	return out
}

// Routes implements admin.Operator.
func (a *app) Routes(ctx context.Context, r admin.RoutesRequest) (*admin.RoutesPage, error) {
	if !a.cfg.HasRole(config.RoleGateway) {
		return nil, errNoFederation
	}
	q := peering.RouteQuery{Name: r.Name, Limit: admin.MaxPage}
	if r.Limit > 0 {
		q.Limit = min(r.Limit, admin.MaxPage)
	}
	if r.After != "" {
		origin, key, ok := strings.Cut(r.After, "/")
		raw, err := hex.DecodeString(key)
		if !ok || err != nil || len(raw) != len(q.After.Key) {
			return nil, frame.Errorf(frame.ReqInvalid, "%q is not where a page ended: use next of the page before", r.After)
		}
		q.After = cdsp.Ref{Origin: origin}
		copy(q.After.Key[:], raw)
	}
	list, more, err := a.peers.Routes(ctx, q)
	if err != nil {
		return nil, err
	}
	page, at := &admin.RoutesPage{Routes: make([]admin.KnownRow, 0, len(list))}, now()
	for _, k := range list {
		page.Routes = append(page.Routes, knownRow(k, at))
	}
	if more {
		last := page.Routes[len(page.Routes)-1]
		page.Next = last.Origin + "/" + last.Key
	}
	return page, nil
}

func knownRow(k cdsp.Known, at time.Time) admin.KnownRow {
	row := admin.KnownRow{
		Origin: k.Ref.Origin, Domain: k.Domain, NS: k.NS, Label: k.Label, Key: hex.EncodeToString(k.Ref.Key[:]), Level: k.Level.String(), Own: k.Own,
		Version: fmt.Sprintf("%d.%d", k.Version.OEpoch, k.Version.OSeq), LeftS: int64(k.Expires.Sub(at).Seconds()), Quarantined: k.Quarantined,
		Routes: []admin.RouteRow{}, ToldTo: k.ToldTo,
	}
	for _, rt := range k.Routes {
		row.Routes = append(row.Routes, admin.RouteRow{
			Gateway: rt.Gateway, Domain: rt.Domain, Role: rt.Role.String(), Path: admin.List(rt.Path), MetricMS: rt.MetricMS, Hops: rt.Hops,
			AgeS: int64(at.Sub(rt.Since).Seconds()), Stale: rt.Stale, Lame: rt.Lame, Best: rt.Best, By: string(rt.By),
		})
	}
	return row
}

// Peer implements admin.Operator.
func (a *app) Peer(r admin.PeerRequest) ([]admin.PeerRow, error) {
	if !a.cfg.HasRole(config.RoleGateway) {
		return nil, errNoFederation
	}
	list, err := a.peers.Find(r.Peer)
	return peerRowsOf(list), err
}

// ResetPeer implements admin.Operator.
func (a *app) ResetPeer(ctx context.Context, r admin.PeerRequest) (admin.PeerReset, error) {
	if !a.cfg.HasRole(config.RoleGateway) {
		return admin.PeerReset{}, errNoFederation
	}
	ended, dials, err := a.peers.Reset(ctx, r.Peer)
	if err == nil {
		a.log.Info("peer reset", "peer", r.Peer, "sessions", ended)
	}
	return admin.PeerReset{Peer: r.Peer, Ended: ended, Dials: dials}, err
}

// RefreshPeer implements admin.Operator.
func (a *app) RefreshPeer(ctx context.Context, r admin.PeerRequest) (admin.PeerRefresh, error) {
	if !a.cfg.HasRole(config.RoleGateway) {
		return admin.PeerRefresh{}, errNoFederation
	}
	asked, err := a.peers.Resync(ctx, r.Peer)
	return admin.PeerRefresh{Peer: r.Peer, Asked: asked}, err
}

// DrainPeer implements admin.Operator.
func (a *app) DrainPeer(ctx context.Context, r admin.PeerRequest) error {
	if !a.cfg.HasRole(config.RoleGateway) {
		return errNoFederation
	}
	if err := a.peers.Drain(ctx, r.Peer, r.Undo); err != nil {
		return err
	}
	a.log.Info("peer drained", "peer", r.Peer, "undo", r.Undo)
	return nil
}

// Drain implements admin.Operator: the gateway is a lame duck, until undone or restarted. Peers and the domain's other gateways are told, what
// they were told is withdrawn, agents are sent elsewhere, nothing new is taken, and the name server names this gateway no more. What runs ends.
func (a *app) Drain(ctx context.Context, r admin.DrainRequest) error {
	if !a.cfg.HasRole(config.RoleGateway) {
		return errNoFederation
	}
	d := &a.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	switch since := d.since.Load(); {
	case since == nil && r.Undo:
		return frame.Errorf(frame.State, "this gateway is not drained")
	case since != nil && !r.Undo:
		return frame.Errorf(frame.State, "this gateway is drained since %s: --undo ends that", since.Format(time.RFC3339))
	}
	if err := a.peers.SetLame(ctx, !r.Undo); err != nil { // it fails only where nothing was changed: the gateway starts or stops
		return err
	}
	a.agents.SetLame(!r.Undo)
	if a.cluster != nil && !a.leaving.Load() {
		if err := a.cluster.SetLame(!r.Undo); err != nil {
			a.log.Info("the domain's other gateways may not have heard whether this one is drained", "err", err)
		}
	}
	if r.Undo {
		d.stop()
		d.since.Store(nil)
		a.log.Info("gateway is drained no more")
		a.events.Publish(monitor.Event{Kind: monitor.GatewayUndrained})
		return nil
	}
	at := now().UTC()
	d.since.Store(&at)
	a.log.Info("gateway is drained: it takes nothing new")
	a.events.Publish(monitor.Event{Kind: monitor.GatewayDrained})
	release, stop := context.WithCancel(a.ctx)
	d.stop = stop
	release, done := context.WithTimeout(release, releaseTime)
	a.running.Go(func() {
		defer done()
		a.agents.Release(release)
	})
	return nil
}

// Monitor implements admin.Operator.
func (a *app) Monitor(ctx context.Context, r admin.MonitorRequest, began, stopping func(), each func(monitor.Event) error) error {
	kinds, err := monitor.ParseKinds(r.Kinds)
	if err != nil {
		return err
	}
	l, err := a.events.Listen(kinds)
	if err != nil {
		return err
	}
	defer l.Close()
	defer context.AfterFunc(a.ctx, stopping)()
	began()
	for {
		e, err := l.Next(ctx)
		if err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// observePeers makes events of what the digest machine tells.
func (a *app) observePeers(e replica.Effect) {
	if !a.events.Watched() {
		return
	}
	switch e := e.(type) {
	case replica.Transition:
		ev := monitor.Event{Gateway: e.Gateway, Domain: a.trust.DomainOf(e.Gateway), Text: e.Reason}
		switch {
		case e.To == replica.Established:
			ev.Kind, ev.Text = monitor.PeerUp, ""
		case e.From == replica.Established:
			ev.Kind = monitor.PeerDown
		default: // one that said goodbye is down since
			return
		}
		a.events.Publish(ev)
	case replica.Alarm:
		a.events.Publish(monitor.Event{Kind: monitor.Alarm, Gateway: e.Gateway, Domain: a.trust.DomainOf(e.Gateway), Text: e.Text})
	case replica.Noted:
		a.events.Publish(a.noted(e))
	}
}

var notedKinds = map[replica.Happening]string{
	replica.SyncBegun: monitor.SyncBegun, replica.SyncEnded: monitor.SyncEnded, replica.Accepted: monitor.DigestAccepted, replica.Rejected: monitor.DigestRejected,
	replica.Withdrawn: monitor.DigestWithdrawn, replica.RouteChanged: monitor.RouteChanged, replica.LameDuck: monitor.PeerLame,
}

func (a *app) noted(n replica.Noted) monitor.Event {
	e := monitor.Event{
		Kind: notedKinds[n.What], Gateway: n.Gateway, Origin: n.Ref.Origin, Of: n.Domain, NS: n.NS, Label: n.Label, From: n.From, To: n.To, Count: n.Count,
	}
	if n.Gateway != "" {
		e.Domain = a.trust.DomainOf(n.Gateway)
	}
	switch n.What {
	case replica.Rejected:
		e.Code = n.Code.String()
	case replica.SyncBegun, replica.SyncEnded:
		e.Text = map[bool]string{true: "delta", false: "full"}[n.Delta]
	case replica.LameDuck:
		e.Text = map[bool]string{true: "it takes nothing new", false: "it takes requests again"}[n.Lame]
	}
	return e
}

var agentKinds = map[registrar.Happening]string{
	registrar.Attached: monitor.AgentAttached, registrar.Detached: monitor.AgentDetached, registrar.Enrolled: monitor.AgentEnrolled,
}

func (a *app) observeAgent(what registrar.Happening, aic, text string) {
	a.events.Publish(monitor.Event{Kind: agentKinds[what], Agent: aic, Text: text})
}

// observeMembers tells who came and who went between two lists of members.
func (a *app) observeMembers(before, after []members.Member) {
	tell := func(kind string, these, others []members.Member) {
		there := map[string]bool{}
		for _, m := range others {
			there[m.Gateway] = true
		}
		for _, m := range these {
			if !m.Self && !there[m.Gateway] {
				a.events.Publish(monitor.Event{Kind: kind, Domain: a.cfg.Domain, Gateway: m.Gateway, Text: strings.Join(m.Addresses, " ")})
			}
		}
	}
	tell(monitor.MemberLeft, before, after)
	tell(monitor.MemberJoined, after, before)
}
