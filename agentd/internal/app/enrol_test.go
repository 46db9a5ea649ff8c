package app

import (
	"context"
	"crypto/tls"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory/acs"
	"agentgw/directory/arp"
	"agentgw/internal/daemon"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
	"agentgw/internal/pki"
)

const draft = `{"protocolVersion":"02.02","name":"Corner pharmacy","description":"Sells medicine.","version":"1.0.0",
"provider":{"organization":"Pharmacy"},"securitySchemes":{"mtls":{"type":"mutualTLS"}},"endPoints":[],
"capabilities":{"streaming":false,"notification":false,"messageQueue":[]},"defaultInputModes":["application/json"],
"defaultOutputModes":["application/json"],"skills":[{"id":"medicine.sell","name":"Sell","description":"Sells.","version":"1.0.0","tags":["medicine"]}]}`

// counter is a gateway's counter for enrolments: it lets each wait once, then admits it.
type counter struct {
	t      *testing.T
	domain *identitytest.Domain
	ep     *endpoint.Endpoint
	pin    [32]byte
	asked  atomic.Int32

	retryMS atomic.Uint64 // after which it wants to be asked again
	refuse  atomic.Int32  // the code that it refuses with, 0 for none
	silent  atomic.Bool   // it does not answer

	put atomic.Pointer[arp.ACSPut] // the last update
}

func newCounter(t *testing.T) *counter {
	t.Helper()
	c := &counter{t: t, domain: identitytest.New(t, "home.example", "A")}
	cert := c.domain.Certificate(t, c.domain.Gateway)
	var err error
	if c.pin, err = identity.SPKIHash(cert.Leaf.PublicKey); err != nil {
		t.Fatal(err)
	}
	c.ep, err = endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", HandshakeRate: 1000, HandshakeBurst: 1000, Faces: []endpoint.Face{{
		ALPN: frame.ALPNControl,
		Credentials: func(string) (endpoint.Credentials, error) {
			return endpoint.Credentials{Certificate: cert, Verify: func(tls.ConnectionState) error { return nil }}, nil
		},
		Serve: func(ctx context.Context, conn *endpoint.Conn) {
			conn.Serve(ctx, endpoint.Handlers{
				frame.StreamRegistration: func(_ context.Context, s *endpoint.Stream) { c.serve(s) },
				frame.StreamControl: func(_ context.Context, s *endpoint.Stream) {
					var m arp.Attach
					if s.ReadMessage(5*time.Second, &m) == nil {
						s.WriteMessage(5*time.Second, &arp.Attached{KeepaliveMS: 20_000, OfflineMS: 45_000})
						<-s.Context().Done()
					}
				},
			})
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.ep.Close(ctx)
	})
	return c
}

func (c *counter) serve(s *endpoint.Stream) {
	defer s.CloseWrite()
	var m arp.Enrol
	switch kind, payload, err := s.ReadFrame(5 * time.Second); {
	case err == nil && kind == frame.ACSPut:
		put := new(arp.ACSPut)
		if frame.Unmarshal(payload, put) == nil {
			c.put.Store(put)
			s.WriteMessage(5*time.Second, &arp.ACSState{EntryVersion: put.Expected + 1, ACS: put.ACS})
		}
		return
	case err == nil && kind == frame.Deregister:
		s.WriteMessage(5*time.Second, &arp.Answer{})
		return
	case err != nil || frame.Unmarshal(payload, &m) != nil:
		return
	}
	if c.silent.Load() {
		s.Reset(frame.Internal)
		return
	}
	if code := frame.Code(c.refuse.Load()); code != 0 {
		s.WriteMessage(5*time.Second, arp.Refusal(frame.Errorf(code, "not here")))
		return
	}
	c.asked.Add(1)
	if len(m.PendingID) == 0 {
		s.WriteMessage(5*time.Second, &arp.Enrolled{Code: frame.Pending, PendingID: make([]byte, 16), RetryAfterMS: max(c.retryMS.Load(), 1)})
		return
	}
	if len(m.PendingID) != 16 || len(m.Secret) != 0 {
		s.WriteMessage(5*time.Second, arp.Refusal(frame.Errorf(frame.ReqInvalid, "it does not say which request it asks about")))
		return
	}
	csr, err := identity.ParseCSR(m.CSR)
	if err != nil {
		s.WriteMessage(5*time.Second, arp.Refusal(err))
		return
	}
	id := c.domain.AIC(c.t)
	chain, err := c.domain.Authority.Issue(pki.Profile{Kind: pki.Agent, AIC: id}, csr.PublicKey, time.Now())
	if err != nil {
		s.WriteMessage(5*time.Second, arp.Refusal(err))
		return
	}
	parsed, err := acs.Parse(m.Draft)
	if err != nil {
		s.WriteMessage(5*time.Second, arp.Refusal(err))
		return
	}
	doc, _, err := acs.Authoritative(parsed, id, []string{"medicine.sell"}, time.Now())
	if err != nil {
		s.WriteMessage(5*time.Second, arp.Refusal(err))
		return
	}
	text, err := doc.Encode()
	if err != nil {
		s.WriteMessage(5*time.Second, arp.Refusal(err))
		return
	}
	s.WriteMessage(5*time.Second, &arp.Enrolled{AIC: string(id), Chain: chain, Bundle: c.domain.Raw, ACS: text, EntryVersion: 1, Grant: []byte{1}})
}

func (c *counter) options(dir string) EnrolOptions {
	c.t.Helper()
	file := filepath.Join(dir, "acs.json")
	if err := os.WriteFile(file, []byte(draft), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return EnrolOptions{
		Dir: dir, Name: "pharmacy", ACS: file, Visibility: "public", Listen: "127.0.0.1:0", Gateway: c.ep.Addr().String(),
		GatewayPin: identity.FingerprintText(c.pin), Wait: 10 * time.Second,
	}
}

// Without a token the user names the gateway's key, and the agent waits until somebody has decided.
func TestEnrolWithoutToken(t *testing.T) {
	c := newCounter(t)
	o := c.options(t.TempDir())
	waited := 0
	o.Waiting = func(string, time.Duration) { waited++ }
	done, err := Enrol(t.Context(), o)
	if err != nil || waited != 1 || done.Domain != "home.example" {
		t.Fatalf("%+v after %d waits, %v", done, waited, err)
	}
	if _, err := load(filepath.Join(o.Dir, "state"), "pharmacy"); err != nil {
		t.Errorf("what was kept does not load: %v", err)
	}
	if _, err := Enrol(t.Context(), o); daemon.ExitCode(err) != daemon.ExitUsage || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("a second time: %v", err)
	}
	o.Replace = true
	again, err := Enrol(t.Context(), o)
	if err != nil || again.AIC == done.AIC {
		t.Errorf("replaced: %+v, %v", again, err)
	}
	if kept, err := filepath.Glob(filepath.Join(o.Dir, "state", "agents", "pharmacy.before-*", fileKey)); err != nil || len(kept) != 1 {
		t.Errorf("the old credential is not kept beside: %v, %v", kept, err)
	}
	o = c.options(t.TempDir())
	o.Wait = 0
	if _, err := Enrol(t.Context(), o); frame.CodeOf(err) != frame.Pending || !strings.Contains(err.Error(), "same command") {
		t.Errorf("without waiting: %v", err)
	}
}

func TestEnrolWithoutTokenNeedsThePin(t *testing.T) {
	c := newCounter(t)
	for name, change := range map[string]func(*EnrolOptions){
		"no pin":            func(o *EnrolOptions) { o.GatewayPin = "" },
		"no gateway":        func(o *EnrolOptions) { o.Gateway = "" },
		"another key":       func(o *EnrolOptions) { o.GatewayPin = identity.FingerprintText([32]byte{1}) },
		"no pin at all":     func(o *EnrolOptions) { o.GatewayPin = "sha256:zz" },
		"a token beside it": func(o *EnrolOptions) { o.Token = "agwt1.x" },
	} {
		o := c.options(t.TempDir())
		change(&o)
		if _, err := Enrol(t.Context(), o); err == nil || name == "another key" && !strings.Contains(err.Error(), "is not the --gateway-pin") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := c.asked.Load(); n != 0 {
		t.Errorf("%d requests reached a gateway that was not the one that was named", n)
	}
}

// A new identity under an old name: the agent's file stays as its user has written it, and the old identity, which nobody has ended,
// is named.
func TestReplaceKeepsTheFile(t *testing.T) {
	c := newCounter(t)
	o := c.options(t.TempDir())
	bin := filepath.Join(o.Dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "agent"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(bin)
	o.Program, o.Args = "./agent", []string{"--fast"}
	first, err := Enrol(t.Context(), o)
	if err != nil || first.Before != "" {
		t.Fatalf("%+v, %v", first, err)
	}
	file := filepath.Join(o.Dir, "agents.d", "pharmacy.yaml")
	raw, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(raw), filepath.Join(bin, "agent")) {
		t.Fatalf("the program is not written as one that can be started from anywhere: %s, %v", raw, err)
	}
	mine := string(raw) + "  env: {KEY: value}\nmax_in_run: 3  # no more\n"
	if err := os.WriteFile(file, []byte(mine), 0o644); err != nil {
		t.Fatal(err)
	}
	o.Program, o.Args, o.Replace = "", nil, true
	again, err := Enrol(t.Context(), o)
	if err != nil || again.Before != first.AIC {
		t.Errorf("replaced %s: %+v, %v", first.AIC, again, err)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != mine {
		t.Errorf("the file was\n%s\nand is\n%s (%v)", mine, raw, err)
	}
	asked := c.asked.Load()
	if err := os.WriteFile(file, []byte(mine+"no_such_key: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Enrol(t.Context(), o); daemon.ExitCode(err) != daemon.ExitUsage || c.asked.Load() != asked {
		t.Errorf("a file that does not load: %v after %d requests", err, c.asked.Load()-asked)
	}
}

// Whoever waits for less than the gateway's interval waits that long, and asks once more.
func TestShortWaitAsksOnceMore(t *testing.T) {
	c := newCounter(t)
	c.retryMS.Store(10_000)
	o := c.options(t.TempDir())
	o.Wait = time.Second
	began := time.Now()
	done, err := Enrol(t.Context(), o)
	if took := time.Since(began); err != nil || done.AIC == "" || took < time.Second || took > 9*time.Second {
		t.Errorf("%+v after %v, %v", done, took, err)
	}
}

// tree is what lies under a folder, files with their contents.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var raw []byte
		if d.Type().IsRegular() {
			raw, err = os.ReadFile(path)
		}
		out = append(out, path+" "+string(raw))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// An enrolment that is refused leaves everything as it was, whether or not there was an agent of the name.
func TestRefusedEnrolmentLeavesNothing(t *testing.T) {
	c := newCounter(t)
	o := c.options(t.TempDir())
	fresh := o
	fresh.Dir = filepath.Join(o.Dir, "its", "own")
	if _, err := Enrol(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Replace = true
	before := tree(t, o.Dir)
	for name, fails := range map[string]func(*EnrolOptions){
		"refused":          func(*EnrolOptions) { c.refuse.Store(int32(frame.PolicyDenied)) },
		"another key":      func(o *EnrolOptions) { o.GatewayPin = identity.FingerprintText([32]byte{1}) },
		"nobody there":     func(o *EnrolOptions) { o.Gateway = "127.0.0.1:1" },
		"a token too late": func(o *EnrolOptions) { o.Gateway, o.GatewayPin, o.Token = "", "", expiredToken(t, c) },
	} {
		for _, o := range []EnrolOptions{o, fresh} {
			c.refuse.Store(0)
			fails(&o)
			ctx, cancel := context.WithCancel(t.Context())
			if o.Gateway == "127.0.0.1:1" {
				time.AfterFunc(100*time.Millisecond, cancel)
			}
			if _, err := Enrol(ctx, o); err == nil {
				t.Errorf("%s: it was enrolled", name)
			}
			cancel()
		}
		if after := tree(t, o.Dir); !slices.Equal(before, after) {
			t.Errorf("%s: it was\n%q\nand is\n%q", name, before, after)
		}
	}
}

func expiredToken(t *testing.T, c *counter) string {
	t.Helper()
	return arp.Token{Secret: make([]byte, 32), GatewayPK: c.pin[:], Addresses: []arp.HostPort{{Host: "127.0.0.1", Port: 1}}, Domain: "home.example", Exp: 1}.String()
}

// Where the gateway may have registered the agent, or may do so later, its key stays, and the agent that the name has already stays in
// its place.
func TestUnansweredEnrolmentKeepsItsKey(t *testing.T) {
	c := newCounter(t)
	o := c.options(t.TempDir())
	if _, err := Enrol(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	dir := agentDir(filepath.Join(o.Dir, "state"), o.Name)
	before := tree(t, dir)
	o.Replace = true
	var first string
	for name, fails := range map[string]func(){
		"no answer":   func() { c.silent.Store(true) },
		"not for now": func() { c.refuse.Store(int32(frame.Overloaded)) },
		"it waits":    func() { o.Wait = 0 },
	} {
		c.silent.Store(false)
		c.refuse.Store(0)
		fails()
		if _, err := Enrol(t.Context(), o); err == nil {
			t.Errorf("%s: it was enrolled", name)
		}
		key, err := os.ReadFile(filepath.Join(dir+stagingEnding, fileKey))
		if first = or(first, string(key)); err != nil || string(key) != first {
			t.Errorf("%s: the key is another one, %v", name, err)
		}
		if after := tree(t, dir); !slices.Equal(before, after) {
			t.Errorf("%s: the agent of before was changed", name)
		}
	}
	c.silent.Store(false)
	c.refuse.Store(0)
	o.Wait = 10 * time.Second
	if _, err := Enrol(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if key, err := os.ReadFile(filepath.Join(dir, fileKey)); err != nil || string(key) != first {
		t.Errorf("it was completed with another key, %v", err)
	}
	if _, err := os.Stat(dir + stagingEnding); err == nil {
		t.Error("the folder of the enrolment is still there")
	}
}

// Killed between its last two steps, an enrolment is put in its place by the next start, and by the next enrolment.
func TestEnrolmentCutShortIsFinished(t *testing.T) {
	for _, next := range []string{"start", "enrol"} {
		c := newCounter(t)
		o := c.options(t.TempDir())
		o.Wait = 10 * time.Second
		done, err := Enrol(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		dir := agentDir(filepath.Join(o.Dir, "state"), o.Name)
		if err := os.Rename(dir, dir+stagingEnding); err != nil {
			t.Fatal(err)
		}
		if next == "enrol" {
			if _, err := Enrol(t.Context(), o); err == nil || !strings.Contains(err.Error(), "enrolled already") {
				t.Errorf("enrolled again: %v", err)
			}
		} else {
			cfg, err := config.LoadAgent(filepath.Join(o.Dir, "agentd.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if done, err := finish(cfg, o.Name); !done || err != nil {
				t.Errorf("%v, %v", done, err)
			}
		}
		if e, err := readEnrolment(dir); err != nil || e.AIC != done.AIC {
			t.Errorf("%s: %+v, %v", next, e, err)
		}
	}
}

// What names a file from where the verb is called names it from the program's folder too.
func TestRelativeArguments(t *testing.T) {
	c := newCounter(t)
	o := c.options(t.TempDir())
	src := filepath.Join(o.Dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "agent.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(src)
	o.Program, o.Args = "sh", []string{"./missing.py"}
	if _, err := Enrol(t.Context(), o); daemon.ExitCode(err) != daemon.ExitUsage || !strings.Contains(err.Error(), "absolute path") || c.asked.Load() != 0 {
		t.Errorf("a file that is not there: %v", err)
	}
	o.Args = []string{"agent.py", "../src/agent.py", "medicine", "--fast", "/x/y", "text/plain"}
	done, err := Enrol(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(src, "agent.py")
	rows, err := config.LoadLocalAgents(filepath.Join(o.Dir, "agents.d"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{script, script, "medicine", "--fast", "/x/y", "text/plain"}; !slices.Equal(rows[0].Stdio.Command[1:], want) || !slices.Equal(done.Command[1:], want) {
		t.Errorf("written %q, told %q", rows[0].Stdio.Command, done.Command)
	}
}

// What an operator has denied is told, and is asked anew by the next enrolment: as another request, with another key.
func TestDeniedRequestIsAskedAnew(t *testing.T) {
	c := newCounter(t)
	o := c.options(t.TempDir())
	o.Wait = 0
	file := filepath.Join(agentDir(filepath.Join(o.Dir, "state"), o.Name)+stagingEnding, fileKey)
	waits := func() string {
		t.Helper()
		if _, err := Enrol(t.Context(), o); frame.CodeOf(err) != frame.Pending {
			t.Fatal(err)
		}
		key, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(key)
	}
	first := waits()
	if again := waits(); again != first {
		t.Error("asking again about it is another request")
	}
	c.refuse.Store(int32(frame.PolicyDenied))
	if _, err := Enrol(t.Context(), o); frame.CodeOf(err) != frame.PolicyDenied {
		t.Fatal(err)
	}
	c.refuse.Store(0)
	if anew := waits(); anew == first {
		t.Error("it asks about what was denied")
	}
}
