package fetch

import (
	"bufio"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// tunnel handles a CONNECT. If a rule makes the host opaque, or the run has no authority, it
// carries the client's own TLS, which must begin with a ClientHello for that host. It intercepts
// other tunnels.
func (s *stream) tunnel(ctx context.Context) {
	t, err := parseTunnel(s.h.target)
	if err == nil && s.inside != nil {
		err = bad("a tunnel stands in a tunnel")
	}
	if err == nil {
		err = s.sameHost(t)
	}
	if err != nil {
		s.bad(err)
		return
	}
	if opaque := s.p.decided(s.eff, policy.Connect{Host: t.host, Port: t.port,
		Tunnel: true}); s.p.authority != nil && !opaque.Allowed && !opaque.Ask {
		s.intercept(ctx, t)
		return
	}
	rt, ctx, end := s.admit(ctx, kindTunnel, modeOpaque, t)
	if rt == nil {
		return
	}
	defer end()
	if refused := rt.reach(ctx, false); refused != nil {
		s.finish(rt, refused)
		return
	}
	defer rt.try.up.close()
	defer rt.done()
	_ = s.conn.SetDeadline(time.Now().Add(headTime))
	if _, err := io.WriteString(s.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		rt.try.out.Error = "the tool went away"
		return
	}
	hello, err := readHello(s.r, t.host)
	if err != nil {
		rt.try.out.Error = err.Error()
		rt.overLimit(err)
		return
	}
	deadline, _ := ctx.Deadline()
	_ = s.conn.SetDeadline(deadline)
	if _, err := rt.try.up.conn.Write(hello); err != nil {
		rt.failed(ctx, err)
		return
	}
	s.splice(ctx, rt)
}

// splice copies bytes both ways until both sides have ended, one has failed, or at the timeout.
func (s *stream) splice(ctx context.Context, rt *roundTrip) {
	var both sync.WaitGroup
	var mu sync.Mutex
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && rt.try.out.Error == "" && !errors.Is(err, net.ErrClosed) {
			rt.truncated(ctx, err)
		}
		s.conn.Close()
		rt.try.up.close()
	}
	both.Go(func() {
		_, err := io.Copy(rt.try.up.conn, s.r)
		if half, ok := rt.try.up.meter.Conn.(interface{ CloseWrite() error }); ok && err == nil {
			err = half.CloseWrite()
		}
		if err != nil {
			fail(err)
		}
	})
	both.Go(func() {
		_, err := io.Copy(s.conn, rt.try.up.r)
		if half, ok := s.conn.(interface{ CloseWrite() error }); ok && err == nil {
			err = half.CloseWrite()
		}
		if err != nil {
			fail(err)
		}
	})
	both.Wait()
}

// maxHello bounds a ClientHello, in bytes.
const maxHello = 16 << 10

// readHello reads the first TLS record of a client. It returns an error for other bytes, and for a
// ClientHello whose server name is missing, encrypted or not host.
func readHello(r io.Reader, host string) ([]byte, error) {
	record := make([]byte, 5)
	if _, err := io.ReadFull(r, record); err != nil {
		return nil, errors.New("the tunnel ended before a TLS greeting")
	}
	size := int(binary.BigEndian.Uint16(record[3:]))
	if record[0] != 22 || record[1] != 3 || size < 4 || size > maxHello {
		return nil, errors.New("what the tunnel carries is not TLS")
	}
	record = append(record, make([]byte, size)...)
	if _, err := io.ReadFull(r, record[5:]); err != nil {
		return nil, errors.New("the tunnel ended inside a TLS greeting")
	}
	name, err := serverName(record[5:])
	switch {
	case err != nil:
		return nil, err
	case normalName(name) != host:
		return nil, fmt.Errorf("the TLS greeting names another host than %s", host)
	}
	return record, nil
}

// cursor reads lengths and bytes from a message. ok is false after a read beyond the end.
type cursor struct {
	b  []byte
	ok bool
}

func (c *cursor) bytes(n int) []byte {
	if !c.ok || n > len(c.b) {
		c.ok = false
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

// sized reads a length of n bytes and returns a cursor over that many bytes.
func (c *cursor) sized(n int) cursor {
	size := 0
	for _, b := range c.bytes(n) {
		size = size<<8 | int(b)
	}
	return cursor{c.bytes(size), c.ok}
}

// Extensions of a ClientHello: the server name (RFC 6066), and the encrypted ClientHello.
const (
	extServerName   = 0
	extEncryptedOne = 0xfe0d
)

// serverName returns the server name in a ClientHello, which must be the whole record.
func serverName(msg []byte) (string, error) {
	c := cursor{msg, true}
	kind := c.bytes(1)
	hello := c.sized(3)
	if !c.ok || kind[0] != 1 || len(c.b) > 0 {
		return "", errors.New("the tunnel does not start with one whole TLS greeting")
	}
	hello.bytes(2 + 32)
	hello.sized(1)
	hello.sized(2)
	hello.sized(1)
	ext := hello.sized(2)
	name, found := "", false
	for ext.ok && len(ext.b) > 0 {
		id := ext.bytes(2)
		body := ext.sized(2)
		if !ext.ok {
			break
		}
		switch int(binary.BigEndian.Uint16(id)) {
		case extEncryptedOne:
			return "", errors.New("the TLS greeting hides its host (ECH)")
		case extServerName:
			list := body.sized(2)
			t := list.bytes(1)
			n := list.sized(2)
			if !list.ok || !n.ok || t[0] != 0 || len(list.b) > 0 || found {
				return "", errors.New(
					"the TLS greeting names its host in a way that can be read twice")
			}
			name, found = string(n.b), true
		}
	}
	if !hello.ok || !ext.ok {
		return "", errors.New("the TLS greeting cannot be read")
	}
	if !found {
		return "", errors.New("the TLS greeting names no host")
	}
	return name, nil
}

// webSocketGUID is the constant of the handshake (RFC 6455, section 1.3).
const webSocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// webSocket completes an upgrade and carries bytes in both directions, if the host accepts it as
// RFC 6455 requires. It passes on a response with another status than 101. For a 101 that is not as
// the RFC requires it sends a refusal.
func (s *stream) webSocket(ctx context.Context, rt *roundTrip, resp *http.Response) {
	defer rt.try.up.close()
	defer rt.done()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		s.h.close = true
		s.answer(ctx, rt, resp)
		return
	}
	sum := sha1.Sum([]byte(s.h.headers.get("sec-websocket-key")[0] + webSocketGUID))
	if resp.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) ||
		!strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
		rt.try.out.Error = "the host does not speak websocket"
		s.reply(upstreamFailed(rt.target.host, errors.New(rt.try.out.Error)))
		return
	}
	// A secret that is scrubbed is never sent over a websocket.
	out, _ := returned(resp.Header, rt.secret)
	lines := append(out.write([]byte("HTTP/1.1 101 Switching Protocols\r\n")),
		"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"...)
	if _, err := s.conn.Write(lines); err != nil {
		rt.try.out.Error = "the tool went away"
		return
	}
	s.splice(ctx, rt)
}

// intercept ends the TLS of a tunnel with a certificate of the run's authority and handles the
// requests inside. Each is decided with its method and path, and the proxy sends it over its own
// TLS.
func (s *stream) intercept(ctx context.Context, t target) {
	if _, refused := s.p.decide(s.eff, kindHost, modeIntercept, "CONNECT", t); refused != nil {
		s.reply(refused)
		return
	}
	// The next read reports an error.
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

// ahead is a connection whose first bytes are already in the buffer r.
type ahead struct {
	net.Conn
	r *bufio.Reader
}

func (a *ahead) Read(p []byte) (int, error) { return a.r.Read(p) }

// where returns the target of the request line: of an absolute URL, or inside a tunnel of a path on
// the tunnel's host.
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

// normalName returns a server name in the form of policies: lower case, without a final dot.
func normalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
