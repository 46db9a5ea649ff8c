package discovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/miekg/dns"
)

// reply is what one question has brought, and nothing that was not asked for.
type reply struct {
	records   []dns.RR // of the type asked for, at the end of the chain of CNAMEs; none: they do not exist
	name      string   // that end
	further   bool     // it has to be asked for by itself
	aliases   int      // of the chain
	ttl       uint32   // seconds, the least of the chain and the records; of no records as much as there is
	validated Validated
	ad        bool
}

// Outcomes of [readReply] that are no answer, and no failure of the server either.
var (
	errStray     = errors.New("not an answer to the question")
	errTruncated = errors.New("the answer is cut: ask over TCP")
)

// newQuery is the packet of a question. RFC 6840, section 5.7: with AD set a resolver says whether it has validated the answer.
func newQuery(name string, qtype uint16, ad bool) (raw []byte, q dns.Question, id uint16, err error) {
	m := new(dns.Msg)
	m.SetQuestion(name, qtype) // with a random id
	m.AuthenticatedData = ad
	m.SetEdns0(udpSize, false)
	raw, err = m.Pack()
	return raw, m.Question[0], m.Id, err
}

const headerSize = 12 // RFC 1035, section 4.1.1

// readReply reads what came as the answer to a question. What does not belong to the question (other owners, other types, the authority and
// additional sections) is left out: nobody answers for what was not asked. It is [errStray] for a packet that is no answer at all,
// and any other error for an answer that says nothing about the name.
func readReply(raw []byte, q dns.Question, id uint16) (*reply, error) {
	if len(raw) < headerSize || binary.BigEndian.Uint16(raw) != id || raw[2]&0x80 == 0 {
		return nil, errStray
	}
	var m dns.Msg
	err := m.Unpack(raw)
	switch {
	case len(m.Question) != 1 || m.Question[0].Qtype != q.Qtype || m.Question[0].Qclass != q.Qclass || !same(m.Question[0].Name, q.Name):
		if err != nil {
			return nil, fmt.Errorf("the answer is malformed: %w", err)
		}
		return nil, errStray
	case m.Truncated:
		return nil, errTruncated
	case err != nil:
		return nil, fmt.Errorf("the answer is malformed: %w", err)
	case m.Opcode != dns.OpcodeQuery:
		return nil, errStray
	}
	r := &reply{name: q.Name, ttl: math.MaxUint32, ad: m.AuthenticatedData}
	if err := r.follow(&m, q.Qtype); err != nil {
		return nil, err
	}
	switch {
	case m.Rcode == dns.RcodeNameError: // of the end of the chain
		r.records = nil
	case m.Rcode != dns.RcodeSuccess:
		return nil, fmt.Errorf("the answer is %s", dns.RcodeToString[m.Rcode])
	case len(r.records) == 0 && r.aliases > 0:
		r.further = true
	case len(r.records) == 0 && !m.Authoritative && !m.RecursionAvailable:
		return nil, errors.New("it refers to other servers: name one that resolves for its clients")
	}
	return r, nil
}

// follow goes along the CNAMEs of an answer to the records that were asked for.
func (r *reply) follow(m *dns.Msg, qtype uint16) error {
	for {
		next := ""
		for _, rr := range m.Answer {
			h := rr.Header()
			if h.Class != dns.ClassINET || !same(h.Name, r.name) {
				continue
			}
			switch h.Rrtype {
			case qtype:
				r.records, r.ttl = append(r.records, rr), min(r.ttl, h.Ttl)
			case dns.TypeCNAME:
				if c, ok := rr.(*dns.CNAME); ok {
					next, r.ttl = c.Target, min(r.ttl, h.Ttl)
				}
			}
		}
		if len(r.records) > 0 || next == "" {
			return nil
		}
		if r.aliases++; r.aliases > maxAliases {
			return errAliases(r.name)
		}
		r.name = next
	}
}

// same compares names as DNS does, where the case of ASCII letters says nothing.
func same(a, b string) bool { return dns.CanonicalName(a) == dns.CanonicalName(b) }
