package token

import (
	"time"

	"agentgw/internal/frame"
)

// MaxSize is the largest token in bytes.
const MaxSize = 2 << 10

// Leeway is how far two clocks may disagree about a token's times.
const Leeway = 30 * time.Second

// DomainOf names the domain whose accepted bundle owns the prefix of an AIC; empty when none does.
type DomainOf func(aic string) string

// open verifies one token and returns its payload with the key that signed it.
func open(b []byte, aad, contentType string, keys frame.KeyFunc, claims any) (frame.VerifyKey, error) {
	if len(b) == 0 || len(b) > MaxSize {
		return frame.VerifyKey{}, frame.Errorf(frame.TokenInvalid, "token of %d bytes, at most %d are accepted", len(b), MaxSize)
	}
	signed, key, err := frame.Open(b, aad, keys)
	if err != nil {
		return key, invalid(err)
	}
	if signed.ContentType() != contentType {
		return key, frame.Errorf(frame.TokenInvalid, "token of content type %q", signed.ContentType())
	}
	return key, invalid(frame.Unmarshal(signed.Payload, claims))
}

// invalid turns what is wrong with a token's encoding into the token's own code: 03, 04 and 0A would end a whole connection.
func invalid(err error) error {
	switch frame.CodeOf(err) {
	case frame.Malformed, frame.FrameTooLarge, frame.CriticalUnknown:
		return frame.Errorf(frame.TokenInvalid, "token: %w", err)
	}
	return err
}

// sameDomain holds that two who must stand under one domain do; unknown domains never match.
func sameDomain(a, b string) bool { return a != "" && a == b }

// within says whether now lies in [from, to], widened by the leeway.
func within(now time.Time, from, to uint64) bool {
	t, leeway := now.Unix(), int64(Leeway/time.Second)
	return t+leeway >= int64(from) && t-leeway <= int64(to)
}

// maxTime keeps unix seconds far from overflow; it is the year 9999.
const maxTime = 253402300799
