package arp

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"agentgw/internal/frame"
)

// tokenPrefix marks the text form of an enrolment token, version 1.
const tokenPrefix = "agwt1."

const maxTokenText = 2048

// HostPort is an address of a gateway.
type HostPort struct {
	_    struct{} `cbor:",toarray"`
	Host string
	Port uint16
}

func (h HostPort) String() string {
	if strings.Contains(h.Host, ":") {
		return "[" + h.Host + "]:" + strconv.Itoa(int(h.Port))
	}
	return h.Host + ":" + strconv.Itoa(int(h.Port))
}

// Token is an enrolment token: a secret that admits one agent, with what the agent needs to reach and to recognise the
// gateway. Its secret is stored hashed at the gateway and shown once.
type Token struct {
	Secret    []byte     `cbor:"1,keyasint"` // 32 bytes
	GatewayPK []byte     `cbor:"2,keyasint"` // SHA-256 of the gateway's SubjectPublicKeyInfo
	Addresses []HostPort `cbor:"3,keyasint"`
	Domain    string     `cbor:"4,keyasint"`
	Exp       uint64     `cbor:"5,keyasint"`
}

// String is the token's text: `agwt1.` and base64url. It is a secret.
func (t Token) String() string {
	b, err := frame.Marshal(t)
	if err != nil {
		panic(err) // no field of a Token can fail to encode
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken reads the text of a token. Errors say what to do and never repeat the text.
func ParseToken(s string) (Token, error) {
	var t Token
	s = strings.TrimSpace(s)
	body, ok := strings.CutPrefix(s, tokenPrefix)
	if !ok || len(s) > maxTokenText {
		return t, fmt.Errorf("not an enrolment token: it begins with %q; get one from `gatewayd token create`", tokenPrefix)
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return t, fmt.Errorf("enrolment token is damaged (%w): copy it again, whole", err)
	}
	if err := frame.Unmarshal(raw, &t); err != nil {
		return t, fmt.Errorf("enrolment token is damaged: copy it again, whole")
	}
	if len(t.Secret) != 32 || len(t.GatewayPK) != 32 || len(t.Addresses) == 0 {
		return t, fmt.Errorf("enrolment token lacks a part: copy it again, whole")
	}
	return t, nil
}

// Expired says whether the token's time is over.
func (t Token) Expired(now time.Time) bool { return now.After(time.Unix(int64(t.Exp), 0)) }
