package match

import (
	"encoding/binary"
	"hash/maphash"
	"math"
)

// Fingerprint is a number over all that an index has, whatever the order in which it came and however it is cut into segments: two indexes of
// one process with the same capabilities, words and vectors have the same one. It is a sum over documents, so that an index may be compared
// with others that have a part of its documents each. It finds faults and not forgers.
type Fingerprint uint64

var fingerprintSeed = maphash.MakeSeed()

// Fingerprint reads the whole index, as it is when it is called.
func (x *Index) Fingerprint() Fingerprint {
	var sum Fingerprint
	for _, p := range x.view().parts {
		sum += p.fingerprint()
	}
	return sum
}

// Fingerprint is that of what the builder has read.
func (b *Builder) Fingerprint() Fingerprint {
	if b.Len() == 0 {
		return 0
	}
	return newPart(b.s).fingerprint()
}

func (p *part) fingerprint() (sum Fingerprint) {
	docs := make([]uint64, len(p.docs))
	var b []byte
	for id := range p.docs {
		if p.isDead(uint32(id)) {
			continue
		}
		b = appendDocument(b[:0], &p.docs[id], p.sizes[id])
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(p.vecs.scales[id]))
		b = p.vecs.appendComponents(b, uint32(id))
		docs[id] = maphash.Bytes(fingerprintSeed, b)
		sum += Fingerprint(mix(docs[id]))
	}
	under := func(table, key string, id uint32) {
		if !p.isDead(id) {
			sum += Fingerprint(mix(maphash.String(fingerprintSeed, table+key) ^ docs[id]))
		}
	}
	for table, of := range map[string]map[string][]posting{"t": p.terms, "p": p.pairs} {
		for term, list := range of {
			h := maphash.String(fingerprintSeed, table+term)
			for _, e := range list {
				if !p.isDead(e.doc) {
					sum += Fingerprint(mix(h ^ docs[e.doc] ^ (uint64(e.weight)<<8 | uint64(e.fields))))
				}
			}
		}
	}
	for table, of := range map[string]map[string][]uint32{"i": p.idents, "u": p.under, "a": p.byAIC} {
		for key, list := range of {
			for _, id := range list {
				under(table, key, id)
			}
		}
	}
	for key, id := range p.byCap {
		under("c", key, id)
	}
	return sum
}

// mix spreads a number over 64 bits, so that sums of them tell as much as each (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
