//go:build wasip1

// Package jailhttp makes net/http work inside a jail: importing it sets http.DefaultTransport, so
// that http.Get and everything built on it use the jail's fetch proxy. There is nothing to call:
//
//	import _ "github.com/jail-sandbox/jail/runners/wasi/guestlib/jailhttp"
//
//	resp, err := http.Get("https://example.com/")
//
// Build with GOOS=wasip1 GOARCH=wasm. Request https:// URLs as usual: the proxy speaks TLS, and
// there is none inside of the jail, so a Response has no TLS state. If the policy does not allow a
// request, the proxy answers with status 403, the header X-Jail-Fetch, and the reason and remedy as
// JSON. On systems other than WASI the package does nothing, so that the same program can be built
// for the host.
package jailhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
)

// Variable is the environment variable with the descriptor on which the guest accepts streams to
// the fetch proxy.
const Variable = "JAIL_FETCH_FD"

// ErrNoFetch is returned if the jail has no fetch proxy.
var ErrNoFetch = errors.New(
	"the policy of this jail grants no fetch: run with --profile fetch --fetch HOST")

func init() { http.DefaultTransport = Transport() }

// Transport returns the transport of http.DefaultTransport, for an http.Client of your own.
func Transport() http.RoundTripper { return transport }

var transport = &roundTripper{&http.Transport{
	Proxy:               http.ProxyURL(&url.URL{Scheme: "http", Host: "fetch"}),
	DialContext:         func(context.Context, string, string) (net.Conn, error) { return Dial() },
	MaxIdleConnsPerHost: 4,
	// Policy rules on types and sizes apply to the uncompressed response.
	DisableCompression: true,
}}

type roundTripper struct{ plain *http.Transport }

// RoundTrip sends the whole URL to the proxy, even for https. http.Transport would use a CONNECT
// tunnel and speak TLS in it.
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.RawQuery = query(req.URL.RawQuery)
	if req.URL.Scheme == "https" {
		// http.Transport sends an opaque URL unchanged in the request line.
		out.URL = &url.URL{Scheme: "http", Host: req.URL.Host, Opaque: "https://" +
			req.URL.Host + path(req.URL), RawQuery: out.URL.RawQuery, ForceQuery: req.URL.ForceQuery}
	}
	resp, err := t.plain.RoundTrip(out)
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}

// query escapes bytes that a program left unescaped (?q=ü): the proxy refuses such bytes, since
// hosts read them in different ways.
func query(raw string) string {
	const digits = "0123456789ABCDEF"
	var out []byte
	for i := range len(raw) {
		if c := raw[i]; c > ' ' && c < 0x7f {
			out = append(out, c)
		} else {
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(out)
}

func path(u *url.URL) string {
	if p := u.EscapedPath(); p != "" {
		return p
	}
	return "/"
}

// CloseIdleConnections closes streams that no request uses.
func (t *roundTripper) CloseIdleConnections() { t.plain.CloseIdleConnections() }

var door = sync.OnceValues(func() (net.Listener, error) {
	fd, err := strconv.Atoi(os.Getenv(Variable))
	if err != nil {
		return nil, ErrNoFetch
	}
	return net.FileListener(os.NewFile(uintptr(fd), "fetch"))
})

// Dial returns a stream to the fetch proxy, which is an HTTP proxy.
func Dial() (net.Conn, error) {
	l, err := door()
	if err != nil {
		return nil, err
	}
	return l.Accept()
}
