package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/veraison/go-cose"

	"agentgw/integration/proc"
	"agentgw/internal/identity"
)

// The floors: quic-go, and of the design what it cannot do without. They are no protocol: one key signs for everybody, nobody
// is verified, lengths are trusted.
const (
	floorALPN = "bench-floor"

	floorExact   = 'e' // long-lived stream, look-up in a map, 1 KiB back
	floorText    = 't' // the same with a search by words and one by vectors, as the matcher compares both
	floorSigned  = 's' // fresh stream; request and answer signed and verified
	floorChain   = 'c' // fresh stream, then floorSigned at the next server
	floorContext = 'j' // fresh stream; JSON decoded and encoded, SHA-256 each way

	floorQuery  = 256
	floorAnswer = 1 << 10
)

var floorKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func floorSign(payload []byte) ([]byte, error) {
	signer, err := cose.NewSigner(cose.AlgorithmEdDSA, floorKey)
	if err != nil {
		return nil, err
	}
	headers := cose.Headers{Protected: cose.ProtectedHeader{cose.HeaderLabelAlgorithm: cose.AlgorithmEdDSA}}
	return cose.Sign1(nil, signer, headers, payload, nil)
}

func floorVerify(signed []byte) ([]byte, error) {
	verifier, err := cose.NewVerifier(cose.AlgorithmEdDSA, floorKey.Public())
	if err != nil {
		return nil, err
	}
	var m cose.Sign1Message
	if err := m.UnmarshalCBOR(signed); err != nil {
		return nil, err
	}
	return m.Payload, m.Verify(nil, verifier)
}

// floorServer is one server of floors, in a child process.
type floorServer struct {
	next    *floorClient // of a chain
	store   *floorStore
	records map[string][]byte
	index   *simpleIndex
	vectors *vectorScan
	mu      sync.Mutex // guards index: it searches once at a time
}

// serveFloor answers until standard input ends; it prints its address first.
func serveFloor(ctx context.Context, next string) error {
	key, err := identity.NewLeafKey()
	if err != nil {
		return err
	}
	cert, err := identity.SelfSigned(key)
	if err != nil {
		return err
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: []string{floorALPN}, ClientAuth: tls.RequestClientCert, // an enroller has one
	}, &quic.Config{MaxIncomingStreams: 4 * putClients})
	if err != nil {
		return err
	}
	dir, err := proc.TempDir("agentgw-floor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &floorServer{records: map[string][]byte{}}
	if s.store, err = openFloorStore(dir); err != nil {
		return err
	}
	defer s.store.close()
	var texts []string
	for _, agent := range corpus() {
		for _, k := range agent {
			texts = append(texts, k.text())
			s.records[k.ID] = make([]byte, floorAnswer)
		}
	}
	s.index, s.vectors = newSimpleIndex(texts), newVectorScan(texts)
	if next != "" {
		if s.next, err = dialFloor(ctx, next); err != nil {
			return err
		}
		defer s.next.close()
	}
	fmt.Println(listener.Addr())
	var running sync.WaitGroup
	running.Go(func() { s.accept(listener) })
	_, err = io.Copy(io.Discard, os.Stdin)
	listener.Close()
	running.Wait()
	return err
}

func (s *floorServer) accept(listener *quic.Listener) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return
		}
		running.Go(func() {
			for {
				stream, err := conn.AcceptStream(context.Background())
				if err != nil {
					return
				}
				running.Go(func() { s.answer(stream) })
			}
		})
	}
}

func (s *floorServer) answer(stream *quic.Stream) {
	var kind [1]byte
	if _, err := io.ReadFull(stream, kind[:]); err != nil {
		return
	}
	switch kind[0] {
	case floorExact, floorText:
		s.answerMany(stream, kind[0])
		return
	case floorPut, floorPutCPU:
		s.store.answerPuts(stream, kind[0])
		return
	}
	request, err := io.ReadAll(stream)
	var out []byte
	if err == nil {
		out, err = s.work(kind[0], request)
	}
	if err != nil {
		stream.CancelWrite(1)
		return
	}
	stream.Write(out) // its loss is the client's error
	stream.Close()
}

// answerMany answers the requests of a long-lived stream: a length and a key or text each.
func (s *floorServer) answerMany(stream *quic.Stream, kind byte) {
	var buf [floorQuery]byte
	answer := make([]byte, floorAnswer)
	for {
		if _, err := io.ReadFull(stream, buf[:]); err != nil {
			return
		}
		query := string(buf[1 : 1+buf[0]])
		if kind == floorExact {
			copy(answer, s.records[query])
		} else {
			s.mu.Lock()
			best, n := s.index.top10(query)
			s.mu.Unlock()
			like, m := s.vectors.best10(query)
			for i, doc := range append(best[:n], like[:m]...) {
				binary.BigEndian.PutUint32(answer[4*i:], doc+1)
			}
		}
		if _, err := stream.Write(answer); err != nil {
			return
		}
	}
}

func (s *floorServer) work(kind byte, request []byte) ([]byte, error) {
	switch kind {
	case floorSigned:
		if _, err := floorVerify(request); err != nil {
			return nil, err
		}
		return floorSign(make([]byte, floorAnswer))
	case floorChain:
		return s.next.signed(context.Background(), request)
	case floorContext:
		c, err := openFloorContext(request)
		if err != nil {
			return nil, err
		}
		return c.seal()
	case floorBadger:
		return nil, s.store.oneByOne(request)
	case floorEnrol:
		return s.store.enrol(request)
	}
	return nil, errors.New("no such floor")
}

// floorClient is a connection to a floor server.
type floorClient struct {
	conn        *quic.Conn
	exact, text *quic.Stream
	answer      [floorAnswer]byte
}

func dialFloor(ctx context.Context, addr string) (*floorClient, error) {
	conn, err := quic.DialAddr(ctx, addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{floorALPN}}, // the floor's server is our child
		&quic.Config{KeepAlivePeriod: 10 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("dial the floor server: %w", err)
	}
	c := &floorClient{conn: conn}
	if c.exact, err = c.open(ctx, floorExact); err != nil {
		return nil, err
	}
	c.text, err = c.open(ctx, floorText)
	return c, err
}

func (c *floorClient) close() { c.conn.CloseWithError(0, "") }

func (c *floorClient) open(ctx context.Context, kind byte) (*quic.Stream, error) {
	s, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	_, err = s.Write([]byte{kind})
	return s, err
}

// ask sends a key or text over a long-lived stream and reads the answer.
func (c *floorClient) ask(stream *quic.Stream, query string) error {
	if len(query) >= floorQuery {
		return fmt.Errorf("floor query of %d bytes", len(query))
	}
	var buf [floorQuery]byte
	buf[0] = byte(len(query))
	copy(buf[1:], query)
	if _, err := stream.Write(buf[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(stream, c.answer[:])
	return err
}

// call sends a request over a fresh stream and reads the answer.
func (c *floorClient) call(ctx context.Context, kind byte, request []byte) ([]byte, error) {
	s, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.Write(append([]byte{kind}, request...)); err != nil {
		return nil, err
	}
	s.Close()
	return io.ReadAll(s)
}

// floorEnroller dials the floor anew for each enrolment, from one socket.
type floorEnroller struct {
	transport *quic.Transport
	addr      net.Addr
}

func (c *floorClient) enroller() (*floorEnroller, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	return &floorEnroller{&quic.Transport{Conn: socket}, c.conn.RemoteAddr()}, nil
}

func (e *floorEnroller) close() {
	e.transport.Close()
	e.transport.Conn.Close()
}

func (e *floorEnroller) enrol(ctx context.Context, self tls.Certificate, csr, body []byte) error {
	conn, err := e.transport.Dial(ctx, e.addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{self}, NextProtos: []string{floorALPN}}, nil)
	if err != nil {
		return fmt.Errorf("dial the floor server: %w", err)
	}
	defer conn.CloseWithError(0, "")
	var request bytes.Buffer
	if err := errors.Join(writeSized(&request, csr), writeSized(&request, body)); err != nil {
		return err
	}
	answer, err := (&floorClient{conn: conn}).call(ctx, floorEnrol, request.Bytes())
	if err == nil && len(answer) < len(body) {
		err = errors.New("the floor enrols nobody")
	}
	return err
}

// signed is one exchange signed and verified both ways.
func (c *floorClient) signed(ctx context.Context, request []byte) ([]byte, error) {
	request, err := floorSign(request)
	if err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, floorSigned, request)
	if err != nil {
		return nil, err
	}
	return floorVerify(answer)
}

// floorAgentContext is an AgentContext for encoding/json as it comes.
type floorAgentContext struct {
	AgentID           string
	AgentName         string
	SubTaskID         string
	SubTaskName       string
	Dependencies      []string
	ContextItems      []struct{ ContextID, ContextType, MediaType, ContextURI, Description, Priority string }
	CompressionPolicy *struct {
		Strategy           string
		TargetRatio        float64
		LossTolerance      string
		MustPreserveFields []string
	} `json:",omitempty"`
	TodoItems []struct {
		ItemID      string `json:"itemID"`
		Description string `json:"description"`
	} `json:"todoItems"`
	ItemStateUpdates []struct {
		ItemID string `json:"itemID"`
		State  int    `json:"state"`
	}
	KeyInformation []struct {
		ItemID         string `json:"itemID"`
		OutputAbstract string `json:"outputabstract"`
	}
	EvaluationPolicy struct {
		SuccessCriteria []struct {
			CriterionID, Description string
			Required                 bool
		}
		ConfidenceThreshold float64
	}
	EvaluationResult struct {
		Status     string
		Confidence float64
	}
	LastUpdated string
	Optional    []string
}

// seal is a context behind its SHA-256.
func (c *floorAgentContext) seal() ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return append(sum[:], body...), nil
}

func openFloorContext(sealed []byte) (*floorAgentContext, error) {
	if len(sealed) < sha256.Size || sha256.Sum256(sealed[sha256.Size:]) != [sha256.Size]byte(sealed[:sha256.Size]) {
		return nil, errors.New("floor context differs from its SHA-256")
	}
	c := new(floorAgentContext)
	return c, json.Unmarshal(sealed[sha256.Size:], c)
}

// exchange sends a context over a fresh stream and reads it back.
func (c *floorClient) exchange(ctx context.Context, agentContext *floorAgentContext) error {
	sealed, err := agentContext.seal()
	if err != nil {
		return err
	}
	answer, err := c.call(ctx, floorContext, sealed)
	if err != nil {
		return err
	}
	_, err = openFloorContext(answer)
	return err
}
