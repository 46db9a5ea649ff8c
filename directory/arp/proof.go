package arp

import (
	"bytes"
	"crypto/ed25519"

	"agentgw/internal/frame"
)

// KeyProof is what each signing key of a gateway signs when it is shown first, so that nobody has another's key published as its own: whose
// it is, and for what. A gateway that joins has no AIC yet, and is named by the key of its certificate request.
type KeyProof struct {
	Owner string `cbor:"1,keyasint,omitempty"` // AIC
	SPKI  []byte `cbor:"2,keyasint,omitempty"` // SHA-256 of the SubjectPublicKeyInfo of the request, of a gateway that joins
	Use   uint8  `cbor:"3,keyasint"`
}

// Sign makes the proof with the key that it is of.
func (p KeyProof) Sign(s frame.Signer) ([]byte, error) { return s.SignMessage(frame.AADKey, "", p) }

// Proves says whether the key's proof is just want: 63 where there is none or it says something else, 24 where the key has not signed it.
func (k GatewayKey) Proves(want KeyProof) error {
	if len(k.Public) != ed25519.PublicKeySize {
		return frame.Errorf(frame.ReqInvalid, "the key of use %d is not Ed25519", k.Use)
	}
	kid := frame.KeyIDOf(k.Public)
	if len(k.Proof) == 0 {
		return frame.Errorf(frame.Binding, "the key %x of use %d has no proof that this gateway has it", kid, k.Use)
	}
	signed, err := frame.ParseSigned(k.Proof)
	if err != nil {
		return frame.Errorf(frame.BadSignature, "the proof of the key %x is no signed object: %w", kid, err)
	}
	if err := signed.Verify(frame.AADKey, k.Public); err != nil || signed.KeyID != kid {
		return frame.Errorf(frame.BadSignature, "the key %x has not signed its proof", kid)
	}
	says, err := frame.Marshal(want)
	if err != nil {
		return err
	}
	if !bytes.Equal(signed.Payload, says) {
		return frame.Errorf(frame.Binding, "the proof of the key %x is for another gateway or another use than %d", kid, want.Use)
	}
	return nil
}
