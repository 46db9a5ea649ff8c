package replica

import (
	"slices"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Config is what a Replica is made of.
type Config struct {
	Gateway string              // AIC of this gateway
	Domain  string              // its Agent Autonomous Domain
	BootID  wire.ID16           // new at every start
	OEpoch  uint64              // epoch of the own digests, unix milliseconds, persisted before it is handed in
	Signer  func() frame.Signer // key of use 1, as of now
	Keys    frame.KeyFunc
	// Trust is what HELLO and KEEPALIVE tell a neighbouring domain of the bundles and status lists held here, its own first,
	// at most [wire.MaxTrust]; nil tells nothing.
	Trust  func(domain string) []wire.TrustVersion
	Random func() uint64 // nonces and jitter
	Keep   bool          // the owner calls [Replica.TakeLearned]
	// Watched says whether somebody listens to [Noted] effects; none is made else. nil: nobody ever does.
	Watched func() bool
	Timers  Timers // zero fields take the default
	Limits  Limits
}

// Timers of the protocol.
type Timers struct {
	Hello     time.Duration // HELLO must arrive within it; 5 s
	Hold      time.Duration // silence that ends a session; 30 s, the smaller side counts
	Restart   time.Duration // how long a lost neighbour's entries stay, stale; 120 s, at most 300 s
	TTL       time.Duration // validity of own batches, re-issued at half of it; 3600 s
	Announce  time.Duration // least time between two announcements to one neighbour; 1 s
	Withdraw  time.Duration // withdrawals are gathered this long; 100 ms
	AckDelay  time.Duration // 50 ms
	Stall     time.Duration // no progress of acknowledgements; 30 s
	HoldDown  time.Duration // memory of a key without a route; 60 s
	Resync    time.Duration // least time between two RESYNC for differing tables; 60 s
	Defer     time.Duration // longest wait for other neighbours before SYNC_END after a restart; 60 s
	ClockSkew time.Duration // of two gateways' clocks; 120 s
}

// DefaultTimers are the values of PROTOCOL.md, "Timers and limits".
var DefaultTimers = Timers{
	Hello: 5 * time.Second, Hold: 30 * time.Second, Restart: 120 * time.Second, TTL: time.Hour, Announce: time.Second,
	Withdraw: 100 * time.Millisecond, AckDelay: 50 * time.Millisecond, Stall: 30 * time.Second, HoldDown: time.Minute,
	Resync: time.Minute, Defer: time.Minute, ClockSkew: 120 * time.Second,
}

func (t Timers) withDefaults() Timers {
	d := DefaultTimers
	for _, f := range []struct{ set, def *time.Duration }{
		{&t.Hello, &d.Hello}, {&t.Hold, &d.Hold}, {&t.Restart, &d.Restart}, {&t.TTL, &d.TTL}, {&t.Announce, &d.Announce},
		{&t.Withdraw, &d.Withdraw}, {&t.AckDelay, &d.AckDelay}, {&t.Stall, &d.Stall}, {&t.HoldDown, &d.HoldDown},
		{&t.Resync, &d.Resync}, {&t.Defer, &d.Defer}, {&t.ClockSkew, &d.ClockSkew},
	} {
		if *f.set == 0 {
			*f.set = *f.def
		}
	}
	return t
}

// Limits bound what neighbours can make this gateway hold.
type Limits struct {
	PeerEntries   int // entries of one neighbour; 10 000
	OriginEntries int // keys of one origin, tombstones included; 2 000
	Origins       int // 1 024
	PeerBytes     int // items, and batches of one stream, of one neighbour; 64 MiB
	Inflight      int // frames not yet acknowledged, each way; 64
	InflightBytes int // 1 MiB
	BadPerMinute  int // batches of one neighbour that do not verify; 100, then the session ends
}

// DefaultLimits are the values of PROTOCOL.md, "Timers and limits".
var DefaultLimits = Limits{
	PeerEntries: 10_000, OriginEntries: 2_000, Origins: 1_024, PeerBytes: 64 << 20, Inflight: 64, InflightBytes: 1 << 20,
	BadPerMinute: 100,
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits
	for _, f := range []struct{ set, def *int }{
		{&l.PeerEntries, &d.PeerEntries}, {&l.OriginEntries, &d.OriginEntries}, {&l.Origins, &d.Origins},
		{&l.PeerBytes, &d.PeerBytes}, {&l.Inflight, &d.Inflight}, {&l.InflightBytes, &d.InflightBytes},
		{&l.BadPerMinute, &d.BadPerMinute},
	} {
		if *f.set == 0 {
			*f.set = *f.def
		}
	}
	return l
}

// Neighbour is the part of a policy row that digest synchronisation needs. A domain without a row is nobody's neighbour.
type Neighbour struct {
	Domain        string
	Gateways      []string   // AICs that may speak for it; empty: any gateway whose identity was verified
	Role          wire.Role  // what the neighbour is to us; internal only for our own domain
	ExportTransit bool       // it may learn what we learned from others (valley-free rules stand besides)
	ImportTransit bool       // we take what it learned from others
	Level         wire.Level // disclosure level of what it gets
}

func (n Neighbour) admits(gateway string) bool {
	return len(n.Gateways) == 0 || slices.Contains(n.Gateways, gateway)
}

func (n Neighbour) equal(o Neighbour) bool {
	return slices.Equal(n.Gateways, o.Gateways) && n.Domain == o.Domain && n.Role == o.Role &&
		n.ExportTransit == o.ExportTransit && n.ImportTransit == o.ImportTransit && n.Level == o.Level
}

// exportsLike says whether the same goes to the neighbour under both rows.
func (n Neighbour) exportsLike(o Neighbour) bool {
	return n.Role == o.Role && n.ExportTransit == o.ExportTransit && n.Level == o.Level
}

// localPref ranks routes by what the neighbour is to us: what costs us least first.
func localPref(r wire.Role) int {
	switch r {
	case wire.RoleInternal:
		return 200
	case wire.RoleCustomer:
		return 150
	case wire.RolePeer:
		return 100
	}
	return 50
}
