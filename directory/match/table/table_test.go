package table

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// trained is the id of the table that `make train` makes.
const trained = "771ecb981b67a5dc90259a774d194c2c39c3d233e23b31fdb087efe4204f4530"

func TestBuiltinIsWhole(t *testing.T) {
	x, err := Parse([]byte(builtin))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", x.ID()); got != trained {
		t.Errorf("the table is %s, and not the one that directory/match/train/README.md tells of, %s", got, trained)
	}
	if x.ID() != Builtin.ID() || x.Dim() != 100 || x.Len() < 20_000 {
		t.Errorf("%d stems of %d dimensions", x.Len(), x.Dim())
	}
	for row := 1; row < x.n; row++ {
		if x.stem(row-1) >= x.stem(row) {
			t.Fatalf("stems %q and %q are not in order", x.stem(row-1), x.stem(row))
		}
	}
	for _, row := range []int{0, 1, x.n / 2, x.n - 1} {
		if got, ok := x.Row(x.stem(row)); !ok || got != row {
			t.Errorf("row %d is found as %d %v", row, got, ok)
		}
	}
	for _, stem := range []string{"", "zzzzzzzzz", "no such stem", "\xff"} {
		if _, ok := x.Row(stem); ok {
			t.Errorf("%q has a row", stem)
		}
	}
}

func cosine(x, y []float32) float64 {
	sum := 0.
	for i := range x {
		sum += float64(x[i]) * float64(y[i])
	}
	return sum
}

func text(stems ...string) []float32 {
	var list []Weighted
	for _, s := range stems {
		list = append(list, Weighted{s, 1})
	}
	return Builtin.Embed(list)
}

func TestEmbeddingsTellWhatIsAlike(t *testing.T) {
	medicine := text("medicin", "sore", "throat")
	if near, far := cosine(medicine, text("pharmaci", "drug")), cosine(medicine, text("flight", "airport")); near < far+.2 {
		t.Errorf("a pharmacy is as near (%.2f) as an airport (%.2f)", near, far)
	}
	if length := cosine(medicine, medicine); math.Abs(length-1) > 1e-5 {
		t.Errorf("length %f", length)
	}
	if !slices.Equal(medicine, text("throat", "medicin", "sore")) {
		t.Error("the order of the stems changes the vector")
	}
	for _, v := range [][]float32{text(), text("quuxquux")} {
		if cosine(v, v) != 0 {
			t.Error("a text without known stems has a direction")
		}
	}
	heavier := Builtin.Embed([]Weighted{{"medicin", 3}, {"flight", .3}})
	if cosine(heavier, text("medicin")) <= cosine(heavier, text("flight")) {
		t.Error("weights do not count")
	}
}

func TestFilesThatAreNoTables(t *testing.T) {
	good := Append(nil, []string{"a", "bc"}, []float32{1, .5}, []int8{1, -2, 3, 4}, 2)
	x, err := Parse(good)
	if err != nil || x.Len() != 2 || x.Dim() != 2 {
		t.Fatal(err)
	}
	if v := x.Embed([]Weighted{{"bc", 1}}); math.Abs(float64(v[0])-.6) > 1e-6 || math.Abs(float64(v[1])-.8) > 1e-6 {
		t.Errorf("%v", v)
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 1
		if _, err := Parse(bad); err == nil {
			t.Errorf("octet %d changed, and nothing noticed", i)
		}
		if _, err := Parse(good[:i]); err == nil {
			t.Errorf("cut after %d octets, and nothing noticed", i)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Append(nil, []string{"a", "bc"}, []float32{1, .5}, []int8{1, -2, 3, 4}, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := open(string(b))
		if err != nil {
			return
		}
		x.Row("a")
		x.Embed([]Weighted{{"a", 1}, {"bc", math.Inf(1)}})
	})
}
