package glove

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packOf is a package with one file.
func packOf(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	w.Write(content)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// numbers is a vector whose first component is v, as the package has it: the components, a length, the place.
func numbers(v float64, place int) []float64 {
	out := make([]float64, Dim+2)
	out[0], out[Dim+1] = v, float64(place)
	return out
}

func packed3(t *testing.T, vectors map[string][]float64) []byte {
	t.Helper()
	content, err := json.Marshal(struct {
		Precision int                  `json:"precision"`
		Words     []string             `json:"words"`
		Vectors   map[string][]float64 `json:"vectors"`
		Unknown   []float64            `json:"unkVector"`
	}{8, []string{"the", "10", `"`}, vectors, numbers(0, -1)})
	if err != nil {
		t.Fatal(err)
	}
	return packOf(t, packed, content)
}

func TestRead(t *testing.T) {
	w, err := Read(bytes.NewReader(packed3(t, map[string][]float64{"the": numbers(.5, 0), "10": numbers(-2e-3, 1), `"`: numbers(3, 2)})))
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range []float32{.5, -.002, 3} {
		if v := w.Vector(place); v[0] != want || len(v) != Dim || v[1] != 0 {
			t.Errorf("vector %d begins with %f, want %f", place, v[0], want)
		}
	}
	if !slices.Equal(w.List, []string{"the", "10", `"`}) {
		t.Errorf("words %q", w.List)
	}
}

func TestReadRefuses(t *testing.T) {
	good := map[string][]float64{"the": numbers(1, 0), "10": numbers(1, 1), `"`: numbers(1, 2)}
	with := func(word string, v []float64) map[string][]float64 {
		out := map[string][]float64{}
		for k, x := range good {
			out[k] = x
		}
		if out[word] = v; v == nil {
			delete(out, word)
		}
		return out
	}
	whole := packed3(t, good)
	for name, file := range map[string][]byte{
		"a vector too few":       packed3(t, with("10", nil)),
		"a number too few":       packed3(t, with("10", numbers(1, 1)[1:])),
		"a number too many":      packed3(t, with("10", append(numbers(1, 1), 4))),
		"the place of another":   packed3(t, with("10", numbers(1, 2))),
		"a place behind the end": packed3(t, with("10", numbers(1, 3))),
		"no vectors in it":       packOf(t, "package/README.md", []byte("{}")),
		"an empty object":        packOf(t, packed, []byte("{}")),
		"no object":              packOf(t, packed, []byte("[]")),
		"cut":                    whole[:len(whole)/2],
		"nothing":                nil,
	} {
		if _, err := Read(bytes.NewReader(file)); err == nil {
			t.Errorf("%s: nothing noticed", name)
		}
	}
}

// TestNormalise: what all words share, and where they differ most, is gone; the rest has length 1.
func TestNormalise(t *testing.T) {
	const n = 64
	list, flat := make([]string, n), make([]float32, n*Dim)
	for i := range n {
		v := flat[i*Dim : (i+1)*Dim]
		v[0] = 7                         // of all
		v[1] = float32(50 * (i%2*2 - 1)) // where they differ most
		v[2] = float32(20 * (i/2%2*2 - 1))
		v[3+i] = 1
	}
	w := New(list, flat)
	w.Normalise()
	for i := range n {
		v := w.Vector(i)
		sum := 0.
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		if math.Abs(sum-1) > 1e-5 || math.Abs(float64(v[0])) > 1e-3 || math.Abs(float64(v[1])) > .05 || math.Abs(float64(v[2])) > .05 || v[3+i] < .9 {
			t.Fatalf("word %d: length² %f, %v", i, sum, v[:6])
		}
	}
}

// npm puts a program of that name first into the path.
func npm(t *testing.T, script string) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestFetch(t *testing.T) {
	sum := sha256.Sum256([]byte("vectors\n"))
	s := source{"some-vectors", "1.2.3", hex.EncodeToString(sum[:])}
	ctx, folder := context.Background(), filepath.Join(t.TempDir(), "cache")
	fails := func(phrases ...string) {
		t.Helper()
		_, err := s.fetch(ctx, folder)
		for _, p := range phrases {
			if err == nil || !strings.Contains(err.Error(), p) {
				t.Errorf("error %v, %q is missing", err, p)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(folder, "fetch-*")); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	fails("no npm", "Node.js", "some-vectors-1.2.3.tgz", s.sha256, folder)
	t.Setenv("PATH", path)
	npm(t, `echo "npm error network" >&2; exit 1`)
	fails("npm error network", "network", s.sha256)
	npm(t, `exit 0`)
	fails("brought no some-vectors-1.2.3.tgz")
	npm(t, `echo other > some-vectors-1.2.3.tgz`)
	fails("what npm brought", "SHA-256")
	npm(t, `[ "$*" = "pack some-vectors@1.2.3" ] && echo vectors > some-vectors-1.2.3.tgz`)
	got, err := s.fetch(ctx, folder)
	if err != nil || got != filepath.Join(folder, "some-vectors-1.2.3.tgz") {
		t.Fatal(got, err)
	}
	npm(t, `exit 1`) // not asked again
	if _, err := s.fetch(ctx, folder); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(got, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	fails("delete it", fmt.Sprintf("not %s", s.sha256))
}
