// Package backend is the local agent behind agentd: it gets AgentContexts delivered and returns them.
//
// [Stdio] runs the agent as a child process that speaks newline-delimited JSON-RPC 2.0 on its standard input and output:
//
//	agentd → agent  {"jsonrpc":"2.0","id":7,"method":"aci/deliver","params":{"sid":"…","msgId":"…","deadlineMs":30000,"context":{…}}}
//	agent → agentd  {"jsonrpc":"2.0","method":"aci/progress","params":{"id":7,"ItemStateUpdates":[{"itemID":"a","state":1}],"note":"…"}}
//	agent → agentd  {"jsonrpc":"2.0","id":7,"result":{…the AgentContext…}}      or "error":{"code":…,"message":"…"}
//	agentd → agent  {"jsonrpc":"2.0","method":"aci/cancel","params":{"id":7}}
//
// Several deliveries run at once, up to a limit; what is over it is refused (47), nothing queues. A line may have 2 MiB. What
// the agent writes to stderr goes to the log. A process that ends, or closes its input or output, is started again with back-off;
// deliveries that it had fail with 48. What it has started ends with it, unless it has left the process group. Safe for concurrent use. Source: seed 000, section 4.1 (transport layer, STDIO) and 5.3.
package backend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"agentgw/internal/frame"
)

const (
	maxLine    = 2 << 20
	maxLog     = 1 << 10 // bytes of one stderr line that are kept
	restartMin = 200 * time.Millisecond
	restartMax = 10 * time.Second
	steady     = 30 * time.Second // a process that ran so long is started again without delay
)

// Config of a stdio agent.
type Config struct {
	Command []string
	Dir     string
	Env     map[string]string // added to PATH, HOME, LANG and TMPDIR of the daemon
	MaxRun  int               // deliveries at once
	Log     *slog.Logger
}

// Delivery is one AgentContext for the agent.
type Delivery struct {
	SID      string          `json:"sid"`
	MsgID    string          `json:"msgId"`
	Deadline time.Duration   `json:"-"`
	Context  json.RawMessage `json:"context"`
}

// Progress is what the agent says on the way.
type Progress struct {
	ItemStateUpdates []ItemState `json:"ItemStateUpdates"`
	Note             string      `json:"note"`
}

// ItemState is the completion of one todo item.
type ItemState struct {
	ItemID string `json:"itemID"`
	State  int    `json:"state"`
}

// Stdio is an agent as a child process. Create it with [New], run it with Run.
type Stdio struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex // guards the rest
	proc    *process   // nil while none runs
	nextID  uint64
	running map[uint64]*call
	lastErr error
}

// call is one delivery on its way.
type call struct {
	progress func(Progress)
	done     chan callResult // one value
}

type callResult struct {
	context json.RawMessage
	err     error
}

// New makes a stdio agent; it does nothing before Run.
func New(cfg Config) *Stdio {
	return &Stdio{cfg: cfg, log: cfg.Log, running: map[uint64]*call{}}
}

// Run keeps the process running until ctx ends, then stops it: its input is closed and it is terminated; after 3 s it is killed,
// with what it has started and left in its process group. Run returns within 4 s, whatever the process does.
func (b *Stdio) Run(ctx context.Context) {
	wait := restartMin
	for {
		began := time.Now()
		err := b.once(ctx)
		if ctx.Err() != nil {
			b.log.Info("local agent stopped", "err", err)
			return
		}
		if time.Since(began) > steady {
			wait = restartMin
		}
		b.setProc(nil, err)
		b.log.Warn("local agent ended, starting it again", "err", err, "wait", wait.String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, restartMax)
	}
}

// once is one life of the process, from its start until nothing of it is read any more.
func (b *Stdio) once(ctx context.Context) error {
	p, err := launch(b.cfg)
	b.setProc(p, err)
	if err != nil {
		return err
	}
	broken := make(chan error, 2) // both may fail
	var pumps sync.WaitGroup
	pumps.Go(func() { b.logLines(p.errs) })
	pumps.Go(func() { broken <- b.read(p.out) })
	pumps.Go(func() {
		if err := p.pump(); err != nil {
			broken <- err
		}
	})
	go p.await()
	readUntil, why := b.watch(ctx, p, broken)
	close(p.gone)
	p.in.Close()
	p.drain(readUntil)
	pumps.Wait()
	closeAll(p.out, p.errs)
	b.failAll(frame.Errorf(frame.UpstreamFailed, "the local agent ended while it worked"))
	select {
	case <-p.ended:
		return errors.Join(why, p.reap())
	default:
		go p.bury()
		return why
	}
}

// watch returns when the process has ended: by itself, because it broke the protocol, or with ctx. From its first moment on no
// delivery is taken any more. It says until when the process's output is worth reading.
func (b *Stdio) watch(ctx context.Context, p *process, broken <-chan error) (readUntil time.Time, why error) {
	select {
	case <-p.ended:
		b.setProc(nil, errEnded)
	case why = <-broken:
		b.setProc(nil, why)
		if !p.endsWithin(drainGrace) { // the end of its output may be its own end
			b.failAll(frame.Errorf(frame.UpstreamFailed, "the local agent broke its protocol and is ended"))
			why = errors.Join(why, p.stop(stopGrace))
		}
	case <-ctx.Done():
		b.setProc(nil, errStopping)
		readUntil = time.Now().Add(stopGrace) // what runs may end, in the process or in one that it has started
		why = p.stop(stopGrace)
	}
	if least := time.Now().Add(drainGrace); readUntil.Before(least) {
		readUntil = least
	}
	return readUntil, why
}

var (
	errEnded    = errors.New("it ended and is started again")
	errStopping = errors.New("agentd stops")
)

func (b *Stdio) setProc(p *process, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proc = p
	if err != nil {
		b.lastErr = err
	}
}

func (b *Stdio) failAll(err error) {
	b.mu.Lock()
	all := b.running
	b.running = map[uint64]*call{}
	b.mu.Unlock()
	for _, c := range all {
		c.done <- callResult{err: err}
	}
}

func (b *Stdio) logLines(r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLog)
	for {
		line, isPrefix, err := lines.ReadLine()
		if err != nil {
			return
		}
		b.log.Info("local agent says", "line", string(line))
		for isPrefix && err == nil {
			_, isPrefix, err = lines.ReadLine()
		}
	}
}

// message is any line from the agent.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      *uint64         `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *rpcError       `json:"error"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// read handles the agent's lines until its output ends or is no JSON-RPC; the error says which.
func (b *Stdio) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("its output is not JSON-RPC, one message a line: %w (write logs to stderr)", err)
		}
		b.handle(&m)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("it wrote a line of more than %d bytes", maxLine)
	case err != nil:
		return fmt.Errorf("read its output: %w", err)
	}
	return errors.New("it closed its output")
}

func (b *Stdio) handle(m *message) {
	if m.Method == "aci/progress" {
		var p struct {
			ID uint64 `json:"id"`
			Progress
		}
		if json.Unmarshal(m.Params, &p) == nil {
			if c := b.find(p.ID); c != nil && c.progress != nil {
				c.progress(p.Progress)
			}
		}
		return
	}
	if m.ID == nil || m.Method != "" {
		b.log.Warn("local agent sent something unknown, ignored", "method", m.Method)
		return
	}
	c := b.take(*m.ID)
	if c == nil {
		return // cancelled before
	}
	if m.Error != nil {
		c.done <- callResult{err: frame.Errorf(frame.Internal, "the local agent failed: %s", m.Error.Message)}
		return
	}
	c.done <- callResult{context: append(json.RawMessage(nil), m.Result...)}
}

func (b *Stdio) find(id uint64) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running[id]
}

func (b *Stdio) take(id uint64) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.running[id]
	delete(b.running, id)
	return c
}

// Deliver hands one context to the agent and waits for it to come back, as long as ctx allows. progress is called from the
// reading goroutine, in order, and must not block. Codes: 47 when it has as much as it may, 48 when it is not running, 44
// and 49 with ctx.
func (b *Stdio) Deliver(ctx context.Context, d Delivery, progress func(Progress)) (json.RawMessage, error) {
	id, c, p, err := b.begin(progress)
	if err != nil {
		return nil, err
	}
	params := struct {
		Delivery
		DeadlineMS int64 `json:"deadlineMs"`
	}{d, d.Deadline.Milliseconds()}
	if err := p.write(ctx, rpcLine(&id, "aci/deliver", params)); err != nil {
		b.take(id)
		return nil, err
	}
	select {
	case r := <-c.done:
		return r.context, r.err
	case <-ctx.Done():
	}
	if b.take(id) == nil { // it came back in this very moment
		r := <-c.done
		return r.context, r.err
	}
	cancelCtx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.write(cancelCtx, rpcLine(nil, "aci/cancel", map[string]uint64{"id": id}))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, frame.Errorf(frame.Deadline, "the local agent did not finish in time")
	}
	return nil, frame.Errorf(frame.Cancelled, "the delivery was cancelled")
}

func (b *Stdio) begin(progress func(Progress)) (uint64, *call, *process, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return 0, nil, nil, frame.Errorf(frame.UpstreamFailed, "the local agent is not running (%v)", b.lastErr)
	}
	if len(b.running) >= b.cfg.MaxRun {
		return 0, nil, nil, frame.Errorf(frame.Overloaded, "the local agent works on %d contexts, no more at once", len(b.running))
	}
	b.nextID++
	c := &call{progress: progress, done: make(chan callResult, 1)}
	b.running[b.nextID] = c
	return b.nextID, c, b.proc, nil
}

func (p *process) write(ctx context.Context, line []byte) error {
	select {
	case p.writes <- line:
		return nil
	case <-p.gone:
		return frame.Errorf(frame.UpstreamFailed, "the local agent has ended")
	case <-ctx.Done():
		return frame.Errorf(frame.Deadline, "the local agent does not read its input")
	}
}

func rpcLine(id *uint64, method string, params any) []byte {
	line, err := json.Marshal(struct {
		JSONRPC string  `json:"jsonrpc"`
		ID      *uint64 `json:"id,omitempty"`
		Method  string  `json:"method"`
		Params  any     `json:"params"`
	}{"2.0", id, method, params})
	if err != nil {
		panic(err) // contexts were checked to be JSON before they get here
	}
	return append(line, '\n')
}

// State says whether the process runs, for status.
func (b *Stdio) State() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil {
		return "running"
	}
	return "stopped"
}

// Why is the reason why the process does not run, nil while it does.
func (b *Stdio) Why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil {
		return nil
	}
	return b.lastErr
}
