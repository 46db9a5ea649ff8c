package frame

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"

	"github.com/veraison/go-cose"
)

// MaxSigned is the largest signed object accepted before it is parsed: a digest batch of 256 items.
const MaxSigned = 240 << 10

// external_aad of each kind of signed object: a signature of one kind never passes as another.
const (
	AADDigest = "dmsc-cdsp/1"   // digest batch, touch
	AADResult = "dmsc-res/1"    // resolution result
	AADSAT    = "dmsc-sat/1"    // session authorization token
	AADRAT    = "dmsc-rat/1"    // request authorization token
	AADBundle = "dmsc-bundle/1" // trust bundle
	AADGrant  = "dmsc-grant/1"  // authorization grant
	AADStatus = "dmsc-status/1" // status list
	AADAudit  = "dmsc-audit/1"  // checkpoint of an audit log
	AADKey    = "dmsc-key/1"    // proof that a gateway has the key that it shows
	AADEntry  = "dmsc-entry/1"  // statement of an agent's entry
)

// KeyID names a signing key: the first 8 bytes of the SHA-256 of its public key.
type KeyID [8]byte

// KeyIDOf is the id of an Ed25519 public key.
func KeyIDOf(pub ed25519.PublicKey) KeyID {
	sum := sha256.Sum256(pub)
	return KeyID(sum[:8])
}

// Signer signs objects with one Ed25519 key. The zero Signer signs nothing.
type Signer struct {
	key ed25519.PrivateKey
	kid KeyID
}

// NewSigner makes a Signer of a key.
func NewSigner(key ed25519.PrivateKey) Signer {
	return Signer{key: key, kid: KeyIDOf(key.Public().(ed25519.PublicKey))}
}

// KeyID is the id that the signer writes as kid.
func (s Signer) KeyID() KeyID { return s.kid }

// Always is a source of signers that never changes: for those who ask anew each time because keys are replaced.
func (s Signer) Always() func() Signer { return func() Signer { return s } }

// Public is the signer's public key.
func (s Signer) Public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

// Sign wraps payload, deterministic CBOR, into COSE_Sign1 (RFC 9052, tag 18): protected {1: -8, 4: kid} and, where
// contentType is not empty, 3; unprotected empty; aad bound but not carried. Ed25519 makes the result deterministic.
func (s Signer) Sign(aad, contentType string, payload []byte) ([]byte, error) {
	signer, err := cose.NewSigner(cose.AlgorithmEdDSA, s.key)
	if err != nil {
		return nil, err
	}
	headers := cose.Headers{Protected: cose.ProtectedHeader{
		cose.HeaderLabelAlgorithm: cose.AlgorithmEdDSA,
		cose.HeaderLabelKeyID:     s.kid[:],
	}}
	if contentType != "" {
		headers.Protected[cose.HeaderLabelContentType] = contentType
	}
	return cose.Sign1(nil, signer, headers, payload, []byte(aad))
}

// SignMessage encodes v and signs the bytes.
func (s Signer) SignMessage(aad, contentType string, v any) ([]byte, error) {
	payload, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	return s.Sign(aad, contentType, payload)
}

// VerifyKey is a public key with those who may speak with it: the AIC that owns it and that AIC's domain.
type VerifyKey struct {
	Public ed25519.PublicKey
	Owner  string // AIC
	Domain string
}

// KeyFunc finds the key of an id among the keys of the one use that the caller accepts.
type KeyFunc func(KeyID) (VerifyKey, bool)

// Signed is a parsed COSE_Sign1 whose signature is not verified yet.
type Signed struct {
	KeyID   KeyID
	Payload []byte
	msg     cose.Sign1Message
}

// ParseSigned parses a signed object without verifying it. A spelling that differs from the one that [Signer.Sign] would
// produce (unprotected headers, longer lengths) is [Malformed]: a signature covers neither, so anybody on the path could
// mint endless byte strings that verify.
func ParseSigned(b []byte) (*Signed, error) {
	if len(b) > MaxSigned {
		return nil, Errorf(FrameTooLarge, "signed object of %d bytes is over its limit of %d", len(b), MaxSigned)
	}
	s := &Signed{}
	if err := s.msg.UnmarshalCBOR(b); err != nil {
		return nil, Errorf(Malformed, "signed object: %w", err)
	}
	if alg, err := s.msg.Headers.Protected.Algorithm(); err != nil || alg != cose.AlgorithmEdDSA {
		return nil, Errorf(BadSignature, "signed object: algorithm is not EdDSA")
	}
	kid, _ := s.msg.Headers.Protected[cose.HeaderLabelKeyID].([]byte)
	if len(kid) != len(s.KeyID) {
		return nil, Errorf(Malformed, "signed object: kid is not 8 bytes")
	}
	copy(s.KeyID[:], kid)
	s.Payload = s.msg.Payload
	// RawProtected would be written back as it came; without it the library must spell the header itself.
	again := cose.Sign1Message{Headers: cose.Headers{Protected: s.msg.Headers.Protected}, Payload: s.msg.Payload, Signature: s.msg.Signature}
	if enc, err := again.MarshalCBOR(); err != nil || !bytes.Equal(enc, b) {
		return nil, Errorf(Malformed, "signed object is not in its one deterministic form")
	}
	return s, Check(s.Payload)
}

// ContentType is the protected header 3, empty when absent.
func (s *Signed) ContentType() string {
	v, _ := s.msg.Headers.Protected[cose.HeaderLabelContentType].(string)
	return v
}

// Verify checks the signature under pub. The error is [BadSignature].
func (s *Signed) Verify(aad string, pub ed25519.PublicKey) error {
	v, err := cose.NewVerifier(cose.AlgorithmEdDSA, pub)
	if err != nil {
		return Errorf(BadSignature, "signed object: %w", err)
	}
	if err := s.msg.Verify([]byte(aad), v); err != nil {
		return Errorf(BadSignature, "signature does not verify")
	}
	return nil
}

// Open parses a signed object, finds its key among keys and verifies it. Codes: [Malformed], [UnknownKey],
// [BadSignature]. Who may say what the payload says is the caller's to check against the key's owner and domain.
func Open(b []byte, aad string, keys KeyFunc) (*Signed, VerifyKey, error) {
	s, err := ParseSigned(b)
	if err != nil {
		return nil, VerifyKey{}, err
	}
	key, ok := keys(s.KeyID)
	if !ok {
		return nil, VerifyKey{}, Errorf(UnknownKey, "no accepted key has the id %x", s.KeyID)
	}
	return s, key, s.Verify(aad, key.Public)
}
