package aci

import (
	"errors"
	"unicode/utf8"

	"agentgw/internal/frame"
)

// Bounds of one context.
const (
	MaxSize      = 1 << 20   // JSON text; more goes behind a ContextURI
	MaxDepth     = 32        // nesting of objects and arrays
	MaxEntries   = 1024      // entries of one array
	MaxID        = 128       // ids, names of members
	MaxInline    = 32 << 10  // content of one `data:` ContextURI
	MaxAllInline = 128 << 10 // content of all `data:` ContextURIs of one context, together
)

// scan checks size, depth and encoding in one pass, before anything is decoded.
func scan(b []byte) error {
	if len(b) > MaxSize {
		return frame.Errorf(frame.LimitExceeded, "context of %d bytes, the limit is %d: put the rest behind a ContextURI", len(b), MaxSize)
	}
	if !utf8.Valid(b) {
		return malformed("context is not UTF-8")
	}
	depth, inString := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return frame.Errorf(frame.LimitExceeded, "context is nested deeper than %d levels", MaxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// within says where an error was, and keeps its code.
func within(where string, err error) error {
	var e *frame.Error
	if errors.As(err, &e) {
		return frame.Errorf(e.Code, "%s: %s", where, e.Detail)
	}
	return malformed("%s: %w", where, err)
}

func malformed(format string, args ...any) error {
	return frame.Errorf(frame.Malformed, format, args...)
}
