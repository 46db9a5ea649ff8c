package app

import (
	"context"
	"crypto"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/config"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/aaap"
	"agentgw/internal/daemon"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// JoinOptions is what `gatewayd join` is told.
type JoinOptions struct {
	Dir       string
	StateDir  string
	Token     string // of class gateway, made at the AMC
	Listen    string
	Advertise []string
	Lab       bool
}

// Join makes a gateway of a domain whose AMC is on another host: its keys stay here, its certificate and the domain's bundle
// come from the AMC. The same token completes a join that was cut short.
func Join(ctx context.Context, o JoinOptions) (*InitResult, error) {
	token, err := arp.ParseToken(o.Token)
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	file := filepath.Join(o.Dir, "gatewayd.yaml")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return nil, daemon.Usagef("%s is there already: choose another --dir, or remove it", file)
	}
	for _, a := range append([]string{o.Listen}, o.Advertise...) {
		if err := config.CheckHostPort(a); err != nil {
			return nil, daemon.Usagef("--listen and --advertise: %w", err)
		}
	}
	state := or(o.StateDir, filepath.Join(o.Dir, "state"))
	for _, dir := range []string{state, filepath.Join(o.Dir, "peers.d")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if len(o.Advertise) == 0 {
		o.Advertise = []string{o.Listen}
	}
	key, draft, err := joinDraft(state, o.Advertise)
	if err != nil {
		return nil, err
	}
	ep, err := endpoint.Open(endpoint.Config{Addr: ":0", Profile: endpoint.Agent})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ep.Close(ctx)
	}()
	done, address, center, err := aaap.Join(ctx, ep, token, key, draft)
	if err != nil {
		return nil, err
	}
	if done.Code == frame.Pending {
		return nil, frame.Errorf(frame.Pending, "request %s waits for approval at the AMC (gatewayd agents approve); run the same command again then", hex.EncodeToString(done.PendingID))
	}
	return keepJoin(file, state, config.AMC{Address: address, AIC: string(center)}, o, done)
}

// joinDraft makes the keys of a gateway, or finds those of a join that was cut short.
func joinDraft(state string, advertise []string) (key crypto.Signer, draft arp.GatewayDraft, err error) {
	file := filepath.Join(state, fileGatewayKey)
	if key, err = identity.LoadKey(file); errors.Is(err, fs.ErrNotExist) {
		if key, err = identity.NewLeafKey(); err == nil {
			err = identity.SaveKey(file, key)
		}
	}
	if err != nil {
		return nil, draft, err
	}
	spki, err := identity.SPKIHash(key.Public())
	if err != nil {
		return nil, draft, err
	}
	keys, at := &keyring{dir: state}, time.Now()
	for _, use := range gatewayUses {
		s, err := identity.LoadSigner(keys.file(use, ""))
		if errors.Is(err, fs.ErrNotExist) {
			s, err = newSigner(keys.file(use, ""))
		}
		if err != nil {
			return nil, draft, err
		}
		shown, err := proven(identity.NewBundleKey(s, "", wireUse(use), at, signerLife), s, arp.KeyProof{SPKI: spki[:]})
		if err != nil {
			return nil, draft, err
		}
		draft.Keys = append(draft.Keys, shown)
	}
	draft.Addresses = hostPorts(advertise)
	return key, draft, nil
}

// hostPorts are addresses as tokens and drafts spell them.
func hostPorts(addrs []string) []arp.HostPort {
	var out []arp.HostPort
	for _, a := range addrs {
		host, port, err := net.SplitHostPort(a)
		n, e := strconv.ParseUint(port, 10, 16)
		if err == nil && e == nil {
			out = append(out, arp.HostPort{Host: host, Port: uint16(n)})
		}
	}
	return out
}

// keepJoin writes what the AMC has answered, and the configuration last: with it the gateway is whole.
func keepJoin(file, state string, amc config.AMC, o JoinOptions, done *arp.Enrolled) (*InitResult, error) {
	var codes arp.GatewayCodes
	if err := frame.Unmarshal(done.ACS, &codes); err != nil {
		return nil, fmt.Errorf("the AMC's answer: %w", err)
	}
	bundle, err := identity.ParseBundle(done.Bundle)
	if err != nil {
		return nil, fmt.Errorf("the AMC's bundle: %w", err)
	}
	if _, err := aic.Parse(done.AIC); err != nil || len(done.Chain) == 0 || !bundle.IsGateway(done.AIC) || bundle.Domain != codes.Domain {
		return nil, frame.Errorf(frame.IdentityMismatch, "the AMC's answer does not fit together: its bundle does not name this gateway (%v)", err)
	}
	if err := identity.SaveChain(filepath.Join(state, fileGatewayChain), done.Chain); err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(filepath.Join(state, fileBundle), done.Bundle, 0o644); err != nil {
		return nil, err
	}
	cfg := config.Gateway{
		Domain: codes.Domain, StateDir: or(o.StateDir, "state"), Listen: o.Listen, Advertise: o.Advertise, Lab: o.Lab,
		Roles: []string{config.RoleGateway}, AMC: amc,
		AIC: config.AIC{Prefix: codes.Prefix, ARSP: codes.ARSP, Vendor: codes.Vendor, Salt: hex.EncodeToString(codes.Salt)},
	}
	return &InitResult{
		Config: file, Domain: codes.Domain, Gateway: done.AIC, AMC: bundle.Issuer, Bundle: filepath.Join(state, fileBundle),
		Fingerprint: identity.FingerprintText(bundle.Fingerprint),
	}, writeConfig(file, cfg)
}
