package identity

import (
	"crypto/x509"
	"strings"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
)

// NotBeforeSlack is how far back certificates and keys begin: a clock behind ours by this much still accepts a new one.
const NotBeforeSlack = time.Minute

// Bounds of the chain that a peer presents.
const (
	MaxChain      = 2       // leaf and issuing CA
	MaxChainBytes = 4 << 10 // the first flight stays below three times the first packet
)

// AICOf reads the AIC of a leaf certificate: the one URI SAN `acps://<AIC>` and nothing else in that URI, equal to the CN.
// The error carries [frame.IdentityMismatch].
func AICOf(leaf *x509.Certificate) (aic.AIC, error) {
	if len(leaf.URIs) != 1 {
		return "", frame.Errorf(frame.IdentityMismatch, "certificate has %d URI names where exactly one was due", len(leaf.URIs))
	}
	u := leaf.URIs[0]
	if u.Scheme != "acps" || u.User != nil || u.Port() != "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return "", frame.Errorf(frame.IdentityMismatch, "certificate's URI name is not acps://<AIC>")
	}
	id, err := aic.Parse(u.Host)
	if err != nil {
		return "", frame.Errorf(frame.IdentityMismatch, "certificate's URI name: %w", err)
	}
	if !strings.EqualFold(leaf.Subject.CommonName, string(id)) {
		return "", frame.Errorf(frame.IdentityMismatch, "certificate's CN and acps:// name differ")
	}
	return id, nil
}

// Life is how long a certificate was issued for: its beginning lies back by [NotBeforeSlack], for the clocks of others.
func Life(leaf *x509.Certificate) time.Duration {
	return max(leaf.NotAfter.Sub(leaf.NotBefore)-NotBeforeSlack, 0)
}

// HalfLife is when half of a certificate's life is over, and its successor is due.
func HalfLife(leaf *x509.Certificate) time.Time { return leaf.NotAfter.Add(-Life(leaf) / 2) }

// Serial is a certificate's serial number as status lists name it, 16 octets; nil when it has more, as none of ours has.
func Serial(leaf *x509.Certificate) []byte {
	if leaf.SerialNumber == nil || leaf.SerialNumber.Sign() < 0 || leaf.SerialNumber.BitLen() > 128 {
		return nil
	}
	return leaf.SerialNumber.FillBytes(make([]byte, 16))
}

// checkLeaf is what must hold of any leaf beside its chain.
func checkLeaf(leaf *x509.Certificate, now time.Time) error {
	switch {
	case leaf.IsCA:
		return frame.Errorf(frame.TrustDenied, "peer's certificate is a CA's")
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return frame.Errorf(frame.TrustDenied, "peer's certificate may not sign")
	case now.Before(leaf.NotBefore):
		return frame.Errorf(frame.TrustDenied, "peer's certificate is not valid yet: compare the clocks")
	case now.After(leaf.NotAfter):
		return frame.Errorf(frame.TrustDenied, "peer's certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkChainSize bounds what a handshake may carry before anything is computed over it.
func checkChainSize(chain []*x509.Certificate) error {
	total := 0
	for _, c := range chain {
		total += len(c.Raw)
	}
	if len(chain) == 0 || len(chain) > MaxChain || total > MaxChainBytes {
		return frame.Errorf(frame.TrustDenied, "chain of %d certificates and %d bytes: at most %d and %d are accepted", len(chain), total, MaxChain, MaxChainBytes)
	}
	return nil
}
