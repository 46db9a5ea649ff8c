package acs

// Limits on one document (FORMATS, section 6). Those marked (ours) are this project's: the specification names none there.
const (
	MaxSize        = 64 << 10 // octets of the document
	MaxDepth       = 32       // nested objects and arrays (ours)
	MaxSkills      = 128
	MaxSkillID     = 128     // octets
	MaxTags        = 32      // of one skill
	MaxTag         = 64      // characters
	MaxDescription = 4 << 10 // octets
	MaxExamples    = 16      // of one skill
	MaxExample     = 200     // characters
	MaxName        = 256     // characters of a name (ours)
	MaxWord        = 256     // characters of any other short text (ours)
	MaxURL         = 2 << 10 // octets (ours)
	MaxList        = 32      // endpoints, schemes, modes, domains, alternative names (ours)

	maxNumber   = 1 << 53 // integers beyond it change under RFC 8785
	maxProblems = 64      // more are not told: whoever has that many reads the specification
)
