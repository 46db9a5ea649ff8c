package aaap

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Authority is the AMC that a server speaks for.
type Authority interface {
	Authorise(ctx context.Context, q *arp.AuthzRequest) (*arp.AuthzResponse, error)
	AuthoriseGateway(ctx context.Context, q *arp.AuthzRequest, dnsNames []string) (*arp.AuthzResponse, error)
	Check(ctx context.Context, tokenHash []byte, spki [32]byte) error
	Issue(ctx context.Context, gateway string, m *arp.Renew) (*arp.Credential, error)
	IssueLate(ctx context.Context, m *arp.Renew) (*arp.Credential, error)
	Withdraw(ctx context.Context, gateway string, m *arp.Deregister) error
}

// ServerConfig of a server.
type ServerConfig struct {
	AMC      Authority
	Issuer   aic.AIC
	Codes    arp.GatewayCodes
	Trust    *identity.Trust
	Statuses *identity.Statuses
	// Publish puts the keys of a gateway into the bundle in the place of those that it had, tells everybody, and returns the
	// bundle as signed.
	Publish func(ctx context.Context, gateway aic.AIC, keys []identity.BundleKey) ([]byte, error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Server is the AMC's side.
type Server struct {
	cfg ServerConfig

	mu    sync.Mutex         // guards links and paces
	links map[string]*member // by place
	paces map[string]*pace
}

// member is an attached gateway, or another AMC of the domain.
type member struct {
	aic       string
	place     string // in links: a gateway's is its own, another AMC has one under whatever AIC it attaches
	sibling   bool   // of another issuer: it is told of this one, and asks nothing
	conn      *endpoint.Conn
	out       chan frame.Message
	addresses []arp.HostPort
}

// NewServer makes a server.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, links: map[string]*member{}, paces: map[string]*pace{}}
}

// Member is an attached gateway, for enrolment tokens and for the operator.
type Member struct {
	AIC       string
	SPKI      [32]byte
	Addresses []arp.HostPort
}

// Members are the gateways that are attached now.
func (s *Server) Members() []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Member
	for _, l := range s.links {
		if !l.sibling {
			out = append(out, Member{l.aic, l.conn.PeerSPKI(), l.addresses})
		}
	}
	slices.SortFunc(out, func(a, b Member) int {
		if a.AIC < b.AIC {
			return -1
		}
		return 1
	})
	return out
}

// Announce sends every attached gateway a frame, and what is of the own issuer the other AMCs of the domain too.
func (s *Server) Announce(m frame.Message, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if own || !l.sibling {
			l.send(m)
		}
	}
}

func (l *member) send(m frame.Message) {
	select {
	case l.out <- m:
	default:
		l.conn.Close(frame.SendStalled, "")
	}
}

// Serve runs the connection of a gateway that the handshake has verified, until it ends.
func (s *Server) Serve(ctx context.Context, c *endpoint.Conn, gateway string) {
	p := s.paceOf(gateway)
	if err := allow(p.connects, s.cfg.Now(), "connects"); err != nil {
		p.complaint.Do(func() { s.cfg.Log.Warn("gateway is not served", "gateway", gateway, "err", err) })
		c.Close(frame.RateLimited, frame.Text(err))
		return
	}
	expired := time.AfterFunc(time.Until(c.PeerLeaf().NotAfter)+identity.NotBeforeSlack, func() { c.Close(frame.CertStatus, "certificate expired") })
	defer expired.Stop()
	c.Serve(ctx, endpoint.Handlers{
		frame.StreamControl:      func(ctx context.Context, st *endpoint.Stream) { s.control(ctx, c, st, gateway) },
		frame.StreamRegistration: func(ctx context.Context, st *endpoint.Stream) { s.question(ctx, c, st, gateway) },
	})
}

// isSibling says whether a peer is another AMC's: the handshake let it in because its bundle is the own domain's.
func (s *Server) isSibling(id string) bool {
	b := s.cfg.Trust.Of(id)
	return b == nil || b.Source != identity.Own
}

// standing says whether the gateway of a connection is in good standing now.
func (s *Server) standing(c *endpoint.Conn, gateway string) error {
	if s.cfg.Trust.Of(gateway) == nil {
		return frame.Errorf(frame.TrustDenied, "%s is of an AMC that this one names no more", gateway)
	}
	return s.cfg.Statuses.Check(gateway, identity.Serial(c.PeerLeaf()))
}

// Review closes the connections of gateways that are suspended or revoked now, and of other AMCs that are trusted no more.
func (s *Server) Review() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if err := s.standing(l.conn, l.aic); err != nil {
			s.cfg.Log.Warn("gateway is cut off", "gateway", l.aic, "err", err)
			l.conn.Close(frame.CodeOf(err), "not in good standing")
		}
	}
}

func (s *Server) newMember(id string, c *endpoint.Conn) *member {
	return &member{aic: id, place: s.placeOf(id), sibling: s.isSibling(id), conn: c, out: make(chan frame.Message, outQueue)}
}

// placeOf is what a peer counts as: a gateway as itself, another AMC as one whatever AICs it gives itself.
func (s *Server) placeOf(id string) string {
	if b := s.cfg.Trust.Of(id); b != nil && b.Source != identity.Own {
		return b.Issuer
	}
	return id
}

func (s *Server) control(ctx context.Context, c *endpoint.Conn, st *endpoint.Stream, gateway string) {
	defer c.Close(frame.OK, "")
	var m arp.Attach
	if err := st.ReadMessage(readTime, &m); err != nil || m.AIC != gateway || len(m.Endpoints) > maxAddresses || len(m.Trust) > arp.MaxTrustHeld {
		s.cfg.Log.Warn("gateway not attached", "gateway", gateway, "err", err)
		c.Close(frame.IdentityMismatch, "")
		return
	}
	l := s.newMember(gateway, c)
	for _, e := range m.Endpoints {
		l.addresses = append(l.addresses, arp.HostPort{Host: e.Host, Port: e.Port})
	}
	if err := st.WriteMessage(writeTime, &arp.Attached{
		KeepaliveMS: uint64(keepalive.Milliseconds()), OfflineMS: uint64(silence.Milliseconds()), Now: uint64(s.cfg.Now().Unix()),
	}); err != nil {
		return
	}
	if !s.enter(l) {
		c.Close(frame.LimitExceeded, "")
		return
	}
	defer s.leave(l)
	if s.standing(c, gateway) != nil { // changed since the handshake: [Server.Review] came too early
		c.Close(frame.CertStatus, "certificate is suspended or revoked")
		return
	}
	s.greet(l, m.Trust)
	s.cfg.Log.Info("gateway attached to the AMC", "gateway", gateway, "remote", c.RemoteAddr().String())
	var writer sync.WaitGroup
	defer writer.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writer.Go(func() { writeControl(ctx, c, st, l.out) })
	for {
		t, _, err := st.ReadFrame(silence)
		if err != nil || t != frame.CtlKeepalive && !t.Optional() {
			s.cfg.Log.Info("gateway detached from the AMC", "gateway", gateway, "err", err)
			return
		}
	}
}

// writeControl writes queued frames and keepalives until ctx or the connection ends.
func writeControl(ctx context.Context, c *endpoint.Conn, st *endpoint.Stream, out <-chan frame.Message) {
	tick := time.NewTicker(keepalive)
	defer tick.Stop()
	defer c.Close(frame.OK, "") // ends the reader
	for {
		var m frame.Message
		select {
		case m = <-out:
		case now := <-tick.C:
			m = &arp.Keepalive{TSMS: uint64(now.UnixMilli()), Pad: arp.KeepalivePad}
		case <-c.Draining():
			return
		case <-ctx.Done():
			return
		}
		if st.WriteMessage(writeTime, m) != nil {
			return
		}
	}
}

// enter makes a gateway's newest connection the one that counts.
func (s *Server) enter(l *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.links[l.place]
	if before == nil && !l.sibling && s.gateways() >= maxGateways { // of the others there are as many as the bundle names
		return false
	}
	if before != nil {
		before.conn.Close(frame.Collision, "")
	}
	s.links[l.place] = l
	return true
}

// gateways counts those that are attached; the caller holds the lock.
func (s *Server) gateways() (n int) {
	for _, l := range s.links {
		if !l.sibling {
			n++
		}
	}
	return n
}

func (s *Server) leave(l *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.links[l.place] == l {
		delete(s.links, l.place)
	}
}

// greet sends what the member lacks: a gateway of the domain's issuers all, another AMC of this one.
func (s *Server) greet(l *member, held []arp.TrustHeld) {
	for _, b := range s.cfg.Trust.Issuers(s.cfg.Trust.Own().Domain) {
		if l.sibling && b.Source != identity.Own {
			continue
		}
		seq, _ := s.cfg.Statuses.Held(b.Issuer)
		newest := arp.TrustHeld{Issuer: b.Issuer, BundleSeq: b.Seq, StatusSeq: seq}
		for _, m := range arp.Lacking(held, newest, b.Raw, s.cfg.Statuses.Raw(b.Issuer)) {
			l.send(m)
		}
	}
}

// question answers the one frame of a registration stream of a gateway.
func (s *Server) question(ctx context.Context, c *endpoint.Conn, st *endpoint.Stream, gateway string) {
	t, payload, err := st.ReadFrame(readTime)
	if err != nil {
		st.Reset(frame.CodeOf(err))
		return
	}
	var answer frame.Message
	if err = s.standing(c, gateway); err == nil && s.isSibling(gateway) {
		err = frame.Errorf(frame.PolicyDenied, "%s is of another AMC of the domain, which decides for it", gateway)
	} else if err == nil { // it may have changed since the handshake
		answer, err = s.answer(ctx, t, payload, gateway)
	}
	if code := frame.CodeOf(err); code == frame.Malformed || code == frame.UnexpectedFrame {
		st.Reset(code)
		return
	}
	if err != nil {
		answer = arp.Refusal(err)
	}
	if err := st.WriteMessage(writeTime, answer); err != nil {
		st.Reset(frame.CodeOf(err))
		return
	}
	st.CloseWrite()
}

func (s *Server) answer(ctx context.Context, t frame.Type, payload []byte, gateway string) (frame.Message, error) {
	switch t {
	case frame.AuthzRequest:
		var m arp.AuthzRequest
		if err := frame.Unmarshal(payload, &m); err != nil {
			return nil, err
		}
		if m.GW != gateway {
			return nil, frame.Errorf(frame.IdentityMismatch, "%s cannot ask for %s", gateway, m.GW)
		}
		return s.cfg.AMC.Authorise(ctx, &m)
	case frame.Renew:
		var m arp.Renew
		if err := frame.Unmarshal(payload, &m); err != nil {
			return nil, err
		}
		return s.cfg.AMC.Issue(ctx, gateway, &m)
	case frame.Deregister:
		var m arp.Deregister
		if err := frame.Unmarshal(payload, &m); err != nil {
			return nil, err
		}
		return &arp.Answer{}, s.cfg.AMC.Withdraw(ctx, gateway, &m)
	case frame.ACSPut:
		var m arp.ACSPut
		if err := frame.Unmarshal(payload, &m); err != nil {
			return nil, err
		}
		if m.AIC != gateway || m.Kind != arp.DraftGateway {
			return nil, frame.Errorf(frame.ReqInvalid, "an AMC takes a gateway's own keys, and no other draft")
		}
		if err := allow(s.paceOf(gateway).keys, s.cfg.Now(), "changes its keys"); err != nil {
			return nil, err
		}
		return s.putKeys(ctx, aic.AIC(gateway), m.ACS)
	}
	return nil, frame.Errorf(frame.UnexpectedFrame, "%v is no question to an AMC", t)
}

func (s *Server) putKeys(ctx context.Context, gateway aic.AIC, raw []byte) (*arp.ACSState, error) {
	draft, err := s.parseDraft(raw, arp.KeyProof{Owner: string(gateway)})
	if err != nil {
		return nil, err
	}
	bundle, err := s.cfg.Publish(ctx, gateway, bundleKeys(gateway, draft))
	return &arp.ACSState{ACS: bundle}, err
}

// EnrolGateway registers a gateway that joins the domain: the token that it holds is for one; its keys are in the bundle when
// it gets its credential.
func (s *Server) EnrolGateway(ctx context.Context, peer [32]byte, from netip.Addr, m *arp.Enrol) (*arp.Enrolled, error) {
	token := sha256.Sum256(m.Secret)
	if err := s.cfg.AMC.Check(ctx, token[:], peer); err != nil {
		return nil, err
	}
	csr, err := identity.ParseCSR(m.CSR)
	if err != nil {
		return nil, err
	}
	if spki, err := identity.SPKIHash(csr.PublicKey); err != nil || spki != peer {
		return nil, frame.Errorf(frame.Binding, "the certificate request is for another key than the connection's")
	}
	draft, err := s.parseDraft(m.Draft, arp.KeyProof{SPKI: peer[:]})
	if err != nil {
		return nil, err
	}
	onto, err := aic.RandomSerial(rand.Reader)
	if err != nil {
		return nil, err
	}
	q := &arp.AuthzRequest{
		ReqID: make([]byte, 16), GW: string(s.cfg.Issuer), SPKI: peer[:], Vendor: s.cfg.Codes.Vendor, Ontology: onto, TokenHash: token[:],
		Attributes: arp.Attributes{Address: from.Unmap().String(), Name: "gateway"},
	}
	rand.Read(q.ReqID) // it never fails
	decided, err := s.cfg.AMC.AuthoriseGateway(ctx, q, dnsNames(draft.Addresses))
	if err != nil {
		return nil, err
	}
	if decided.Code == frame.Pending {
		return &arp.Enrolled{Code: frame.Pending, PendingID: decided.PendingID, RetryAfterMS: decided.RetryAfterMS}, nil
	}
	grant, err := arp.OpenGrant(decided.Grant, s.cfg.Trust.Keys(identity.UseGrant), string(s.cfg.Issuer), s.cfg.Now())
	if err != nil {
		return nil, err
	}
	return s.admit(ctx, m, draft, grant)
}

// admit issues the credential of a granted gateway and publishes its keys.
func (s *Server) admit(ctx context.Context, m *arp.Enrol, draft *arp.GatewayDraft, grant *arp.Grant) (*arp.Enrolled, error) {
	id := aic.AIC(grant.AIC)
	if id == "" {
		entity, err := aic.RandomSerial(rand.Reader)
		if err != nil {
			return nil, err
		}
		c := s.cfg.Codes
		if id, err = aic.New(c.Prefix, c.ARSP, grant.Vendor, grant.Ontology, entity, c.Salt); err != nil {
			return nil, err
		}
	}
	issued, err := s.cfg.AMC.Issue(ctx, string(s.cfg.Issuer), &arp.Renew{AIC: string(id), CSR: m.CSR, JTI: grant.JTI})
	if err != nil {
		return nil, err
	}
	bundle, err := s.cfg.Publish(ctx, id, bundleKeys(id, draft))
	if err != nil {
		return nil, err
	}
	codes, err := frame.Marshal(s.cfg.Codes)
	if err != nil {
		return nil, err
	}
	s.cfg.Log.Info("gateway has joined the domain", "gateway", string(id))
	return &arp.Enrolled{AIC: string(id), Chain: issued.Chain, Bundle: bundle, ACS: codes, EntryVersion: 1, Grant: issued.Grant}, nil
}

// RenewLate answers a gateway whose certificate has expired: it proves its key alone.
func (s *Server) RenewLate(ctx context.Context, proved [32]byte, m *arp.Renew) (*arp.Credential, error) {
	csr, err := identity.ParseCSR(m.CSR)
	if err != nil {
		return nil, err
	}
	if spki, err := identity.SPKIHash(csr.PublicKey); err != nil || spki != proved {
		return nil, frame.Errorf(frame.Binding, "the certificate of %s is over: only the key that it had can renew it", m.AIC)
	}
	return s.cfg.AMC.IssueLate(ctx, m)
}

// parseDraft reads a draft of the gateway that by names. Each of its keys is proved, but for those that it has in the bundle already: of one
// that was replaced nobody has the private half any more.
func (s *Server) parseDraft(raw []byte, by arp.KeyProof) (*arp.GatewayDraft, error) {
	d := new(arp.GatewayDraft)
	if err := frame.Unmarshal(raw, d); err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "draft of a gateway: %w", err)
	}
	if len(d.Keys) == 0 || len(d.Keys) > maxKeys || len(d.Addresses) > maxAddresses {
		return nil, frame.Errorf(frame.ReqInvalid, "draft of a gateway: %d keys and %d addresses, 1 to %d and at most %d are accepted", len(d.Keys), len(d.Addresses), maxKeys, maxAddresses)
	}
	now := s.cfg.Now()
	for _, k := range d.Keys {
		use := identity.Use(k.Use)
		if use != identity.UseDigest && use != identity.UseSAT && use != identity.UseRAT && use != identity.UseStatus {
			return nil, frame.Errorf(frame.PolicyDenied, "a gateway has no key of use %d", k.Use)
		}
		if len(k.Public) != ed25519.PublicKeySize || k.NotAfter <= k.NotBefore || time.Unix(int64(k.NotAfter), 0).After(now.Add(maxKeyLife)) {
			return nil, frame.Errorf(frame.ReqInvalid, "a key of use %d is not Ed25519, or lives longer than %s", k.Use, maxKeyLife)
		}
		if len(k.Proof) == 0 && s.proved(by.Owner, k) {
			continue
		}
		by.Use = k.Use
		if err := k.Proves(by); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// proved says whether the bundle names a key as a gateway's for this use: it was proved when it came.
func (s *Server) proved(owner string, k arp.GatewayKey) bool {
	return slices.ContainsFunc(s.cfg.Trust.Own().Keys, func(held identity.BundleKey) bool {
		return held.Owner == owner && uint8(held.Use) == k.Use && slices.Equal(held.Public, k.Public)
	})
}

func bundleKeys(owner aic.AIC, d *arp.GatewayDraft) []identity.BundleKey {
	var out []identity.BundleKey
	for _, k := range d.Keys {
		out = append(out, identity.BundleKeyOf(k.Public, owner, identity.Use(k.Use), k.NotBefore, k.NotAfter))
	}
	return out
}

// dnsNames are the host names among addresses.
func dnsNames(addrs []arp.HostPort) []string {
	var out []string
	for _, a := range addrs {
		if net.ParseIP(a.Host) == nil && identity.ValidDomain(a.Host) {
			out = append(out, a.Host)
		}
	}
	return out
}
