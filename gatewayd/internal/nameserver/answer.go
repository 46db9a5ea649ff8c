package nameserver

import (
	"slices"

	"github.com/miekg/dns"
)

// maxUDP is the most that is sent over UDP: it passes everywhere in one packet.
const maxUDP = 1232

// answer is the reply to a question with exactly one entry, of at most limit octets. It changes nothing.
func (z *zone) answer(q *dns.Msg, limit int) *dns.Msg {
	m := &dns.Msg{Question: q.Question} // as it came: some compare the case of its letters
	m.Id, m.Response, m.Opcode, m.RecursionDesired = q.Id, true, q.Opcode, q.RecursionDesired
	limit = edns(q, m, limit)
	if m.Rcode != dns.RcodeSuccess {
		return m
	}
	asked := q.Question[0]
	switch {
	case q.Opcode != dns.OpcodeQuery:
		m.Rcode = dns.RcodeNotImplemented
	case asked.Qclass != dns.ClassINET || asked.Qtype == dns.TypeAXFR || asked.Qtype == dns.TypeIXFR:
		m.Rcode = dns.RcodeRefused
	default:
		z.look(m, asked)
	}
	z.fit(m, limit)
	return m
}

// edns reads the OPT record of a question and answers it; the result is how long the answer may be. RFC 6891, sections 6.1.1 and 6.1.3: two
// are an error of form, and of a version that we do not know only that is said.
func edns(q, m *dns.Msg, limit int) int {
	var opt *dns.OPT
	for _, rr := range q.Extra {
		o, ok := rr.(*dns.OPT)
		if !ok {
			continue
		}
		if opt != nil {
			m.Rcode = dns.RcodeFormatError
		}
		opt = o
	}
	size := dns.MinMsgSize
	if opt != nil {
		m.SetEdns0(maxUDP, opt.Do())
		if opt.Version() != 0 && m.Rcode == dns.RcodeSuccess {
			m.Rcode = dns.RcodeBadVers
		}
		size = max(size, int(opt.UDPSize()))
	}
	if limit > maxUDP { // over TCP, where the asker's size says nothing
		return limit
	}
	return min(limit, size)
}

// look fills in what the zone says.
func (z *zone) look(m *dns.Msg, asked dns.Question) {
	name := dns.CanonicalName(asked.Name)
	if !z.holds(name) {
		m.Rcode = dns.RcodeRefused
		return
	}
	m.Authoritative = true
	set, exists := z.names[name]
	switch {
	case !exists:
		m.Rcode = dns.RcodeNameError
	case asked.Qtype == dns.TypeANY: // RFC 8482, section 4.2
		m.Answer = []dns.RR{&dns.HINFO{Hdr: dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeHINFO, Class: dns.ClassINET, Ttl: negativeTTL}, Cpu: "RFC8482"}}
		return
	default:
		m.Answer = slices.Clone(set[asked.Qtype])
	}
	if len(m.Answer) == 0 { // RFC 2308, section 3: others remember it for as long as the SOA's TTL
		m.Ns = []dns.RR{z.soa}
		return
	}
	for _, rr := range m.Answer {
		switch v := rr.(type) {
		case *dns.SVCB:
			m.Extra = z.glue(m.Extra, v.Target)
		case *dns.SRV:
			m.Extra = z.glue(m.Extra, v.Target)
		case *dns.NS:
			m.Extra = z.glue(m.Extra, v.Ns)
		}
	}
}

// glue adds the addresses of a host in the zone, before an OPT record or after it.
func (z *zone) glue(extra []dns.RR, host string) []dns.RR {
	set := z.names[host]
	for _, list := range [][]dns.RR{set[dns.TypeA], set[dns.TypeAAAA]} {
		if len(list) > 0 && !slices.Contains(extra, list[0]) { // several members on one host
			extra = append(extra, list...)
		}
	}
	return extra
}

// fit cuts a reply to size: first what was not asked for, without a word, then records of the answer, with TC.
func (z *zone) fit(m *dns.Msg, limit int) {
	if m.Len() <= limit { // without compression; most are
		return
	}
	m.Compress = true
	if m.Len() <= limit {
		return
	}
	m.Extra = slices.DeleteFunc(m.Extra, func(rr dns.RR) bool { return rr.Header().Rrtype != dns.TypeOPT })
	m.Truncate(limit)
}
