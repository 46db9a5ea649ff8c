package store

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"agentgw/directory"
)

// schema is the version of everything in this file and of the values behind it; a database of another version is not opened.
const schema = 1

// The key schema. be64 is eight octets, most significant first; parts are joined by `/`, which no AIC has, and which is escaped
// in tags.
//
//	acs/<AIC>                    the entry                          directory.EncodeEntry
//	tomb/<AIC>                   what remains of an ended entry     directory.EncodeTombstone
//	aic/<AIC>                    the AIC is taken                   be64 unix ms
//	tag/<tag>/<AIC>/<skill id>   index of live entries              empty
//	skill/<skill id>/<AIC>       index of live entries              empty
//	x/<be64 unix ms>/<AIC>       entries that expire, by time       empty
//	chg/<be64 sequence>          the last changes                   Change, as CBOR
//	n/chg                        sequence of the last change        be64
//	tok/<hex SHA-256>            an enrolment token                 the caller's record
//	amc/<kind>/<id>              a record of the AMC                the caller's record
//	meta/<name>                  a small named value                the caller's value
const (
	prefixEntry  = "acs/"
	prefixTomb   = "tomb/"
	prefixTaken  = "aic/"
	prefixTag    = "tag/"
	prefixSkill  = "skill/"
	prefixExpiry = "x/"
	prefixChange = "chg/"
	keySequence  = "n/chg"
	prefixToken  = "tok/"
	prefixAMC    = "amc/"
	prefixMeta   = "meta/"
)

// MetaRecovering is the named value that a restored database has until its gateway has caught up: the encoded [Header] of the backup.
const MetaRecovering = "recovering"

// keepChanges is how many changes are kept; older ones go as new ones come.
const keepChanges = 10_000

func changeKey(seq uint64) string { return prefixChange + be64(seq) }

func be64(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

func fromBE64(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("number of %d octets in the store", len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

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

const indexedKept = 4096 // of some hundred octets each

// indexKeysOf remembers the index keys by what they are made of: what is written now is read as the old entry by the write after it, on
// the committer, where everybody waits.
func (s *Store) indexKeysOf(e directory.Entry) ([]string, error) {
	h := sha256.New()
	h.Write([]byte(e.AIC + "\x00" + be64(uint64(e.ExpiresAt.UnixMilli()))))
	h.Write(e.ACS)
	content := [32]byte(h.Sum(nil))
	if keys, ok := s.indexed.Get(content); ok {
		return keys, nil
	}
	keys, err := indexKeys(e)
	if err == nil {
		s.indexed.Add(content, keys)
	}
	return keys, err
}

// escape keeps a tag from looking like two parts of a key.
var escape = strings.NewReplacer("%", "%25", "/", "%2F")

// indexKeys are the index keys of a live entry.
func indexKeys(e directory.Entry) ([]string, error) {
	caps, err := directory.Capabilities(e)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, c := range caps {
		keys = append(keys, prefixSkill+c.SkillID+"/"+e.AIC)
		for _, t := range c.Tags {
			keys = append(keys, prefixTag+escape.Replace(t)+"/"+e.AIC+"/"+c.SkillID)
		}
	}
	if !e.ExpiresAt.IsZero() {
		keys = append(keys, expiryKey(e.ExpiresAt, e.AIC))
	}
	return keys, nil
}
