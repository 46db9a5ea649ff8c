package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

func testResponder(t testing.TB, ca *CA) (*Responder, *statuses) {
	t.Helper()
	known := &statuses{}
	r, err := NewResponder(ca, known.status, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return r, known
}

func ask(t testing.TB, leaf, issuer *x509.Certificate, hash crypto.Hash) []byte {
	t.Helper()
	der, err := ocsp.CreateRequest(leaf, issuer, &ocsp.RequestOptions{Hash: hash})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func answerOf(t testing.TB, r *Responder, leaf, issuer *x509.Certificate, now time.Time) *ocsp.Response {
	t.Helper()
	der, _, err := r.Answer(ask(t, leaf, issuer, crypto.SHA256), now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ocsp.ParseResponseForCert(der, leaf, issuer)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestOCSPAnswersGoodRevokedUnknown(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now()
	r, known := testResponder(t, ca)
	c := issue(t, ca, profiles(t)[Agent], now)
	if got := answerOf(t, r, c[0], c[1], now); got.Status != ocsp.Unknown {
		t.Error("before it is known:", got.Status)
	}
	known.set(c[0].SerialNumber, Status{})
	got := answerOf(t, r, c[0], c[1], now)
	if got.Status != ocsp.Good || got.NextUpdate.Sub(got.ThisUpdate) > time.Hour || got.NextUpdate.After(got.Certificate.NotAfter) {
		t.Error(got.Status, got.ThisUpdate, got.NextUpdate)
	}
	if got.Certificate == nil || got.Certificate.CheckSignatureFrom(c[1]) != nil || Check(got.Certificate, Profile{Kind: OCSP, Name: got.Certificate.Subject.CommonName}, c[1], Limits{}, now) != nil {
		t.Error("the responder's certificate is not of its profile")
	}
	at := now.Add(-time.Minute).UTC().Truncate(time.Second)
	for _, s := range []Status{{true, ReasonHold, at}, {true, 1, at}, {}} {
		known.set(c[0].SerialNumber, s)
		got := answerOf(t, r, c[0], c[1], now)
		if revoked := got.Status == ocsp.Revoked; revoked != s.Revoked || revoked && (got.RevocationReason != s.Reason || !got.RevokedAt.Equal(at)) {
			t.Errorf("%+v: %d %d %s", s, got.Status, got.RevocationReason, got.RevokedAt)
		}
	}
}

func TestOCSPAnswersAreKeptForHalfTheirLife(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now()
	r, known := testResponder(t, ca)
	c := issue(t, ca, profiles(t)[Agent], now)
	known.set(c[0].SerialNumber, Status{})
	get := func(at time.Time) []byte {
		der, _, err := r.Answer(ask(t, c[0], c[1], crypto.SHA1), at)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	first := get(now)
	if !bytes.Equal(first, get(now.Add(29*time.Minute))) {
		t.Error("signed again within half of its life")
	}
	if bytes.Equal(first, get(now.Add(31*time.Minute))) {
		t.Error("kept beyond half of its life")
	}
	if bytes.Equal(get(now), get(now.Add(-time.Minute))) {
		t.Error("an answer from the future is kept")
	}
	unknown := issue(t, ca, profiles(t)[Agent], now)
	_ = answerOf(t, r, unknown[0], c[1], now)
	if r.kept.Len() != 1 {
		t.Errorf("%d answers are kept: a serial that is not known is among them", r.kept.Len())
	}
}

func TestOCSPAnswerDoesNotOutliveWhoSignedIt(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now()
	r, known := testResponder(t, ca)
	c, late := issue(t, ca, profiles(t)[Agent], now), issue(t, ca, profiles(t)[Agent], now)
	known.set(c[0].SerialNumber, Status{})
	_ = answerOf(t, r, c[0], c[1], now)
	got := answerOf(t, r, late[0], c[1], now.Add(29*time.Minute))
	if left := got.NextUpdate.Sub(got.ThisUpdate); left > 31*time.Minute+time.Second || got.NextUpdate.After(got.Certificate.NotAfter) {
		t.Error("the answer lives", left)
	}
	known.forget(c[0].SerialNumber)
	if got := answerOf(t, r, c[0], c[1], now); got.Status != ocsp.Unknown {
		t.Error("a kept answer speaks for a serial that is known no more:", got.Status)
	}
}

func TestOCSPResponderIsRenewedAtHalfLife(t *testing.T) {
	ca, now := testCA(t, Options{Limits: Limits{Issuing: 100 * time.Minute}}), time.Now()
	by := ca.view.Load().issuing
	serial := func(at time.Time) *x509.Certificate {
		p, err := ca.responder(by, at)
		if err != nil {
			t.Fatal(err)
		}
		return p.cert
	}
	first := serial(now)
	if again := serial(now.Add(29 * time.Minute)); !again.Equal(first) {
		t.Error("renewed before half of its life")
	}
	second := serial(now.Add(31 * time.Minute))
	if second.Equal(first) {
		t.Error("not renewed")
	}
	last := serial(now.Add(62 * time.Minute))
	if !last.NotAfter.Equal(by.cert.NotAfter) || !serial(now.Add(95*time.Minute)).Equal(last) {
		t.Error("one that ends with its issuing CA is renewed over and over")
	}
	if len(ca.responders) != 1 {
		t.Errorf("%d responders", len(ca.responders))
	}
}

func TestOCSPRefusesWhatIsNoRequestOfOurs(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now()
	r, _ := testResponder(t, ca)
	c, stranger := issue(t, ca, profiles(t)[Agent], now), issue(t, testCA(t, Options{Domain: "y.example"}), profiles(t)[Agent], now)
	good := ask(t, c[0], c[1], crypto.SHA1)
	shaped := func(change func(*ocsp.Request)) []byte {
		req, err := ocsp.ParseRequest(good)
		if err != nil {
			t.Fatal(err)
		}
		change(req)
		der, err := req.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	for name, x := range map[string]struct {
		request []byte
		want    []byte
		at      time.Time
	}{
		"name of another":    {shaped(func(r *ocsp.Request) { r.IssuerNameHash = make([]byte, 20) }), ocsp.UnauthorizedErrorResponse, now},
		"key of another":     {shaped(func(r *ocsp.Request) { r.IssuerKeyHash = make([]byte, 20) }), ocsp.UnauthorizedErrorResponse, now},
		"long but whole":     {shaped(func(r *ocsp.Request) { r.IssuerKeyHash = make([]byte, maxOCSPRequest) }), ocsp.MalformedRequestErrorResponse, now},
		"nothing":            {nil, ocsp.MalformedRequestErrorResponse, now},
		"trailing octets":    {append(bytes.Clone(good), 0), ocsp.MalformedRequestErrorResponse, now},
		"issuer of another":  {ask(t, stranger[0], stranger[1], crypto.SHA1), ocsp.UnauthorizedErrorResponse, now},
		"issuing CA":         {ask(t, c[1], ca.Root(), crypto.SHA1), ocsp.UnauthorizedErrorResponse, now},
		"issuing CA's end":   {good, ocsp.UnauthorizedErrorResponse, c[1].NotAfter.Add(time.Second)},
		"serial of 21 octet": {ask(t, &x509.Certificate{SerialNumber: new(big.Int).Lsh(big.NewInt(1), 161)}, c[1], crypto.SHA1), ocsp.MalformedRequestErrorResponse, now},
	} {
		if got, until, err := r.Answer(x.request, x.at); err != nil || !bytes.Equal(got, x.want) || !until.IsZero() {
			t.Errorf("%s: %x %v", name, got, err)
		}
	}
	for n := range len(good) {
		if got, _, err := r.Answer(good[:n], now); err != nil || !bytes.Equal(got, ocsp.MalformedRequestErrorResponse) {
			t.Fatalf("cut at %d: %x %v", n, got, err)
		}
	}
}

func FuzzOCSPRequest(f *testing.F) {
	ca, now := testCA(f, Options{}), time.Now()
	r, known := testResponder(f, ca)
	c := issue(f, ca, profiles(f)[Agent], now)
	known.set(c[0].SerialNumber, Status{})
	for _, h := range []crypto.Hash{crypto.SHA1, crypto.SHA256, crypto.SHA384, crypto.SHA512} {
		f.Add(ask(f, c[0], c[1], h))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		der, _, err := r.Answer(request, now)
		if err != nil {
			t.Fatal(err)
		}
		var refused ocsp.ResponseError
		if _, err := ocsp.ParseResponse(der, c[1]); err != nil && !errors.As(err, &refused) {
			t.Fatal(err)
		}
	})
}

// get asks the site as a relying party does.
// fetched is a response without its body.
type fetched struct {
	StatusCode int
	Header     http.Header
}

func get(t *testing.T, method, at string, body io.Reader) (fetched, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, at, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fetched{resp.StatusCode, resp.Header}, raw
}

func TestSiteServesWhatCertificatesName(t *testing.T) {
	var site http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { site.ServeHTTP(w, r) }))
	defer server.Close()
	ca, now := testCA(t, Options{BaseURL: server.URL}), time.Now()
	r, known := testResponder(t, ca)
	s := NewSite(ca, r)
	site = s
	c := issue(t, ca, Profile{Kind: Agent, AIC: testAIC(t, "1")}, now)
	if resp, _ := get(t, "GET", c[0].CRLDistributionPoints[0], nil); resp.StatusCode != 404 {
		t.Error("a CRL before there is one:", resp.StatusCode)
	}
	full, err := ca.CRL([]Revoked{{Serial: big.NewInt(5), At: now}}, big.NewInt(2), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	delta, err := ca.DeltaCRL(nil, nil, big.NewInt(1), big.NewInt(2), now, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s.Publish(full, delta)
	for _, x := range []struct {
		at, contentType string
		want            []byte
	}{
		{c[0].CRLDistributionPoints[0], "application/pkix-crl", full[keyID(c[1])]},
		{strings.Replace(c[0].CRLDistributionPoints[0], ".crl", "-delta.crl", 1), "application/pkix-crl", delta[keyID(c[1])]},
		{c[1].CRLDistributionPoints[0], "application/pkix-crl", full[keyID(ca.Root())]},
		{c[0].IssuingCertificateURL[0], "application/pkix-cert", c[1].Raw},
		{c[1].IssuingCertificateURL[0], "application/pkix-cert", ca.Root().Raw},
	} {
		resp, raw := get(t, "GET", x.at, nil)
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != x.contentType || !bytes.Equal(raw, x.want) || len(raw) == 0 {
			t.Error(x.at, resp.StatusCode, resp.Header)
		}
	}
	known.set(c[0].SerialNumber, Status{})
	der := ask(t, c[0], c[1], crypto.SHA1)
	text := base64.StdEncoding.EncodeToString(der)
	for name, x := range map[string]struct {
		method, at string
		body       io.Reader
	}{
		"POST":                 {"POST", c[0].OCSPServer[0], bytes.NewReader(der)},
		"GET":                  {"GET", c[0].OCSPServer[0] + "/" + url.PathEscape(text), nil},
		"GET as some do":       {"GET", c[0].OCSPServer[0] + "/" + text, nil},
		"GET all escaped":      {"GET", c[0].OCSPServer[0] + "/" + url.QueryEscape(text), nil},
		"GET with two slashes": {"GET", c[0].OCSPServer[0] + "//" + url.PathEscape(text), nil},
	} {
		resp, raw := get(t, x.method, x.at, x.body)
		got, err := ocsp.ParseResponseForCert(raw, c[0], c[1])
		if err != nil || got.Status != ocsp.Good || resp.Header.Get("Content-Type") != "application/ocsp-response" || !strings.Contains(resp.Header.Get("Cache-Control"), "max-age=") {
			t.Error(name, resp.StatusCode, resp.Header, err)
		}
	}
}

func TestSiteRefusesTheRest(t *testing.T) {
	ca := testCA(t, Options{})
	r, _ := testResponder(t, ca)
	server := httptest.NewServer(NewSite(ca, r))
	defer server.Close()
	id := keyID(ca.Issuing())
	for _, x := range []struct {
		method, path string
		body         string
		status       int
	}{
		{"GET", "/", "", 404}, {"GET", "/ocspx", "", 404}, {"GET", "/crl/" + id + ".pem", "", 404}, {"GET", "/crl/..%2f" + id + ".crl", "", 404},
		{"GET", "/ca/" + id, "", 404}, {"GET", "/ca/", "", 404}, {"POST", "/ca/" + id + ".cer", "", 405}, {"DELETE", "/ocsp", "", 405},
		{"POST", "/ocsp", strings.Repeat("x", maxOCSPRequest+1), 413}, {"GET", "/ocsp/%00", "", 400}, {"GET", "/ocsp/*", "", 400},
		{"GET", "/ocsp/" + strings.Repeat("A", 6000), "", 400}, {"HEAD", "/ca/" + id + ".cer", "", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), x.method, server.URL+x.path, strings.NewReader(x.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != x.status {
			t.Errorf("%s %.60s: %d, want %d", x.method, x.path, resp.StatusCode, x.status)
		}
	}
	resp, raw := get(t, "POST", server.URL+"/ocsp", strings.NewReader("no DER"))
	if resp.StatusCode != 200 || !bytes.Equal(raw, ocsp.MalformedRequestErrorResponse) || resp.Header.Get("Cache-Control") != "no-store" {
		t.Error(resp.StatusCode, resp.Header, raw)
	}
}
