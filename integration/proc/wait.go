package proc

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"agentgw/internal/control"
)

const (
	pollEvery   = 20 * time.Millisecond
	maxTempPath = 60 // characters: a Unix socket's whole path may have 107
)

// Until polls until ready says so, its error is fatal, or the time is up; what is not the case then is the error's beginning.
func Until(ctx context.Context, limit time.Duration, what string, ready func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s within %v", what, limit))
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := ready(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Await is [Until] for something that the process does; when it ends before, that is [ErrEnded].
func (p *Process) Await(ctx context.Context, limit time.Duration, what string, ready func(context.Context) bool) error {
	return Until(ctx, limit, what, func(ctx context.Context) (bool, error) {
		if p.Ended() {
			return false, ErrEnded
		}
		return ready(ctx), nil
	})
}

// AwaitControl waits until the daemon, who for people, answers the status call of its control socket.
func (p *Process) AwaitControl(ctx context.Context, limit time.Duration, who, socket string) error {
	return p.Await(ctx, limit, who+" does not answer its control socket", func(ctx context.Context) bool {
		var status struct{}
		return control.NewClient(socket).Call(ctx, "/v1/status", struct{}{}, &status) == nil
	})
}

// FreeUDP are n different loopback addresses, HOST:PORT, whose UDP port nobody uses now.
func FreeUDP(n int) (out []string, err error) {
	for range n {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer c.Close() // after all are found, so that they differ
		out = append(out, c.LocalAddr().String())
	}
	return out, nil
}

// TempDir makes a temporary folder whose path is short enough for the control sockets in it.
func TempDir(pattern string) (string, error) {
	parent := os.TempDir()
	if len(parent) > maxTempPath {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, pattern)
}
