package acs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// reference reads as decodeStrict does, by the decoder of encoding/json.
func reference(b []byte) (map[string]any, error) {
	if len(b) > MaxSize || !utf8.Valid(b) || !json.Valid(b) {
		return nil, errors.New("no document")
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	v, err := referenceValue(dec, 0)
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

func referenceValue(dec *json.Decoder, depth int) (any, error) {
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
			return referenceArray(dec, depth)
		}
		return referenceObject(dec, depth)
	case json.Number:
		return tok, checkNumber(tok)
	}
	return tok, nil
}

func referenceArray(dec *json.Decoder, depth int) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := referenceValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token() // the bracket
	return list, err
}

func referenceObject(dec *json.Decoder, depth int) (any, error) {
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
		if obj[key], err = referenceValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token() // the brace
	return obj, err
}

// Whatever a document looks like, it is read as encoding/json reads it, with the refusals of this package, and its canonical form is
// that of the library for it.
func FuzzReadsAsOthersDo(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e3,"x",true,false,null,{}],"b":{"c":"d"},"a\u0062":[]}`, ` { "k" : [ ] , "\ud83d\ude00" : "\n\u0001\"\\/é" } `, `{"a":1,"a":2}`, `{"a":9007199254740993}`,
		`[1]`, `{"a":1}x`, `{"\ud800":1,"\udc00":2}`, `{"é":1,"z":2,"\ufb33":3,"\ud83d\ude00":4,"\u20ac":5,"\r":6,"1":7}`, `{"n":1e21,"m":1e-7,"z":-0,"f":0.1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want, wantErr := reference(b)
		got, err := decodeStrict(b)
		if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %v, %v; encoding/json: %v, %v", b, got, err, want, wantErr)
		}
		if err != nil {
			return
		}
		canonical, err := appendCanonical(nil, got)
		library, libraryErr := jcs.Transform(b)
		if libraryErr == nil && (err != nil || !bytes.Equal(canonical, library)) {
			t.Fatalf("%q: canonical %q, %v; the library: %q", b, canonical, err, library)
		}
	})
}
