package a2a

import (
	"testing"
	"time"

	"agentgw/a2a/wire"
)

// The memory is bounded by messages and by bytes, whatever peers make an agent return; what is forgotten is the oldest.
func TestMemoryIsBounded(t *testing.T) {
	sid := wire.ID{1}
	msg := func(i int) wire.ID { return wire.ID{byte(i), byte(i >> 8), 1} }
	for name, tt := range map[string]struct{ messages, size, kept int }{
		"by bytes":    {200, 1 << 20, 64},
		"by messages": {400, 1, 256},
	} {
		m := NewMemory()
		for i := range tt.messages {
			if known, _, err := m.Begin(sid, msg(i)); known || err != nil {
				t.Fatal(known, err)
			}
			m.End(sid, msg(i), Outcome{Result: make([]byte, tt.size)})
			m.End(sid, msg(i), Outcome{Result: make([]byte, tt.size)}) // the same again is no second one
		}
		if len(m.known) != tt.kept || len(m.order) != tt.kept || m.bytes != tt.kept*tt.size {
			t.Errorf("%s: %d messages, %d in order, %d bytes", name, len(m.known), len(m.order), m.bytes)
		}
		for i := range tt.messages {
			if _, kept := m.known[messageKey{sid, msg(i)}]; kept != (i >= tt.messages-tt.kept) {
				t.Fatalf("%s: message %d is kept: %v", name, i, kept)
			}
		}
		m.Ended(sid, time.Now())
		if len(m.known) != 0 || len(m.order) != 0 || m.bytes != 0 {
			t.Errorf("%s: after the end %d messages and %d bytes", name, len(m.known), m.bytes)
		}
	}
}
