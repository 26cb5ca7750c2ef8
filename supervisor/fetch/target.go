package fetch

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/policy"
)

// Schemes.
const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
)

// Bounds of a request line.
const (
	maxTarget = 16 << 10 // bytes of a URL
	maxMethod = 32
)

// target is a request's destination in its canonical form, which is decided, recorded and sent.
type target struct {
	scheme string // http or https
	// host is in lower case, without a final dot.
	host string
	port uint16
	// path is canonical; empty for a tunnel.
	path string
	// query includes its question mark; it may be empty.
	query string
}

// authority returns the Host header: the host, and the port unless it is the scheme's default.
func (t target) authority() string {
	if t.scheme == schemeHTTP && t.port == 80 || t.scheme == schemeHTTPS && t.port == 443 {
		return t.host
	}
	return t.host + ":" + strconv.Itoa(int(t.port))
}

// String returns the URL without its query, which may contain secrets.
func (t target) String() string { return t.scheme + "://" + t.authority() + t.path }

// badTarget is the error for an invalid URL, authority or head.
type badTarget struct{ why string }

func (e *badTarget) Error() string { return e.why }

func bad(format string, args ...any) error { return &badTarget{fmt.Sprintf(format, args...)} }

// parseTarget parses the absolute URL of a request line. It treats http to port 443 as https, so
// that clients that cannot speak TLS to a proxy can request https; nobody serves plain HTTP there.
func parseTarget(text string) (target, error) {
	if len(text) > maxTarget {
		return target{}, bad("the URL is longer than %d bytes", maxTarget)
	}
	var t target
	rest, ok := cutFold(text, "http://")
	if t.scheme = schemeHTTP; !ok {
		if rest, ok = cutFold(text, "https://"); !ok {
			return target{},
				bad("the request names no http:// or https:// URL: a proxy needs all of it")
		}
		t.scheme = schemeHTTPS
	}
	end := strings.IndexAny(rest, "/?#\\")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	var err error
	if t.host, t.port, err = parseAuthority(authority); err != nil {
		return target{}, err
	}
	switch {
	case t.port == 0 && t.scheme == schemeHTTP:
		t.port = 80
	case t.port == 0:
		t.port = 443
	case t.port == 443:
		t.scheme = schemeHTTPS
	}
	raw, query, asked := strings.Cut(tail, "?")
	if t.path, err = policy.CanonicalPath(cmp.Or(raw, "/")); err != nil {
		return target{}, bad("%v", err)
	}
	if asked {
		if err := checkQuery(query); err != nil {
			return target{}, err
		}
		t.query = "?" + query
	}
	return t, nil
}

// parseTunnel parses the HOST:PORT of a CONNECT. The port is required.
func parseTunnel(text string) (target, error) {
	if len(text) > maxTarget {
		return target{}, bad("the authority is longer than %d bytes", maxTarget)
	}
	host, port, err := parseAuthority(text)
	if err != nil {
		return target{}, err
	}
	if port == 0 {
		return target{}, bad("CONNECT names no port")
	}
	return target{scheme: schemeHTTPS, host: host, port: port}, nil
}

// parseAuthority parses HOST or HOST:PORT; port 0 means no port.
func parseAuthority(text string) (host string, port uint16, err error) {
	if strings.Contains(text, "@") {
		return "", 0, bad("the URL has a user part, which is never sent")
	}
	name, digits, hasPort := strings.Cut(text, ":")
	if strings.HasPrefix(text, "[") {
		inside, after, ok := strings.Cut(text[1:], "]")
		if !ok || after != "" && !strings.HasPrefix(after, ":") {
			return "", 0, bad("the brackets of the host do not end where they should")
		}
		if a, err := netip.ParseAddr(inside); err != nil || !a.Is6() || a.Zone() != "" {
			return "", 0, bad("only an IPv6 address stands in brackets")
		}
		return "", 0, bad("the host is an address: name it, since rules are about names")
	}
	if hasPort {
		if port, err = parsePort(digits); err != nil {
			return "", 0, err
		}
	}
	if host, err = policy.ParseHostName(name); err != nil {
		return "", 0, bad("%v", err)
	}
	return host, port, nil
}

func parsePort(digits string) (uint16, error) {
	if digits == "" || len(digits) > 5 || digits[0] == '0' || strings.Trim(digits,
		"0123456789") != "" {
		return 0, bad("port %q is no number from 1 to 65535", digits)
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return 0, bad("port %q is no number from 1 to 65535", digits)
	}
	return uint16(n), nil
}

// cutFold cuts an ASCII prefix without regard to case, and reports whether text has it.
func cutFold(text, prefix string) (string, bool) {
	if len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
		return text[len(prefix):], true
	}
	return text, false
}

const (
	unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	queryBytes = unreserved + "!$&'()*+,;=:@/?%[]{}|^`"
)

func checkQuery(query string) error {
	for i := range len(query) {
		if strings.IndexByte(queryBytes, query[i]) < 0 {
			return bad("the query has %q, which must be escaped", string(rune(query[i])))
		}
	}
	return nil
}

// checkMethodToken returns an error unless m is a method in upper case.
func checkMethodToken(m string) error {
	if m == "" || len(m) > maxMethod || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
		return bad("the method is no upper-case name such as GET")
	}
	return nil
}
