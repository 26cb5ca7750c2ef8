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

// intercept ends a tunnel's TLS here, with a certificate of the run's own authority, and serves the requests inside as any others: each is decided
// with its method and its path, and sent over TLS of the proxy's own. The host has been found to be one that some rule grants.
func (s *stream) intercept(ctx context.Context, t Target) {
	if _, refused := s.p.decide(s.eff, kindHost, modeIntercept, "CONNECT", t); refused != nil {
		s.reply(refused)
		return
	}
	_ = s.conn.SetDeadline(time.Now().Add(headTime)) // an error shows at the next read
	if _, err := io.WriteString(s.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	conn := tls.Server(&ahead{s.conn, s.r}, s.p.authority.config(t.Host))
	if err := conn.HandshakeContext(ctx); err != nil {
		s.p.refuse(What{ID: s.p.ids.Add(1), Kind: kindTunnel, Method: s.h.method, Scheme: t.Scheme, Host: t.Host, Port: t.Port, Decision: Denied,
			Layer: "fetch", Rule: "the tool's TLS with the proxy: " + publicError(err), Mode: modeIntercept})
		return
	}
	s.p.requests(ctx, conn, bufio.NewReaderSize(conn, 4<<10), &t, s.eff)
	_ = conn.CloseWrite() // the tool may have gone
}

// ahead is a connection of which some bytes have been read.
type ahead struct {
	net.Conn
	r *bufio.Reader
}

func (a *ahead) Read(p []byte) (int, error) { return a.r.Read(p) }

// where returns what the request line asks for: a whole URL, or, inside a tunnel, a path of its host.
func (s *stream) where() (Target, error) {
	if s.inside == nil {
		return ParseTarget(s.h.target)
	}
	if !strings.HasPrefix(s.h.target, "/") {
		return Target{}, bad("the request line inside a tunnel is not METHOD /PATH HTTP/1.1")
	}
	t, err := ParseTarget(schemeHTTPS + "://" + s.inside.Host + s.h.target)
	t.Port = s.inside.Port
	return t, err
}

// normalName is a name of a TLS greeting as policies write it.
func normalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
