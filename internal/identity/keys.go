package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/internal/frame"
	"agentgw/internal/secret"
)

// NewLeafKey makes a P-256 key for a certificate.
func NewLeafKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// SPKIHash is the SHA-256 of the DER SubjectPublicKeyInfo of a public key: the name of a key in pins, tokens and grants.
func SPKIHash(pub crypto.PublicKey) ([32]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(der), nil
}

// SaveKey writes a private key as PKCS #8 PEM with mode 0600, whole or not at all.
func SaveKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return savePEM(path, 0o600, pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// LoadKey reads a private key that [SaveKey] wrote, or the service manager's credential of the same base name; see [secret.Read].
func LoadKey(path string) (crypto.Signer, error) {
	raw, err := secret.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("read key %s: no PEM block; restore the file from a backup", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", path, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read key %s: it cannot sign", path)
	}
	return signer, nil
}

// LoadSigner reads an Ed25519 key for signed objects.
func LoadSigner(path string) (frame.Signer, error) {
	key, err := LoadKey(path)
	if err != nil {
		return frame.Signer{}, err
	}
	ed, ok := key.(ed25519.PrivateKey)
	if !ok {
		return frame.Signer{}, fmt.Errorf("read key %s: not an Ed25519 key", path)
	}
	return frame.NewSigner(ed), nil
}

// SaveChain writes certificates, leaf first, as PEM.
func SaveChain(path string, chain [][]byte) error {
	blocks := make([]pem.Block, len(chain))
	for i, der := range chain {
		blocks[i] = pem.Block{Type: "CERTIFICATE", Bytes: der}
	}
	return savePEM(path, 0o644, blocks...)
}

// LoadChain reads certificates that [SaveChain] wrote.
func LoadChain(path string) ([][]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	var chain [][]byte
	for {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			break
		}
		chain = append(chain, block.Bytes)
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("read certificate %s: no PEM block", path)
	}
	return chain, nil
}

func savePEM(path string, mode os.FileMode, blocks ...pem.Block) error {
	var out []byte
	for _, b := range blocks {
		out = append(out, pem.EncodeToMemory(&b)...)
	}
	return renameio.WriteFile(path, out, mode)
}

// TLSCertificate joins a chain and its key.
func TLSCertificate(chain [][]byte, key crypto.Signer) (tls.Certificate, error) {
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return tls.Certificate{}, err
	}
	own, err := SPKIHash(key.Public())
	if err != nil {
		return tls.Certificate{}, err
	}
	if sha256.Sum256(leaf.RawSubjectPublicKeyInfo) != own {
		return tls.Certificate{}, errors.New("certificate and key do not belong together")
	}
	return tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}

// NewCSR makes a certificate signing request. It names nobody: the AIC is the issuer's to write.
func NewCSR(key crypto.Signer) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// ParseCSR reads a request and accepts it only over a key that our certificates carry, signed by that key.
func ParseCSR(der []byte) (*x509.CertificateRequest, error) {
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "certificate request cannot be parsed: %w", err)
	}
	if err := CheckPublicKey(csr.PublicKey); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "certificate request is not signed by its own key: %w", err)
	}
	return csr, nil
}

// CheckPublicKey accepts the keys that our certificates carry. Refusals carry [frame.ReqInvalid].
func CheckPublicKey(pub crypto.PublicKey) error {
	ec, ok := pub.(*ecdsa.PublicKey)
	if !ok || ec.Curve != elliptic.P256() && ec.Curve != elliptic.P384() {
		return frame.Errorf(frame.ReqInvalid, "key is too weak or of another kind: make it ECDSA P-256 (or P-384)")
	}
	return nil
}

// SelfSigned is the certificate of an agent that has none yet: it proves possession of the key of its CSR and nothing else.
func SelfSigned(key crypto.Signer) (tls.Certificate, error) {
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-NotBeforeSlack), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return TLSCertificate([][]byte{der}, key)
}
