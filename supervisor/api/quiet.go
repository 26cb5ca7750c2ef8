package api

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// A quiet knows for how long nobody has asked anything.
type quiet struct {
	mu sync.Mutex
	// Requests that are being answered.
	under int
	last  time.Time
}

func (q *quiet) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q.add(1)
		defer q.add(-1)
		next.ServeHTTP(w, r)
	})
}

// meet counts a client from when it is let in: what it is about to ask is not to meet a daemon that
// ends for want of work.
func (q *quiet) meet(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		q.add(0)
	}
}

func (q *quiet) add(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.under += n
	q.last = time.Now()
}

// Quiet is for how long the server has had no request and the supervisor no run: 0 while there is
// one.
func (srv *Server) Quiet() time.Duration {
	srv.quiet.mu.Lock()
	defer srv.quiet.mu.Unlock()
	if srv.quiet.under > 0 || srv.s.Active() > 0 {
		srv.quiet.last = time.Now()
	}
	return time.Since(srv.quiet.last)
}
