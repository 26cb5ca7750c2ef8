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

// Token returns the secret of the file, and makes one if there is none.
func Token(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(loopback.NewToken())
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

// Guarded lets in who names the token, at the address itself, and from no page of another origin.
func (s *Server) Guarded(address, token string) http.Handler {
	return loopback.Guard(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback.Same(r.Header.Get("Authorization"), "Bearer "+token) {
			loopback.Refuse(w)
			return
		}
		s.ServeHTTP(w, r)
	}))
}
