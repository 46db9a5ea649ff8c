package a2a

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Timers of a dial.
const (
	dialTimeout  = 5 * time.Second
	dialStagger  = 250 * time.Millisecond // between the addresses of one target (happy eyeballs)
	refusedPause = 200 * time.Millisecond // before the one retry of a refused handshake: the offer may still be on its way
	maxAddresses = 6
)

// Host puts the agents of one machine behind one socket. The zero value is ready for use.
type Host struct {
	mu     sync.RWMutex // guards agents
	agents []hosted
}

type hosted struct {
	agent *Agent
	cert  func() tls.Certificate
}

// Add makes an agent answer; cert is its current certificate, asked anew at each handshake.
func (h *Host) Add(a *Agent, cert func() tls.Certificate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agents = append(h.agents, hosted{a, cert})
}

// Remove makes an agent answer no more. Connections that it has are its own to end.
func (h *Host) Remove(a *Agent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agents = slices.DeleteFunc(h.agents, func(x hosted) bool { return x.agent == a })
}

// find is the agent with an offer or session of a server name: the label is another in each session and names no AIC, so that a
// stranger learns nothing from the handshake, not even which agents are here.
func (h *Host) find(serverName string) (hosted, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, x := range h.agents {
		if x.agent.Answers(serverName) {
			return x, true
		}
	}
	return hosted{}, false
}

// Face is the dmsc-a2a/1 face of an endpoint.
func (h *Host) Face() endpoint.Face {
	return endpoint.Face{
		ALPN: frame.ALPNAgent,
		Credentials: func(serverName string) (endpoint.Credentials, error) {
			x, ok := h.find(serverName)
			if !ok {
				return endpoint.Credentials{}, frame.Errorf(frame.TrustDenied, "no offer or session has the name %q", serverName)
			}
			return endpoint.Credentials{Certificate: x.cert(), Verify: x.agent.verifyPeer}, nil
		},
		Serve: func(ctx context.Context, conn *endpoint.Conn) {
			x, ok := h.find(conn.ServerName())
			if !ok {
				conn.Close(frame.TrustDenied, "")
				return
			}
			x.agent.Serve(ctx, conn)
		},
	}
}

// verifyPeer is the target's judgement in the handshake: an offer or session names this AIC and this key, and the certificate is
// valid now. No chain is built: an agent trusts its own gateway, which named the key, and nobody's root.
func (a *Agent) verifyPeer(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return frame.Errorf(frame.TrustDenied, "peer shows no certificate")
	}
	leaf := cs.PeerCertificates[0]
	id, err := identity.AICOf(leaf)
	if err != nil {
		return err
	}
	remote := session.Remote{AIC: id.String(), SPKI: sha256.Sum256(leaf.RawSubjectPublicKeyInfo)}
	if !a.Admits(remote) {
		return frame.Errorf(frame.TrustDenied, "no offer or session names %s with this key", id)
	}
	return identity.VerifyPinned(remote.SPKI, time.Now)(cs)
}

// route is how this agent dials a target once.
type route struct {
	endpoint    *endpoint.Endpoint
	addrs       []string
	certificate tls.Certificate
}

// connect dials the target of a SAT and pins its key. The first of the addresses that answers wins; each later one is tried
// 250 ms after the one before it. A connection that it returns is not yet accepted by the target.
func (a *Agent) connect(ctx context.Context, r route, sat token.SAT) (*endpoint.Conn, error) {
	if len(r.addrs) == 0 {
		return nil, frame.Errorf(frame.UpstreamFailed, "no address of %s is known", sat.Audience)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addrs := r.addrs[:min(len(r.addrs), maxAddresses)]
	cred := endpoint.Credentials{Certificate: r.certificate, Verify: identity.VerifyPinned(sat.TargetSPKI, time.Now)}
	type dialled struct {
		conn *endpoint.Conn
		err  error
	}
	results := make(chan dialled, len(addrs))
	for i, addr := range addrs {
		go func() {
			select {
			case <-time.After(time.Duration(i) * dialStagger):
			case <-ctx.Done():
				results <- dialled{err: contextError(ctx)}
				return
			}
			conn, err := r.endpoint.Dial(ctx, addr, frame.ALPNAgent, session.ServerName(sat.Sid), cred)
			results <- dialled{conn, err}
		}()
	}
	var won *endpoint.Conn
	var failed error
	for range addrs {
		switch d := <-results; {
		case d.err == nil && won == nil:
			won = d.conn
			cancel()
		case d.err == nil:
			d.conn.Close(frame.OK, "")
		case frame.CodeOf(d.err) == frame.TrustDenied && won == nil: // the target has spoken: no other way to it says more
			failed = d.err
			cancel()
		case failed == nil:
			failed = d.err
		}
	}
	if won == nil {
		return nil, failed
	}
	return won, nil
}

// Open dials the target of a SAT, opens the session and closes the connection with it. A handshake that the target refused is
// tried once more after 200 ms: the offer travels another way than the answer, and may arrive just after us. When the connection is
// lost the session is resumed on another one, for up to 60 s, and what was under way is repeated; see [Route].
func (a *Agent) Open(ctx context.Context, r Route, sat []byte) (*Session, error) {
	s, err := a.open(ctx, r, sat)
	if frame.CodeOf(err) != frame.TrustDenied {
		return s, err
	}
	select {
	case <-time.After(refusedPause):
	case <-ctx.Done():
		return nil, contextError(ctx)
	}
	return a.open(ctx, r, sat)
}

func (a *Agent) open(ctx context.Context, r Route, sat []byte) (*Session, error) {
	claims, err := token.ReadSAT(sat)
	if err != nil {
		return nil, err
	}
	conn, err := a.connect(ctx, route{endpoint: r.Endpoint, addrs: r.Addrs, certificate: r.Certificate()}, claims)
	if err != nil {
		return nil, err
	}
	s, err := a.initiate(ctx, conn, sat, &r)
	if err != nil {
		conn.Close(frame.OK, "")
		return nil, err
	}
	return s, nil
}
