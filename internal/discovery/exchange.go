package discovery

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"agentgw/internal/frame"
)

const systemServers = "/etc/resolv.conf"

// connect is the way to the name servers of now.
func connect(cfg Config) (asker, error) {
	servers := cfg.Servers
	if len(servers) == 0 {
		file := cfg.ResolvConf
		if file == "" {
			file = systemServers
		}
		conf, err := dns.ClientConfigFromFile(file)
		if err != nil {
			return nil, frame.Errorf(frame.UpstreamFailed, "no name server to ask: %w; name one under dns.servers", err)
		}
		for _, s := range conf.Servers {
			servers = append(servers, net.JoinHostPort(s, conf.Port))
		}
	}
	if len(servers) == 0 {
		return nil, frame.Errorf(frame.UpstreamFailed, "no name server to ask: the system has none; name one under dns.servers")
	}
	return func(ctx context.Context, name string, qtype uint16) (*reply, error) {
		return query(ctx, servers, cfg.DNSSEC, name, qtype)
	}, nil
}

// query asks the first server, then the second; one that is alone is asked twice.
func query(ctx context.Context, servers []string, mode DNSSEC, name string, qtype uint16) (*reply, error) {
	what := dns.TypeToString[qtype] + " " + strings.TrimSuffix(name, ".")
	var errs []string
	code := frame.UpstreamFailed
	for i := range attempts {
		server := servers[i%len(servers)]
		r, err := attempt(ctx, server, name, qtype, mode != Off)
		if err == nil {
			if r.validated = validated(mode, server, r.ad); mode != Require || r.validated == Yes {
				return r, nil
			}
			err, code = errUnvalidated, frame.TrustDenied
			if r.validated == Unknown {
				err = fmt.Errorf("%w: only a resolver on this machine's loopback can say so", err)
			}
		} else if c := frame.CodeOf(err); c == frame.Loop {
			return nil, err
		}
		errs = append(errs, fmt.Sprintf("%s: %v", server, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, frame.Errorf(code, "no name server has answered for %s: %s", what, strings.Join(errs, "; "))
}

// validated is what the AD bit of a server says.
func validated(mode DNSSEC, server string, ad bool) Validated {
	at, err := netip.ParseAddrPort(server)
	switch {
	case mode == Off || err != nil || !at.Addr().Unmap().IsLoopback():
		return Unknown
	case ad:
		return Yes
	}
	return No
}

// attempt asks one server once: over UDP, from a port that the system picks at random for each question, and over TCP where that was cut.
func attempt(ctx context.Context, server, name string, qtype uint16, ad bool) (*reply, error) {
	raw, q, id, err := newQuery(name, qtype, ad)
	if err != nil {
		return nil, err
	}
	r, err := overUDP(ctx, server, raw, q, id)
	if errors.Is(err, errTruncated) {
		return overTCP(ctx, server, raw, q, id)
	}
	return r, err
}

// dial bounds what follows by [queryTime], and by ctx. The socket is connected: the kernel hands over what comes from the server alone.
func dial(ctx context.Context, network, server string) (net.Conn, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	var d net.Dialer
	c, err := d.DialContext(ctx, network, server)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // whoever waits is woken
	return c, func() {
		stop()
		cancel()
		_ = c.Close() // all that counts has been read
	}, nil
}

func overUDP(ctx context.Context, server string, raw []byte, q dns.Question, id uint16) (*reply, error) {
	c, done, err := dial(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := c.Write(raw); err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10) // some servers pay no heed to the size that they are told
	for range maxStrays {
		n, err := c.Read(buf)
		if err != nil {
			return nil, silent(err)
		}
		r, err := readReply(buf[:n], q, id)
		if !errors.Is(err, errStray) { // somebody guesses; the server's own answer may still come
			return r, err
		}
	}
	return nil, fmt.Errorf("%d packets that are no answer: is somebody forging them?", maxStrays)
}

func overTCP(ctx context.Context, server string, raw []byte, q dns.Question, id uint16) (*reply, error) {
	c, done, err := dial(ctx, "tcp", server)
	if err != nil {
		return nil, fmt.Errorf("over TCP, since the answer is too long for UDP: %w", err)
	}
	defer done()
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, silent(err)
	}
	buf := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, buf); err != nil {
		return nil, silent(err)
	}
	return readReply(buf, q, id)
}

// silent says what a wait that is over means.
func silent(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("no answer in %v", queryTime)
	}
	return err
}
