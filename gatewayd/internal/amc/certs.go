package amc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// CertStatus is what CRL and OCSP say of a certificate of this AMC.
type CertStatus struct {
	Serial   *big.Int
	State    identity.State
	Since    time.Time
	Reason   int
	NotAfter time.Time
}

// certs is what OCSP needs in memory: every certificate that has not ended, and who is not in good standing. Certificates are
// only ever added by their issue and standings only by their change, so that neither can undo the other.
type certs struct {
	mu  sync.RWMutex
	by  map[string]held     // by serial, 16 bytes
	bad map[string]standing // by AIC
}

type held struct {
	aic                  string
	notAfter, superseded uint64
}

type standing struct {
	state  identity.State
	since  uint64
	reason uint8
}

// keep remembers the certificates of an agent. One without a serial is of before there were records.
func (c *certs) keep(id string, g *agent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range g.Certs {
		if strings.Trim(string(k.Serial), "\x00") != "" {
			before := c.by[string(k.Serial)].superseded // of a re-key whose record is newer than g
			c.by[string(k.Serial)] = held{id, k.NotAfter, or(before, k.Superseded)}
		}
	}
}

// stand remembers the standing of an agent.
func (c *certs) stand(id string, g *agent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.State == identity.Good {
		delete(c.bad, id)
	} else {
		c.bad[id] = standing{g.State, g.Since, g.Reason}
	}
}

// status is the state of a certificate. The caller holds the lock.
func (c *certs) status(serial string, h held) CertStatus {
	s := CertStatus{Serial: new(big.Int).SetBytes([]byte(serial)), NotAfter: time.Unix(int64(h.notAfter), 0)}
	if b, ok := c.bad[h.aic]; ok {
		s.State, s.Since, s.Reason = b.state, time.Unix(int64(b.since), 0), int(b.reason)
	} else if h.superseded != 0 {
		s.State, s.Since, s.Reason = identity.Revoked, time.Unix(int64(h.superseded), 0), identity.ReasonSuperseded
	}
	return s
}

// CertStatus finds a certificate by its serial; known is false of one that was not issued here, or that ended long ago.
func (a *AMC) CertStatus(serial *big.Int) (s CertStatus, known bool) {
	if serial.Sign() <= 0 || serial.BitLen() > 128 {
		return s, false
	}
	name := string(serial.FillBytes(make([]byte, 16)))
	a.certs.mu.RLock()
	defer a.certs.mu.RUnlock()
	h, known := a.certs.by[name]
	if !known {
		return s, false
	}
	return a.certs.status(name, h), true
}

// BadCerts are the certificates that are suspended or revoked and have not ended, in the order of their serials.
func (a *AMC) BadCerts() []CertStatus {
	a.certs.mu.RLock()
	defer a.certs.mu.RUnlock()
	now := uint64(a.cfg.Now().Unix())
	var out []CertStatus
	for serial, h := range a.certs.by {
		if h.notAfter < now {
			continue
		}
		if s := a.certs.status(serial, h); s.State != identity.Good {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b CertStatus) int { return a.Serial.Cmp(b.Serial) })
	return out
}

// purge forgets what has ended.
func (c *certs) purge(now uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for serial, h := range c.by {
		if h.notAfter < now {
			delete(c.by, serial)
		}
	}
}

// Keep records a certificate of a gateway in this AMC's own process, which is signed without a request to it: it is suspended,
// revoked and asked about like any other. Doing it again changes nothing.
func (a *AMC) Keep(ctx context.Context, id aic.AIC, leaf *x509.Certificate) error {
	spki, err := identity.SPKIHash(leaf.PublicKey)
	if err != nil {
		return err
	}
	serial := leaf.SerialNumber.FillBytes(make([]byte, 16))
	var g *agent
	err = a.transact(ctx, func(tx Tx) error {
		g, err = getAgent(tx, string(id))
		switch {
		case frame.CodeOf(err) == frame.NotFound:
			g = &agent{
				SPKI: spki[:], Gateway: string(id), Class: ClassGateway, DNSNames: leaf.DNSNames, Decider: "init", Scope: []string{}, Grant: []byte{},
				GrantExp: uint64(a.cfg.Now().Add(grantLife).Unix()),
			}
		case err != nil:
			return err
		case slices.ContainsFunc(g.Certs, func(c certificate) bool { return string(c.Serial) == string(serial) }):
			return errUnchanged
		}
		g.add(certificate{Serial: serial, NotAfter: uint64(leaf.NotAfter.Unix())}, spki, a.cfg.Now())
		return put(tx, prefixAgent+string(id), g)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("record the certificate of %s: %w", id, err)
	}
	a.certs.keep(string(id), g)
	return nil
}
