package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is where the server answers over HTTP.
const Path = "/mcp"

// Bounds of the server over HTTP.
const (
	readHeaderTime = 10 * time.Second
	idleTime       = 10 * time.Minute
	maxHeader      = 64 << 10
	maxBody        = maxEdited + maxEdited/2
)

// NewToken returns a secret that lets a client in.
func NewToken() string { return rand.Text() }

// Listen listens on an address of the loopback, and refuses any other: the token would cross the
// network in plain text.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, errors.New("the address must be a number of the loopback, such as 127.0.0.1:0")
	}
	return net.Listen("tcp", address)
}

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

// guarded lets in who names the token, at the address itself, and from no page of another origin. A
// name in place of the address may be one that a page has had resolved to it (DNS rebinding).
func (s *Server) guarded(address, token string) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + token))
	next := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server },
		&mcp.StreamableHTTPOptions{SessionTimeout: idleTime, MaxRequestBodyBytes: maxBody})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		origin := r.Header.Get("Origin")
		switch {
		case r.Host != address:
			http.Error(w, "the Host is not "+address, http.StatusForbidden)
		case origin != "" && origin != "http://"+address:
			http.Error(w, "a page of another origin may not ask", http.StatusForbidden)
		case subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
		case strings.TrimSuffix(r.URL.Path, "/") != Path:
			http.NotFound(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
