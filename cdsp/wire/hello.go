package wire

import "agentgw/internal/frame"

// Version is the one version of the protocol that this implementation speaks.
const Version = 1

// Role is what a gateway is to its neighbour.
type Role uint8

// The roles. Internal meets internal, peer meets peer, customer meets provider.
const (
	RoleInternal Role = 0
	RolePeer     Role = 1
	RoleCustomer Role = 2
	RoleProvider Role = 3
)

var roleNames = [...]string{RoleInternal: "internal", RolePeer: "peer", RoleCustomer: "customer", RoleProvider: "provider"}

// String is the role's name in configuration.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return "unknown"
}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, bool) {
	for r, name := range roleNames {
		if s == name {
			return Role(r), true
		}
	}
	return 0, false
}

// Opposite is the role that the other side must have.
func (r Role) Opposite() Role {
	switch r {
	case RoleCustomer:
		return RoleProvider
	case RoleProvider:
		return RoleCustomer
	}
	return r
}

// VersionRange is the versions that a gateway speaks.
type VersionRange struct {
	_        struct{} `cbor:",toarray"`
	Min, Max uint64
}

// Limits are what a gateway accepts from its neighbour.
type Limits struct {
	MaxEntries  uint64 `cbor:"1,keyasint"`
	MaxBytes    uint64 `cbor:"2,keyasint"`
	MaxEntry    uint64 `cbor:"3,keyasint"`
	MaxInflight uint64 `cbor:"4,keyasint"` // frames not yet acknowledged
}

// Cookie is what a gateway still holds of its neighbour from before.
type Cookie struct {
	Epoch     ID8    `cbor:"1,keyasint"`
	RIBSeq    uint64 `cbor:"2,keyasint"`
	TableHash ID16   `cbor:"3,keyasint"`
}

// TrustVersion is the newest trust bundle and status list of one issuer that a gateway holds.
type TrustVersion struct {
	_         struct{} `cbor:",toarray"`
	Issuer    string
	BundleSeq uint64
	StatusSeq uint64
}

// Hello opens the control stream in each direction (PROTOCOL.md, "HELLO").
//
//	HELLO { 1 ver [min,max], 2 gw, 3 domain, 4 boot_id b16, 5 epoch b8, 6 rib_seq, 7 floor, 8 hold_ms, 9 restart_ms,
//	        10 role, 11 limits, ? 12 cookie, 13 now, ? 14 features, 15 sess b8, ? 16 trust }
type Hello struct {
	Versions  VersionRange   `cbor:"1,keyasint"`
	Gateway   string         `cbor:"2,keyasint"`
	Domain    string         `cbor:"3,keyasint"`
	BootID    ID16           `cbor:"4,keyasint"`
	Epoch     ID8            `cbor:"5,keyasint"` // of my export to you
	RIBSeq    uint64         `cbor:"6,keyasint"`
	Floor     uint64         `cbor:"7,keyasint"` // oldest base of a delta
	HoldMS    uint64         `cbor:"8,keyasint"`
	RestartMS uint64         `cbor:"9,keyasint"`
	Role      Role           `cbor:"10,keyasint"` // what I am to you
	Limits    Limits         `cbor:"11,keyasint"`
	Cookie    *Cookie        `cbor:"12,keyasint,omitempty"`
	Now       uint64         `cbor:"13,keyasint"`
	Features  []uint64       `cbor:"14,keyasint,omitempty"`
	Sess      ID8            `cbor:"15,keyasint"` // nonce of my first digest stream
	Trust     []TrustVersion `cbor:"16,keyasint,omitempty"`
}

// FrameType implements [frame.Message].
func (*Hello) FrameType() frame.Type { return frame.Hello }

func (m *Hello) check() error {
	if m.Versions.Min > m.Versions.Max || m.Versions.Min == 0 {
		return malformed("version range %d to %d is empty", m.Versions.Min, m.Versions.Max)
	}
	if err := checkName("gateway", m.Gateway, MaxAIC); err != nil {
		return err
	}
	if err := checkName("domain", m.Domain, MaxDomain); err != nil {
		return err
	}
	if m.Role > RoleProvider {
		return malformed("role %d is not known", m.Role)
	}
	if len(m.Features) > MaxFeatures {
		return malformed("%d features are over the limit of %d", len(m.Features), MaxFeatures)
	}
	return checkTrust(m.Trust)
}
