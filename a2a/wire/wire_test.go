package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"agentgw/internal/frame"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write testdata/vectors.txt from the messages of this test")

const (
	initiator = "1.2.156.3088.0001.00001.3F7K2M.EXAMPLEA.1.0A7X"
	target    = "1.2.156.3088.0002.00001.9QX4TD.EXAMPLEB.1.1C3Z"
	capID     = "acps://" + target + "/medicine.sell"
)

func seq(from byte) (id ID) {
	for i := range id {
		id[i] = from + byte(i)
	}
	return id
}

type vector struct {
	name string
	msg  Message
}

// vectors are the examples of a2a/PROTOCOL.md, one a message; the body of CTX_HDR is the two bytes `{}`.
func vectors() []vector {
	params := Params{IdleMS: 300000, MaxContext: MaxContext, Kinds: []Kind{KindAgentContext, KindResult}, Modes: []Mode{ModeSync, ModeAsync}}
	narrowed := Params{IdleMS: 60000, MaxContext: 65536, Kinds: []Kind{KindAgentContext, KindResult}, Modes: []Mode{ModeSync}}
	sum, _ := hex.DecodeString("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a") // SHA-256 of {}
	return []vector{
		{"SESSION_INIT", &SessionInit{Version: 1, Sid: seq(0x10), Initiator: initiator, Target: target, Cap: capID, SAT: []byte("(a SAT)"), Params: params}},
		{"SESSION_ACCEPT", &SessionAccept{Sid: seq(0x10), Params: params, SessExp: 1790000000}},
		{"SESSION_REJECT", &SessionReject{Sid: seq(0x10), Code: frame.RateLimited, RetryAfterMS: 200}},
		{"SESSION_TERMINATE", &SessionTerminate{Sid: seq(0x10), Code: frame.SessionLimit}},
		{"A2A_KEEPALIVE", NewKeepalive(1790000000123, 1789999980456)},
		{"CTX_HDR", &CtxHdr{Sid: seq(0x10), MsgID: seq(0x20), Kind: KindAgentContext, Media: MediaJSON, Len: 2, SHA256: Hash(sum), Mode: ModeAsync, DeadlineMS: 30000, Cap: Cap8Of(capID)}},
		{"CTX_HDR result", &CtxHdr{Sid: seq(0x10), MsgID: seq(0x30), Kind: KindResult, Media: MediaJSON, Len: 2, SHA256: Hash(sum), ReplyTo: seq(0x20), Cap: Cap8Of(capID)}},
		{"CTX_PROGRESS", &CtxProgress{MsgID: seq(0x20), Items: []ItemState{{ItemID: "t1", State: 1}, {ItemID: "t2"}}, Note: "one done"}},
		{"CTX_ERR", &CtxErr{Code: frame.Deadline, Msg: "deadline of 30 s passed"}},
		{"SESSION_INIT resume", &SessionInit{Version: 1, Sid: seq(0x10), Initiator: initiator, Target: target, Cap: capID, Params: params, Resume: &Resume{Ctr: 1790000000123}}},
		{"SESSION_INIT resume under a new key", &SessionInit{Version: 1, Sid: seq(0x10), Initiator: initiator, Target: target, Cap: capID, SAT: []byte("(a SAT)"), Params: params, Resume: &Resume{Ctr: 1790000000123}}},
		{"SESSION_ACCEPT resumed", &SessionAccept{Sid: seq(0x10), Params: params, SessExp: 1790000000, Resumed: true}},
		{"SESSION_UPDATE narrowed", &SessionUpdate{Sid: seq(0x10), Seq: 1, Params: &narrowed, Scope: []string{"acps.skill.invoke:medicine.sell"}, SessExp: 1790000000}},
		{"SESSION_UPDATE with a SAT", &SessionUpdate{Sid: seq(0x10), Seq: 2, SAT: []byte("(a SAT)")}},
		{"UPDATE_ACK", &UpdateAck{Sid: seq(0x10), Seq: 1}},
		{"UPDATE_ACK refused", &UpdateAck{Sid: seq(0x10), Seq: 2, Code: frame.UpdateRejected}},
	}
}

func parseFrame(b []byte) (Message, error) {
	r := frame.NewReader(bytes.NewReader(b))
	t, payload, err := r.Next()
	if err != nil {
		return nil, err
	}
	if rest, _ := io.ReadAll(r.Rest()); len(rest) > 0 {
		return nil, errors.New("bytes behind the frame")
	}
	return Parse(t, payload)
}

func TestVectors(t *testing.T) {
	var text strings.Builder
	for _, v := range vectors() {
		b, err := Append(nil, v.msg)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		fmt.Fprintf(&text, "%s: %x\n", v.name, b)
		got, err := parseFrame(b)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if d := cmp.Diff(v.msg, got); d != "" {
			t.Errorf("%s: %s", v.name, d)
		}
	}
	const file = "testdata/vectors.txt"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), text.String()); d != "" {
		t.Errorf("bytes changed (-want +got):\n%s", d)
	}
}

func TestEveryTruncationFails(t *testing.T) {
	for _, v := range vectors() {
		b, _ := Append(nil, v.msg)
		for n := range b {
			if m, err := parseFrame(b[:n]); err == nil {
				t.Fatalf("%s cut to %d of %d bytes parses as %v", v.name, n, len(b), m)
			}
		}
		_, n, _ := frame.ParseVarint(b)
		_, l, _ := frame.ParseVarint(b[n:])
		for cut := n + l; cut < len(b); cut++ {
			if _, err := Parse(v.msg.FrameType(), b[n+l:cut]); frame.CodeOf(err) != frame.Malformed {
				t.Fatalf("%s payload cut to %d: %v", v.name, cut, err)
			}
		}
	}
}

func TestKeepaliveIsLongEnough(t *testing.T) {
	b, err := Append(nil, NewKeepalive(0, 0))
	if err != nil || len(b) < 48 {
		t.Errorf("%d bytes, %v; 48 are due", len(b), err)
	}
}

func TestValuesRefused(t *testing.T) {
	change := func(i int, f func(Message)) Message {
		m := vectors()[i].msg
		f(m)
		return m
	}
	tests := []struct {
		name string
		msg  Message
		want frame.Code
	}{
		{"other version", change(0, func(m Message) { m.(*SessionInit).Version = 2 }), frame.Version},
		{"no sid", change(0, func(m Message) { m.(*SessionInit).Sid = ID{} }), frame.Malformed},
		{"lower-case initiator", change(0, func(m Message) { m.(*SessionInit).Initiator = "1.2.a" }), frame.Malformed},
		{"no target", change(0, func(m Message) { m.(*SessionInit).Target = "" }), frame.Malformed},
		{"cap of another scheme", change(0, func(m Message) { m.(*SessionInit).Cap = "https://x" }), frame.Malformed},
		{"SAT too long", change(0, func(m Message) { m.(*SessionInit).SAT = make([]byte, MaxSAT+1) }), frame.Malformed},
		{"no kinds", change(0, func(m Message) { m.(*SessionInit).Params.Kinds = nil }), frame.Malformed},
		{"max_ctx above the bound", change(0, func(m Message) { m.(*SessionInit).Params.MaxContext = MaxContext + 1 }), frame.Malformed},
		{"accept without expiry", change(1, func(m Message) { m.(*SessionAccept).SessExp = 0 }), frame.Malformed},
		{"reject with code OK", change(2, func(m Message) { m.(*SessionReject).Code = 0 }), frame.Malformed},
		{"terminate without sid", change(3, func(m Message) { m.(*SessionTerminate).Sid = ID{} }), frame.Malformed},
		{"keepalive pad", change(4, func(m Message) { m.(*Keepalive).Pad = make([]byte, MaxPad+1) }), frame.Malformed},
		{"TaskContext on the wire", change(5, func(m Message) { m.(*CtxHdr).Kind = 1 }), frame.Malformed},
		{"context with reply_to", change(5, func(m Message) { m.(*CtxHdr).ReplyTo = seq(1) }), frame.Malformed},
		{"result without reply_to", change(6, func(m Message) { m.(*CtxHdr).ReplyTo = ID{} }), frame.Malformed},
		{"context over 1 MiB", change(5, func(m Message) { m.(*CtxHdr).Len = MaxContext + 1 }), frame.LimitExceeded},
		{"empty body", change(5, func(m Message) { m.(*CtxHdr).Len = 0 }), frame.LimitExceeded},
		{"unknown mode", change(5, func(m Message) { m.(*CtxHdr).Mode = 2 }), frame.Malformed},
		{"item state 2", change(7, func(m Message) { m.(*CtxProgress).Items[0].State = 2 }), frame.Malformed},
		{"long note", change(7, func(m Message) { m.(*CtxProgress).Note = strings.Repeat("x", MaxText+1) }), frame.Malformed},
		{"resume without ctr", change(9, func(m Message) { m.(*SessionInit).Resume.Ctr = 0 }), frame.Malformed},
		{"neither SAT nor resume", change(9, func(m Message) { m.(*SessionInit).Resume = nil }), frame.Malformed},
		{"update without sid", change(12, func(m Message) { m.(*SessionUpdate).Sid = ID{} }), frame.Malformed},
		{"update without upd_seq", change(12, func(m Message) { m.(*SessionUpdate).Seq = 0 }), frame.Malformed},
		{"update of nothing", change(13, func(m Message) { m.(*SessionUpdate).SAT = nil }), frame.Malformed},
		{"update with a SAT too long", change(13, func(m Message) { m.(*SessionUpdate).SAT = make([]byte, MaxSAT+1) }), frame.Malformed},
		{"update with impossible params", change(12, func(m Message) { m.(*SessionUpdate).Params.MaxContext = 0 }), frame.Malformed},
		{"update with an empty scope string", change(12, func(m Message) { m.(*SessionUpdate).Scope = []string{""} }), frame.Malformed},
		{"update with an endless scope string", change(12, func(m Message) { m.(*SessionUpdate).Scope = []string{strings.Repeat("x", MaxScopeText+1)} }), frame.Malformed},
		{"update with too many scope strings", change(12, func(m Message) { m.(*SessionUpdate).Scope = slices.Repeat([]string{"x"}, MaxScope+1) }), frame.Malformed},
		{"ack without upd_seq", change(14, func(m Message) { m.(*UpdateAck).Seq = 0 }), frame.Malformed},
		{"error with code OK", change(8, func(m Message) { m.(*CtxErr).Code = 0 }), frame.Malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Append(nil, tt.msg); frame.CodeOf(err) != tt.want {
				t.Errorf("Append: %v, want %v", err, tt.want)
			}
			b, err := frame.Marshal(tt.msg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(tt.msg.FrameType(), b); frame.CodeOf(err) != tt.want {
				t.Errorf("Parse: %v, want %v", err, tt.want)
			}
		})
	}
}

func TestWrongLengthOfID(t *testing.T) {
	for _, n := range []int{0, 15, 17} {
		b, err := frame.Marshal(map[int]any{1: make([]byte, n), 2: 0})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(frame.SessionTerminate, b); frame.CodeOf(err) != frame.Malformed {
			t.Errorf("sid of %d bytes: %v", n, err)
		}
	}
}

func TestUnknownKeys(t *testing.T) {
	id := seq(1)
	b, _ := frame.Marshal(map[int]any{1: id[:], 2: 0, 99: "later"})
	if _, err := Parse(frame.SessionTerminate, b); err != nil {
		t.Errorf("an unknown key below 128 is ignored: %v", err)
	}
	b, _ = frame.Marshal(map[int]any{1: id[:], 2: 0, 128: "must be understood"})
	if _, err := Parse(frame.SessionTerminate, b); frame.CodeOf(err) != frame.CriticalUnknown {
		t.Errorf("an unknown critical key: %v", err)
	}
}

// An INIT is refused by its length alone (a2a/PROTOCOL.md, "SESSION_INIT": 4 KiB).
func TestInitOver4KiB(t *testing.T) {
	b := frame.AppendVarint(nil, uint64(frame.SessionInit))
	b = frame.AppendVarint(b, frame.MaxSessionInit+1)
	if _, err := ReadControl(frame.NewReader(bytes.NewReader(b))); frame.CodeOf(err) != frame.FrameTooLarge {
		t.Error(err)
	}
}

func TestFramesOfOtherStreams(t *testing.T) {
	for _, v := range vectors() {
		b, _ := Append(nil, v.msg)
		_, control := ReadControl(frame.NewReader(bytes.NewReader(b)))
		_, data := ReadData(frame.NewReader(bytes.NewReader(b)))
		if onData := v.msg.FrameType() >= frame.CtxHdr; onData == (data != nil) || onData == (control == nil) {
			t.Errorf("%s: control says %v, data says %v", v.name, control, data)
		}
	}
	unknown := frame.Append(nil, 0x7001, []byte("skipped"))
	end, _ := Append(nil, &SessionTerminate{Sid: seq(1)})
	if _, err := ReadControl(frame.NewReader(bytes.NewReader(append(unknown, end...)))); err != nil {
		t.Errorf("an unknown odd frame is skipped: %v", err)
	}
	if _, err := ReadControl(frame.NewReader(bytes.NewReader(bytes.Repeat(unknown, maxSkipped)))); frame.CodeOf(err) != frame.UnexpectedFrame {
		t.Errorf("endless unknown frames: %v", err)
	}
}

func TestCut(t *testing.T) {
	if got := Cut(strings.Repeat("é", 200)); len(got) != MaxText || !strings.HasPrefix(strings.Repeat("é", 200), got) {
		t.Errorf("%d bytes", len(got))
	}
	if got := Cut("x" + strings.Repeat("é", 200)); len(got) != MaxText-1 {
		t.Errorf("%d bytes: a rune is never split", len(got))
	}
}

func FuzzA2AWire(f *testing.F) {
	for _, v := range vectors() {
		b, err := frame.Marshal(v.msg)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint64(v.msg.FrameType()), b)
	}
	f.Fuzz(func(t *testing.T, typ uint64, payload []byte) {
		m, err := Parse(frame.Type(typ), payload)
		if err != nil {
			return
		}
		again, err := frame.Marshal(m)
		if err != nil {
			t.Fatalf("parses but does not encode: %v", err)
		}
		second, err := Parse(frame.Type(typ), again)
		if err != nil {
			t.Fatalf("own encoding is refused: %v", err)
		}
		if d := cmp.Diff(m, second, cmpopts.EquateEmpty()); d != "" { // an empty list may be left out
			t.Fatal(d)
		}
		if sameKeys(again, payload) && !bytes.Equal(again, payload) {
			t.Fatalf("two encodings of one message:\n%x\n%x", payload, again)
		}
	})
}

// sameKeys says whether two payloads have the same keys: keys of a later version are ignored, and gone when it is encoded again.
func sameKeys(a, b []byte) bool {
	var ka, kb map[int64]frame.Raw
	if frame.Unmarshal(a, &ka) != nil || frame.Unmarshal(b, &kb) != nil || len(ka) != len(kb) {
		return false
	}
	for k := range ka {
		if _, ok := kb[k]; !ok {
			return false
		}
	}
	return true
}
