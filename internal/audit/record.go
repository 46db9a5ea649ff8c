package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Limits of a line and of what a caller may put into it.
const (
	MaxLine = 64 << 10 // octets with the newline; a longer one is damage
	MaxData = 16 << 10 // octets of the data of one record: ids and hashes, no payloads
)

// Kinds that only this package writes.
const (
	KindCheckpoint = "checkpoint"
	KindRecovered  = "log.recovered"
	KindLost       = "log.lost"
)

// Kinds that a daemon writes about its own log, and that [Verify] reports for as long as they are in it.
const (
	KindDamaged  = "audit.damaged"  // its start has found that the log is not what was written
	KindReplaced = "audit.replaced" // the log could not be gone on with: this one is new
	KindBegan    = "audit.began"    // first record of a log that was begun while the mark of another was kept; see [Began]
)

// Record is one line of the log.
type Record struct {
	N    uint64
	Time time.Time // UTC
	Kind string
	Prev [32]byte        // SHA-256 of the line before
	Data json.RawMessage // one JSON object
}

// wireRecord is the spelling of a Record; the order of its fields is that of the members.
type wireRecord struct {
	N    uint64          `json:"n"`
	Time time.Time       `json:"time"`
	Kind string          `json:"kind"`
	Prev string          `json:"prev"`
	Data json.RawMessage `json:"data"`
}

// appendLine appends the line of r without its newline.
func appendLine(b []byte, r Record) ([]byte, error) {
	line, err := json.Marshal(wireRecord{r.N, r.Time.UTC(), r.Kind, hex.EncodeToString(r.Prev[:]), r.Data})
	if err != nil {
		return nil, fmt.Errorf("encode audit record: %w", err)
	}
	return append(b, line...), nil
}

func hashLine(line []byte) [32]byte { return sha256.Sum256(line) }

// parseLine reads a line without its newline. What parses is, encoded again, the same bytes: a line has one spelling only, so
// that two readers cannot see different things in it.
func parseLine(line []byte) (Record, error) {
	var w wireRecord
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return Record{}, fmt.Errorf("it is not a record: %w", err)
	}
	prev, err := hex.DecodeString(w.Prev)
	if err != nil || len(prev) != sha256.Size {
		return Record{}, errors.New("its prev is not a SHA-256 in hexadecimal")
	}
	if err := checkKind(w.Kind); err != nil {
		return Record{}, err
	}
	if w.Data, err = canonical(w.Data); err != nil {
		return Record{}, err
	}
	r := Record{w.N, w.Time, w.Kind, [32]byte(prev), w.Data}
	again, err := appendLine(nil, r)
	if err != nil || !bytes.Equal(again, line) {
		return Record{}, errors.New("it is not spelled as this log spells records")
	}
	return r, nil
}

// canonical is the one spelling of a JSON object: members sorted, none twice, no space.
func canonical(raw []byte) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // numbers stay as they were written
	var object map[string]any
	if err := d.Decode(&object); err != nil || object == nil {
		return nil, errors.New("its data is not a JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows its data")
	}
	return json.Marshal(object)
}

// encodeData is the data of a caller, checked.
func encodeData(kind string, data any) (json.RawMessage, error) {
	if err := checkKind(kind); err != nil {
		return nil, err
	}
	switch kind {
	case KindCheckpoint, KindRecovered, KindLost:
		return nil, fmt.Errorf("audit record of kind %q: only the log itself writes it", kind)
	}
	if data == nil {
		data = struct{}{}
	}
	raw, err := json.Marshal(data)
	if err == nil {
		raw, err = canonical(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("audit record of kind %s: %w", kind, err)
	}
	if len(raw) > MaxData {
		return nil, fmt.Errorf("audit record of kind %s has %d octets of data, the limit is %d: record ids and hashes only", kind, len(raw), MaxData)
	}
	return raw, nil
}

// checkKind: words of lower case letters, digits, `_` and `-`, joined by dots.
func checkKind(kind string) error {
	if kind == "" || len(kind) > 64 {
		return fmt.Errorf("kind of %d octets: 1 to 64 are allowed", len(kind))
	}
	for _, c := range []byte(kind) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("kind %q: lower case letters, digits, dots, `_` and `-` are allowed", kind)
		}
	}
	return nil
}
