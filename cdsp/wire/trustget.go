package wire

import "agentgw/internal/frame"

// TrustGet asks for what is newer than the asker holds of one domain, or of one of its issuers. BUNDLE and STATUS frames
// answer it; nothing does where nothing newer is known (PROTOCOL.md, "TRUST_GET").
//
//	TRUST_GET { 1 domain, ? 2 issuer AIC, 3 bundle_seq held, 4 status_seq held }
type TrustGet struct {
	Domain    string `cbor:"1,keyasint"`
	Issuer    string `cbor:"2,keyasint,omitempty"` // absent: any of the domain
	BundleSeq uint64 `cbor:"3,keyasint"`           // 0: none is held
	StatusSeq uint64 `cbor:"4,keyasint"`
}

// FrameType implements [frame.Message].
func (*TrustGet) FrameType() frame.Type { return frame.TrustGet }

func (m *TrustGet) check() error {
	if err := checkName("domain", m.Domain, MaxDomain); err != nil {
		return err
	}
	return checkText("issuer", m.Issuer, MaxAIC)
}
