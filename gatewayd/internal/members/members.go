package members

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/time/rate"

	"agentgw/internal/frame"
)

// Config of a List.
type Config struct {
	Gateway   string   // AIC of this gateway
	Domain    string   // whose gateways the members are; gossip of another domain is not understood
	Listen    string   // host:port, UDP and TCP; the host may be empty
	Advertise string   // host:port at which the others reach Listen; default: a private address of this host
	Keys      [][]byte // AES keys of 16, 24 or 32 octets: the first encrypts, each decrypts; at least one
	Allow     []string // networks (CIDR) that members may be in; none: any

	// Addresses are host:port of this gateway's QUIC socket, at most 6; the others dial them.
	Addresses []string
	// Seeds are host:port of gossip sockets to join by, configured and discovered. It is asked every half minute, and may take seconds.
	Seeds func(ctx context.Context) []string
	// Known says whether the domain's bundle names a gateway. It must not block.
	Known func(gateway string) bool
	// Keep remembers over restarts where members were, Kept is what was remembered. Both may be nil.
	Keep func(addresses []string)
	Kept []string

	Log       *slog.Logger
	transport memberlist.Transport // of tests
}

// Member is a gateway of the domain that is alive.
type Member struct {
	Gateway   string
	Addresses []string // host:port of its QUIC socket
	Lame      bool     // it takes nothing new: it is drained, or about to stop
	Self      bool
}

// List is the members. Create it with [Open].
type List struct {
	cfg   Config
	log   *slog.Logger
	ml    *memberlist.Memberlist
	keys  *memberlist.Keyring
	lame  atomic.Bool
	wake  chan struct{} // the gossip has news
	stop  context.CancelFunc
	tasks sync.WaitGroup

	closing sync.Once
	closed  error // of the Close

	Conflicts atomic.Uint64 // times that two processes had one name

	known sync.Mutex                 // guards nodes; it is taken under the library's lock, and nothing else is taken under it
	nodes map[string]memberlist.Node // by name, as the hooks were told: the library changes its own without a lock for readers

	mu      sync.Mutex // guards the rest
	alive   []Member
	changed chan struct{}
}

// maxAddresses is how many QUIC addresses a member may name: more do not fit in what gossip carries of a node.
const maxAddresses = 6

// Open starts to listen and to gossip. It does not wait for others.
func Open(cfg Config) (*List, error) {
	if len(cfg.Keys) == 0 {
		return nil, frame.Errorf(frame.ReqInvalid, "gossip without a key would let anybody in: make one with `gatewayd cluster key`")
	}
	keys, err := memberlist.NewKeyring(cfg.Keys, cfg.Keys[0])
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "gossip key: %w", err)
	}
	if len(cfg.Addresses) > maxAddresses {
		return nil, frame.Errorf(frame.ReqInvalid, "%d addresses: gossip carries %d of a gateway", len(cfg.Addresses), maxAddresses)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l := &List{cfg: cfg, log: cfg.Log, keys: keys, wake: make(chan struct{}, 1), nodes: map[string]memberlist.Node{}, changed: make(chan struct{})}
	c, err := l.profile()
	if err != nil {
		return nil, err
	}
	if l.ml, err = memberlist.Create(c); err != nil {
		return nil, fmt.Errorf("gossip on %s: %w", cfg.Listen, err)
	}
	if l.refresh(); len(l.alive) == 0 { // it has refused itself
		return nil, errors.Join(frame.Errorf(frame.ReqInvalid, "the gossip does not take in this gateway itself: is %s, at which the others are to reach it, in the networks that members may be in (%s)?",
			net.JoinHostPort(c.AdvertiseAddr, strconv.Itoa(c.AdvertisePort)), strings.Join(cfg.Allow, ", ")), l.ml.Shutdown())
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.tasks.Go(func() { l.follow(ctx) })
	l.tasks.Go(func() { l.rejoin(ctx) })
	return l, nil
}

// profile is the library's one for a local network with faster detection: a gateway that is gone is missed within two seconds.
func (l *List) profile() (*memberlist.Config, error) {
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label = l.cfg.Gateway, "dmsc:"+l.cfg.Domain
	c.Keyring, c.GossipVerifyIncoming, c.GossipVerifyOutgoing = l.keys, true, true
	c.ProbeInterval, c.ProbeTimeout = 250*time.Millisecond, 100*time.Millisecond
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = 3, 2
	c.GossipInterval, c.GossipNodes, c.RetransmitMult = 50*time.Millisecond, 4, 4
	c.PushPullInterval = 10 * time.Second
	c.DeadNodeReclaimTime = reclaimAfter
	c.Delegate, c.Events, c.Alive, c.Conflict = (*hooks)(l), (*hooks)(l), (*hooks)(l), (*hooks)(l)
	c.TCPTimeout = joinTime
	c.Logger, c.Transport = log.New(logWriter{l.log, rate.NewLimiter(1, 10)}, "", 0), l.cfg.transport
	var err error
	if c.BindAddr, c.BindPort, err = hostPort(l.cfg.Listen); err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "listen address of the gossip: %w", err)
	}
	if c.BindAddr == "" {
		c.BindAddr = "::"
	}
	if c.AdvertiseAddr, c.AdvertisePort = c.BindAddr, c.BindPort; l.cfg.Advertise != "" {
		if c.AdvertiseAddr, c.AdvertisePort, err = hostPort(l.cfg.Advertise); err != nil {
			return nil, frame.Errorf(frame.ReqInvalid, "advertised address of the gossip: %w", err)
		}
	}
	if ip, err := netip.ParseAddr(c.AdvertiseAddr); err == nil && ip.IsUnspecified() {
		if c.AdvertiseAddr, err = ownAddress(); err != nil {
			return nil, err
		}
	}
	l.cfg.Addresses = slices.Clone(l.cfg.Addresses)
	for i, a := range l.cfg.Addresses {
		host, port, err := net.SplitHostPort(a)
		if ip, e := netip.ParseAddr(host); err == nil && (host == "" || e == nil && ip.IsUnspecified()) {
			l.cfg.Addresses[i] = net.JoinHostPort(c.AdvertiseAddr, port)
		}
	}
	if len(l.cfg.Allow) > 0 {
		if c.CIDRsAllowed, err = memberlist.ParseCIDRs(l.cfg.Allow); err != nil {
			return nil, frame.Errorf(frame.ReqInvalid, "networks of the gossip: %w", err)
		}
	}
	return c, nil
}

// ownAddress is an address of this host for its own network: a private one, else any that is not the loopback's.
func ownAddress() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("addresses of this host: %w", err)
	}
	var other string
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().IsGlobalUnicast() {
			continue
		}
		if p.Addr().IsPrivate() {
			return p.Addr().String(), nil
		}
		if other == "" {
			other = p.Addr().String()
		}
	}
	if other == "" {
		return "", frame.Errorf(frame.ReqInvalid, "this host has no address but the loopback's: say with `advertise` where the domain's other gateways reach it")
	}
	return other, nil
}

// reclaimAfter is how long a name stays with the address at which its gateway was last alive: with the time until the gateway is missed there, and
// that until it says anew that it is here, a move takes half a minute at most.
const reclaimAfter = 15 * time.Second

func hostPort(s string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q is no port", text)
	}
	return host, int(n), nil
}

// Alive is the members, this gateway among them, by AIC. The slice is shared: do not change it.
func (l *List) Alive() []Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alive
}

// Changed is closed when Alive answers differently. Take the channel before the list, else a change may be missed.
func (l *List) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// SetLame tells the others that this gateway takes nothing new, or that it does. After an error they may not have heard it.
func (l *List) SetLame(lame bool) error {
	if l.lame.Swap(lame) == lame {
		return nil
	}
	return l.ml.UpdateNode(leaveTime)
}

const (
	leaveTime = time.Second
	joinTime  = 2 * time.Second // for one address; also of any other exchange over TCP
)

// Close says goodbye to the others, for a second at most, and ends the gossip. It takes as long as an address that is being tried: 2 s. It is
// idempotent.
func (l *List) Close() error {
	l.closing.Do(func() {
		l.stop()
		if err := l.ml.Leave(leaveTime); err != nil { // they miss it within two seconds anyway
			l.log.Info("the domain's other gateways may not have heard the goodbye", "err", err)
		}
		l.closed = l.ml.Shutdown()
		l.tasks.Wait()
	})
	return l.closed
}

// follow keeps Alive up to date. The library's hooks run under its lock and must not ask it anything; this does.
func (l *List) follow(ctx context.Context) {
	for {
		select {
		case <-l.wake:
			l.refresh()
		case <-ctx.Done():
			return
		}
	}
}

func (l *List) refresh() {
	var alive []Member
	for _, n := range l.present() {
		m, err := parseMeta(n.Meta)
		if err != nil { // it was refused then
			continue
		}
		alive = append(alive, Member{n.Name, m.Addresses, m.Lame, n.Name == l.cfg.Gateway})
	}
	slices.SortFunc(alive, func(a, b Member) int { return strings.Compare(a.Gateway, b.Gateway) })
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.EqualFunc(l.alive, alive, func(a, b Member) bool {
		return a.Gateway == b.Gateway && a.Lame == b.Lame && slices.Equal(a.Addresses, b.Addresses)
	}) {
		return
	}
	l.alive = alive
	close(l.changed)
	l.changed = make(chan struct{})
}
