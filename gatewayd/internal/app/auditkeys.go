package app

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// fileAuditKeys has the public half of every key that has signed checkpoints, one a line in hexadecimal, the oldest first. A bundle
// forgets keys that are replaced; the log of years needs them all.
const fileAuditKeys = "audit-keys"

// auditKeys is that file. It is safe for concurrent use.
type auditKeys struct {
	path   string
	bundle map[frame.KeyID]ed25519.PublicKey // published now

	mu    sync.Mutex // guards what follows
	lines []string
	known map[frame.KeyID]ed25519.PublicKey
}

func openAuditKeys(state string, own *identity.Accepted) (*auditKeys, error) {
	k := &auditKeys{
		path: filepath.Join(state, fileAuditKeys), bundle: map[frame.KeyID]ed25519.PublicKey{}, known: map[frame.KeyID]ed25519.PublicKey{},
	}
	for _, key := range auditKeysOf(own) {
		k.bundle[frame.KeyID(key.KeyID)] = key.Public
	}
	raw, err := os.ReadFile(k.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the audit log's keys: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		pub, err := hex.DecodeString(text)
		if err != nil || len(pub) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("%s, line %d: it is no public key of 32 octets in hexadecimal; bring the line back from a copy of the state folder", k.path, n)
		}
		k.lines, k.known[frame.KeyIDOf(pub)] = append(k.lines, text), pub
	}
	return k, nil
}

// add keeps a key, before anything is signed with it.
func (k *auditKeys) add(pub ed25519.PublicKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := frame.KeyIDOf(pub)
	if _, ok := k.known[id]; ok {
		return nil
	}
	lines := append(slices.Clone(k.lines), hex.EncodeToString(pub))
	if err := renameio.WriteFile(k.path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("keep the key of the audit log: %w", err)
	}
	k.lines, k.known[id] = lines, pub
	return nil
}

// find is the key function of a verifier.
func (k *auditKeys) find(id frame.KeyID) (frame.VerifyKey, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pub, ok := k.known[id]
	if !ok {
		pub, ok = k.bundle[id]
	}
	return frame.VerifyKey{Public: pub}, ok
}
