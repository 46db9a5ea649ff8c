package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"agentgw/cdsp/wire"
	"agentgw/config"
	"agentgw/directory/arp"
	"agentgw/directory/registry"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/members"
	"agentgw/gatewayd/internal/peering"
	"agentgw/gatewayd/internal/registrar"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/secret"
)

// metaMembers is where the other gateways of the domain were, host:port of their gossip, one a line.
const metaMembers = "members"

// clusterKeys reads the keys of the gossip.
func clusterKeys(file string) (keys [][]byte, err error) {
	raw, err := secret.Read(file)
	if err != nil {
		return nil, err
	}
	for n, line := range bytes.Split(raw, []byte("\n")) {
		digits := bytes.TrimSpace(line)
		if len(digits) == 0 {
			continue
		}
		key := make([]byte, hex.DecodedLen(len(digits)))
		if _, err := hex.Decode(key, digits); err != nil || len(key) != 16 && len(key) != 24 && len(key) != 32 {
			return nil, fmt.Errorf("gossip keys %s, line %d: 32, 48 or 64 hexadecimal digits are due", file, n+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("gossip keys %s: it has none; `gatewayd cluster key --out FILE` makes a file with one", file)
	}
	return keys, nil
}

// NewClusterKey writes a file with a new gossip key, which must not be there yet.
func NewClusterKey(file string) error {
	key := make([]byte, 32)
	rand.Read(key) // it never fails
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintln(f, hex.EncodeToString(key)); err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// openCluster starts the gossip with the domain's other gateways.
func (a *app) openCluster(cleanup *daemon.Cleanup) error {
	if !a.cfg.Cluster.On() {
		return nil
	}
	keys, err := clusterKeys(a.cfg.Cluster.Keys)
	if err != nil {
		return err
	}
	kept, _ := a.store.Meta(metaMembers)
	a.cluster, err = members.Open(members.Config{
		Gateway: string(a.home.gateway), Domain: a.cfg.Domain, Listen: a.cfg.Cluster.Listen, Advertise: a.cfg.Cluster.Advertise, Keys: keys,
		Allow: a.cfg.Cluster.Networks, Addresses: a.cfg.Advertise, Seeds: func(context.Context) []string { return a.cfg.Cluster.Seeds },
		Known: func(id string) bool { return a.trust.Own().IsGateway(id) },
		Kept:  strings.Fields(string(kept)), Keep: a.keepMembers, Log: a.log,
	})
	if err != nil {
		return err
	}
	cleanup.Add("leave the cluster", drainTime, func(context.Context) error { return a.cluster.Close() })
	return nil
}

// holds says whether this gateway is among those of the domain that dial a peer domain. It is asked when the cluster is open.
func (a *app) holds(domain string) bool {
	return a.cluster == nil || members.Holds(string(a.home.gateway), domain, a.cluster.Alive())
}

func (a *app) keepMembers(addresses []string) {
	ctx, cancel := context.WithTimeout(context.Background(), pinTime)
	defer cancel()
	if err := a.store.SetMeta(ctx, metaMembers, []byte(strings.Join(addresses, "\n"))); err != nil {
		a.log.Warn("keep where the domain's gateways are", "err", err)
	}
}

// followCluster has peering connect to whoever is alive.
func (a *app) followCluster(ctx context.Context) {
	var before []members.Member
	for {
		changed := a.cluster.Changed()
		var others []peering.Sibling
		alive := a.cluster.Alive()
		a.observeMembers(before, alive)
		before = alive
		for _, m := range alive {
			if !m.Self {
				others = append(others, peering.Sibling{Gateway: m.Gateway, Addresses: m.Addresses})
			}
		}
		if err := a.peers.SetSiblings(ctx, others); err != nil && ctx.Err() == nil {
			a.log.Error("connect to the domain's gateways", "err", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// roam is what agents need that move between the gateways of the domain; nil where this is the only one.
func (a *app) roam() *registrar.Roam {
	if !a.cfg.Cluster.On() || !a.cfg.HasRole(config.RoleGateway) {
		return nil
	}
	return &registrar.Roam{
		Signer: a.home.signer(identity.UseDigest), Gateways: a.otherGateways,
		Connected: func(gateway string) bool { return a.peers.Connected(gateway) },
		Tell: func(to, id string, version, base uint64) {
			a.peers.TellMoved(to, wire.Moved{AIC: id, Version: version, Base: base})
		},
	}
}

// hearMoved hears of an agent that is at home at another gateway of the domain.
func (a *app) hearMoved(gateway string, m *wire.Moved) {
	ctx, cancel := context.WithTimeout(context.Background(), pinTime)
	defer cancel()
	a.agents.Moved(ctx, registry.Home{Gateway: gateway, Version: m.Version, Base: m.Base}, m.AIC)
}

// moves is what another gateway of the domain is told of agents when it has connected.
func (a *app) moves() (list []wire.Moved) {
	for _, e := range a.agents.Adopted() {
		list = append(list, wire.Moved{AIC: e.AIC, Version: e.Version, Base: e.Provenance.Base})
	}
	return list
}

// otherGateways are those of the domain that are alive and take agents.
func (a *app) otherGateways() (list []arp.GatewayAt) {
	for _, m := range a.cluster.Alive() {
		if m.Self || m.Lame {
			continue
		}
		at := arp.GatewayAt{AIC: m.Gateway}
		for _, address := range m.Addresses[:min(len(m.Addresses), arp.MaxGatewayAddresses)] {
			host, port, err := net.SplitHostPort(address)
			n, bad := strconv.ParseUint(port, 10, 16)
			if err == nil && bad == nil {
				at.Addresses = append(at.Addresses, arp.HostPort{Host: host, Port: uint16(n)})
			}
		}
		list = append(list, at)
	}
	return list
}

// Members implements admin.Gateway.
func (a *app) Members() ([]admin.Member, error) {
	if !a.cfg.HasRole(config.RoleGateway) || a.cluster == nil {
		return nil, frame.Errorf(frame.State, "this gateway is in no cluster: `cluster:` of its configuration says how the domain's gateways find each other")
	}
	up := map[string]peering.PeerStatus{}
	for _, p := range a.peers.Status() {
		if p.Domain == a.cfg.Domain {
			up[p.Gateway] = p
		}
	}
	var out []admin.Member
	for _, m := range a.cluster.Alive() {
		row := admin.Member{Gateway: m.Gateway, Addresses: m.Addresses, Lame: m.Lame, Self: m.Self}
		if p, ok := up[m.Gateway]; ok {
			row.Session, row.Entries = p.State, p.Entries
		}
		out = append(out, row)
	}
	return out, nil
}
