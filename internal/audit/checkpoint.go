package audit

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	"agentgw/internal/frame"
)

// Checkpoint names one state of the chain: how many lines it has and the hash of the last of them. It names the line before its own.
type Checkpoint struct {
	Count uint64
	Hash  [32]byte
	Time  time.Time // whole seconds
}

// wireCheckpoint is the payload of a signed checkpoint.
type wireCheckpoint struct {
	Count uint64 `cbor:"1,keyasint"`
	Hash  []byte `cbor:"2,keyasint"` // 32 octets
	Time  uint64 `cbor:"3,keyasint"` // unix seconds
}

// A Signer makes the signed object of a checkpoint: COSE_Sign1 as package frame has it, with frame.AADAudit. It is called by the
// goroutine that writes, so it must be quick.
type Signer interface {
	Sign(c Checkpoint) ([]byte, error)
}

// A Verifier opens a signed checkpoint, or says what is wrong with it.
type Verifier func(raw []byte) (Checkpoint, error)

// Keeper stores the newest signed checkpoint where who can write the log's folder cannot reach. It may wait, until ctx ends.
type Keeper func(ctx context.Context, raw []byte) error

// SignBy signs with a key of use 4. Of the zero frame.Signer it makes none: a log without a signer has no checkpoints.
func SignBy(s frame.Signer) Signer {
	if s.KeyID() == (frame.KeyID{}) {
		return nil
	}
	return keySigner{s}
}

type keySigner struct{ key frame.Signer }

func (s keySigner) Sign(c Checkpoint) ([]byte, error) {
	return s.key.SignMessage(frame.AADAudit, "", wireCheckpoint{c.Count, c.Hash[:], uint64(max(c.Time.Unix(), 0))})
}

// VerifyBy verifies with keys: those of use 4 of the gateway whose log it is, those of the past too.
func VerifyBy(keys frame.KeyFunc) Verifier {
	return func(raw []byte) (Checkpoint, error) {
		s, _, err := frame.Open(raw, frame.AADAudit, keys)
		if err != nil {
			return Checkpoint{}, err
		}
		return parseCheckpoint(s.Payload)
	}
}

func parseCheckpoint(payload []byte) (Checkpoint, error) {
	var w wireCheckpoint
	if err := frame.Unmarshal(payload, &w); err != nil {
		return Checkpoint{}, err
	}
	if len(w.Hash) != 32 || w.Count == 0 || w.Time > 1<<40 {
		return Checkpoint{}, frame.Errorf(frame.Malformed, "checkpoint: a count above 0, a hash of 32 octets and a time are due")
	}
	return Checkpoint{w.Count, [32]byte(w.Hash), time.Unix(int64(w.Time), 0).UTC()}, nil
}

// checkpointData is the data of a line of kind checkpoint.
type checkpointData struct {
	COSE string `json:"cose"`
}

func encodeCheckpointData(raw []byte) (json.RawMessage, error) {
	return json.Marshal(checkpointData{base64.StdEncoding.EncodeToString(raw)})
}

func parseCheckpointData(data json.RawMessage) ([]byte, error) {
	var d checkpointData
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(d.COSE)
	if err != nil {
		return nil, err
	}
	if again, err := encodeCheckpointData(raw); err != nil || !bytes.Equal(again, data) {
		return nil, errors.New("data of a checkpoint is {\"cose\": base64} and nothing else")
	}
	return raw, nil
}
