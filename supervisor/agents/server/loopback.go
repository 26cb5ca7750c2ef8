package server

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"

	"github.com/jail-sandbox/jail/jail/atomicfile"
	"github.com/jail-sandbox/jail/supervisor/loopback"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Token returns the secret token in the file at path. It creates the file if there is none.
func Token(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(loopback.NewToken())
		err = atomicfile.Write(path, text, 0o600, atomicfile.Durable)
	}
	return string(text), err
}

// Listen listens on a loopback address. It returns an error for any other, since the token would
// cross the network in plain text.
func Listen(address string) (net.Listener, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().IsLoopback() {
		return nil, problem.New(problem.Usage,
			"address %.60q: want a number of the loopback and a port, such as 127.0.0.1:8790", address)
	}
	return net.Listen("tcp", a.String())
}

// Guarded returns a handler that accepts only requests with the token, to this address, and not
// from web pages of another origin.
func (s *Server) Guarded(address, token string) http.Handler {
	return loopback.Guard(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback.Same(r.Header.Get("Authorization"), "Bearer "+token) {
			loopback.Refuse(w)
			return
		}
		s.ServeHTTP(w, r)
	}))
}
