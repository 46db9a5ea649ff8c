package acs

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf16"

	"github.com/gowebpki/jcs"
)

// appendCanonical appends the canonical form (RFC 8785) of what decodeStrict reads.
func appendCanonical(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return fmt.Append(b, v), nil
	case string:
		return appendText(b, v), nil
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return nil, err
		}
		text, err := jcs.NumberToJSON(f)
		return append(b, text...), err
	case []any:
		return appendList(b, v)
	case map[string]any:
		return appendObject(b, v)
	}
	return nil, fmt.Errorf("%T is not read from JSON", v)
}

func appendList(b []byte, list []any) (_ []byte, err error) {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendCanonical(b, v); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendObject(b []byte, obj map[string]any) (_ []byte, err error) {
	keys := make([]string, 0, len(obj))
	for key := range obj {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareUTF16)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, key), ':')
		if b, err = appendCanonical(b, obj[key]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// compareUTF16 is the order of RFC 8785, section 3.2.3. It differs from that of octets only where surrogates come into it.
func compareUTF16(x, y string) int {
	for i := 0; i < len(x) && i < len(y); i++ {
		if x[i] != y[i] {
			if x[i] < 0x80 && y[i] < 0x80 {
				return int(x[i]) - int(y[i])
			}
			return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y)))
		}
	}
	return len(x) - len(y)
}

// appendText escapes what RFC 8785, section 3.2.2.2, says, and nothing else.
func appendText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		}
	}
	return append(b, '"')
}
