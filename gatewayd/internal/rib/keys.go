package rib

import (
	"strings"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// schema is the version of everything in this file; a database of another version is moved aside.
const schema = 0x1b01

// The key schema. AICs have no `/`; keys and hashes are 16 raw octets at the end.
//
//	n/whose                         whose database it is           whose, as CBOR
//	c/<AIC>                         a neighbour                    record, as CBOR
//	e/<AIC>/<origin AIC>/<key>      an entry that it told          the entry as it travels, a PUT
//	b/<AIC>/<batch hash>            a batch that entries of it use the signed batch as it travels
const (
	keyWhose        = "n/whose"
	prefixNeighbour = "c/"
	prefixEntry     = "e/"
	prefixBatch     = "b/"
)

// whose is the gateway that a database is of. What one gateway was told is nobody else's: paths and disclosure are its own.
type whose struct {
	Gateway string `cbor:"1,keyasint"`
	Domain  string `cbor:"2,keyasint"`
}

// record is one neighbour. Without a cookie what is kept is not all of what it told, or not surely.
type record struct {
	Domain  string       `cbor:"1,keyasint"`
	Transit bool         `cbor:"2,keyasint,omitempty"`
	Cookie  *wire.Cookie `cbor:"3,keyasint,omitempty"`
}

func encode(v any) ([]byte, error) { return frame.Marshal(v) }

func neighbourKey(gateway string) string { return prefixNeighbour + gateway }

func entryKey(gateway string, ref replica.Ref) string {
	return prefixEntry + gateway + "/" + ref.Origin + "/" + string(ref.Key[:])
}

func batchKey(gateway string, hash wire.ID16) string {
	return prefixBatch + gateway + "/" + string(hash[:])
}

// parseEntryKey splits the key of an entry.
func parseEntryKey(key string) (gateway string, ref replica.Ref, ok bool) {
	rest, ok := strings.CutPrefix(key, prefixEntry)
	if !ok || len(rest) < len(ref.Key)+1 {
		return "", ref, false
	}
	at := len(rest) - len(ref.Key)
	ref.Key = wire.ID16([]byte(rest[at:]))
	names, ok := strings.CutSuffix(rest[:at], "/")
	if !ok {
		return "", ref, false
	}
	gateway, ref.Origin, ok = strings.Cut(names, "/")
	return gateway, ref, ok && gateway != "" && ref.Origin != "" && !strings.Contains(ref.Origin, "/")
}

// parseBatchKey splits the key of a batch.
func parseBatchKey(key string) (gateway string, hash wire.ID16, ok bool) {
	rest, ok := strings.CutPrefix(key, prefixBatch)
	if !ok || len(rest) < len(hash)+1 {
		return "", hash, false
	}
	at := len(rest) - len(hash)
	gateway, ok = strings.CutSuffix(rest[:at], "/")
	return gateway, wire.ID16([]byte(rest[at:])), ok && gateway != "" && !strings.Contains(gateway, "/")
}
