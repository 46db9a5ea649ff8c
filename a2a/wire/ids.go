package wire

import (
	"crypto/sha256"
	"encoding/hex"
)

// ID is a session id (sid), message id or token id: 16 random bytes. The zero ID stands for none and is never sent.
type ID [16]byte

// Hash is a SHA-256.
type Hash [32]byte

// Cap8 is the first 8 bytes of the SHA-256 of a capability identifier: it binds each message to the session's capability.
type Cap8 [8]byte

// Cap8Of is the short form of a capability identifier.
func Cap8Of(capID string) Cap8 {
	sum := sha256.Sum256([]byte(capID))
	return Cap8(sum[:8])
}

// MarshalBinary makes the encoder write a byte string, or leave an optional key out.
func (id ID) MarshalBinary() ([]byte, error) {
	if id == (ID{}) {
		return nil, nil
	}
	return id[:], nil
}

// UnmarshalBinary takes exactly 16 bytes.
func (id *ID) UnmarshalBinary(b []byte) error { return fixed(id[:], b) }

// MarshalBinary makes the encoder write a byte string.
func (h Hash) MarshalBinary() ([]byte, error) { return h[:], nil }

// UnmarshalBinary takes exactly 32 bytes.
func (h *Hash) UnmarshalBinary(b []byte) error { return fixed(h[:], b) }

// MarshalBinary makes the encoder write a byte string.
func (c Cap8) MarshalBinary() ([]byte, error) { return c[:], nil }

// UnmarshalBinary takes exactly 8 bytes.
func (c *Cap8) UnmarshalBinary(b []byte) error { return fixed(c[:], b) }

// fixed refuses what the decoder would silently pad or cut.
func fixed(dst, src []byte) error {
	if len(src) != len(dst) {
		return malformed("byte string of %d bytes where %d are due", len(src), len(dst))
	}
	copy(dst, src)
	return nil
}

// String is the ID in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText is [ID.String], for JSON and logs.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }
