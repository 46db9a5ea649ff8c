package acs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		var v any
		return nil, fmt.Errorf("document is not JSON: %w", json.Unmarshal(b, &v))
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("document is not a JSON object")
	}
	return doc, nil
}

func decodeValue(dec *json.Decoder, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", MaxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '[' {
			return decodeArray(dec, depth)
		}
		return decodeObject(dec, depth)
	case json.Number:
		return tok, checkNumber(tok)
	}
	return tok, nil
}

func decodeArray(dec *json.Decoder, depth int) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := decodeValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token() // the bracket
	return list, err
}

func decodeObject(dec *json.Decoder, depth int) (any, error) {
	obj := map[string]any{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := tok.(string)
		if _, twice := obj[key]; twice {
			return nil, fmt.Errorf("member %q appears twice in one object", key)
		}
		if obj[key], err = decodeValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token() // the brace
	return obj, err
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
