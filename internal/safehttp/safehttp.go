// Package safehttp fetches from, and posts to, addresses that others named, such as the bundle URL of a peer domain.
//
// The contract: nobody who chooses a URL, or what its name resolves to, or where it redirects, reaches a machine behind our own
// border. The address is checked when it is dialled, after every resolution, so a name that changes its mind gains nothing.
// Only https is spoken, redirects stay on their host, no proxy of the environment is used, and an answer is bounded in size and
// time. A [Client] is safe for concurrent use and keeps no connection between calls. Errors say which rule was broken.
// Source: RFC 6890 (special-purpose addresses); seed 002, section 7 (security considerations).
package safehttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// Bounds of one call.
const (
	maxRedirects = 3
	maxHeader    = 16 << 10
	dialTimeout  = 5 * time.Second
)

// Config of a client.
type Config struct {
	// AllowPrivate admits private, shared (CGNAT) and loopback addresses: networks of one's own. Link-local ones, where clouds keep
	// their secrets, stay out.
	AllowPrivate bool
	// AllowPlain admits http, to loopback addresses only: for a lab.
	AllowPlain bool
	Roots      *x509.CertPool // nil: the system's
	MaxBytes   int64          // of an answer
	Timeout    time.Duration  // of a call, redirects included
}

// Client fetches.
type Client struct{ cfg Config }

// New makes a client. MaxBytes and Timeout must be set.
func New(cfg Config) *Client { return &Client{cfg} }

// Get fetches a URL; anything but 200 is an error.
func (c *Client) Get(ctx context.Context, raw string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, raw, nil, nil)
}

// PostJSON sends a JSON document and returns the answer; anything but 200 is an error. A token goes with it as RFC 6750 has it, "" is none;
// no error holds it, or anything of the answer, which may repeat it.
func (c *Client) PostJSON(ctx context.Context, raw, token string, body []byte) ([]byte, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return c.do(ctx, http.MethodPost, raw, header, body)
}

func (c *Client) do(ctx context.Context, method, raw string, header http.Header, sent []byte) ([]byte, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	if err := c.checkURL(u); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, raw, bytes.NewReader(sent))
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("User-Agent", "agentgw")
	transport := c.transport(u.Scheme == "http")
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: c.checkRedirect}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch %s: the answer is %d", u.Redacted(), resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", u.Redacted(), err)
	}
	if int64(len(body)) > c.cfg.MaxBytes {
		return nil, fmt.Errorf("fetch %s: the answer is over %d bytes", u.Redacted(), c.cfg.MaxBytes)
	}
	return body, nil
}

func (c *Client) checkURL(u *url.URL) error {
	switch {
	case u.Hostname() == "" || u.User != nil:
		return fmt.Errorf("fetch %s: a URL with a host and without a password is due", u.Redacted())
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && c.cfg.AllowPlain:
		return nil // the dialler admits loopback only
	}
	return fmt.Errorf("fetch %s: only https is fetched", u.Redacted())
}

// checkRedirect keeps redirects on the host that was asked.
func (c *Client) checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case req.URL.Scheme != first.Scheme || req.URL.Host != first.Host || req.URL.User != nil:
		return errors.New("redirect to another host")
	}
	return nil
}

func (c *Client) transport(plain bool) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		if ip := ap.Addr().Unmap(); plain && !ip.IsLoopback() {
			return fmt.Errorf("address %s: http is spoken to loopback only", ip)
		}
		return CheckAddr(ap.Addr(), c.cfg.AllowPrivate || plain)
	}}
	return &http.Transport{
		DialContext: dialer.DialContext, Proxy: nil, DisableKeepAlives: true, DisableCompression: true,
		TLSClientConfig:     &tls.Config{RootCAs: c.cfg.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: c.cfg.Timeout, MaxResponseHeaderBytes: maxHeader,
	}
}

// special are networks that are not the public one, beside those that netip knows.
var special = prefixes(
	"0.0.0.0/8",       // this network
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"240.0.0.0/4",     // reserved, and broadcast
	"::/96",           // IPv4-compatible
	"64:ff9b::/96",    // NAT64: an IPv4 address in disguise
	"64:ff9b:1::/48",  // the same, of one's own
	"100::/64",        // discard
	"2001::/23",       // protocol assignments, Teredo
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4: an IPv4 address in disguise
	"3fff::/20",       // documentation
	"fec0::/10",       // site-local
)

var shared = netip.MustParsePrefix("100.64.0.0/10") // CGNAT

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// CheckAddr refuses an address that is not of the public network; allowPrivate admits private, shared and loopback ones.
func CheckAddr(ip netip.Addr, allowPrivate bool) error {
	ip = ip.Unmap()
	if ip.IsLoopback() || ip.IsPrivate() || shared.Contains(ip) {
		if allowPrivate {
			return nil
		}
		return fmt.Errorf("address %s is not of the public network: set allow_private where it is meant", ip)
	}
	bad := !ip.IsGlobalUnicast() || ip.Zone() != ""
	for _, p := range special {
		bad = bad || p.Contains(ip)
	}
	if bad {
		return fmt.Errorf("address %s is not of the public network", ip)
	}
	return nil
}
