package wire

// Bounds on what a peer may send, each with its reason. Frame sizes are in package frame.
const (
	MaxEntries  = 256       // entries of one ENTRIES frame, and nacks of one ACK: an ACK can answer a whole frame
	MaxItems    = 256       // items of one batch: one signature verified for that many
	MaxBatch    = 200 << 10 // items of one batch together: batch and envelope fit one ENTRIES frame
	MaxItem     = 10 << 10  // one item: a sketch and its labels
	MaxPath     = 8         // domains of a path: the diameter that one withdrawal may have to cross
	MaxLabel    = 128       // label of an item: a taxonomy class or a tag
	MaxNS       = 64        // taxonomy name
	MaxTerms    = 32        // terms of an item
	MaxTerm     = 64
	MaxSketch   = 8 << 10 // a sketch fits an item with room for the rest
	MaxModes    = 16      // media types of one direction
	MaxMode     = 64
	MaxAllow    = 64  // domains that a batch of visibility "listed" names
	MaxHops     = 7   // path length less one
	MaxDomain   = 253 // DNS name
	MaxAIC      = 64
	MaxFeatures = 32
	MaxTrust    = 8  // bundles that a HELLO or KEEPALIVE names
	MaxMessage  = 64 // text of a nack or GOODBYE
	MaxBundle   = 60 << 10
	MaxStatus   = 48 << 10 // one part of a list
	minAlive    = 48       // octets of a KEEPALIVE frame: smaller packets cannot provoke a stateless reset (RFC 9000, section 10.3)
)
