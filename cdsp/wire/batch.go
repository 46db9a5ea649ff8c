package wire

import (
	"crypto/sha256"

	"github.com/fxamacker/cbor/v2"

	"agentgw/internal/frame"
)

// Visibility is who may see the items of a batch.
type Visibility uint8

// The visibilities.
const (
	VisibleDomain Visibility = 0 // gateways of the origin's own domain
	VisibleListed Visibility = 1 // the domains that the batch allows
	VisibleAny    Visibility = 2
)

// Scope is what all items of a batch share besides their origin: who may see them and how far they may travel.
type Scope struct {
	Visibility Visibility
	Allow      []string // domains, sorted; only with VisibleListed
	MaxHops    uint8    // 0: the direct neighbour keeps it to itself
	Level      Level
}

// Group is unsigned items that belong in batches of one scope; keys are set, versions and hashes are not.
type Group struct {
	Scope Scope
	Items []Item
}

// Batch is the payload of one signed batch (PROTOCOL.md, "Batch").
//
//	batch { 1 origin gw, 2 domain, 4 oepoch, 6 nbf, 7 exp, 16 visibility, ? 17 allow, 18 max_hops, 20 level, 24 [item…] }
type Batch struct {
	Origin     string     `cbor:"1,keyasint"` // AIC of the gateway
	Domain     string     `cbor:"2,keyasint"`
	OEpoch     uint64     `cbor:"4,keyasint"` // unix milliseconds
	NotBefore  uint64     `cbor:"6,keyasint"`
	Expires    uint64     `cbor:"7,keyasint"`
	Visibility Visibility `cbor:"16,keyasint"`
	Allow      []string   `cbor:"17,keyasint,omitempty"`
	MaxHops    uint8      `cbor:"18,keyasint"`
	Level      Level      `cbor:"20,keyasint"`

	Raw []cbor.RawMessage `cbor:"24,keyasint"` // items; each is parsed, and refused, for itself
}

var batchKeys = keySet(1, 2, 4, 6, 7, 16, 17, 18, 20, 24)

// SketchNS is the taxonomy name of the one item that carries a gateway's sketch; its label is empty.
const SketchNS = "sketch"

// Scope is what the batch's items share.
func (b *Batch) Scope() Scope {
	return Scope{Visibility: b.Visibility, Allow: b.Allow, MaxHops: b.MaxHops, Level: b.Level}
}

// Item parses item i of the batch. Codes: [frame.Malformed], [frame.EntryTooLarge], [frame.CriticalUnknown].
func (b *Batch) Item(i int) (*Item, error) {
	if i >= len(b.Raw) {
		return nil, malformed("batch has %d items and none numbered %d", len(b.Raw), i)
	}
	it := &Item{}
	if err := it.UnmarshalCBOR(b.Raw[i]); err != nil {
		return nil, err
	}
	if it.Kind == KindTombstone {
		return it, nil
	}
	if it.Key != ItemKey(it.Label, it.NS, b.Level) {
		return nil, malformed("key of item %q is not that of its label", it.Label)
	}
	if sketch := it.Sketch != nil; sketch != (it.Label == "") || sketch && (it.NS != SketchNS || len(b.Raw) != 1) {
		return nil, malformed("a sketch stands alone in its batch, and only there, without a label")
	}
	return it, nil
}

// Sign signs a batch of items and returns the bytes that travel.
func (b *Batch) Sign(s frame.Signer, items []*Item) ([]byte, error) {
	b.Raw = make([]cbor.RawMessage, len(items))
	for i, it := range items {
		raw, err := it.MarshalCBOR()
		if err != nil {
			return nil, err
		}
		b.Raw[i] = raw
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	return s.SignMessage(frame.AADDigest, "", b)
}

// BatchHash is the address of a signed batch: the first 16 octets of SHA-256 of its bytes.
func BatchHash(signed []byte) ID16 {
	sum := sha256.Sum256(signed)
	return ID16(sum[:16])
}

// ParseBatch reads the payload of a signed batch. It does not verify anything but form.
func ParseBatch(payload []byte) (*Batch, error) {
	b := &Batch{}
	if err := frame.Unmarshal(payload, b); err != nil {
		return nil, err
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	if err := canonical(payload, b, batchKeys); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Batch) check() error {
	if err := checkName("batch origin", b.Origin, MaxAIC); err != nil {
		return err
	}
	if err := checkName("batch domain", b.Domain, MaxDomain); err != nil {
		return err
	}
	if n := len(b.Raw); n == 0 || n > MaxItems {
		return malformed("batch of %d items, the limit is %d", n, MaxItems)
	}
	return b.Scope().Check()
}

// Check holds a scope against what a batch may say of itself. Code: [frame.Malformed].
func (s Scope) Check() error {
	if s.Visibility > VisibleAny || s.Level > LevelFull || s.MaxHops > MaxHops {
		return malformed("batch has visibility %d, level %d, max_hops %d", s.Visibility, s.Level, s.MaxHops)
	}
	if err := checkTexts("allowed domain", s.Allow, MaxAllow, MaxDomain); err != nil {
		return err
	}
	if (s.Visibility == VisibleListed) != (len(s.Allow) > 0) {
		return malformed("batch of visibility %d allows %d domains", s.Visibility, len(s.Allow))
	}
	return nil
}

// keySet is the known keys of a map as bits.
func keySet(keys ...uint64) (set uint64) {
	for _, k := range keys {
		set |= 1 << k
	}
	return set
}

// canonical refuses a payload whose known keys are not what encoding v gives: a value has one spelling, so that the hash
// of a signed object may serve as its address. Unknown keys are left out of the comparison.
func canonical(payload []byte, v any, known uint64) error {
	again, err := frame.Marshal(v)
	if err != nil {
		return malformed("encode again: %w", err)
	}
	if len(again) == len(payload) {
		if string(again) == string(payload) {
			return nil
		}
		return malformed("payload is not in its one form")
	}
	var m map[uint64]cbor.RawMessage
	if err := frame.Unmarshal(payload, &m); err != nil {
		return err
	}
	for k := range m {
		if k > 63 || known&(1<<k) == 0 {
			delete(m, k)
		}
	}
	if kept, err := frame.Marshal(m); err != nil || string(kept) != string(again) {
		return malformed("payload is not in its one form")
	}
	return nil
}
