package wire

// Bounds of what a peer may send inside a frame; the frames' own bounds are in package frame. Every one is checked before
// anything is allocated in proportion to it.
const (
	MaxAIC       = 64      // canonical text of an AIC
	MaxCap       = 512     // capability identifier
	MaxSAT       = 2 << 10 // session authorization token
	MaxKinds     = 8       // context kinds and modes offered in one session
	MaxScope     = 32      // scope strings of one SESSION_UPDATE, as many as a token has
	MaxScopeText = 512     // one of them
	MaxMedia     = 128     // media type of a body
	MaxContext   = 1 << 20 // body of an AgentContext; larger content goes by reference
	MaxItems     = 1024    // item states in one CTX_PROGRESS
	MaxItemID    = 128     // one item id
	MaxText      = 256     // note of CTX_PROGRESS, message of CTX_ERR
	MaxPad       = 256     // padding of a keepalive
	maxSkipped   = 16      // unknown optional frames read past in a row: a peer cannot keep us reading for nothing
	minLiveness  = 48      // bytes of an A2A_KEEPALIVE frame: a smaller packet does not trigger a stateless reset
)
