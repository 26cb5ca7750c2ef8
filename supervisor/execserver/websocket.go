package execserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/supervisor/loopback"
)

const (
	readHeaderTime = 10 * time.Second
	maxHeader      = 64 << 10
	// pingEvery is how often a client is asked whether it is still there, and pongTime how long it
	// may take to say so.
	pingEvery = 30 * time.Second
	pongTime  = 30 * time.Second
)

// URL is what a client of ServeWebSocket connects to. Codex can send no header, so the token is a part
// of it.
func URL(l net.Listener, token string) string {
	return "ws://" + l.Addr().String() + "/?token=" + token
}

// ServeWebSocket answers clients that name the token, one message a frame (RFC 6455), until ctx is
// done. GET /readyz says that the server is there.
func (s *Server) ServeWebSocket(ctx context.Context, l net.Listener, token string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if !loopback.Same(r.URL.Query().Get("token"), token) {
			loopback.Refuse(w)
			return
		}
		s.accept(ctx, w, r)
	})
	h := &http.Server{Handler: loopback.Guard(l.Addr().String(), mux), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readHeaderTime, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { h.Close() })()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// accept serves one client.
func (s *Server) accept(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		// It has been answered.
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxMessage)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go ping(ctx, conn, stop)
	err = s.serve(ctx, func() ([]byte, error) {
		_, text, err := conn.Read(ctx)
		if status := websocket.CloseStatus(err); status == websocket.StatusNormalClosure ||
			status == websocket.StatusGoingAway {
			err = io.EOF
		}
		return text, err
	}, func(text []byte) error { return conn.Write(ctx, websocket.MessageText, text) })
	status, why := websocket.StatusNormalClosure, ""
	if err != nil {
		status, why = websocket.StatusPolicyViolation, err.Error()
	}
	conn.Close(status, why[:min(len(why), 120)])
}

// ping ends a connection whose client is gone without a word.
func ping(ctx context.Context, conn *websocket.Conn, stop func()) {
	for range tick.Each(ctx.Done(), pingEvery) {
		limited, cancel := context.WithTimeout(ctx, pongTime)
		err := conn.Ping(limited)
		cancel()
		if err != nil {
			stop()
			return
		}
	}
}
