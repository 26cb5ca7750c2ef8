package mcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/supervisor/loopback"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
)

// Path is where the server answers over HTTP.
const Path = "/mcp"

// Bounds of the server over HTTP.
const (
	readHeaderTime = 10 * time.Second
	idleTime       = 10 * time.Minute
	maxHeader      = 64 << 10
	maxBody        = toolsession.MaxWritten + toolsession.MaxWritten/2
)

// ServeHTTP answers clients that name the token until ctx is done.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener, token string) error {
	h := &http.Server{Handler: s.guarded(l.Addr().String(), token), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readHeaderTime, IdleTimeout: idleTime,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { h.Close() })()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stateless is the first version of the protocol that has no sessions: each request stands alone.
const stateless = "2026-07-28"

// handler answers requests of all versions of the protocol.
func (s *Server) handler() http.HandlerFunc {
	server := func(*http.Request) *mcp.Server { return s.server }
	old := mcp.NewStreamableHTTPHandler(server,
		&mcp.StreamableHTTPOptions{SessionTimeout: idleTime, MaxRequestBodyBytes: maxBody})
	alone := mcp.NewStreamableHTTPHandler(server,
		&mcp.StreamableHTTPOptions{Stateless: true, MaxRequestBodyBytes: maxBody})
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= stateless {
			alone.ServeHTTP(w, r)
			return
		}
		old.ServeHTTP(w, r)
	}
}

// guarded lets in who names the token, at the address itself, and from no page of another origin.
func (s *Server) guarded(address, token string) http.Handler {
	next := s.handler()
	return loopback.Guard(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !loopback.Same(r.Header.Get("Authorization"), "Bearer "+token):
			loopback.Refuse(w)
		case strings.TrimSuffix(r.URL.Path, "/") != Path:
			http.NotFound(w, r)
		default:
			next(w, r)
		}
	}))
}
