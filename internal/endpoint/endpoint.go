package endpoint

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"

	"agentgw/internal/frame"
)

// Credentials are one side's certificate and its judgement of the other side's.
type Credentials struct {
	Certificate tls.Certificate
	// Verify decides in the handshake whether the peer may speak this protocol. It sees the peer's chain as it came;
	// nothing has verified it yet.
	Verify func(tls.ConnectionState) error
}

// Face is one ALPN protocol that an endpoint answers.
type Face struct {
	ALPN string
	// Credentials picks the certificate and the judgement for one incoming handshake; serverName is the client's SNI.
	Credentials func(serverName string) (Credentials, error)
	// Serve owns an accepted connection until it returns; then the connection is closed. ctx ends with the connection.
	Serve func(ctx context.Context, c *Conn)
}

// Config of an endpoint. The zero value of a number means its default.
type Config struct {
	Addr       string         // UDP address to bind, host:port
	PacketConn net.PacketConn // instead of Addr: a simulated network
	StateDir   string         // keeps the stateless-reset and token keys over restarts; "" keeps them in memory
	Profile    Profile
	Faces      []Face

	MaxConns       int     // connections accepted at once, 4096
	HandshakeRate  float64 // new connections a second from one /32 or /64 that has completed none yet, 20
	HandshakeBurst int     // 40
	Log            *slog.Logger
}

// Profile is a column of the QUIC profile.
type Profile struct {
	MaxIdle, KeepAlive          time.Duration
	MaxStreamWindow, MaxConnWin uint64
}

// The two profiles: a gateway holds many quiet connections, an agent few with large bodies.
var (
	Gateway = Profile{MaxIdle: 30 * time.Second, KeepAlive: 10 * time.Second, MaxStreamWindow: 1 << 20, MaxConnWin: 8 << 20}
	Agent   = Profile{MaxIdle: 60 * time.Second, KeepAlive: 20 * time.Second, MaxStreamWindow: 4 << 20, MaxConnWin: 16 << 20}
)

const (
	maxStreams       = 256
	handshakeIdle    = 5 * time.Second
	headerTimeout    = 5 * time.Second
	closeGrace       = 200 * time.Millisecond // for CONNECTION_CLOSE to leave: about 3 round trips inside a domain
	retryAboveRate   = 200                    // handshakes a second above which a source address must prove itself
	retryAboveBurst  = 400
	socketBufferHint = "raise net.core.rmem_max and net.core.wmem_max to 7340032"
)

// Endpoint is an open socket. Create it with [Open].
type Endpoint struct {
	cfg       Config
	log       *slog.Logger
	transport *quic.Transport
	listener  *quic.Listener
	socket    net.PacketConn
	admit     *admission
	draining  chan struct{}
	serving   sync.WaitGroup // accept loop and one goroutine a connection

	complaints *rate.Limiter

	mu     sync.Mutex // guards conns, closed
	conns  map[*Conn]struct{}
	closed bool
}

// Open binds the socket and begins to answer. Errors name the address or the file that could not be used.
func Open(cfg Config) (*Endpoint, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Profile == (Profile{}) {
		cfg.Profile = Gateway
	}
	reset, err := loadKey(cfg.StateDir, "stateless-reset.key")
	if err != nil {
		return nil, err
	}
	token, err := loadKey(cfg.StateDir, "address-token.key")
	if err != nil {
		return nil, err
	}
	socket := cfg.PacketConn
	if socket == nil {
		if socket, err = bind(cfg.Addr); err != nil {
			return nil, err
		}
	}
	e := &Endpoint{
		cfg: cfg, log: cfg.Log, socket: socket, draining: make(chan struct{}), conns: map[*Conn]struct{}{},
		admit: newAdmission(cfg), complaints: rate.NewLimiter(1, 10),
	}
	retry := rate.NewLimiter(retryAboveRate, retryAboveBurst)
	e.transport = &quic.Transport{
		Conn: socket, ConnectionIDLength: 8,
		StatelessResetKey:   (*quic.StatelessResetKey)(reset),
		TokenGeneratorKey:   (*quic.TokenGeneratorKey)(token),
		VerifySourceAddress: func(net.Addr) bool { return !retry.Allow() },
		ConnContext:         e.admit.connContext,
	}
	if len(cfg.Faces) == 0 {
		return e, nil
	}
	e.listener, err = e.transport.Listen(&tls.Config{GetConfigForClient: e.faceFor}, e.quicConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for QUIC on %v: %w", socket.LocalAddr(), err), socket.Close())
	}
	e.serving.Go(e.accept)
	return e, nil
}

func bind(addr string) (net.PacketConn, error) {
	ua, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w", addr, err)
	}
	c, err := net.ListenUDP("udp", ua)
	if err != nil {
		return nil, fmt.Errorf("bind UDP %s: %w; is another daemon using the port, or does it need a privilege?", addr, err)
	}
	return c, nil
}

// loadKey reads a 32-byte key of the state folder, and makes it at the first start.
func loadKey(dir, name string) (*[32]byte, error) {
	key := new([32]byte)
	if dir == "" {
		_, err := rand.Read(key[:])
		return key, err
	}
	path := filepath.Join(dir, name)
	raw, err := os.ReadFile(path)
	switch {
	case err == nil && len(raw) == len(key):
		copy(key[:], raw)
		return key, nil
	case err == nil:
		return nil, fmt.Errorf("%s holds %d bytes where 32 were due: delete it, a new one will be made", path, len(raw))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read key: %w", err)
	}
	if _, err := rand.Read(key[:]); err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(path, key[:], 0o600); err != nil {
		return nil, fmt.Errorf("write key: %w", err)
	}
	return key, nil
}

func (e *Endpoint) quicConfig() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeIdle,
		MaxIdleTimeout:                 e.cfg.Profile.MaxIdle,
		KeepAlivePeriod:                e.cfg.Profile.KeepAlive,
		InitialStreamReceiveWindow:     256 << 10,
		MaxStreamReceiveWindow:         e.cfg.Profile.MaxStreamWindow,
		InitialConnectionReceiveWindow: 1 << 20,
		MaxConnectionReceiveWindow:     e.cfg.Profile.MaxConnWin,
		MaxIncomingStreams:             maxStreams,
		MaxIncomingUniStreams:          4,
		RequireStreamCreditRelease:     true,
		TokenStore:                     e.admit.tokens,
	}
}

// faceFor picks the one face that the client asks for. An unknown protocol gets the alert no_application_protocol.
func (e *Endpoint) faceFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	var alpns []string
	for _, f := range e.cfg.Faces {
		if slices.Contains(hello.SupportedProtos, f.ALPN) && len(hello.SupportedProtos) == 1 {
			cred, err := f.Credentials(hello.ServerName)
			if err != nil {
				e.log.Debug("handshake refused", "alpn", f.ALPN, "remote", hello.Conn.RemoteAddr().String(), "err", err)
				return nil, err
			}
			cred.Verify = e.told(f.ALPN, hello.Conn.RemoteAddr().String(), cred.Verify)
			return tlsConfig(f.ALPN, cred), nil
		}
		alpns = append(alpns, f.ALPN)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: alpns, Certificates: []tls.Certificate{{}}}, nil
}

// told logs why peers are refused, at most one a second: an operator looks for it, and anybody can cause it.
func (e *Endpoint) told(alpn, remote string, verify func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		err := verify(cs)
		if err != nil && e.complaints.Allow() {
			e.log.Info("handshake refused", "alpn", alpn, "remote", remote, "err", err)
		}
		return err
	}
}

func tlsConfig(alpn string, cred Credentials) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{alpn},
		Certificates:           []tls.Certificate{cred.Certificate},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // names in our certificates are AICs, not hosts: VerifyConnection is the whole judgement
		VerifyConnection:       cred.Verify,
		SessionTicketsDisabled: true,
	}
}

func (e *Endpoint) accept() {
	for {
		q, err := e.listener.Accept(context.Background())
		if err != nil {
			return // the listener was closed by Close
		}
		alpn := q.ConnectionState().TLS.NegotiatedProtocol
		i := slices.IndexFunc(e.cfg.Faces, func(f Face) bool { return f.ALPN == alpn })
		c := &Conn{q: q, endpoint: e, alpn: alpn}
		if i < 0 || !e.add(c) {
			c.Close(frame.Shutdown, "")
			continue
		}
		e.admit.completed(q.RemoteAddr())
		go func() {
			defer e.serving.Done()
			defer e.admit.release()
			e.cfg.Faces[i].Serve(q.Context(), c)
			c.closeServed()
			e.remove(c)
		}()
	}
}

// add registers c and counts its goroutine, unless the endpoint is closing.
func (e *Endpoint) add(c *Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.serving.Add(1)
	e.conns[c] = struct{}{}
	return true
}

func (e *Endpoint) remove(c *Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}

// Addr is the address that the socket is bound to.
func (e *Endpoint) Addr() netip.AddrPort {
	return addrPort(e.socket.LocalAddr())
}

func addrPort(a net.Addr) netip.AddrPort {
	if u, ok := a.(*net.UDPAddr); ok {
		ap := u.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	ap, _ := netip.ParseAddrPort(a.String())
	return ap
}

// Dial connects to addr (host:port) with exactly one ALPN protocol. serverName may be empty. The returned connection
// belongs to the caller, who closes it; [Endpoint.Close] closes it too.
func (e *Endpoint) Dial(ctx context.Context, addr, alpn, serverName string, cred Credentials) (*Conn, error) {
	ua, err := resolve(ctx, addr)
	if err != nil {
		return nil, frame.Errorf(frame.UpstreamFailed, "dial %s: %w", addr, err)
	}
	conf := tlsConfig(alpn, cred)
	conf.ServerName = serverName
	q, err := e.transport.Dial(ctx, ua, conf, e.quicConfig())
	if err != nil {
		return nil, explainDial(addr, err)
	}
	c := &Conn{q: q, endpoint: e, alpn: alpn}
	if !e.add(c) {
		c.Close(frame.Shutdown, "")
		return nil, frame.Errorf(frame.Shutdown, "dial %s: this daemon is stopping", addr)
	}
	go func() {
		defer e.serving.Done()
		<-q.Context().Done()
		e.remove(c)
	}()
	return c, nil
}

func resolve(ctx context.Context, addr string) (*net.UDPAddr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", strings.Trim(host, "[]"))
	if err != nil {
		return nil, err
	}
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(ips[0].Unmap(), uint16(n))), nil
}

// Close drains and closes the endpoint. Handlers are given until ctx ends; then their connections are closed under them.
// It is idempotent, and returns after every goroutine of the endpoint has ended.
func (e *Endpoint) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.serving.Wait()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	close(e.draining)
	if e.listener != nil {
		e.listener.Close()
	}
	done := make(chan struct{})
	go func() {
		e.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-e.idleDials():
	}
	open := e.snapshot()
	for _, c := range open {
		c.Close(frame.Shutdown, "")
	}
	<-done
	if len(open) > 0 {
		time.Sleep(closeGrace) // Transport.Close would discard the CONNECTION_CLOSE packets that are still queued
	}
	return errors.Join(e.transport.Close(), e.socket.Close())
}

// idleDials ends when only dialled connections are left: their owners close them, or nobody does.
func (e *Endpoint) idleDials() <-chan struct{} {
	if e.listener != nil {
		return nil
	}
	done := make(chan struct{})
	close(done)
	return done
}

func (e *Endpoint) snapshot() []*Conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*Conn, 0, len(e.conns))
	for c := range e.conns {
		out = append(out, c)
	}
	return out
}
