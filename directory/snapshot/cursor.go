package snapshot

import "encoding/binary"

// AppendText appends a text as [Cursor.Text] reads it.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendList appends a list as [Cursor.List] reads it.
func AppendList(b []byte, list []string) []byte {
	if list == nil {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(list))+1)
	for _, s := range list {
		b = AppendText(b, s)
	}
	return b
}

// Cursor reads the fields of a body, one after the other. After a mistake it reads zeros, and [Cursor.Bad] says so. What it has read stays
// valid.
type Cursor struct {
	body  []byte
	text  string // a copy of the body that all texts share; "" where each is a copy of its own
	at    int
	bad   bool
	lists []string // room for the lists that come
}

// NewCursor is for a body that is texts for the most part: it copies it, and the texts share that copy.
func NewCursor(body []byte) *Cursor { return &Cursor{body: body, text: string(body)} }

// NewSparseCursor is for a body that has few texts: each is copied when it is read.
func NewSparseCursor(body []byte) *Cursor { return &Cursor{body: body} }

// Bad says whether there was a mistake.
func (c *Cursor) Bad() bool { return c.bad }

// Fail notes a mistake that the caller has found.
func (c *Cursor) Fail() { c.bad = true }

// Len is how many octets are left.
func (c *Cursor) Len() int { return len(c.body) - c.at }

// Done says that all was read, without a mistake.
func (c *Cursor) Done() bool { return !c.bad && c.at == len(c.body) }

// Number is the next uvarint; one above limit is a mistake.
func (c *Cursor) Number(limit int) int {
	var n uint64
	for shift := 0; ; shift += 7 {
		if c.bad || c.at == len(c.body) || shift > 56 {
			c.bad = true
			return 0
		}
		b := c.body[c.at]
		c.at++
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			break
		}
	}
	if n > uint64(max(limit, 0)) {
		c.bad = true
		return 0
	}
	return int(n)
}

// Octets are the next n.
func (c *Cursor) Octets(n int) string {
	if c.bad || n > c.Len() {
		c.bad = true
		return ""
	}
	c.at += n
	if c.text != "" {
		return c.text[c.at-n : c.at]
	}
	return string(c.body[c.at-n : c.at])
}

// Text is a length and as many octets.
func (c *Cursor) Text() string { return c.Octets(c.Number(c.Len())) }

// roomAtOnce is for how many texts of lists room is made at a time.
const roomAtOnce = 1024

// List is 0 for nil, or one more than its length and its texts.
func (c *Cursor) List() []string {
	n := c.Number(c.Len()+1) - 1
	if c.bad || n < 0 {
		return nil
	}
	if n > c.Len() { // each has its length at least
		c.bad = true
		return nil
	}
	if n > cap(c.lists)-len(c.lists) || c.lists == nil {
		c.lists = make([]string, 0, max(n, roomAtOnce))
	}
	at := len(c.lists)
	for range n {
		c.lists = append(c.lists, c.Text())
	}
	return c.lists[at:len(c.lists):len(c.lists)]
}
