package wire

import (
	"crypto/sha256"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"agentgw/internal/frame"
)

// Kind is what an item is.
type Kind uint8

// The kinds of item.
const (
	KindTombstone Kind = 0 // the origin withdrew the key; the item has keys 3, 5 and 8 only
	KindDigest    Kind = 1
)

// Level is how much an item discloses.
type Level uint8

// The disclosure levels of a policy row.
const (
	LevelClasses Level = 0
	LevelCoarse  Level = 1
	LevelFull    Level = 2
)

var levelNames = [...]string{LevelClasses: "classes", LevelCoarse: "coarse", LevelFull: "full"}

// String is the level's name in configuration.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return "unknown"
}

// ParseLevel reads a level's name.
func ParseLevel(s string) (Level, bool) {
	i := slices.Index(levelNames[:], s)
	return Level(max(i, 0)), i >= 0
}

// SketchTerms is sketch_alg 1: the term filter of package digest.
const SketchTerms = 1

// Modes are the media types that a class of capabilities takes and gives.
type Modes struct {
	_       struct{} `cbor:",toarray"`
	In, Out []string
}

// Item is one capability digest, or its tombstone (PROTOCOL.md, "Item").
//
//	item { 3 key b16, 5 oseq, 8 kind, ? 9 ns, ? 10 label, ? 11 terms, ? 12 sketch, ? 13 sketch_alg,
//	       ? 14 [[in…],[out…]], ? 15 count, ? 19 chash b16 }
//
// A digest has 9, 15 and 19; label is absent only from the gateway's sketch. It names no agent and holds no free text.
type Item struct {
	Key       ID16
	OSeq      uint64
	Kind      Kind
	NS        string
	Label     string
	Terms     []string
	Sketch    []byte
	SketchAlg uint8
	Modes     *Modes
	Count     uint8 // bucket: 0 one, 1 2–10, 2 11–100, 3 more
	CHash     ID16
}

type itemWire struct {
	Key       ID16     `cbor:"3,keyasint"`
	OSeq      uint64   `cbor:"5,keyasint"`
	Kind      Kind     `cbor:"8,keyasint"`
	NS        string   `cbor:"9,keyasint,omitempty"`
	Label     string   `cbor:"10,keyasint,omitempty"`
	Terms     []string `cbor:"11,keyasint,omitempty"`
	Sketch    []byte   `cbor:"12,keyasint,omitempty"`
	SketchAlg uint8    `cbor:"13,keyasint,omitempty"`
	Modes     *Modes   `cbor:"14,keyasint,omitempty"`
	Count     *uint8   `cbor:"15,keyasint,omitempty"`
	CHash     *ID16    `cbor:"19,keyasint,omitempty"`
}

var itemKeys = keySet(3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 19)

// ItemKey is the key of an item: the first 16 octets of SHA-256(label ‖ 0 ‖ ns ‖ level).
func ItemKey(label, ns string, level Level) ID16 {
	b := make([]byte, 0, len(label)+len(ns)+2)
	b = append(append(append(b, label...), 0), ns...)
	sum := sha256.Sum256(append(b, byte(level)))
	return ID16(sum[:16])
}

// Bucket is the count bucket of n capabilities; exact counts are nobody's business.
func Bucket(n int) uint8 {
	switch {
	case n <= 1:
		return 0
	case n <= 10:
		return 1
	case n <= 100:
		return 2
	}
	return 3
}

func (it *Item) wire() itemWire {
	w := itemWire{Key: it.Key, OSeq: it.OSeq, Kind: it.Kind}
	if it.Kind == KindTombstone {
		return w
	}
	w.NS, w.Label, w.Terms, w.Sketch, w.SketchAlg, w.Modes = it.NS, it.Label, it.Terms, it.Sketch, it.SketchAlg, it.Modes
	count, hash := it.Count, it.CHash
	w.Count, w.CHash = &count, &hash
	if m := it.Modes; m != nil {
		w.Modes = &Modes{In: nonNil(m.In), Out: nonNil(m.Out)}
	}
	return w
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// ContentHash is chash: the first 16 octets of SHA-256 of the item without keys 5 and 19. Two items with one version and
// two hashes are an equivocation of their origin.
func (it *Item) ContentHash() (ID16, error) {
	w := it.wire()
	w.CHash = nil
	raw, err := frame.Marshal(w)
	if err != nil {
		return ID16{}, err
	}
	return hashWithout(raw, 5, 19)
}

func hashWithout(raw []byte, keys ...uint64) (ID16, error) {
	var m map[uint64]cbor.RawMessage
	if err := frame.Unmarshal(raw, &m); err != nil {
		return ID16{}, err
	}
	for _, k := range keys {
		delete(m, k)
	}
	b, err := frame.Marshal(m)
	if err != nil {
		return ID16{}, err
	}
	sum := sha256.Sum256(b)
	return ID16(sum[:16]), nil
}

// MarshalCBOR encodes the item.
func (it *Item) MarshalCBOR() ([]byte, error) { return frame.Marshal(it.wire()) }

// UnmarshalCBOR decodes an item and checks it against its limits, its key's absence rules and its own content hash.
func (it *Item) UnmarshalCBOR(b []byte) error {
	if len(b) > MaxItem {
		return frame.Errorf(frame.EntryTooLarge, "item of %d octets is over its limit of %d", len(b), MaxItem)
	}
	var w itemWire
	if err := frame.Unmarshal(b, &w); err != nil {
		return err
	}
	if err := canonical(b, w, itemKeys); err != nil {
		return err
	}
	*it = Item{Key: w.Key, OSeq: w.OSeq, Kind: w.Kind, NS: w.NS, Label: w.Label, Terms: w.Terms, Sketch: w.Sketch,
		SketchAlg: w.SketchAlg, Modes: w.Modes}
	if w.Kind == KindTombstone {
		return checkTombstone(w)
	}
	if w.Count == nil || w.CHash == nil || w.NS == "" {
		return malformed("digest item lacks its taxonomy, its count or its content hash")
	}
	it.Count, it.CHash = *w.Count, *w.CHash
	if sum, err := hashWithout(b, 5, 19); err != nil || sum != it.CHash {
		return malformed("content hash of an item is not that of its content")
	}
	return it.check()
}

// checkTombstone refuses everything but keys 3, 5 and 8. A tombstone's content hash is zero: all tombstones of one version
// say the same, and no digest's hash is zero.
func checkTombstone(w itemWire) error {
	if w.NS != "" || w.Label != "" || w.Terms != nil || w.Sketch != nil || w.SketchAlg != 0 || w.Modes != nil || w.Count != nil || w.CHash != nil {
		return malformed("tombstone holds more than its key and version")
	}
	return nil
}

func (it *Item) check() error {
	if it.Kind != KindDigest {
		return malformed("item kind %d is not known", it.Kind)
	}
	if it.Count > 3 {
		return malformed("count bucket %d is not known", it.Count)
	}
	if err := checkText("label", it.Label, MaxLabel); err != nil {
		return err
	}
	if err := checkText("taxonomy", it.NS, MaxNS); err != nil {
		return err
	}
	if len(it.Sketch) > MaxSketch {
		return malformed("sketch of %d octets is over its limit of %d", len(it.Sketch), MaxSketch)
	}
	if err := checkTexts("term", it.Terms, MaxTerms, MaxTerm); err != nil {
		return err
	}
	if it.Modes == nil {
		return nil
	}
	if err := checkTexts("mode", it.Modes.In, MaxModes, MaxMode); err != nil {
		return err
	}
	return checkTexts("mode", it.Modes.Out, MaxModes, MaxMode)
}

func checkTexts(what string, list []string, n, size int) error {
	if len(list) > n {
		return malformed("%d %ss are over the limit of %d", len(list), what, n)
	}
	for _, s := range list {
		if err := checkName(what, s, size); err != nil {
			return err
		}
	}
	return nil
}
