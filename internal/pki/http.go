package pki

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// The HTTP face for relying parties outside of the system. Everything that it serves is signed, so it needs no TLS, and must not:
// who fetches a CRL to judge a certificate cannot judge this server's first. Listening, timeouts and rates are the caller's.

const (
	deltaSuffix  = "-delta.crl"
	typeOCSP     = "application/ocsp-response"
	typeCRL      = "application/pkix-crl"
	typeCert     = "application/pkix-cert"
	maxCacheLife = time.Minute // of statuses in other people's caches: a suspension shall be seen soon
	certLife     = time.Hour
)

// Site serves OCSP, CRLs and the certificates of CAs at the places that certificates name. Mount it at the root of its server
// and not under a ServeMux of net/http: that would redirect the double slashes which base64 may have.
type Site struct {
	ca    *CA
	ocsp  *Responder
	lists atomic.Pointer[[2]CRLs] // full and delta
}

// NewSite makes a site that has no CRLs yet.
func NewSite(ca *CA, r *Responder) *Site {
	s := &Site{ca: ca, ocsp: r}
	s.Publish(nil, nil)
	return s
}

// Publish replaces the CRLs that are served: the full ones and, where there are any, deltas.
func (s *Site) Publish(full, delta CRLs) { s.lists.Store(&[2]CRLs{full, delta}) }

// ServeHTTP serves
//
//	POST /ocsp, GET /ocsp/<base64>   OCSP (RFC 6960, appendix A.1)
//	GET  /crl/<key id>.crl           full CRL of an issuing CA or root (RFC 5280, section 4.2.1.13)
//	GET  /crl/<key id>-delta.crl     delta CRL
//	GET  /ca/<key id>.cer            the CA's certificate, DER (RFC 5280, section 4.2.2.1)
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch {
	case path == pathOCSP || strings.HasPrefix(path, pathOCSP+"/"):
		s.ocsp.ServeHTTP(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
	case strings.HasPrefix(path, pathCRL):
		reply(w, r, typeCRL, s.list(strings.TrimPrefix(path, pathCRL)), maxCacheLife, time.Now().Add(maxCacheLife))
	case strings.HasPrefix(path, pathIssuer):
		reply(w, r, typeCert, s.certificate(strings.TrimPrefix(path, pathIssuer)), certLife, time.Now().Add(certLife))
	default:
		http.NotFound(w, r)
	}
}

func (s *Site) list(name string) []byte {
	lists := s.lists.Load()
	if id, ok := strings.CutSuffix(name, deltaSuffix); ok {
		return lists[1][id]
	}
	id, ok := strings.CutSuffix(name, ".crl")
	if !ok {
		return nil
	}
	return lists[0][id]
}

func (s *Site) certificate(name string) []byte {
	for _, p := range append(s.ca.issuers(s.ca.opts.now()), s.ca.view.Load().roots...) {
		if name == keyID(p.cert)+".cer" {
			return p.cert.Raw
		}
	}
	return nil
}

// ServeHTTP answers OCSP: POST at any path, GET of a request as `/ocsp/<base64>` or `/<base64>`.
func (r *Responder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body []byte
	var err error
	switch req.Method {
	case http.MethodPost:
		if body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, maxOCSPRequest)); err != nil {
			var large *http.MaxBytesError
			if errors.As(err, &large) {
				http.Error(w, fmt.Sprintf("a request has at most %d octets", maxOCSPRequest), http.StatusRequestEntityTooLarge)
			} else {
				http.Error(w, "the request breaks off", http.StatusBadRequest)
			}
			return
		}
	case http.MethodGet, http.MethodHead:
		if body, err = requestOfPath(req.URL.EscapedPath()); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "use POST or GET", http.StatusMethodNotAllowed)
		return
	}
	der, until, err := r.Answer(body, r.ca.opts.now())
	if err != nil {
		r.log.Error("answer OCSP", "err", err)
	}
	reply(w, req, typeOCSP, der, maxCacheLife, until)
}

// requestOfPath reads the URL-escaped base64 of a GET. Some clients leave / and + as they are.
func requestOfPath(escaped string) ([]byte, error) {
	text, err := url.PathUnescape(strings.TrimPrefix(escaped, pathOCSP))
	if err != nil {
		return nil, errors.New("the path is not escaped as a URL is")
	}
	text = strings.TrimLeft(text, "/")
	if len(text) > base64.StdEncoding.EncodedLen(maxOCSPRequest) {
		return nil, fmt.Errorf("a request has at most %d octets", maxOCSPRequest)
	}
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("the path is no base64")
	}
	return der, nil
}

// reply writes a signed object, or 404 where there is none.
func reply(w http.ResponseWriter, r *http.Request, contentType string, der []byte, atMost time.Duration, until time.Time) {
	if der == nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", fmt.Sprint(len(der)))
	if left := min(time.Until(until), atMost); left >= time.Second {
		h.Set("Cache-Control", fmt.Sprintf("public, no-transform, must-revalidate, max-age=%d", left/time.Second))
	} else {
		h.Set("Cache-Control", "no-store")
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(der) // a client that is gone needs no answer
	}
}
