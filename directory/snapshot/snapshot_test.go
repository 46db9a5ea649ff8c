package snapshot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
)

var header = Header{ID: [16]byte{1, 2, 3}, Sequence: 7, Entries: 2, Matcher: "m"}

func written(t testing.TB, key []byte, bodies ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, header, key)
	if err != nil {
		t.Fatal(err)
	}
	for i, body := range bodies {
		if err := w.Block(byte(i+1), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readAll(file, key []byte) (h Header, bodies []string, err error) {
	r, h, err := NewReader(bytes.NewReader(file), key)
	if err != nil {
		return h, nil, err
	}
	var buf []byte
	for {
		kind, body, err := r.Next(buf)
		if errors.Is(err, io.EOF) {
			return h, bodies, nil
		}
		if err != nil {
			return h, nil, err
		}
		if int(kind) != len(bodies)+1 {
			return h, nil, errors.New("kinds out of order")
		}
		bodies, buf = append(bodies, string(body)), body
	}
}

func TestWrittenIsRead(t *testing.T) {
	long := strings.Repeat("0123456789", MaxBody/10)
	for _, key := range [][]byte{nil, []byte("0123456789abcdef")} {
		h, bodies, err := readAll(written(t, key, "one", "", long), key)
		if err != nil || h != header || len(bodies) != 3 || bodies[0] != "one" || bodies[1] != "" || bodies[2] != long {
			t.Errorf("key %d: %+v, %d bodies, %v", len(key), h, len(bodies), err)
		}
	}
	if sealed := written(t, []byte("0123456789abcdef"), "a secret text"); bytes.Contains(sealed, []byte("secret")) {
		t.Error("an encrypted snapshot has readable text")
	}
}

// The bytes are a contract: a change of them takes another version in the magic.
func TestFormat(t *testing.T) {
	const want = "414757534e415001" + "0000001b" + "4e5f727e" + "ff" + "a40150010203000000000000000000000000000207030204616d" +
		"00000002" + "f0a6ba32" + "0178" + "00000009" + "c3bcb64c" + "000000000000000001"
	if got := hex.EncodeToString(written(t, nil, "x")); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Whatever happens to a file, it is whole or refused.
func TestDamageIsNoticed(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("0123456789abcdef")} {
		file := written(t, key, "one", "two")
		for n := range file {
			if _, _, err := readAll(file[:n], key); !errors.Is(err, ErrDamaged) {
				t.Fatalf("cut to %d: %v", n, err)
			}
			for bit := range 8 {
				flipped := bytes.Clone(file)
				flipped[n] ^= 1 << bit
				if _, _, err := readAll(flipped, key); !errors.Is(err, ErrDamaged) {
					t.Fatalf("bit %d of octet %d: %v", bit, n, err)
				}
			}
		}
		if _, _, err := readAll(append(bytes.Clone(file), 0), key); !errors.Is(err, ErrDamaged) {
			t.Errorf("something behind the end: %v", err)
		}
	}
	if _, _, err := readAll(written(t, []byte("0123456789abcdef"), "one"), []byte("fedcba9876543210")); !errors.Is(err, ErrDamaged) {
		t.Errorf("another key: %v", err)
	}
	if _, _, err := readAll(written(t, nil, "one"), []byte("fedcba9876543210")); !errors.Is(err, ErrDamaged) {
		t.Errorf("not sealed: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(written(f, nil, "one", "two"))
	f.Add([]byte(magic + "\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, bodies, err := readAll(file, nil)
		n := 0
		for _, b := range bodies {
			n += len(b)
		}
		if n > len(file) || err != nil && !errors.Is(err, ErrDamaged) && !strings.Contains(err.Error(), "order") {
			t.Errorf("%d octets of %d, %v", n, len(file), err)
		}
	})
}
