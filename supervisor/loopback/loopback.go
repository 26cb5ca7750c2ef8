// Package loopback helps to serve HTTP to one user on a loopback address: clients need a token, and
// web pages of other origins are refused.
package loopback

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"time"
)

// NewToken returns a new random token for clients.
func NewToken() string { return rand.Text() }

// Listen listens on a loopback address. Other addresses are an error, since the token would cross
// the network in plain text.
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

// IdleTime is how long a connection may be idle.
const IdleTime = 10 * time.Minute

// Serve serves HTTP requests on l until ctx is done. Their contexts are derived from ctx.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: Guard(l.Addr().String(), h), MaxHeaderBytes: 64 << 10,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: IdleTime,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Guard passes requests to next only if their Host is the address and their Origin, if any, is the
// same. Other requests get status 403. This prevents DNS rebinding.
func Guard(address string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		switch {
		case r.Host != address:
			http.Error(w, "the Host is not "+address, http.StatusForbidden)
		case origin != "" && origin != "http://"+address:
			http.Error(w, "a page of another origin may not ask", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// Same reports whether a text equals a secret, in constant time.
func Same(got, secret string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Refuse answers a request without a valid token with status 401.
func Refuse(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
}
