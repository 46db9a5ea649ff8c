package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// tail is where the chain of a folder ends.
type tail struct {
	count   uint64
	hash    [32]byte
	first   uint64 // number of the first line of the current file; 0: it has none
	size    int64  // octets of whole lines in the current file
	torn    int64  // octets after them, which are cut off
	pending bool   // the last line is no checkpoint
}

// findTail reads the first and the last whole line of the current file, or the last of the file before it. The chain is not walked: that
// is for [Verify].
func findTail(dir string) (tail, error) {
	var t tail
	current, err := openReader(dir, currentName)
	if err != nil {
		return t, err
	}
	if current != nil {
		defer current.Close()
		if t.size, t.torn, err = wholeLines(current); err != nil {
			return t, err
		}
	}
	if t.size > 0 {
		first, err := firstLine(current, t.size)
		if err != nil {
			return t, damaged(current.Name(), "first", err)
		}
		t.first = first.N
		return t, t.endsWith(current, t.size)
	}
	old, err := oldFiles(dir)
	if err != nil || len(old) == 0 {
		return t, err
	}
	last, err := openReader(dir, old[len(old)-1])
	if err != nil || last == nil {
		return t, errors.Join(err, fmt.Errorf("open %s", old[len(old)-1]))
	}
	defer last.Close()
	size, torn, err := wholeLines(last)
	if err == nil && (torn != 0 || size == 0) {
		err = damaged(last.Name(), "last", errors.New("it is not whole, and this file was closed whole"))
	}
	if err != nil {
		return t, err
	}
	return t, t.endsWith(last, size)
}

// ErrDamaged is the error of [Open] where a log cannot be gone on with: its folder has to be moved away.
var ErrDamaged = errors.New("damaged")

func damaged(path, which string, err error) error {
	return fmt.Errorf("the %s line of %s is %w: %w; keep the folder as evidence: move it away to begin a new log", which, path, ErrDamaged, err)
}

func (t *tail) endsWith(f *os.File, size int64) error {
	line, err := lastLine(f, size)
	if err != nil {
		return damaged(f.Name(), "last", err)
	}
	r, err := parseLine(line)
	if err != nil {
		return damaged(f.Name(), "last", err)
	}
	t.count, t.hash, t.pending = r.N, hashLine(line), r.Kind != KindCheckpoint
	return nil
}

// wholeLines is how many octets up to and with the last newline, and how many after it. What a crash leaves after it may be long, so it
// is searched from the end in pieces.
func wholeLines(f *os.File) (whole, torn int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	buf := make([]byte, MaxLine)
	for end := info.Size(); end > 0; {
		start := max(end-int64(len(buf)), 0)
		piece := buf[:end-start]
		if _, err := f.ReadAt(piece, start); err != nil {
			return 0, 0, err
		}
		if i := bytes.LastIndexByte(piece, '\n'); i >= 0 {
			whole = start + int64(i) + 1
			return whole, info.Size() - whole, nil
		}
		end = start
	}
	return 0, info.Size(), nil
}

func firstLine(f *os.File, size int64) (Record, error) {
	buf := make([]byte, min(MaxLine, size))
	if _, err := f.ReadAt(buf, 0); err != nil && !errors.Is(err, io.EOF) {
		return Record{}, err
	}
	line, _, ok := bytes.Cut(buf, []byte{'\n'})
	if !ok {
		return Record{}, fmt.Errorf("it is longer than %d octets", MaxLine)
	}
	return parseLine(line)
}

// lastLine is the line that ends with the newline at size-1, without it.
func lastLine(f *os.File, size int64) ([]byte, error) {
	start := max(size-1-MaxLine, 0)
	buf := make([]byte, size-1-start)
	if _, err := f.ReadAt(buf, start); err != nil {
		return nil, err
	}
	i := bytes.LastIndexByte(buf, '\n')
	if i < 0 && start > 0 {
		return nil, fmt.Errorf("it is longer than %d octets", MaxLine)
	}
	return buf[i+1:], nil
}
