package store

import (
	"errors"
	"slices"
	"strings"
	"sync"
)

// Fault is what a test lets happen to the next commit of a memory store.
type Fault int

// The faults.
const (
	FaultLost     Fault = iota + 1 // the commit fails and nothing is written
	FaultReported                  // everything is written, and the commit is reported as failed
)

// ErrFault is the error of an injected fault.
var ErrFault = errors.New("injected fault")

// Memory is the database of a store that lives in memory, for tests. It survives the store: another one opened over it finds
// what was written.
type Memory struct {
	mu   sync.Mutex
	data map[string][]byte
	next []Fault
}

// OpenMemory opens a store over m.
func OpenMemory(m *Memory) *Store { return newStore((*memoryBackend)(m)) }

// Fail lets the coming commits fail, one each.
func (m *Memory) Fail(faults ...Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = append(m.next, faults...)
}

type memoryBackend Memory

// view copies: plans and scans see one state, and a callback may read again.
func (m *memoryBackend) view(f func(reader) error) error {
	m.mu.Lock()
	state := make(memoryReader, len(m.data))
	for k, v := range m.data {
		state[k] = v
	}
	m.mu.Unlock()
	return f(state)
}

func (m *memoryBackend) update(list []mutation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var fault Fault
	if len(m.next) > 0 {
		fault, m.next = m.next[0], m.next[1:]
	}
	if fault == FaultLost {
		return ErrFault
	}
	if m.data == nil {
		m.data = map[string][]byte{}
	}
	for _, c := range list {
		if c.value == nil {
			delete(m.data, c.key)
		} else {
			m.data[c.key] = slices.Clone(c.value)
		}
	}
	if fault == FaultReported {
		return ErrFault
	}
	return nil
}

func (m *memoryBackend) close() error { return nil }

type memoryReader map[string][]byte

func (r memoryReader) get(key string) ([]byte, error) {
	if v, ok := r[key]; ok {
		return v, nil
	}
	return nil, errAbsent
}

func (r memoryReader) scan(prefix string, f func(key, value []byte) error) error {
	var keys []string
	for k := range r {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := f([]byte(k), r[k]); err != nil {
			return err
		}
	}
	return nil
}
