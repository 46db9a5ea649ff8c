package store

import (
	"encoding/binary"
	"fmt"
	"time"
)

// schema is the version of everything in this file and of the values behind it; a database of another version is not opened.
const schema = 1

// The key schema. be64 is eight octets, most significant first; parts are joined by `/`, which no AIC has.
//
//	acs/<AIC>                    the entry                          directory.EncodeEntry
//	ver/<AIC>/<be64 edition>     last version of an earlier edition directory.EncodeEntry
//	tomb/<AIC>                   what remains of an ended entry     directory.EncodeTombstone
//	aic/<AIC>                    the AIC is taken                   be64 unix ms
//	x/<be64 unix ms>/<AIC>       entries that expire, by time       empty
//	chg/<be64 sequence>          the last changes                   Change, as CBOR
//	n/chg                        sequence of the last change        be64
//	tok/<hex SHA-256>            an enrolment token                 the caller's record
//	amc/<kind>/<id>              a record of the AMC                the caller's record
//	meta/<name>                  a small named value                the caller's value
const (
	prefixEntry  = "acs/"
	prefixOld    = "ver/"
	prefixTomb   = "tomb/"
	prefixTaken  = "aic/"
	prefixExpiry = "x/"
	prefixChange = "chg/"
	keySequence  = "n/chg"
	prefixToken  = "tok/"
	prefixAMC    = "amc/"
	prefixMeta   = "meta/"
)

// MetaRecovering is the named value that a restored database has until its gateway has caught up: the encoded [Header] of the backup.
const MetaRecovering = "recovering"

// The sequence in n/chg names a state of the entries: it is what a snapshot of the index (package snapshot; meta/index-snapshot has its id) is held
// against.

// keepChanges is how many changes are kept; older ones go as new ones come.
const keepChanges = 10_000

// keepEditions is how many earlier editions of one entry are kept, at most [directory.MaxEntry] octets each. The last keepEnded outlive the
// entry, so that one can see what an agent said that has ended.
const (
	keepEditions = 16
	keepEnded    = 4
)

func oldKey(aic string, edition uint64) string { return prefixOld + aic + "/" + be64(edition) }

func changeKey(seq uint64) string { return prefixChange + be64(seq) }

func be64(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

func fromBE64(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("number of %d octets in the store", len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// expiryKey is of an entry that expires.
func expiryKey(at time.Time, aic string) string {
	return prefixExpiry + be64(uint64(max(at.UnixMilli(), 0))) + "/" + aic
}

// expiryOf splits an expiry key.
func expiryOf(key []byte) (at uint64, aic string, ok bool) {
	const start = len(prefixExpiry)
	if len(key) < start+9 {
		return 0, "", false
	}
	return binary.BigEndian.Uint64(key[start:]), string(key[start+9:]), true
}
