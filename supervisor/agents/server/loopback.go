package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Token returns the secret of the file, and makes one if there is none.
func Token(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text())
		err = atomicfile.Write(path, text, 0o600, atomicfile.Durable)
	}
	return string(text), err
}

// Listen listens on an address of the loopback, and refuses any other: the token would cross the
// network in plain text.
func Listen(address string) (net.Listener, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().IsLoopback() {
		return nil, problem.New(problem.Usage,
			"address %.60q: want a number of the loopback and a port, such as 127.0.0.1:8790", address)
	}
	return net.Listen("tcp", a.String())
}

// Guarded lets in who names the token, at the address itself, and from no page of another origin. A
// name in place of the address may be one that a page has had resolved to it (DNS rebinding).
func (s *Server) Guarded(address, token string) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + token))
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
		default:
			s.ServeHTTP(w, r)
		}
	})
}
