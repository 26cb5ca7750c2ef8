package fetch

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"time"
)

// intercept ends the TLS of a tunnel with a certificate of the run's authority, and serves the
// requests inside: each is decided with its method and path, and sent over TLS of the proxy. The
// caller has checked that some rule grants the host.
func (s *stream) intercept(ctx context.Context, t target) {
	if _, refused := s.p.decide(s.eff, kindHost, modeIntercept, "CONNECT", t); refused != nil {
		s.reply(refused)
		return
	}
	// The next read reports the error.
	_ = s.conn.SetDeadline(time.Now().Add(headTime))
	if _, err := io.WriteString(s.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	conn := tls.Server(&ahead{s.conn, s.r}, s.p.authority.config(t.host))
	if err := conn.HandshakeContext(ctx); err != nil {
		s.p.refused.add(What{ID: s.p.ids.Add(1), Kind: kindTunnel, Method: s.h.method,
			Scheme: t.scheme, Host: t.host, Port: t.port, Decision: Denied,
			Layer: "fetch", Rule: "the tool's TLS with the proxy: " + publicError(err),
			Mode: modeIntercept})
		return
	}
	s.p.requests(ctx, conn, bufio.NewReaderSize(conn, 4<<10), &t, s.eff)
	// The tool may be gone.
	_ = conn.CloseWrite()
}

// ahead is a connection some of whose bytes have been read ahead.
type ahead struct {
	net.Conn
	r *bufio.Reader
}

func (a *ahead) Read(p []byte) (int, error) { return a.r.Read(p) }

// where returns the target of the request line: an absolute URL, or inside a tunnel a path of the
// tunnel's host.
func (s *stream) where() (target, error) {
	if s.inside == nil {
		return parseTarget(s.h.target)
	}
	if !strings.HasPrefix(s.h.target, "/") {
		return target{}, bad("the request line inside a tunnel is not METHOD /PATH HTTP/1.1")
	}
	t, err := parseTarget(schemeHTTPS + "://" + s.inside.host + s.h.target)
	t.port = s.inside.port
	return t, err
}

// normalName returns a server name of a ClientHello in the form of policies.
func normalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
