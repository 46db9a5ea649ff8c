package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"agentgw/a2a/aci"
)

const (
	maxLine   = 2 << 20 // bytes, as agentd allows
	maxAtOnce = 32      // contexts; agentd sends 16 at most
)

// request is what agentd sends.
type request struct {
	ID     *uint64 `json:"id"`
	Method string  `json:"method"`
	Params struct {
		ID      uint64          `json:"id"` // of aci/cancel
		Context json.RawMessage `json:"context"`
	} `json:"params"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// reply is what goes back, with a result or an error.
type reply struct {
	JSONRPC string            `json:"jsonrpc"`
	ID      uint64            `json:"id"`
	Result  *aci.AgentContext `json:"result,omitempty"`
	Error   *rpcError         `json:"error,omitempty"`
}

// progress is a notification while the work goes on.
type progress struct {
	ID    uint64          `json:"id"`
	Items []aci.ItemState `json:"ItemStateUpdates"`
	Note  string          `json:"note"`
}

// server answers one stream of deliveries.
type server struct {
	work role

	mu        sync.Mutex // guards the rest
	out       *json.Encoder
	cancelled map[uint64]bool // of what runs: true when nobody waits for it any more
}

// serve works until the input ends, then waits for what is still running.
func serve(in io.Reader, out io.Writer, work role) error {
	s := &server{work: work, out: json.NewEncoder(out), cancelled: map[uint64]bool{}}
	var running sync.WaitGroup
	defer running.Wait()
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("read a message: %w", err)
		}
		switch {
		case r.Method == "aci/cancel":
			s.cancel(r.Params.ID)
		case r.Method == "aci/deliver" && r.ID != nil:
			if s.begin(*r.ID) {
				running.Go(func() { s.deliver(*r.ID, r.Params.Context) })
			}
		case r.ID != nil:
			s.send(reply{JSONRPC: "2.0", ID: *r.ID, Error: &rpcError{-32601, "method " + r.Method + " is not known here"}})
		}
	}
	return lines.Err()
}

func (s *server) begin(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cancelled) >= maxAtOnce {
		s.out.Encode(reply{JSONRPC: "2.0", ID: id, Error: &rpcError{-32000, "too many contexts at once"}})
		return false
	}
	s.cancelled[id] = false
	return true
}

func (s *server) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, running := s.cancelled[id]; running {
		s.cancelled[id] = true
	}
}

func (s *server) deliver(id uint64, raw json.RawMessage) {
	c, err := aci.ParseAgentContext(raw)
	if err != nil {
		s.finish(reply{JSONRPC: "2.0", ID: id, Error: &rpcError{-32602, err.Error()}})
		return
	}
	perform(c, s.work, func(items []aci.ItemState, note string) { s.tell(progress{id, items, note}) })
	s.finish(reply{JSONRPC: "2.0", ID: id, Result: c})
}

func (s *server) tell(p progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cancelled[p.ID] {
		s.out.Encode(map[string]any{"jsonrpc": "2.0", "method": "aci/progress", "params": p})
	}
}

// finish answers, unless the delivery was cancelled meanwhile.
func (s *server) finish(r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cancelled[r.ID] {
		s.out.Encode(r)
	}
	delete(s.cancelled, r.ID)
}

func (s *server) send(r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Encode(r)
}
