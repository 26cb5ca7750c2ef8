package fetch

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// Bounds of a tool's streams.
const (
	// idleStream bounds the time between two requests.
	idleStream = 2 * time.Minute
	// headTime bounds the time to read a head, from its first byte to its last.
	headTime   = 15 * time.Second
	lingerTime = 2 * time.Second
	lingerMost = 1 << 20 // bytes
)

// serve handles the requests of one stream in order. Each is decided separately.
func (p *proxy) serve(ctx context.Context, conn net.Conn, eff scope) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		return
	}
	p.requests(ctx, conn, bufio.NewReaderSize(conn, 4<<10), nil, eff)
}

// requests handles the requests of a stream, or of an intercepted tunnel to the host inside.
func (p *proxy) requests(ctx context.Context, conn net.Conn, r *bufio.Reader, inside *target,
	eff scope) {
	for {
		// The next read reports an error.
		_ = conn.SetDeadline(time.Now().Add(idleStream))
		if _, err := r.Peek(1); err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(headTime))
		s := &stream{p: p, conn: conn, r: r, h: &head{}, inside: inside, eff: eff, ended: ctx.Done()}
		h, err := readHead(r)
		if err != nil {
			// Other errors mean that the stream has ended or stayed silent.
			if _, ok := errors.AsType[*badTarget](err); ok {
				s.bad(err)
			}
			return
		}
		if s.h = h; !s.handle(ctx) {
			return
		}
	}
}

// stream is one request and the stream that it came on.
type stream struct {
	p    *proxy
	conn net.Conn
	r    *bufio.Reader
	h    *head
	// inside is the host of the intercepted tunnel, or nil for the tool's stream to the proxy.
	inside *target
	// eff is the policy of the scope for which the stream was opened.
	eff scope
	// whole is the body if it was read for an approval, else nil.
	whole []byte
	// key is the request's Idempotency-Key, empty outside of an agent's events.
	key string
	// ended is closed when waiting requests must give up.
	ended <-chan struct{}
}

// reply sends the refusal and ends the stream. It reads on for a short time, so that the tool can
// finish its request and read the refusal.
func (s *stream) reply(r *refusal) {
	s.p.refused.pace(s.ended)
	_ = s.conn.SetDeadline(time.Now().Add(lingerTime))
	if _, err := s.conn.Write(r.answer(s.h.method)); err != nil {
		return
	}
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		// Until the tool has read the refusal and closes the stream.
		_, _ = io.CopyN(io.Discard, s.conn, lingerMost)
	}
}

// bad records and sends the refusal of an ambiguous request.
func (s *stream) bad(err error) {
	s.p.refused.add(What{ID: s.p.ids.Add(1), Kind: kindRequest, Method: s.h.method, Decision: Denied,
		Layer: "fetch", Rule: "strict HTTP/1.1: " + err.Error()})
	s.reply(badRequest(err))
}

// handle processes one request. It reports whether the stream can carry another.
func (s *stream) handle(ctx context.Context) bool {
	if s.h.method == "CONNECT" {
		s.tunnel(ctx)
		return false
	}
	t, err := s.where()
	if err == nil {
		err = s.sameHost(t)
	}
	kind := kindRequest
	if err == nil {
		kind, err = s.kind()
	}
	if err != nil {
		s.bad(err)
		return false
	}
	s.key = s.p.tool.event.next()
	rt, ctx, end := s.admit(ctx, kind, s.mode(t), t)
	if rt == nil {
		return false
	}
	defer end()
	_ = s.conn.SetDeadline(time.Now().Add(rt.timeout + lingerTime))
	return s.exchange(ctx, rt)
}

// admit decides on a request, waits for its approval if it needs one, and counts it in the budgets.
// The returned context has the request's timeout; the caller calls end after the request. If the
// request is refused, admit sends the refusal and returns a nil request.
func (s *stream) admit(ctx context.Context, kind, mode string, t target) (*roundTrip, context.Context,
	func()) {
	rt, refused := s.p.decide(s.eff, kind, mode, s.h.method, t)
	if refused == nil && rt.asks {
		refused = s.ask(ctx, rt)
	}
	if refused == nil {
		rt.timeout = rt.time()
		within, cancel := context.WithTimeout(ctx, rt.timeout)
		var end func()
		if end, refused = rt.reserve(within); refused == nil {
			return rt, within, func() {
				end()
				cancel()
				rt.letGo()
			}
		}
		cancel()
		rt.letGo()
	}
	s.reply(refused)
	return nil, nil, nil
}

// mode returns who ends the TLS of a request to t; "" for plain HTTP.
func (s *stream) mode(t target) string {
	switch {
	case s.inside != nil:
		return modeIntercept
	case t.scheme == schemeHTTPS:
		return modeProxy
	}
	return ""
}

// sameHost returns an error if a Host header differs from the host and port of t.
func (s *stream) sameHost(t target) error {
	for _, v := range s.h.headers.get("host") {
		host, port, err := parseAuthority(v)
		if err != nil {
			return err
		}
		if port == 0 {
			if port = t.port; !slices.Contains([]uint16{80, 443}, port) {
				return bad("Host names no port, and the URL names port %d", t.port)
			}
		}
		if host != t.host || port != t.port {
			return bad("Host is not the host of the URL")
		}
	}
	return nil
}

// kind returns the kind of a request, by its upgrade. Upgrades but to websocket are an error.
func (s *stream) kind() (string, error) {
	upgrade := s.h.headers.tokens("upgrade")
	wants := slices.Contains(s.h.headers.tokens("connection"), "upgrade")
	switch {
	case len(upgrade) == 0 && !wants:
		return kindRequest, nil
	case len(upgrade) == 1 && upgrade[0] == "websocket" && wants && s.h.method == "GET" &&
		s.h.minor == 1 &&
		len(s.h.headers.get("sec-websocket-key")) == 1 &&
		len(s.h.headers.get("http2-settings")) == 0:
		return kindWebSocket, nil
	}
	return "", bad("the request asks for an upgrade to %q; only websocket is known",
		strings.Join(upgrade, ","))
}
