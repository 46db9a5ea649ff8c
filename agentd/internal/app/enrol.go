package app

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/agentd/internal/attach"
	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/daemon"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// EnrolOptions is what `agentd enrol` is told.
type EnrolOptions struct {
	Dir        string // gets agentd.yaml, agents.d and the state folder
	Name       string
	ACS        string // file of the draft, or its https URL
	Private    bool   // the URL may lead into a network of one's own
	Token      string
	Gateway    string                                    // host:port, without a token
	GatewayPin string                                    // sha256:… of the gateway's key, without a token
	Wait       time.Duration                             // for an operator's approval
	Waiting    func(request string, again time.Duration) // told while it waits
	Replace    bool                                      // an agent of this name whose credential is lost
	Visibility string
	Allow      []string
	Listen     string
	Program    string // of the local agent
	Args       []string
}

// EnrolResult is what `agentd enrol` did.
type EnrolResult struct {
	Name         string   `json:"name"`
	AIC          string   `json:"aic"`
	Domain       string   `json:"domain"`
	Gateway      string   `json:"gateway"`
	Capabilities []string `json:"capabilities"`
	Removed      []string `json:"removed,omitempty"`  // asked for and not granted
	Warnings     []string `json:"warnings,omitempty"` // of the draft: taken, and probably mistakes
	Command      []string `json:"command,omitempty"`  // that starts its program
	Config       string   `json:"config"`
	Running      bool     `json:"running"`          // the running daemon serves it already
	Before       string   `json:"before,omitempty"` // AIC that the name had before, which only the operator of its domain can take away
}

// Enrol registers an agent and writes its credential and configuration.
func Enrol(ctx context.Context, o EnrolOptions) (*EnrolResult, error) {
	if !config.ValidName(o.Name) {
		return nil, daemon.Usagef("name %q: 1 to 64 of a-z 0-9 . _ - beginning with a letter or digit", o.Name)
	}
	var visibility directory.Visibility
	if err := visibility.UnmarshalText([]byte(o.Visibility)); err != nil {
		return nil, daemon.Usagef("visibility %q: use public, listed, domain or private", o.Visibility)
	}
	token, err := o.token()
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	draft, err := ReadDraft(ctx, o.ACS, o.Private)
	if err != nil {
		return nil, err
	}
	if o, err = o.resolved(); err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	file, cfg, err := loadConfig(o)
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	if _, err := agentYAML(cfg, o, "localhost:1"); err != nil { // found out before the token is used up
		return nil, &daemon.UsageError{Err: err}
	}
	if _, err := finish(cfg, o.Name); err != nil {
		return nil, err
	}
	dir := agentDir(cfg.StateDir, o.Name)
	if _, err := os.Stat(filepath.Join(dir, fileEnrolment)); err == nil && !o.Replace {
		return nil, daemon.Usagef("agent %s is enrolled already (%s): choose another --name, or give --replace for a new identity under this name", o.Name, dir)
	}
	folder, err := stage(cfg, o)
	if err != nil {
		return nil, err
	}
	done, gateway, err := o.present(ctx, attach.Enrolment{Token: token, Key: folder.key, Draft: draft, Kind: draftKind(draft), Visibility: uint8(visibility), Allow: o.Allow})
	if err != nil {
		return nil, folder.failed(err)
	}
	own, err := identity.ParseBundle(done.Bundle)
	if err != nil {
		return nil, fmt.Errorf("the gateway's bundle: %w", err)
	}
	e := enrolment{
		AIC: done.AIC, Name: nameOf(done.ACS), Domain: own.Domain, Visibility: o.Visibility, Allow: o.Allow, Gateway: gateway, Capabilities: done.Caps,
		EntryVersion: done.EntryVersion, EnrolledAt: time.Now().UTC(),
	}
	if err := folder.keepEnrolment(cfg, file, o, done, e); err != nil {
		return nil, fmt.Errorf("agent %s is registered as %s, but that could not be kept: run the same command again; %w", o.Name, done.AIC, err)
	}
	out := &EnrolResult{Name: o.Name, AIC: done.AIC, Domain: own.Domain, Gateway: gateway, Capabilities: done.Caps, Warnings: draftWarnings(draft), Config: file, Command: o.command()}
	for _, r := range done.Removed {
		out.Removed = append(out.Removed, r.Path)
	}
	if o.Replace {
		out.Before = aicBefore(dir)
	}
	return out, nil
}

// aicBefore is the AIC of the credential that was moved aside last, empty for none.
func aicBefore(dir string) string {
	kept, _ := filepath.Glob(dir + ".before-*") // the pattern is good
	var last int64
	var id string
	for _, k := range kept {
		at, err := strconv.ParseInt(strings.TrimPrefix(k, dir+".before-"), 10, 64)
		if err != nil || at < last {
			continue
		}
		if e, err := readEnrolment(k); err == nil {
			last, id = at, e.AIC
		}
	}
	return id
}

// token is the one that was given, or, where a person or a rule decides, one that names the gateway and its key only.
func (o EnrolOptions) token() (arp.Token, error) {
	if o.Token != "" {
		if o.Gateway != "" || o.GatewayPin != "" {
			return arp.Token{}, errors.New("a token names the gateway and its key: leave out --gateway and --gateway-pin")
		}
		return arp.ParseToken(o.Token)
	}
	if o.Gateway == "" || o.GatewayPin == "" {
		return arp.Token{}, errors.New("without a token --gateway HOST:PORT and --gateway-pin sha256:… are due: the operator shows them with `gatewayd status`")
	}
	pin, err := identity.ParseFingerprint(o.GatewayPin)
	if err != nil {
		return arp.Token{}, fmt.Errorf("--gateway-pin: %w", err)
	}
	if err := config.CheckHostPort(o.Gateway); err != nil {
		return arp.Token{}, fmt.Errorf("--gateway: %w", err)
	}
	host, port, _ := net.SplitHostPort(o.Gateway)
	n, err := strconv.ParseUint(port, 10, 16)
	return arp.Token{GatewayPK: pin[:], Addresses: []arp.HostPort{{Host: host, Port: uint16(n)}}}, err
}

// present makes the exchange with the gateway over a socket of its own; while a person has to approve it, again and again.
func (o EnrolOptions) present(ctx context.Context, e attach.Enrolment) (*arp.Enrolled, string, error) {
	ep, err := endpoint.Open(endpoint.Config{Addr: ":0", Profile: endpoint.Agent})
	if err != nil {
		return nil, "", err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ep.Close(ctx)
	}()
	until := time.Now().Add(o.Wait)
	for {
		done, gateway, err := attach.Enrol(ctx, ep, e)
		if err != nil || done.Code != frame.Pending {
			return done, gateway, err
		}
		e.Pending = done.PendingID
		again := min(max(time.Duration(done.RetryAfterMS)*time.Millisecond, time.Second), time.Minute)
		request := hex.EncodeToString(done.PendingID)
		left := time.Until(until)
		if left <= 0 {
			return nil, "", frame.Errorf(frame.Pending, "request %s waits for an operator's approval: run the same command again when it is approved", request)
		}
		again = min(again, left) // who waits for less asks once more at the end
		if o.Waiting != nil {
			o.Waiting(request, again.Round(time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return nil, "", frame.Errorf(frame.Pending, "request %s still waits for an operator's approval: run the same command again", request)
		case <-time.After(again):
		}
	}
}

func nameOf(doc []byte) string {
	a, err := acs.Parse(doc)
	if err != nil {
		return ""
	}
	return a.Name
}

// loadConfig loads agentd.yaml of the folder, or is the one with the defaults that ensureConfig writes where there is none.
func loadConfig(o EnrolOptions) (string, *config.Agent, error) {
	file := filepath.Join(o.Dir, "agentd.yaml")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		cfg, err := config.LoadAgent(file)
		return file, cfg, err
	}
	if err := config.CheckHostPort(o.Listen); err != nil {
		return "", nil, fmt.Errorf("--listen: %w", err)
	}
	cfg := &config.Agent{Listen: o.Listen}
	cfg.Defaults(file)
	return file, cfg, nil
}

func ensureConfig(file string, o EnrolOptions) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := fmt.Sprintf(`# agentd: the daemon beside the agents of this machine. Unknown keys are errors; paths are relative to this file.
state_dir: state            # credentials and the database of the agents; back it up
listen: %q   # UDP, for sessions
agents_dir: agents.d        # one agent a file, written by "agentd enrol"
log: {level: info, format: text}
`, o.Listen)
	return renameio.WriteFile(file, []byte(text), 0o644)
}

func agentFile(cfg *config.Agent, name string) string {
	return filepath.Join(cfg.AgentsDir, name+".yaml")
}

func writeAgent(cfg *config.Agent, o EnrolOptions, gateway string) error {
	if err := os.MkdirAll(cfg.AgentsDir, 0o755); err != nil {
		return err
	}
	text, err := agentYAML(cfg, o, gateway)
	if err != nil {
		return err
	}
	return renameio.WriteFile(agentFile(cfg, o.Name), text, 0o644)
}

// agentYAML is the file of an agent. One that is there is its user's: only the gateway, and a program that was named, are written anew.
func agentYAML(cfg *config.Agent, o EnrolOptions, gateway string) ([]byte, error) {
	file := agentFile(cfg, o.Name)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = fmt.Appendf(nil, "# one hosted agent; its credential is in state/agents/%s\nname: %s\ngateway: %q\n", o.Name, o.Name, gateway), nil
	}
	if err != nil {
		return nil, err
	}
	return config.EditLocalAgent(file, raw, gateway, o.command())
}

func parseEndpoint(hostPort string) (semreq.Endpoint, bool) {
	ap, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return semreq.Endpoint{}, false
	}
	return semreq.Endpoint{Host: ap.Addr().String(), Port: ap.Port(), ALPN: frame.ALPNAgent}, true
}
