package secret

import (
	"bytes"
	"encoding/hex"
	"fmt"
)

// ReadKey reads an AES key of 16, 24 or 32 octets: the file has just these, or twice as many hexadecimal digits and perhaps a line break. A
// file of 32 octets that are all such digits is taken as digits. An empty path is no key.
func ReadKey(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := Read(path)
	if err != nil {
		return nil, err
	}
	if digits := bytes.TrimSpace(raw); keyLength(len(digits)/2) && len(digits)%2 == 0 {
		key := make([]byte, len(digits)/2)
		if _, err := hex.Decode(key, digits); err == nil {
			return key, nil
		}
	}
	if !keyLength(len(raw)) {
		return nil, fmt.Errorf("read key %s: it has %d octets; 16, 24 or 32 are due, or twice as many hexadecimal digits: `openssl rand -hex 32` makes some",
			path, len(raw))
	}
	return raw, nil
}

func keyLength(n int) bool { return n == 16 || n == 24 || n == 32 }
