// Package loopback is for servers of one user on the loopback of the host: who asks must know a
// token, and is no page of a browser.
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

// IdleTime is how long a connection may have no request.
const IdleTime = 10 * time.Minute

// Serve answers requests on l until ctx is done, which the contexts of all requests end with.
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

// Guard lets requests through that name the address itself, and come from no page of another origin.
// A name in place of the address may be one that a page has had resolved to it (DNS rebinding).
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

// Same compares a text of a request with a secret, in a time that says nothing about where they
// differ.
func Same(got, secret string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Refuse answers a request that does not bring the secret.
func Refuse(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
}
