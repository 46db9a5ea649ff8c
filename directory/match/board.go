package match

// board finds the account of a document. It has a slot for every document of a view, and counts rounds instead of wiping them:
// a request costs what its terms and names touch, however large the directory is.
type board struct {
	round uint32 // of the request at hand
	slots []slot
	hits  []hit
}

// slot is empty unless its round is the board's.
type slot struct {
	round uint32
	hit   int32 // index, or refused
}

const refused = -1 // by a hard filter

// takeBoard is a board for one request, with room for so many documents. More readers at a time than the index keeps boards
// for make their own.
func (x *Index) takeBoard(docs int) *board {
	b := new(board)
	for i := range x.boards {
		if kept := x.boards[i].Swap(nil); kept != nil {
			b = kept
			break
		}
	}
	if missing := docs - len(b.slots); missing > 0 {
		b.slots = append(b.slots, make([]slot, missing)...)
	}
	if b.round++; b.round == 0 { // of old slots none may look new
		clear(b.slots)
		b.round = 1
	}
	return b
}

// giveBack keeps a board for the next request, without what it points at.
func (x *Index) giveBack(b *board) {
	clear(b.hits)
	b.hits = b.hits[:0]
	for i := range x.boards {
		if x.boards[i].CompareAndSwap(nil, b) {
			return
		}
	}
}
