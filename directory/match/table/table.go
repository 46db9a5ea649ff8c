// Package table is a static token table: one small vector a stem, whose weighted sum over a text is the text's embedding. It
// needs no model service, is a few megabytes in the binary, and embeds a text in microseconds.
//
// The contract: a [Table] is immutable and may be shared. A text's vector has length 1, or is all zero where the table knows no
// stem of it; the similarity of two texts is their dot product. Vectors of tables with different [Table.ID]s are not comparable.
//
// The package is pure. Source: MATCHING, sections 1 and 2; data/NOTICE says what the embedded table is derived from.
package table

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
)

// The file: magic, SHA-256 of what follows it, stems and dimensions (uint32 each), where each stem begins (uint32, one more than
// stems), the stems in byte order, one scale a stem (float32), the rows (int8). All numbers are little-endian.
const (
	magic      = "agwtab1\n"
	headerSize = len(magic) + sha256.Size + 8
	// MaxStems and MaxDim bound what a file may claim.
	MaxStems = 1 << 20
	MaxDim   = 1024
)

//go:embed data/table.bin
var builtin string

// Builtin is the table that this product ships. Its checksum is a test's business, not every start's.
var Builtin = func() *Table {
	t, err := open(builtin)
	if err != nil {
		panic("embedded token table: " + err.Error())
	}
	return t
}()

// Table is a token table in the form of its file, read in place.
type Table struct {
	id     [sha256.Size]byte
	n, dim int
	starts string // uint32 each
	stems  string
	scales string // float32 each
	rows   string
}

// ID names the table's content.
func (t *Table) ID() [sha256.Size]byte { return t.id }

// Dim is how many components a vector has.
func (t *Table) Dim() int { return t.dim }

// Len is the number of stems.
func (t *Table) Len() int { return t.n }

// Parse reads a table file and checks its sum.
func Parse(file []byte) (*Table, error) {
	t, err := open(string(file))
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(file[len(magic)+sha256.Size:]) != t.id {
		return nil, errors.New("the checksum does not fit: the file is damaged")
	}
	return t, nil
}

func open(file string) (*Table, error) {
	if len(file) < headerSize || file[:len(magic)] != magic {
		return nil, errors.New("this is no token table")
	}
	t := &Table{id: [sha256.Size]byte([]byte(file[len(magic) : len(magic)+sha256.Size]))}
	n, dim := u32(file, headerSize-8), u32(file, headerSize-4)
	if n == 0 || n > MaxStems || dim == 0 || dim > MaxDim {
		return nil, errors.New("it claims a size that no table has")
	}
	t.n, t.dim = int(n), int(dim)
	rest := file[headerSize:]
	if len(rest) < 4*(t.n+1) {
		return nil, errors.New("it is cut short")
	}
	t.starts, rest = rest[:4*(t.n+1)], rest[4*(t.n+1):]
	length := int(u32(t.starts, 4*t.n))
	if len(rest) != length+4*t.n+t.n*t.dim {
		return nil, errors.New("its length is not what its header says")
	}
	t.stems, t.scales, t.rows = rest[:length], rest[length:length+4*t.n], rest[length+4*t.n:]
	for i := range t.n {
		if a, b := u32(t.starts, 4*i), u32(t.starts, 4*i+4); a > b || int(b) > length {
			return nil, errors.New("its stems are not in order")
		}
	}
	return t, nil
}

func u32(s string, at int) uint32 {
	return uint32(s[at]) | uint32(s[at+1])<<8 | uint32(s[at+2])<<16 | uint32(s[at+3])<<24
}

// Append makes the file of a table. The stems are in byte order, rows has dim components of each; scales × row is a vector.
func Append(b []byte, stems []string, scales []float32, rows []int8, dim int) []byte {
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(stems)))
	body = binary.LittleEndian.AppendUint32(body, uint32(dim))
	at := uint32(0)
	for _, s := range stems {
		body = binary.LittleEndian.AppendUint32(body, at)
		at += uint32(len(s))
	}
	body = binary.LittleEndian.AppendUint32(body, at)
	for _, s := range stems {
		body = append(body, s...)
	}
	for _, f := range scales {
		body = binary.LittleEndian.AppendUint32(body, math.Float32bits(f))
	}
	for _, v := range rows {
		body = append(body, byte(v))
	}
	sum := sha256.Sum256(body)
	return append(append(append(b, magic...), sum[:]...), body...)
}

// Row is a stem's row, false where the table does not know it.
func (t *Table) Row(stem string) (int, bool) {
	lo, hi := 0, t.n
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch strings.Compare(t.stem(mid), stem) {
		case 0:
			return mid, true
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return 0, false
}

func (t *Table) stem(row int) string { return t.stems[u32(t.starts, 4*row):u32(t.starts, 4*row+4)] }

// Weighted is one stem with its weighted frequency in a text.
type Weighted struct {
	Stem string
	TF   float64
}

// Embed is the vector of a text: the sum of its stems' vectors by their dampened frequency, brought to length 1. The same stems give
// the same vector in whatever order they come.
func (t *Table) Embed(text []Weighted) []float32 {
	rows := make([]WeightedRow, 0, len(text))
	for _, w := range text {
		if row, ok := t.Row(w.Stem); ok {
			rows = append(rows, WeightedRow{row, w.TF})
		}
	}
	return t.EmbedRows(nil, rows)
}

// WeightedRow is a row of the table with its stem's weighted frequency in a text.
type WeightedRow struct {
	Row int
	TF  float64
}

// EmbedRows is [Table.Embed] where the rows are known, each at most once; it sorts them. The vector takes out's room if that is enough.
func (t *Table) EmbedRows(out []float32, rows []WeightedRow) []float32 {
	slices.SortFunc(rows, func(x, y WeightedRow) int { return x.Row - y.Row }) // float sums depend on their order
	var room [128]float64
	sum := append(room[:0], make([]float64, t.dim)...)
	for _, r := range rows {
		t.add(sum, r)
	}
	length := 0.
	for _, v := range sum {
		length += v * v
	}
	if length = math.Sqrt(length); length == 0 {
		length = 1
	}
	out = slices.Grow(out[:0], t.dim)[:t.dim]
	for i, v := range sum {
		out[i] = float32(v / length)
	}
	return out
}

func (t *Table) add(sum []float64, r WeightedRow) {
	w := Damped(r.TF) * float64(math.Float32frombits(u32(t.scales, 4*r.Row)))
	for i, v := range []byte(t.rows[r.Row*t.dim : (r.Row+1)*t.dim]) {
		sum[i] += w * float64(int8(v))
	}
}

// Damped is how much a frequency counts.
func Damped(tf float64) float64 {
	if tf >= 1 {
		return 1 + math.Log(tf)
	}
	return tf
}
