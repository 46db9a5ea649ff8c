package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gowebpki/jcs"

	"agentgw/directory/store"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// The floors of registration: decode the ACS, take its hash over the canonical form, keep it, synced, and answer with it. That of
// ENROL has a handshake with certificates of both sides, a request that is verified, two P-256 signatures with the certificate
// read back in between, and a log line that is synced. Badger is bare, with the profile of the directory's database.

const (
	floorPut    = 'p' // long-lived stream; synced
	floorPutCPU = 'u' // the same, kept in memory
	floorBadger = 'b' // fresh stream; so many synced commits by putClients at once
	floorEnrol  = 'n' // connection and stream of its own

	floorPutMax = 64 << 10
)

// floorStore is what the floors keep.
type floorStore struct {
	put    func(key string, value []byte) error // synced
	ca     tls.Certificate
	stand  crypto.Signer // signs drafts
	close  func() error
	mu     sync.Mutex // guards the rest
	memory map[string][]byte
	audit  *os.File
	serial int64
}

func openFloorStore(dir string) (*floorStore, error) {
	db, lock, err := store.OpenDB(filepath.Join(dir, "db"), 1, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	s := &floorStore{memory: map[string][]byte{}}
	s.put = func(key string, value []byte) error {
		tx := db.NewTransaction(true)
		defer tx.Discard()
		if err := tx.Set([]byte(key), value); err != nil {
			return err
		}
		return tx.Commit()
	}
	s.close = func() error { return errors.Join(db.Close(), lock.Close(), s.audit.Close()) }
	if s.audit, err = os.OpenFile(filepath.Join(dir, "audit"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	key, err := identity.NewLeafKey()
	if err != nil {
		return nil, err
	}
	if s.stand, err = identity.NewLeafKey(); err != nil {
		return nil, err
	}
	s.ca, err = identity.SelfSigned(key)
	return s, err
}

// floorRecord is what is kept of one agent.
type floorRecord struct {
	_    struct{} `cbor:",toarray"`
	Hash []byte
	ACS  []byte
}

// acsOf decodes an ACS and makes the record and the answer.
func acsOf(body []byte) (record []byte, err error) {
	var doc map[string]any
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	doc["lastModified"] = "2026-01-01T00:00:00Z"
	out, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	canonical, err := jcs.Transform(out)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(canonical)
	return frame.Marshal(floorRecord{Hash: sum[:], ACS: out})
}

// answerPuts answers the puts of a long-lived stream.
func (s *floorStore) answerPuts(stream io.ReadWriter, kind byte) {
	key := rand.Text()
	for {
		body, err := readSized(stream)
		if err != nil {
			return
		}
		record, err := acsOf(body)
		if err != nil {
			return
		}
		if kind == floorPut {
			err = s.put(key, record)
		} else {
			s.mu.Lock()
			s.memory[key] = record
			s.mu.Unlock()
		}
		if err != nil || writeSized(stream, record) != nil {
			return
		}
	}
}

// oneByOne commits as putClients clients, each one record after the other.
func (s *floorStore) oneByOne(body []byte) error {
	record, err := acsOf(body)
	if err != nil {
		return err
	}
	errs := make([]error, putClients)
	var running sync.WaitGroup
	for i := range putClients {
		running.Go(func() {
			for range putRounds {
				if errs[i] = s.put(fmt.Sprint("client", i), record); errs[i] != nil {
					return
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// enrol answers a request: its length, itself, and the ACS.
func (s *floorStore) enrol(request []byte) ([]byte, error) {
	r := bytes.NewReader(request)
	raw, err := readSized(r)
	if err != nil {
		return nil, err
	}
	body, err := readSized(r)
	if err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(raw)
	if err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.serial++
	serial := s.serial
	s.mu.Unlock()
	name := fmt.Sprint("agent", serial)
	der, err := s.sign(name, serial, csr)
	if err != nil {
		return nil, err
	}
	record, err := acsOf(body)
	if err != nil {
		return nil, err
	}
	if err := s.put(name, record); err != nil {
		return nil, err
	}
	line, err := json.Marshal(map[string]any{"time": time.Now().UTC(), "kind": "agent.registered", "aic": name, "hash": fmt.Sprintf("%x", sha256.Sum256(record))})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.audit.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	return append(der, record...), s.audit.Sync()
}

// sign signs a draft, looks at it, and signs it in earnest.
func (s *floorStore) sign(name string, serial int64, csr *x509.CertificateRequest) ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1<<60 + serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	posing := *s.ca.Leaf
	posing.PublicKey = s.stand.Public()
	draft, err := x509.CreateCertificate(rand.Reader, template, &posing, csr.PublicKey, s.stand)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(draft)
	if err != nil {
		return nil, err
	}
	if cert.Subject.CommonName != name || len(cert.ExtKeyUsage) != 2 || cert.IsCA {
		return nil, errors.New("floor certificate breaks its profile")
	}
	return x509.CreateCertificate(rand.Reader, template, s.ca.Leaf, csr.PublicKey, s.ca.PrivateKey)
}

func readSized(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > floorPutMax {
		return nil, fmt.Errorf("floor record of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

func writeSized(w io.Writer, body []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// floorPutter is one client of the floor, with a stream of each kind.
type floorPutter struct {
	synced, memory io.ReadWriter
	body           []byte
}

func (c *floorClient) newPutter(ctx context.Context, body []byte) (*floorPutter, error) {
	synced, err := c.open(ctx, floorPut)
	if err != nil {
		return nil, err
	}
	memory, err := c.open(ctx, floorPutCPU)
	return &floorPutter{synced, memory, body}, err
}

func (p *floorPutter) put(kind byte) error {
	stream := p.synced
	if kind == floorPutCPU {
		stream = p.memory
	}
	if err := writeSized(stream, p.body); err != nil {
		return err
	}
	_, err := readSized(stream)
	return err
}

// oneByOne is the time of one of many commits that Badger is given at once.
func (c *floorClient) oneByOne(ctx context.Context) (time.Duration, error) {
	body, err := putSample("Badger", "One.")
	if err != nil {
		return 0, err
	}
	at := time.Now()
	_, err = c.call(ctx, floorBadger, body)
	return time.Since(at) / (putClients * putRounds), err
}
