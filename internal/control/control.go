// Package control is the local control socket of a daemon: JSON over HTTP on a Unix socket that only the daemon's own user
// may open. Both daemons serve one, and their verbs are its clients.
//
// A failed call answers `{"error":{"code":"48","name":"UPSTREAM_FAILED","message":"…"}}`; [Client.Call] turns it back into
// an error with the code, so that a verb exits with the right status. Bodies are bounded at 1 MiB.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"agentgw/internal/frame"
)

const maxBody = 1 << 20

// Server is a control socket that is open.
type Server struct {
	http *http.Server
	path string
	done chan struct{}
}

// Listen opens the socket at path with mode 0600, replacing one that a dead process left behind. A live daemon behind the
// path is an error.
func Listen(path string, handler http.Handler) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("control socket %s: another daemon answers there; stop it, or set `control:` to another path", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w (a socket's path may have at most 107 characters)", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &Server{
		path: path, done: make(chan struct{}),
		http: &http.Server{
			Handler: http.MaxBytesHandler(handler, maxBody), ReadHeaderTimeout: 5 * time.Second,
		},
	}
	go func() {
		defer close(s.done)
		s.http.Serve(l)
	}()
	return s, nil
}

// Close stops answering; running calls are given until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	<-s.done
	return err
}

// Handle adapts a call to HTTP: the body is decoded strictly into a new In (an empty body is the zero value), the result
// is encoded, an error answers with its code.
func Handle[In, Out any](call func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil && !errors.Is(err, io.EOF) {
			WriteError(w, frame.Errorf(frame.ReqInvalid, "request body: %w", err))
			return
		}
		out, err := call(r.Context(), in)
		if err != nil {
			WriteError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(out)
	}
}

type errorBody struct {
	Error struct {
		Code    string `json:"code"`
		Name    string `json:"name"`
		Message string `json:"message"`
	} `json:"error"`
}

// WriteError answers with an error's code and text.
func WriteError(w http.ResponseWriter, err error) {
	var body errorBody
	code := frame.CodeOf(err)
	body.Error.Code, body.Error.Name, body.Error.Message = code.Hex(), code.String(), frame.Text(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(httpStatus(code))
	json.NewEncoder(w).Encode(body)
}

func httpStatus(code frame.Code) int {
	switch code {
	case frame.ReqInvalid, frame.Malformed:
		return http.StatusBadRequest
	case frame.NotFound:
		return http.StatusNotFound
	case frame.Deadline:
		return http.StatusGatewayTimeout
	case frame.Internal:
		return http.StatusInternalServerError
	case frame.PolicyDenied, frame.ScopeDenied, frame.TrustDenied:
		return http.StatusForbidden
	}
	return http.StatusBadGateway
}

// Client calls a daemon's control socket.
type Client struct {
	path string
	http http.Client
}

// NewClient makes a client of the socket at path.
func NewClient(path string) *Client {
	var d net.Dialer
	return &Client{path: path, http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) },
	}}}
}

// Call posts in as JSON and decodes the answer into out. A socket that nobody answers is [frame.UpstreamFailed].
func (c *Client) Call(ctx context.Context, endpoint string, in, out any) error {
	resp, err := c.open(ctx, endpoint, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("answer of the daemon: %w", err)
	}
	return nil
}

// Stream posts in and calls each for every JSON value of the answer, until the stream ends.
func (c *Client) Stream(ctx context.Context, endpoint string, in any, each func(json.RawMessage) error) error {
	resp, err := c.open(ctx, endpoint, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			if ctx.Err() != nil {
				return frame.Errorf(frame.Cancelled, "you stopped it")
			}
			return frame.Errorf(frame.UpstreamFailed, "the daemon went away: %w", err)
		}
		if err := each(v); err != nil {
			return err
		}
	}
}

func (c *Client) open(ctx context.Context, endpoint string, in any) (*http.Response, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // nobody takes it for a page, and it would make a text up to six times as long
	if err := enc.Encode(in); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://control"+endpoint, &body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, frame.Errorf(frame.Cancelled, "you stopped it")
		}
		if ctx.Err() != nil {
			return nil, frame.Errorf(frame.Deadline, "no answer from the daemon in time: %w", ctx.Err())
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, frame.Errorf(frame.PolicyDenied, "%s: only the daemon's own user may open its control socket: run this as that user", c.path)
		}
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err // without the method and address of an HTTP call that nobody asked for
		}
		return nil, frame.Errorf(frame.UpstreamFailed, "no daemon answers at %s: %w; is it running, and is the path its `control:`?", c.path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e errorBody
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&e); err != nil || e.Error.Code == "" {
		return nil, frame.Errorf(frame.UpstreamFailed, "the daemon answered %s", resp.Status)
	}
	code, _ := strconv.ParseUint(e.Error.Code, 16, 16)
	return nil, frame.Errorf(frame.Code(code), "%s", e.Error.Message)
}

// awaitEvery is how often Await asks.
const awaitEvery = 50 * time.Millisecond

// Await makes a call without arguments until it is answered and missing says "", for at most d; with d = 0 it calls once and
// takes what comes. The error says what was still missing.
func Await[T any](ctx context.Context, c *Client, endpoint string, d time.Duration, missing func(T) string) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for end := time.Now().Add(d); ; {
		var v T
		err := c.Call(ctx, endpoint, struct{}{}, &v)
		if d == 0 {
			return v, err
		}
		if err == nil {
			what := missing(v)
			if what == "" {
				return v, nil
			}
			err = frame.Errorf(frame.UpstreamFailed, "not ready after %s: %s", d, what)
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return v, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(awaitEvery):
		}
	}
}
