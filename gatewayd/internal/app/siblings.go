package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"agentgw/config"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/aaap"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// siblings are the other AMCs of the domain as this one is attached to them: each pushes its bundle and its status lists, and this
// one's bundle names it, so that all who trust this AMC believe it too.
type siblings struct {
	ctx context.Context // that of the process, set before the socket is open

	mu      sync.Mutex // guards the rest
	rows    map[string]sibling
	run     map[string]attachedSibling // by issuer
	refused map[string]error           // why the last bundle that one has pushed does not count, by issuer
}

// sibling is one file of the configuration with the bundle that it names.
type sibling struct {
	*config.Sibling
	bundle *identity.Accepted
	kept   *identity.Accepted // the last one that an earlier run accepted of its line, nil for none
}

// newest is what is known of it, whether or not the own bundle names the key of that yet.
func (s sibling) newest() *identity.Accepted {
	if s.kept != nil && s.kept.Seq > s.bundle.Seq {
		return s.kept
	}
	return s.bundle
}

type attachedSibling struct {
	client *aaap.Client
	stop   context.CancelFunc
}

const issuerPrefix = "issuer/"

// keepIssuer remembers the bundle of a further issuer of a domain, behind the hash of the copy that the operator gave of it, if one
// did.
func (a *app) keepIssuer(b *identity.Accepted) {
	var root [32]byte
	a.siblings.mu.Lock()
	if row, ok := a.siblings.rows[b.Issuer]; ok {
		root = sha256.Sum256(row.bundle.Raw)
	}
	a.siblings.mu.Unlock()
	a.setIssuer(b.Issuer, append(root[:], b.Raw...))
}

func (a *app) forgetIssuer(issuer string) { a.setIssuer(issuer, nil) }

func (a *app) setIssuer(issuer string, value []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), pinTime)
	defer cancel()
	if err := a.store.SetMeta(ctx, issuerPrefix+issuer, value); err != nil {
		a.log.Error("keep the bundle of a further issuer", "issuer", issuer, "err", err)
	}
}

// loadSiblings reads the other AMCs of the domain, and gives the trust store the newest that is known of every further issuer.
func (a *app) loadSiblings() error {
	rows, err := readSiblings(a.cfg)
	if err != nil {
		return err
	}
	kept, err := a.store.Metas(issuerPrefix)
	if err != nil {
		return fmt.Errorf("read the bundles of further issuers: %w", err)
	}
	var list [][]byte
	for name, value := range kept {
		issuer := strings.TrimPrefix(name, issuerPrefix)
		row, configured := rows[issuer]
		if len(value) <= 32 || configured && [32]byte(value) != sha256.Sum256(row.bundle.Raw) {
			continue
		}
		list = append(list, value[32:])
		if configured {
			if row.kept, err = identity.ParseBundle(value[32:]); err != nil {
				return fmt.Errorf("read the bundle of the AMC %s that was kept: %w", issuer, err)
			}
			rows[issuer] = row
		}
	}
	for _, row := range rows {
		list = append(list, row.bundle.Raw)
	}
	a.siblings.rows = rows
	a.trust.Recall(list)
	if a.cfg.HasRole(config.RoleAMC) {
		a.home.siblings = a.named
	}
	return nil
}

// readSiblings reads the files of the other AMCs, by issuer.
func readSiblings(cfg *config.Gateway) (map[string]sibling, error) {
	files, err := config.LoadSiblings(cfg.SiblingsDir)
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	if len(files) > 0 && !cfg.HasRole(config.RoleAMC) {
		return nil, daemon.Usagef("%s: a gateway without the role amc has no other AMCs: its own one tells it of them; remove the file", files[0].File)
	}
	out := map[string]sibling{}
	for _, f := range files {
		b, err := readBundle(f.Bundle)
		if err != nil {
			return nil, err
		}
		if is := identity.FingerprintText(b.Fingerprint); is != f.Fingerprint {
			return nil, daemon.Usagef("%s: %w", f.File, notSigner(f.Bundle, is, f.Fingerprint))
		}
		if b.Domain != cfg.Domain {
			return nil, daemon.Usagef("%s: the bundle is of %s, and %s is this domain: `gatewayd peer add` is for others", f.File, b.Domain, cfg.Domain)
		}
		if _, twice := out[b.Issuer]; twice {
			return nil, daemon.Usagef("%s: the AMC %s has another file already", f.File, b.Issuer)
		}
		out[b.Issuer] = sibling{Sibling: f, bundle: b}
	}
	if len(out) > identity.MaxSiblings {
		return nil, daemon.Usagef("%s has %d other AMCs, and a bundle names at most %d: remove some", cfg.SiblingsDir, len(out), identity.MaxSiblings)
	}
	return out, nil
}

// named are the other AMCs as the own bundle names them: under the key that signs for each now.
func (a *app) named() (out []identity.Sibling) {
	a.siblings.mu.Lock()
	defer a.siblings.mu.Unlock()
	for issuer, row := range a.siblings.rows {
		signer := row.newest().Fingerprint // one that is not believed yet: a crash came before the own bundle named its next key
		if held := a.trust.Issuer(issuer); held != nil {
			signer = held.Fingerprint
		}
		out = append(out, identity.Sibling{Issuer: issuer, Signer: signer[:]})
	}
	slices.SortFunc(out, func(x, y identity.Sibling) int { return strings.Compare(x.Issuer, y.Issuer) })
	return out
}

// takeSibling takes the bundle of another AMC of the own domain; the caller holds turning.
func (a *app) takeSibling(ctx context.Context, next *identity.Accepted) error {
	before := a.trust.All()
	changed, err := a.trust.Vouch(next.Raw)
	if err != nil || !changed {
		return err
	}
	a.peers.Distrusted(before) // introduced domains that claimed what is its
	a.keepIssuer(next)
	a.log.Info("bundle of another AMC of the domain", "issuer", next.Issuer, "seq", next.Seq)
	a.announce(&arp.Bundle{Bundle: next.Raw}, next.Issuer)
	a.peers.TrustChanged()
	if err := a.audit(ctx, kindBundle, map[string]any{"issuer": next.Issuer, "seq": next.Seq, "keys": len(next.Keys)}); err != nil {
		return err
	}
	return a.nameSiblings(ctx)
}

// nameSiblings publishes the own bundle anew where the other AMCs, or the keys that sign for them, are not those that it names; the
// caller holds turning.
func (a *app) nameSiblings(ctx context.Context) error {
	if a.amc == nil {
		return nil
	}
	raw, err := a.home.renewBundle(now(), false)
	if err != nil || raw == nil {
		return err
	}
	return a.renewOwn(ctx, raw)
}

// attachSiblings starts with the other AMCs that were configured at the start.
func (a *app) attachSiblings(ctx context.Context) {
	a.siblings.ctx = ctx
	if a.amc == nil {
		return
	}
	a.runSiblings()
	if err := a.turnKeys(ctx, now(), false); err != nil {
		a.log.Error("name the other AMCs of the domain", "err", err)
	}
}

// runSiblings keeps this AMC attached to those that are configured, and to no other.
func (a *app) runSiblings() {
	s := &a.siblings
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil { // nobody would wait for them
		return
	}
	if s.run == nil {
		s.run, s.refused = map[string]attachedSibling{}, map[string]error{}
	}
	for issuer, run := range s.run {
		if row, ok := s.rows[issuer]; !ok || row.Address != run.client.Address() {
			run.stop()
			delete(s.run, issuer)
			delete(s.refused, issuer)
		}
	}
	for issuer, row := range s.rows {
		if _, runs := s.run[issuer]; runs {
			continue
		}
		c := aaap.NewClient(aaap.ClientConfig{
			Address: row.Address, Gateway: string(a.home.gateway), Issuer: issuer, Certificate: a.home.current, Trust: a.trust, Statuses: a.statuses,
			Status: a.takeSiblingStatus, Bundle: func(ctx context.Context, raw []byte) { a.takeSiblingBundle(ctx, issuer, raw) }, Log: a.log,
		})
		ctx, stop := context.WithCancel(s.ctx)
		s.run[issuer] = attachedSibling{c, stop}
		a.running.Go(func() { c.Run(ctx, a.ep) })
	}
}

func (a *app) takeSiblingStatus(ctx context.Context, raw []byte) { a.takeStatus(ctx, [][]byte{raw}) }

func (a *app) takeSiblingBundle(ctx context.Context, issuer string, raw []byte) {
	err := a.takeBundle(ctx, raw)
	if err != nil {
		a.log.Error("bundle of another AMC of the domain", "err", err)
	}
	a.siblings.mu.Lock()
	defer a.siblings.mu.Unlock()
	a.siblings.refused[issuer] = err
}

// reloadSiblings reads the other AMCs again: the own bundle names those that are new, and those that are gone no more.
func (a *app) reloadSiblings(ctx context.Context) error {
	rows, err := readSiblings(a.cfg)
	if err != nil {
		return frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	if a.amc == nil {
		return nil
	}
	a.siblings.mu.Lock()
	a.siblings.rows = rows
	a.siblings.mu.Unlock()
	if err := a.turnKeys(ctx, now(), false); err != nil {
		return err
	}
	for issuer, row := range rows {
		if a.trust.Issuer(issuer) != nil {
			continue
		}
		if err := a.takeBundle(ctx, row.bundle.Raw); err != nil {
			return err
		}
	}
	a.runSiblings()
	return nil
}

// siblingRows are the other AMCs for the operator.
func (a *app) siblingRows() []admin.SiblingRow {
	a.siblings.mu.Lock()
	defer a.siblings.mu.Unlock()
	out := []admin.SiblingRow{}
	for issuer, run := range a.siblings.run {
		row := admin.SiblingRow{Issuer: issuer, Address: run.client.Address(), State: attachedText(run.client)}
		if err := a.siblings.refused[issuer]; err != nil {
			row.State += fmt.Sprintf(", its bundle is refused: %v", err)
		}
		if b := a.trust.Issuer(issuer); b != nil {
			row.Prefixes, row.Seq = b.Prefixes, b.Seq
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(x, y admin.SiblingRow) int { return strings.Compare(x.Issuer, y.Issuer) })
	return out
}

// attachedText says how an AMC on another host is reached.
func attachedText(c *aaap.Client) string {
	switch ok, err := c.Attached(); {
	case ok:
		return "attached"
	case err == nil:
		return "connecting"
	default:
		return fmt.Sprintf("not attached: %v", err)
	}
}
