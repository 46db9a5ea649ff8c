package audit

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Report is what [Verify] found in a log that is whole.
type Report struct {
	Files       int       `json:"files"`
	Records     uint64    `json:"records"` // lines: n of the last
	Checkpoints int       `json:"checkpoints"`
	Sealed      uint64    `json:"sealed"`     // lines that the last checkpoint, or the kept one, vouches for
	SealedAt    time.Time `json:"sealed_at"`  // its time; zero: none
	Unfinished  int64     `json:"unfinished"` // octets after the last line: it is being written, or a crash left them
	Head        [32]byte  `json:"-"`          // hash of the last line
	LastAt      time.Time `json:"-"`          // time of the last record

	Told      []Told `json:"told,omitempty"`       // records of damage that an earlier start has found, the first maxTold of them
	ToldCount int    `json:"told_count,omitempty"` // how many there are
	LastTold  uint64 `json:"-"`                    // number of the last of them
	Began     *Began `json:"began,omitempty"`      // the log before this one; nil: none is known
}

// maxTold bounds [Report].Told: every start of a daemon over a damaged log may add one.
const maxTold = 8

// Told is a record of damage. The mark that has shown it is replaced while the daemon goes on, so that the record is what is left of it.
type Told struct {
	N    uint64    `json:"n"`
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	What string    `json:"what"`
}

// Began is the data of a record of [KindBegan]: where the log ended, by the mark that was kept of it, in whose place this one was begun.
type Began struct {
	Records uint64    `json:"records"`
	Hash    string    `json:"hash"` // of its last line, hexadecimal
	At      time.Time `json:"-"`    // of the record
}

// BeganAfter is the data of the first record of a log that is begun while a mark of another is kept.
func BeganAfter(count uint64, hash [32]byte) Began {
	return Began{Records: count, Hash: hex.EncodeToString(hash[:])}
}

func (b *Began) isOf(c *Checkpoint) bool {
	return b.Records == c.Count && b.Hash == hex.EncodeToString(c.Hash[:])
}

// BeganOf is what the first record of a log says of the log before it; nil: nothing.
func BeganOf(dir string) (*Began, error) {
	first := errors.New("read")
	w := walker{dir: dir, visit: func(Record) error { return first }}
	if err := w.walk(); err != nil && !errors.Is(err, first) {
		return nil, err
	}
	return w.report.Began, nil
}

// Ends says, by an error, where the log before, which is in dir now, does not reach what is known of its end.
func (b *Began) Ends(dir string) error {
	hash, err := hex.DecodeString(b.Hash)
	if err != nil || len(hash) != 32 {
		return fmt.Errorf("audit log: the record %s has no hash of 32 octets", KindBegan)
	}
	return Reaches(dir, b.Records, [32]byte(hash))
}

// String is what a daemon's status and its verbs say of it.
func (b *Began) String() string {
	return fmt.Sprintf("begun anew at %s: the log before it, of at least %d records, is no longer here", b.At.UTC().Format(time.RFC3339), b.Records)
}

// Damage is what the records of damage in a log say, as one error; nil: there are none. The log is then whole as it stands, and is still not
// all that was written.
func (r *Report) Damage() *DamageError {
	if len(r.Told) == 0 {
		return nil
	}
	t := r.Told[0]
	text := fmt.Sprintf("record %d (%s, %s) tells of damage that a start has found: %s", t.N, t.Kind, t.Time.UTC().Format(time.RFC3339), t.What)
	if more := r.ToldCount - 1; more > 0 {
		text += fmt.Sprintf("; %d more record(s) tell of damage", more)
	}
	return &DamageError{What: text}
}

// DamageError says where a log is not what was written.
type DamageError struct {
	File string `json:"file,omitempty"` // name in the folder; empty: the log as a whole
	Line int    `json:"line,omitempty"` // in that file, from 1
	What string `json:"what"`
}

func (e *DamageError) Error() string {
	if e.File == "" {
		return "audit log: " + e.What
	}
	return fmt.Sprintf("audit log: %s, line %d: %s", e.File, e.Line, e.What)
}

// Verify walks all files of a log and checks the chain, the spelling of each line, the signature of every checkpoint and that it names
// the very state it stands in, and that the log still reaches the kept checkpoint: the newest that Config.Keep got before Verify is called;
// nil: none was kept. A mark that the log's first record names as that of the log before it is not compared ([KindBegan]). Records of damage
// are no error here: [Report.Damage] has them. verify may be nil for a log without checkpoints. Damage is a [DamageError]. Memory does not grow with the log.
func Verify(dir string, verify Verifier, kept []byte) (Report, error) {
	if verify == nil {
		verify = func([]byte) (Checkpoint, error) {
			return Checkpoint{}, errors.New("no key is given to verify checkpoints with")
		}
	}
	w := walker{dir: dir, verify: verify}
	if kept != nil {
		c, err := verify(kept)
		if err != nil {
			return Report{}, fmt.Errorf("audit log: the checkpoint that was kept elsewhere: %w", err)
		}
		w.mark, w.replaceable = &c, true
	}
	err := w.walk()
	return w.report, err
}

// VerifyMark is [Verify] of a log without checkpoints, of which a daemon has kept how many lines there were and the hash of the last; a count of
// 0: nothing was kept.
func VerifyMark(dir string, count uint64, hash [32]byte) (Report, error) {
	w := walker{dir: dir, replaceable: true, verify: func([]byte) (Checkpoint, error) {
		return Checkpoint{}, errors.New("no key is given to verify checkpoints with")
	}}
	if count > 0 {
		w.mark = &Checkpoint{Count: count, Hash: hash}
	}
	err := w.walk()
	return w.report, err
}

// Read visits the records after number n in order until f returns an error, which it returns. The chain is checked on the way, from its
// beginning; signatures are not, so [Verify] comes first. f gets checkpoints too.
func Read(dir string, after uint64, f func(Record) error) error {
	w := walker{dir: dir, visit: func(r Record) error {
		if r.N <= after {
			return nil
		}
		return f(r)
	}}
	return w.walk()
}

// Reaches says, by an error, where a log does not hold that many lines with that hash of the last: whether the mark of a backup is of this log.
func Reaches(dir string, count uint64, hash [32]byte) error {
	if count == 0 {
		return nil
	}
	w := walker{dir: dir, mark: &Checkpoint{Count: count, Hash: hash}}
	return w.walk()
}

// walker goes through the files of a log.
type walker struct {
	dir    string
	verify Verifier           // nil: checkpoints are records like others
	mark   *Checkpoint        // a state that the log must have had; nil: none
	visit  func(Record) error // nil: nobody
	report Report

	replaceable bool // the mark counts no more where the first record says that this log took the place of the one it is of
}

func (w *walker) walk() error {
	// The current file is opened first: if it is rotated now, it is in the list too, under its other name.
	current, err := openReader(w.dir, currentName)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if current != nil {
		defer current.Close()
	}
	names, err := oldFiles(w.dir)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	for i, name := range names {
		same, err := w.old(name, i == len(names)-1 && current == nil, current)
		if err != nil {
			return err
		}
		if same {
			current = nil
		}
	}
	if current != nil {
		if err := w.file(current, currentName, true); err != nil {
			return err
		}
	}
	return w.reached()
}

// old walks a file that was rotated away, unless it is the current one, which was rotated this moment and comes last.
func (w *walker) old(name string, last bool, current *os.File) (same bool, err error) {
	f, err := openReader(w.dir, name)
	if err != nil || f == nil {
		return false, errors.Join(err, fmt.Errorf("audit log: open %s", name))
	}
	defer f.Close()
	if current != nil {
		x, err := f.Stat()
		if err != nil {
			return false, err
		}
		y, err := current.Stat()
		if err != nil {
			return false, err
		}
		same = os.SameFile(x, y)
	}
	return same, w.file(f, name, last || same)
}

// file walks one file. Only the last may end within a line.
func (w *walker) file(f *os.File, name string, last bool) error {
	w.report.Files++
	in := bufio.NewReaderSize(f, MaxLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF) && last:
			w.report.Unfinished, err = unfinished(in, len(line))
			return err
		case errors.Is(err, io.EOF):
			return &DamageError{name, n, "the line is cut: the file ends within it, and it is not the last file"}
		case errors.Is(err, bufio.ErrBufferFull) && last:
			// What a crash leaves at the very end may be long, and has no newline.
			if rest, err := unfinished(in, len(line)); err != nil || rest >= 0 {
				w.report.Unfinished = rest
				return err
			}
			fallthrough
		case errors.Is(err, bufio.ErrBufferFull):
			return &DamageError{name, n, fmt.Sprintf("the line was changed: it is longer than %d octets", MaxLine)}
		case err != nil:
			return fmt.Errorf("audit log: read %s: %w", name, err)
		}
		if err := w.line(line[:len(line)-1], name, n, in); err != nil {
			return err
		}
	}
}

// unfinished counts what follows to the end of the file, or is -1 where there is a newline.
func unfinished(in *bufio.Reader, begun int) (int64, error) {
	total := int64(begun)
	for {
		piece, err := in.ReadSlice('\n')
		total += int64(len(piece))
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case err == nil:
			return -1, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return 0, err
		}
	}
}

// line checks one line against the chain so far.
func (w *walker) line(line []byte, name string, n int, rest *bufio.Reader) error {
	damage := func(format string, args ...any) error { return &DamageError{name, n, fmt.Sprintf(format, args...)} }
	r, err := parseLine(line)
	if err != nil {
		return damage("the line was changed: %v", err)
	}
	due := w.report.Records + 1
	switch {
	case r.N < due:
		return damage("record %d stands here, where %d is due: it was repeated or moved here", r.N, due)
	case r.N > due && comesLater(rest, due):
		return damage("record %d stands here, where %d is due, which comes later: lines were reordered", r.N, due)
	case r.N > due:
		return damage("record %d stands here, where %d is due: %d record(s) before it were removed", r.N, due, r.N-due)
	case r.Prev != w.report.Head:
		return damage("its prev is not the hash of the line before: record %d or %d was changed", max(due-1, 1), due)
	}
	if first, isOld := parseOldName(name); isOld && n == 1 && first != r.N {
		return damage("it begins with record %d: the file was renamed", r.N)
	}
	if r.Kind == KindCheckpoint && w.verify != nil {
		if err := w.checkpoint(r); err != nil {
			return damage("checkpoint: %v", err)
		}
	}
	w.report.Records, w.report.Head, w.report.LastAt = r.N, hashLine(line), r.Time
	w.note(r)
	if w.mark != nil && w.mark.Count == r.N {
		if w.mark.Hash != w.report.Head {
			return damage("the tail after record %d was cut or rewritten: this line is not the one that the kept mark of record %d names",
				min(w.report.Sealed, r.N-1), r.N)
		}
		w.seal(*w.mark)
	}
	if w.visit != nil {
		return w.visit(r)
	}
	return nil
}

// note keeps what a record says about the log itself.
func (w *walker) note(r Record) {
	switch {
	case r.Kind == KindDamaged, r.Kind == KindReplaced:
		w.report.ToldCount++
		w.report.LastTold = r.N
		if len(w.report.Told) == maxTold {
			return
		}
		var d struct {
			What string `json:"what"` // of damaged
			Why  string `json:"why"`  // of replaced
		}
		if json.Unmarshal(r.Data, &d) != nil {
			d.What = "its data cannot be read"
		}
		w.report.Told = append(w.report.Told, Told{r.N, r.Time, r.Kind, d.What + d.Why})
	case r.N == 1 && r.Kind == KindBegan:
		b := Began{At: r.Time}
		if json.Unmarshal(r.Data, &b) != nil {
			return
		}
		w.report.Began = &b
		if w.replaceable && w.mark != nil && b.isOf(w.mark) {
			w.mark = nil
		}
	}
}

func (w *walker) checkpoint(r Record) error {
	raw, err := parseCheckpointData(r.Data)
	if err != nil {
		return err
	}
	c, err := w.verify(raw)
	if err != nil {
		return err
	}
	if c.Count != r.N-1 || c.Hash != r.Prev {
		return fmt.Errorf("it is signed for another state, of %d records: it was moved here, or lines before it were changed", c.Count)
	}
	w.report.Checkpoints++
	w.seal(c)
	return nil
}

func (w *walker) seal(c Checkpoint) {
	if c.Count > w.report.Sealed {
		w.report.Sealed, w.report.SealedAt = c.Count, c.Time
	}
}

// reached says whether the log is as long as the mark.
func (w *walker) reached() error {
	if w.mark == nil || w.mark.Count <= w.report.Records {
		return nil
	}
	return &DamageError{What: fmt.Sprintf("the tail after record %d was cut: the kept mark says that there were %d", w.report.Records, w.mark.Count)}
}

// comesLater looks for a record in the rest of a file, to tell what happened: it reads what nobody will read any more.
func comesLater(rest *bufio.Reader, n uint64) bool {
	for {
		line, err := rest.ReadSlice('\n')
		if err != nil {
			return false
		}
		if r, err := parseLine(line[:len(line)-1]); err == nil && r.N == n {
			return true
		}
	}
}
