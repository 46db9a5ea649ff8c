package app

import (
	"math/big"
	"time"

	"agentgw/gatewayd/internal/amc"
	"agentgw/gatewayd/internal/revocation"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// maxCRLPeriod is the longest time between two CRLs; four lives of a status list are another bound.
const maxCRLPeriod = time.Hour

// openOutside makes what tells outsiders of certificates, where the configuration wants it.
func (a *app) openOutside() (err error) {
	if a.cfg.AMC.PKIListen == "" {
		return nil
	}
	a.outside, err = revocation.New(revocation.Config{
		CA: a.home.authority, Listen: a.cfg.AMC.PKIListen, Now: now, Log: a.log,
		Period: min(4*a.cfg.AMC.StatusLife.Or(identity.MaxStatusLife), maxCRLPeriod),
		Status: func(serial *big.Int) (pki.Status, bool) {
			s, known := a.amc.CertStatus(serial)
			return pki.Status{Revoked: s.State != identity.Good, Reason: s.Reason, At: s.Since}, known
		},
		Revoked: func() []pki.Revoked { return revoked(a.amc.BadCerts()) },
	})
	return err
}

func revoked(certs []amc.CertStatus) []pki.Revoked {
	out := make([]pki.Revoked, len(certs))
	for i, c := range certs {
		out[i] = pki.Revoked{Serial: c.Serial, At: c.Since, Reason: c.Reason}
	}
	return out
}

// putStatus hands a new status list on: to everybody of the system, and to outsiders where something has changed.
func (a *app) putStatus(lists [][]byte) {
	a.lists.put(lists)
	if a.outside != nil {
		a.outside.Changed()
	}
}
