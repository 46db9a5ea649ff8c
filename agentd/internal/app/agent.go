package app

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentgw/a2a"
	"agentgw/a2a/aci"
	"agentgw/a2a/task"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/agentd/internal/attach"
	"agentgw/agentd/internal/backend"
	"agentgw/agentd/internal/local"
	"agentgw/agentd/internal/state"
	"agentgw/config"
	"agentgw/directory/semreq"
	"agentgw/internal/discovery"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// agent is one hosted agent: its identity towards peers, its attachment, and the program behind it.
type agent struct {
	name    string
	cred    *credential
	cfg     *config.LocalAgent
	log     *slog.Logger
	client  *attach.Client
	a2a     *a2a.Agent
	backend *backend.Stdio // nil: it only initiates
	engine  *task.Engine
	ep      *endpoint.Endpoint
	gateway string // as messages call it
	record  func(kind string, data any)

	ctx     context.Context // of all that runs for it, from run on
	cancel  context.CancelFunc
	running sync.WaitGroup

	updating   sync.Mutex // one update of the ACS at a time; guards what is below
	version    uint64     // of the entry, after an update
	visibility string     // what an update that names none keeps
	allow      []string

	mu           sync.Mutex // guards capabilities
	capabilities []string
}

func newAgent(c *config.LocalAgent, cred *credential, stateDir string, ep *endpoint.Endpoint, db *state.DB, resolver *discovery.Resolver,
	listening func() []semreq.Endpoint, record func(kind string, data any), log *slog.Logger) (*agent, error) {
	a := &agent{name: c.Name, cred: cred, cfg: c, ep: ep, record: record, log: log.With("agent", c.Name), capabilities: cred.Capabilities,
		visibility: or(cred.Visibility, "public"), allow: cred.Allow}
	if c.Stdio != nil {
		a.backend = backend.New(backend.Config{
			Command: c.Stdio.Command, Dir: c.Stdio.Dir, Env: c.Stdio.Env, MaxRun: c.MaxInRun, Log: a.log,
		})
	}
	conf := a2a.Config{
		AIC: cred.AIC, SPKI: a.spki, Keys: cred.satKeys(), DomainOf: cred.trust.DomainOf, CapBound: a.bound, Status: a.standing,
		Used: func(cti wire.ID) { a.client.OfferUsed(cti) }, Log: log.With("name", c.Name), // it says itself which agent, by its AIC
		Opened: a.recordSession("session.opened"), Resumed: a.recordSession("session.resumed"), Updated: a.recordSession("session.updated"), Ended: a.recordEnded,
	}
	if a.backend != nil {
		conf.Handler = a
	}
	if c.Durable == nil || *c.Durable {
		conf.Outcomes = db
	}
	a.a2a = a2a.New(conf)
	dir := agentDir(stateDir, c.Name)
	var err error
	var find func(context.Context) ([]string, error)
	a.gateway, find = gatewayOf(c, cred.Domain, resolver)
	a.client, err = attach.New(attach.Config{
		Endpoint: ep, Gateway: a.gateway, Find: find, AIC: cred.AIC, Certificate: cred.certificate, NextKey: cred.next, Renewed: a.renewed(cred.keep(dir)), KeepNext: cred.keepNext(dir),
		Grant: cred.grant, Trust: cred.trust, Statuses: cred.statuses, KeepBundle: cred.keepBundle(dir), Revoked: a.revoked,
		Home: cred.home, KeepHome: cred.keepHome(dir), ACS: func() ([]byte, error) { return os.ReadFile(filepath.Join(dir, fileACS)) },
		Listening: func() []semreq.Endpoint {
			if a.backend == nil {
				return nil
			}
			return listening()
		},
		Offered: a.offered, Capacity: a.a2a.Capacity, Log: a.log,
	})
	a.engine = &task.Engine{Invoker: a, Store: db.Tasks(cred.AIC), Parallel: c.ParallelN}
	return a, err
}

// run attaches the agent and keeps its program running until ctx ends, or stop is called. goroutines has one until then.
func (a *agent) run(ctx context.Context, goroutines interface{ Go(func()) }) {
	a.ctx, a.cancel = context.WithCancel(ctx)
	a.running.Go(func() { a.client.Run(a.ctx) })
	a.running.Go(func() { a.watchGateway(a.ctx) })
	if a.backend != nil {
		a.running.Go(func() { a.backend.Run(a.ctx) })
	}
	goroutines.Go(a.running.Wait)
}

// stop ends what runs for the agent, and returns when it has ended.
func (a *agent) stop() {
	a.cancel()
	a.running.Wait()
}

// bound says whether a capability is one of this agent's, and its program there to serve it.
func (a *agent) bound(capID string) error {
	if a.backend == nil {
		return frame.Errorf(frame.CapUnbound, "agent %s has no program behind it", a.name)
	}
	if !slices.Contains(a.offers(), capID) {
		return frame.Errorf(frame.CapUnbound, "%s is not a capability of agent %s", capID, a.name)
	}
	return nil
}

// offers are the agent's capabilities as its gateway publishes them.
func (a *agent) offers() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.capabilities
}

func (a *agent) offered(_ [16]byte, sat []byte) frame.Code {
	if _, err := a.a2a.Offer(sat); err != nil {
		a.log.Warn("session offer refused", "err", err)
		return frame.CodeOf(err)
	}
	return frame.OK
}

// Deliver hands a context that a peer sent to the local program.
func (a *agent) Deliver(ctx context.Context, d a2a.Delivery, progress func([]aci.ItemState, string)) ([]byte, error) {
	limit := 5 * time.Minute
	if at, ok := ctx.Deadline(); ok {
		limit = time.Until(at)
	}
	began := time.Now()
	out, err := a.backend.Deliver(ctx, backend.Delivery{
		SID: hex.EncodeToString(d.Sid[:]), MsgID: hex.EncodeToString(d.MsgID[:]), Deadline: limit, Context: d.Body,
	}, func(p backend.Progress) {
		var items []aci.ItemState
		for _, i := range p.ItemStateUpdates {
			items = append(items, aci.ItemState{ItemID: i.ItemID, State: i.State})
		}
		progress(items, p.Note)
	})
	a.recordDelivery("delivery.received", d.Sid, d.MsgID[:], d.Body, err)
	a.log.Info("context delivered", "sid", hex.EncodeToString(d.Sid[:4]), "peer", d.Peer, "elapsed_ms", time.Since(began).Milliseconds(), "err", err)
	return out, err
}

// request builds a semantic request with this agent's defaults.
func (a *agent) request(ask semreq.Ask) (*semreq.Request, error) {
	if ask.BudgetMS == 0 {
		ask.BudgetMS = uint64(a.cfg.BudgetMS)
	}
	return ask.Request()
}

// resolve asks the gateway without wanting a session.
func (a *agent) resolve(ctx context.Context, ask semreq.Ask) (*semreq.Outcome, error) {
	r, err := a.request(ask)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	resp, err := a.client.Resolve(ctx, r)
	if err != nil {
		return nil, err
	}
	return resp.Outcome(time.Since(began), nil)
}

// Invoke finds an agent for a subtask, opens a session with it, has it do the work, and ends the session.
func (a *agent) Invoke(ctx context.Context, r task.Request) (task.Result, error) {
	var out task.Result
	found, sat, err := a.provision(ctx, r.Query, local.NewID(), &out)
	if err != nil {
		return out, err
	}
	out.Target = aci.Target{AIC: found.AIC, Name: found.Skill.Name}
	out.Capability, out.Sid = found.Cap, hex.EncodeToString(sat.Sid[:])
	body, err := r.Context(out.Target)
	if err != nil {
		return out, err
	}
	began := time.Now()
	s, err := a.a2a.Open(ctx, a2a.Route{
		Endpoint: a.ep, Addrs: addresses(found.Endpoints), Certificate: a.client.Certificate, NewSAT: a.newSAT,
	}, found.SAT)
	if err != nil {
		return out, err
	}
	out.Setup = time.Since(began)
	defer s.Close(frame.OK)
	out.Context, err = s.Deliver(ctx, body, a2a.DeliverOptions{Async: true, Progress: r.Progress})
	a.recordDelivery("delivery.sent", sat.Sid, nil, body, err)
	return out, err
}

// newSAT asks the gateway for another token of a session that runs, under this agent's key of now: that is an ordinary request for the
// very capability, with the session's sid.
func (a *agent) newSAT(ctx context.Context, sid wire.ID, capID string) ([]byte, []string, error) {
	found, _, err := a.provision(ctx, task.Query{Caps: []string{capID}}, sid, &task.Result{})
	if err != nil {
		return nil, nil, err
	}
	return found.SAT, addresses(found.Endpoints), nil
}

// provision resolves a subtask's request together with a session for what is found.
func (a *agent) provision(ctx context.Context, q task.Query, sid wire.ID, out *task.Result) (*semreq.Result, token.SAT, error) {
	req, err := a.request(semreq.Ask{
		Query: semreq.Query{Text: q.Text, Caps: q.Caps, Classes: q.Classes, Tags: q.Tags, In: q.In, Out: q.Out, Lang: q.Lang},
	})
	if err != nil {
		return nil, token.SAT{}, err
	}
	if err := a.rekeyed(ctx); err != nil {
		return nil, token.SAT{}, err
	}
	spki := a.spki()
	if req.Provision, err = frame.Marshal(semreq.Provision{SID: sid[:], ISPKI: spki[:]}); err != nil {
		return nil, token.SAT{}, err
	}
	if at, ok := ctx.Deadline(); ok {
		left := max(1, time.Until(at).Milliseconds())
		req.BudgetMS = min(req.BudgetMS, uint64(left))
	}
	began := time.Now()
	resp, err := a.client.Resolve(ctx, req)
	out.Resolve = time.Since(began)
	if err != nil {
		return nil, token.SAT{}, err
	}
	out.Gateways, out.Hops = resp.Route, max(0, len(resp.Route)-1)
	if err := resp.Err(); err != nil {
		return nil, token.SAT{}, err
	}
	for _, signed := range resp.Results {
		res, err := semreq.PeekResult(signed)
		if err != nil {
			return nil, token.SAT{}, err
		}
		if len(q.Caps) > 0 && !slices.Contains(q.Caps, res.Cap) {
			return nil, token.SAT{}, frame.Errorf(frame.Binding, "the gateway found %s, which was not asked for", res.Cap)
		}
		if len(res.SAT) > 0 {
			sat, err := token.ReadSAT(res.SAT)
			return res, sat, err
		}
	}
	return nil, token.SAT{}, frame.Errorf(frame.UpstreamFailed, "the gateway found agents but provisioned a session with none")
}

// rekeyed waits while the agent attaches under a new key: over a connection of the old one it gets no session any more.
func (a *agent) rekeyed(ctx context.Context) error {
	if up, _ := a.client.Attached(); !up {
		return nil // the request itself says why not
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := a.client.WaitCurrent(ctx); err != nil {
		return frame.Errorf(frame.UpstreamFailed, "not attached to the gateway %s under the new key: %w", a.gateway, err)
	}
	return nil
}

func addresses(list []semreq.Endpoint) []string {
	var out []string
	for _, e := range list {
		out = append(out, net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
	}
	return out
}

// status is the agent as `agentd status` shows it.
func (a *agent) status() local.AgentStatus {
	attached, err := a.client.Attached()
	s := local.AgentStatus{
		Name: a.name, AIC: a.cred.AIC, Domain: a.cred.Domain, Gateway: a.gateway, Attached: attached,
		Capabilities: a.offers(), Sessions: len(a.a2a.Sessions()), Backend: "none",
		CredentialUntil: a.client.Certificate().Leaf.NotAfter.UTC(),
	}
	if err != nil {
		s.Error = err.Error()
	}
	if a.backend != nil {
		s.Backend = a.backend.State()
		if err := a.backend.Why(); s.Backend == "stopped" && err != nil {
			s.BackendError = strings.ReplaceAll(err.Error(), "\n", "; ") // of several, one a line
		}
	}
	return s
}

// interfaces lists the addresses of this machine that an agent may be reached at, for a socket bound to every address.
func interfaces(bound netip.AddrPort) []semreq.Endpoint {
	if !bound.Addr().IsUnspecified() {
		return []semreq.Endpoint{{Host: bound.Addr().String(), Port: bound.Port(), ALPN: frame.ALPNAgent}}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []semreq.Endpoint
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLinkLocalUnicast() || len(out) == semreq.MaxEndpoints {
			continue
		}
		out = append(out, semreq.Endpoint{Host: n.IP.String(), Port: bound.Port(), ALPN: frame.ALPNAgent})
	}
	return out
}

// encode is a task's state as JSON, for the control socket.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`null`)
	}
	return b
}
