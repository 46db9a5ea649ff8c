package acs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// decodeStrict reads one JSON object into maps, slices, strings, booleans, nil and json.Number. encoding/json alone would let
// the last of two equal members win, which lets two readers of one document see different agents.
func decodeStrict(b []byte) (map[string]any, error) {
	switch {
	case len(b) > MaxSize:
		return nil, fmt.Errorf("document of %d octets, the limit is %d", len(b), MaxSize)
	case !utf8.Valid(b):
		return nil, errors.New("document is not UTF-8")
	case !json.Valid(b):
		return nil, notJSON(b)
	}
	r := &reader{b: b}
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("document is not a JSON object")
	}
	return doc, nil
}

// notJSON says why a document is none, and where.
func notJSON(b []byte) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return errors.New("document is empty")
	}
	if bytes.HasPrefix(b, []byte("\ufeff")) {
		return errors.New("document begins with a byte order mark (U+FEFF); save it without one")
	}
	var v any
	err := json.Unmarshal(b, &v)
	var wrong *json.SyntaxError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("document is not JSON: %w", err)
	}
	before := b[:max(0, min(int(wrong.Offset)-1, len(b)))]
	return fmt.Errorf("document is not JSON: line %d, column %d: %w", bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])+1, err)
}

// reader walks a document that json.Valid has accepted: what is not looked at here is known to be well-formed. json.Decoder hands
// out tokens too, at ten times the price, and the directory reads each document several times.
type reader struct {
	b []byte
	i int
}

// next is the first octet of the next token.
func (r *reader) next() byte {
	for r.b[r.i] == ' ' || r.b[r.i] == '\t' || r.b[r.i] == '\n' || r.b[r.i] == '\r' {
		r.i++
	}
	return r.b[r.i]
}

// skip passes the next token, which has one octet, and says whether it was c.
func (r *reader) skip(c byte) bool {
	was := r.next() == c
	r.i++
	return was
}

func (r *reader) value(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", MaxDepth)
	}
	switch c := r.next(); c {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		return r.text()
	case 't', 'n':
		r.i += len("true")
		if c == 'n' {
			return nil, nil
		}
		return true, nil
	case 'f':
		r.i += len("false")
		return false, nil
	}
	n := r.number()
	return n, checkNumber(n)
}

func (r *reader) array(depth int) (any, error) {
	list := []any{}
	r.i++ // the bracket
	if r.next() == ']' {
		r.i++
		return list, nil
	}
	for {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if !r.skip(',') { // then it was the bracket
			return list, nil
		}
	}
}

func (r *reader) object(depth int) (any, error) {
	obj := map[string]any{}
	r.i++ // the brace
	if r.next() == '}' {
		r.i++
		return obj, nil
	}
	for {
		r.next()
		key, err := r.text()
		if err != nil {
			return nil, err
		}
		if _, twice := obj[key]; twice {
			return nil, fmt.Errorf("member %q appears twice in one object", key)
		}
		r.skip(':')
		if obj[key], err = r.value(depth + 1); err != nil {
			return nil, err
		}
		if !r.skip(',') { // then it was the brace
			return obj, nil
		}
	}
}

// text reads a string; one with escapes is rare, and encoding/json knows them.
func (r *reader) text() (string, error) {
	from, escaped := r.i, false
	for r.i++; r.b[r.i] != '"'; r.i++ {
		if r.b[r.i] == '\\' {
			escaped = true
			r.i++
		}
	}
	r.i++
	if !escaped {
		return string(r.b[from+1 : r.i-1]), nil
	}
	var s string
	err := json.Unmarshal(r.b[from:r.i], &s)
	return s, err
}

func (r *reader) number() json.Number {
	from := r.i
	for r.i < len(r.b) && bytes.IndexByte([]byte("+-.0123456789eE"), r.b[r.i]) >= 0 {
		r.i++
	}
	return json.Number(r.b[from:r.i])
}

// checkNumber refuses numbers that another reader would see differently: beyond a double, or integers that a double rounds.
func checkNumber(n json.Number) error {
	f, err := n.Float64()
	whole, rest := n.Int64()
	large := rest == nil && (whole > maxNumber || whole < -maxNumber)
	if err != nil || len(n) > 32 || large || rest != nil && math.Trunc(f) == f && math.Abs(f) > maxNumber {
		return fmt.Errorf("number %.40s is outside what every JSON reader keeps (±2^53, or a fraction of up to 32 characters)", n)
	}
	return nil
}
