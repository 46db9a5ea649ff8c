package nameserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

var apex = Apex{
	Domain: "a.example", Zone: "a.example", Servers: []string{"ns.elsewhere.example"}, TTL: 5 * time.Minute,
}

var both = []Member{
	{Host: "agw1.a.example", Port: 4433, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
	{Host: "agw.elsewhere.example", Port: 4434, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}},
}

// serve starts a server whose members may be changed.
func serve(t testing.TB, cfg Config, members []Member) (*Server, string, *atomic.Pointer[[]Member]) {
	t.Helper()
	live := new(atomic.Pointer[[]Member])
	live.Store(&members)
	cfg.Members = func() []Member { return *live.Load() }
	s := New(cfg)
	packets, listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, packets, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, packets.LocalAddr().String(), live
}

func ask(name string, qtype uint16) *dns.Msg { return new(dns.Msg).SetQuestion(name, qtype) }

// said is an answer as a few words: its code, then its sections.
func said(m *dns.Msg) []string {
	out := []string{dns.RcodeToString[m.Rcode]}
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if rr.Header().Rrtype == dns.TypeSOA {
				out = append(out, "SOA")
				continue
			}
			out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
		}
	}
	return out
}

func TestAnswers(t *testing.T) {
	z := newZone(apex, both, 1)
	svcb := []string{
		`_dmsc-agw.a.example. 300 IN SVCB 1 agw1.a.example. alpn="dmsc-agw/1,dmsc-ctl/1" port="4433"`,
		`_dmsc-agw.a.example. 300 IN SVCB 1 agw.elsewhere.example. alpn="dmsc-agw/1,dmsc-ctl/1" port="4434"`,
		`agw1.a.example. 300 IN A 192.0.2.1`, `agw1.a.example. 300 IN AAAA 2001:db8::1`,
	}
	for _, c := range []struct {
		name  string
		qtype uint16
		want  []string
	}{
		{"_dmsc-agw.a.example.", dns.TypeSVCB, append([]string{"NOERROR"}, svcb...)},
		{"_DMSC-agw.a.eXample.", dns.TypeSVCB, append([]string{"NOERROR"}, svcb...)},
		{"_dmsc-agw._udp.a.example.", dns.TypeSRV, []string{
			"NOERROR", "_dmsc-agw._udp.a.example. 300 IN SRV 1 1 4433 agw1.a.example.", "_dmsc-agw._udp.a.example. 300 IN SRV 1 1 4434 agw.elsewhere.example.", svcb[2], svcb[3],
		}},
		{"agw1.a.example.", dns.TypeA, []string{"NOERROR", svcb[2]}},
		{"agw1.a.example.", dns.TypeAAAA, []string{"NOERROR", svcb[3]}},
		{"a.example.", dns.TypeSOA, []string{"NOERROR", "SOA"}},
		{"a.example.", dns.TypeNS, []string{"NOERROR", "a.example. 300 IN NS ns.elsewhere.example."}},
		{"a.example.", dns.TypeANY, []string{"NOERROR", `a.example. 60 IN HINFO "RFC8482" ""`}},
		// it is there, but not of that type: also a name that only stands above another
		{"_dmsc-agw.a.example.", dns.TypeTXT, []string{"NOERROR", "SOA"}},
		{"_udp.a.example.", dns.TypeSRV, []string{"NOERROR", "SOA"}},
		{"x.a.example.", dns.TypeA, []string{"NXDOMAIN", "SOA"}},
		{"x.a.example.", dns.TypeANY, []string{"NXDOMAIN", "SOA"}},
		{"b.example.", dns.TypeA, []string{"REFUSED"}},
		{"xa.example.", dns.TypeA, []string{"REFUSED"}},
		{"agw.elsewhere.example.", dns.TypeA, []string{"REFUSED"}},
		{".", dns.TypeNS, []string{"REFUSED"}},
		{"a.example.", dns.TypeAXFR, []string{"REFUSED"}},
		{"a.example.", dns.TypeIXFR, []string{"REFUSED"}},
	} {
		q := ask(c.name, c.qtype)
		m := z.answer(q, maxUDP)
		if d := cmp.Diff(c.want, said(m)); d != "" {
			t.Errorf("%s %s: %s", c.name, dns.TypeToString[c.qtype], d)
		}
		if m.Id != q.Id || !m.Response || m.Question[0].Name != c.name || m.RecursionAvailable || m.Truncated || m.Authoritative != (c.want[0] != "REFUSED") {
			t.Errorf("%s %s: %+v", c.name, dns.TypeToString[c.qtype], m.MsgHdr)
		}
	}
	chaos := ask("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	notify := ask("a.example.", dns.TypeSOA)
	notify.Opcode = dns.OpcodeNotify
	for _, q := range []*dns.Msg{chaos, notify} {
		if m := z.answer(q, maxUDP); len(said(m)) != 1 || m.Rcode != dns.RcodeRefused && m.Rcode != dns.RcodeNotImplemented {
			t.Errorf("%v", m)
		}
	}
}

func TestEDNS(t *testing.T) {
	z := newZone(apex, both, 1)
	if m := z.answer(ask("a.example.", dns.TypeNS), maxUDP); m.IsEdns0() != nil {
		t.Error("who has not asked by EDNS is answered by it")
	}
	q := ask("_dmsc-agw.a.example.", dns.TypeSVCB).SetEdns0(4096, true)
	m := z.answer(q, maxUDP)
	if opt := m.IsEdns0(); opt == nil || opt.UDPSize() != maxUDP || opt.Version() != 0 || !opt.Do() {
		t.Errorf("%v", m)
	}
	q.IsEdns0().SetVersion(1)
	m = z.answer(q, maxUDP)
	if m.Rcode != dns.RcodeBadVers || len(m.Answer) != 0 || m.IsEdns0() == nil || m.IsEdns0().Version() != 0 {
		t.Errorf("version 1: %v", m)
	}
	if raw, err := m.Pack(); err != nil || new(dns.Msg).Unpack(raw) != nil {
		t.Error(err)
	}
	q = ask("a.example.", dns.TypeNS).SetEdns0(1232, false)
	q.SetEdns0(1232, false)
	if m := z.answer(q, maxUDP); m.Rcode != dns.RcodeFormatError {
		t.Errorf("two OPT records: %v", m)
	}
}

func crowd(n int) (out []Member) {
	for i := range n {
		out = append(out, Member{Host: fmt.Sprintf("gateway-number-%d.a.example", i), Port: 4433, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}})
	}
	return out
}

// What is too long is cut, what is only beside it is left out without a word, and over TCP all of it comes.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		members, size, limit int
		cut                  bool
	}{{3, 0, maxUDP, false}, {8, 0, maxUDP, true}, {8, 4096, maxUDP, false}, {100, 4096, maxUDP, true}, {100, 512, dns.MaxMsgSize, false}, {100, 0, dns.MaxMsgSize, false}} {
		q := ask("_dmsc-agw.a.example.", dns.TypeSVCB)
		most := dns.MinMsgSize
		if c.size != 0 {
			q.SetEdns0(uint16(c.size), false)
			most = max(most, c.size)
		}
		if most = min(most, maxUDP); c.limit > maxUDP {
			most = c.limit
		}
		m := newZone(apex, crowd(c.members), 1).answer(q, c.limit)
		raw, err := m.Pack()
		if err != nil || len(raw) > most || m.Truncated != c.cut || !c.cut && len(m.Answer) != c.members || (m.IsEdns0() != nil) != (c.size != 0) {
			t.Errorf("%+v: %d octets of %d, cut %v, %d records: %v", c, len(raw), most, m.Truncated, len(m.Answer), err)
		}
	}
}

// A zone that is delegated further down has the records that the domain's own are an alias of.
func TestZoneBelowTheDomain(t *testing.T) {
	for zone, owner := range map[string]string{"agw.a.example": "_dmsc-agw.agw.a.example.", "_dmsc-agw.a.example": "_dmsc-agw.a.example.", "A.Example": "_dmsc-agw.a.example."} {
		low := apex
		low.Zone = zone
		if m := newZone(low, both, 1).answer(ask(owner, dns.TypeSVCB), maxUDP); len(m.Answer) != 2 {
			t.Errorf("%s: %v", zone, m)
		}
	}
}

func TestMembersThatAreNone(t *testing.T) {
	z := newZone(apex, []Member{both[0], both[0], {Host: "", Port: 1}, {Host: strings.Repeat("x", 64) + ".example", Port: 1}, {Host: "x.example"}}, 1)
	if m := z.answer(ask("_dmsc-agw.a.example.", dns.TypeSVCB), maxUDP); len(m.Answer) != 1 {
		t.Errorf("%v", m)
	}
}

// The records are those of who is live when the question comes, and the serial number of the zone grows with every change.
func TestServe(t *testing.T) {
	s, addr, live := serve(t, Config{Apex: apex}, both)
	for _, network := range []string{"udp", "tcp"} {
		live.Store(&both)
		c := &dns.Client{Net: network}
		count := func(want int) uint32 {
			t.Helper()
			m, _, err := c.Exchange(ask("_dmsc-agw.a.example.", dns.TypeSVCB), addr)
			if err != nil || len(m.Answer) != want {
				t.Fatalf("%s: %v, %v; want %d", network, m, err, want)
			}
			soa, _, err := c.Exchange(ask("a.example.", dns.TypeSOA), addr)
			if err != nil {
				t.Fatal(err)
			}
			return soa.Answer[0].(*dns.SOA).Serial
		}
		before := count(2)
		one := both[:1]
		live.Store(&one)
		if after := count(1); after <= before {
			t.Errorf("serial number %d after %d", after, before)
		}
		live.Store(&[]Member{})
		m, _, err := c.Exchange(ask("_dmsc-agw.a.example.", dns.TypeSVCB), addr)
		if err != nil || m.Rcode != dns.RcodeNameError {
			t.Errorf("nobody is live: %v, %v", m, err)
		}
	}
	if s.Stats().Answered < 10 || len(s.Records()) != 2 {
		t.Errorf("%+v %q", s.Stats(), s.Records())
	}
}

// Nobody can have much sent to a network: beyond its rate half of the questions are told to come back over TCP, the others nothing.
func TestRate(t *testing.T) {
	_, addr, _ := serve(t, Config{Apex: apex, Rate: 0.001}, both)
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	full, cut := 0, 0
	for i := range 2 * answerBurst {
		q := ask("_dmsc-agw.a.example.", dns.TypeSVCB)
		raw, _ := q.Pack()
		if _, err := c.Write(raw); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		wait := 2 * time.Second
		if i >= answerBurst && i%2 == 1 {
			wait = time.Millisecond
		}
		c.SetReadDeadline(time.Now().Add(wait))
		n, err := c.Read(buf)
		if err != nil {
			continue
		}
		var m dns.Msg
		if err := m.Unpack(buf[:n]); err != nil {
			t.Fatal(err)
		}
		if m.Truncated {
			if cut++; n > len(raw) || len(m.Answer) != 0 {
				t.Errorf("an answer of %d octets to a question of %d", n, len(raw))
			}
		} else {
			full++
		}
	}
	if full != answerBurst || cut != answerBurst/2 {
		t.Errorf("%d answers, %d cut", full, cut)
	}
	if m, _, err := (&dns.Client{Net: "tcp"}).Exchange(ask("_dmsc-agw.a.example.", dns.TypeSVCB), addr); err != nil || len(m.Answer) != 2 {
		t.Errorf("over TCP: %v, %v", m, err)
	}
}

func TestRateIsOfANetwork(t *testing.T) {
	l := newLimits(0.001)
	judge := func(addr string) verdict {
		return l.judge(network(net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr))))
	}
	for range answerBurst {
		judge("192.0.2.1:53")
		judge("[2001:db8:0:100::1]:53")
	}
	for addr, want := range map[string]verdict{
		"192.0.2.254:1": cut, "192.0.3.1:53": pass, "[::ffff:192.0.2.7]:53": drop, "[2001:db8:0:1ff::2]:1": cut, "[2001:db8:0:200::1]:53": pass,
	} {
		if got := judge(addr); (got == pass) != (want == pass) {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
	for i := range 2 * networksKept {
		judge(fmt.Sprintf("10.%d.%d.1:53", i>>8, i&255))
	}
	if n := l.by.Len(); n != networksKept {
		t.Errorf("%d networks are kept", n)
	}
}

// Who holds connections open holds few of them, and not for long.
func TestConnections(t *testing.T) {
	_, addr, _ := serve(t, Config{Apex: apex}, both)
	var held []net.Conn
	for range connsNetwork {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	over, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	over.SetReadDeadline(time.Now().Add(connTime / 2))
	if _, err := over.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("one too many: %v", err)
	}
	for _, c := range held {
		c.SetReadDeadline(time.Now().Add(connTime + 2*time.Second))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("a connection that says nothing: %v", err)
		}
	}
	if m, _, err := (&dns.Client{Net: "tcp"}).Exchange(ask("a.example.", dns.TypeNS), addr); err != nil || len(m.Answer) != 1 {
		t.Errorf("their places are free: %v, %v", m, err)
	}
}

// The names of [Config.Hosts] have addresses, and what is malformed costs nothing.
func TestOwnHostAndGarbage(t *testing.T) {
	own := apex
	own.Servers, own.Hosts = []string{"ns.a.example"}, map[string][]netip.Addr{"ns.a.example": {netip.MustParseAddr("192.0.2.53")}}
	_, addr, _ := serve(t, Config{Apex: own}, nil)
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, _ := ask("a.example.", dns.TypeNS).Pack()
	for _, garbage := range [][]byte{{}, {1}, raw[:11], raw[:len(raw)-1], bytes.Repeat([]byte{0xff}, 2000), append(slices.Clone(raw[:12]), 0xc0, 12, 0, 1, 0, 1)} {
		if _, err := c.Write(garbage); err != nil {
			t.Fatal(err)
		}
	}
	m, _, err := new(dns.Client).Exchange(ask("a.example.", dns.TypeNS), addr)
	if err != nil || len(m.Answer) != 1 || len(m.Extra) != 1 {
		t.Errorf("%v, %v", m, err)
	}
}

// The real dig finds exactly the live members, before and after one goes.
func TestDig(t *testing.T) {
	dig, err := exec.LookPath("dig")
	if err != nil { // the same questions are asked by our own client in the other tests
		t.Skip("dig is not installed (bind9-dnsutils): ", err)
	}
	_, addr, live := serve(t, Config{Apex: apex}, both)
	_, port, _ := net.SplitHostPort(addr)
	look := func(args ...string) []string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), dig, append([]string{"@127.0.0.1", "-p", port, "+short", "+norecurse", "+tries=1", "+time=5"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		slices.Sort(lines)
		return lines
	}
	svcb := []string{`1 agw.elsewhere.example. alpn="dmsc-agw/1,dmsc-ctl/1" port=4434`, `1 agw1.a.example. alpn="dmsc-agw/1,dmsc-ctl/1" port=4433`}
	srv := []string{"1 1 4433 agw1.a.example.", "1 1 4434 agw.elsewhere.example."}
	check := func(svcb, srv []string) {
		t.Helper()
		for _, more := range [][]string{nil, {"+tcp"}, {"+noedns"}} {
			if d := cmp.Diff(svcb, look(append([]string{"_dmsc-agw.a.example", "SVCB"}, more...)...)); d != "" {
				t.Errorf("SVCB %v: %s", more, d)
			}
			if d := cmp.Diff(srv, look(append([]string{"_dmsc-agw._udp.a.example", "SRV"}, more...)...)); d != "" {
				t.Errorf("SRV %v: %s", more, d)
			}
		}
	}
	check(svcb, srv)
	one := both[:1]
	live.Store(&one)
	check(svcb[1:], srv[:1])
}

// FuzzAnswer asks what anybody may: nothing panics, an answer is one and fits.
func FuzzAnswer(f *testing.F) {
	z := newZone(apex, append(crowd(30), both...), 1)
	for _, q := range []*dns.Msg{ask("_dmsc-agw.a.example.", dns.TypeSVCB).SetEdns0(4096, true), ask("a.example.", dns.TypeANY), ask("x.a.example.", dns.TypeIXFR), ask(".", dns.TypeNS)} {
		raw, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)-1])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var q dns.Msg
		if q.Unpack(raw) != nil || len(q.Question) != 1 || q.Response {
			return // the library answers, or says nothing
		}
		for _, limit := range []int{maxUDP, dns.MaxMsgSize} {
			m := z.answer(&q, limit)
			out, err := m.Pack()
			if err != nil || len(out) > limit || m.Id != q.Id || m.Question[0] != q.Question[0] {
				t.Fatalf("%v: %d octets, %v", m, len(out), err)
			}
		}
	})
}

// BenchmarkAnswers is our answers a second beside those of a handler of the library that copies one record, in the same run and by turns; the
// ratio's bar is 0.8.
func BenchmarkAnswers(b *testing.B) {
	_, ours, _ := serve(b, Config{Apex: apex, Rate: 1e9}, both[:1])
	fixed := newZone(apex, both[:1], 1).answer(ask("_dmsc-agw.a.example.", dns.TypeSVCB), maxUDP)
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	static := &dns.Server{PacketConn: packets, UDPSize: maxUDP, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Answer, m.Extra = fixed.Answer, fixed.Extra
		w.WriteMsg(m)
	})}
	var running sync.WaitGroup
	running.Go(func() { static.ActivateAndServe() })
	defer running.Wait()
	defer static.Shutdown()
	var took [2]time.Duration
	asked := 0
	const block = 2000
	for b.Loop() {
		for i, addr := range []string{ours, packets.LocalAddr().String()} {
			took[i] += burst(b, addr, block)
		}
		asked += block
	}
	b.ReportMetric(float64(asked)/took[0].Seconds(), "answers/s")
	b.ReportMetric(float64(asked)/took[1].Seconds(), "static/s")
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
}

// burst asks n times over eight sockets.
func burst(b *testing.B, addr string, n int) time.Duration {
	const sockets = 8
	raw, err := ask("_dmsc-agw.a.example.", dns.TypeSVCB).Pack()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	var running sync.WaitGroup
	for range sockets {
		running.Go(func() {
			c, err := net.Dial("udp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.Close()
			buf := make([]byte, 4096)
			for range n / sockets {
				c.SetDeadline(time.Now().Add(2 * time.Second))
				_, err := c.Write(raw)
				if err == nil {
					_, err = c.Read(buf)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	return time.Since(began)
}
