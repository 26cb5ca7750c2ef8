package mcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/supervisor/lasting"
	"github.com/jail-sandbox/jail/supervisor/loopback"
)

// Path is where the server answers over HTTP.
const Path = "/mcp"

// Bounds of the server over HTTP.
const (
	readHeaderTime = 10 * time.Second
	idleTime       = 10 * time.Minute
	maxHeader      = 64 << 10
	maxBody        = lasting.MaxWritten + lasting.MaxWritten/2
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

// guarded lets in who names the token, at the address itself, and from no page of another origin.
func (s *Server) guarded(address, token string) http.Handler {
	next := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server },
		&mcp.StreamableHTTPOptions{SessionTimeout: idleTime, MaxRequestBodyBytes: maxBody})
	return loopback.Guard(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !loopback.Same(r.Header.Get("Authorization"), "Bearer "+token):
			loopback.Refuse(w)
		case strings.TrimSuffix(r.URL.Path, "/") != Path:
			http.NotFound(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	}))
}
