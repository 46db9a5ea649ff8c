// Package daemon is the skeleton of a process that operators run: logger, signals, readiness and watchdog towards systemd, a
// stack of named clean-ups, and the exit codes that both daemons share.
//
// Logs go to stderr, payload to stdout. The first SIGINT or SIGTERM drains, a second one ends the process at once.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"agentgw/internal/frame"
)

// Exit codes of every verb.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitRefused     = 4
	ExitDeadline    = 5
)

// UsageError is a mistake of the caller: a flag, an argument, a configuration file. It exits with 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a [UsageError].
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// ExitCode is the exit code of a verb that ended with err.
func ExitCode(err error) int {
	var usage *UsageError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, context.DeadlineExceeded):
		return ExitDeadline
	}
	switch frame.CodeOf(err) {
	case frame.UpstreamFailed, frame.HelloTimeout, frame.HoldExpired, frame.Shutdown, frame.Overloaded:
		return ExitUnreachable
	case frame.TrustDenied, frame.IdentityMismatch, frame.CertStatus, frame.ScopeDenied, frame.PolicyDenied, frame.Policy,
		frame.TokenInvalid, frame.TokenExpired, frame.TokenReplayed, frame.Binding, frame.Audience, frame.CapUnbound,
		frame.Scope, frame.Revoked, frame.RateLimited:
		return ExitRefused
	case frame.Deadline:
		return ExitDeadline
	case frame.ReqInvalid:
		return ExitUsage
	}
	return ExitFailed
}

// NewLogger makes the process's logger. level is debug, info, warn or error; format text or json.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, Usagef("log level %q: use debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, Usagef("log format %q: use text or json", format)
}

// SignalContext ends with the first SIGINT or SIGTERM. A second one exits the process at once with code 1.
func SignalContext(log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			log.Info("stopping; a second signal ends at once", "signal", s.String())
			cancel()
		case <-ctx.Done():
			signal.Stop(signals)
			return
		}
		<-signals
		log.Warn("second signal, ending at once")
		os.Exit(ExitFailed)
	}()
	return ctx, cancel
}

// Ready tells the service manager that the daemon serves, and starts to feed its watchdog, where one is set, until ctx
// ends; then it tells that the daemon stops. wait returns when it has.
func Ready(ctx context.Context, log *slog.Logger) (wait func()) {
	notify := func(state string) {
		if _, err := sd.SdNotify(false, state); err != nil {
			log.Warn("sd_notify", "state", state, "err", err)
		}
	}
	notify(sd.SdNotifyReady + "\nSTATUS=")
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("watchdog settings of the service manager cannot be read", "err", err)
	}
	var told sync.WaitGroup
	told.Go(func() {
		defer notify(sd.SdNotifyStopping)
		if interval <= 0 {
			<-ctx.Done()
			return
		}
		tick := time.NewTicker(interval / 2)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				notify(sd.SdNotifyWatchdog)
			case <-ctx.Done():
				return
			}
		}
	})
	return told.Wait
}

// Progress tells the service manager what a start or a stop is at, and that it needs more time for it.
func Progress(log *slog.Logger, text string) {
	state := fmt.Sprintf("STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", text, progressTime.Microseconds())
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("sd_notify", "state", state, "err", err)
	}
}

// progressTime is how long the service manager is asked to wait for the next word.
const progressTime = 90 * time.Second

// Cleanup is a stack of named clean-ups. The zero value is ready; it is not safe for concurrent use.
type Cleanup struct{ steps []cleanupStep }

type cleanupStep struct {
	name  string
	limit time.Duration
	run   func(context.Context) error
}

// Add puts one step on the stack; limit bounds the context that it gets.
func (c *Cleanup) Add(name string, limit time.Duration, run func(context.Context) error) {
	c.steps = append(c.steps, cleanupStep{name, limit, run})
}

// Run runs the steps in reverse order, each once, and joins their errors.
func (c *Cleanup) Run() error {
	var errs []error
	for i := len(c.steps) - 1; i >= 0; i-- {
		s := c.steps[i]
		ctx, cancel := context.WithTimeout(context.Background(), s.limit)
		if err := s.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		cancel()
	}
	c.steps = nil
	return errors.Join(errs...)
}
