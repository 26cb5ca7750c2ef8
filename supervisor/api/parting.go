package api

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// lastWords is how long, in total, writes to one client may block once the daemon ends.
const lastWords = 2 * time.Second

// A parting connection bounds the time of its writes once the daemon ends. Only the writes are
// bounded: a run may end later, and a client that reads must still get the result.
type parting struct {
	net.Conn

	mu sync.Mutex
	// since is when hurry was called; zero before that.
	since time.Time
	left  time.Duration
	// The error of the first failed write, which may have sent part of a frame.
	err error
}

func newParting(conn net.Conn) *parting { return &parting{Conn: conn, left: lastWords} }

// hurry bounds the total time of all writes from now on, including the current one.
func (p *parting) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = time.Now()
		_ = p.SetWriteDeadline(p.since.Add(p.left))
	}
}

// Write must not be called concurrently.
func (p *parting) Write(b []byte) (int, error) {
	return p.write(func() (int, error) { return p.Conn.Write(b) })
}

// write does what Write does with another call that writes to the connection.
func (p *parting) write(do func() (int, error)) (int, error) {
	begun, err := p.begin()
	if err != nil {
		return 0, err
	}
	n, err := do()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if !p.since.IsZero() {
		if begun.Before(p.since) {
			begun = p.since
		}
		p.left -= time.Since(begun)
	}
	return n, err
}

func (p *parting) begin() (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.err == nil && !p.since.IsZero() {
		p.err = p.SetWriteDeadline(now.Add(p.left))
	}
	return now, p.err
}

// hurried wraps a handler: it bounds the writes of answers without streams in the same way.
func (srv *Server) hurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calm := context.AfterFunc(srv.ending,
			func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lastWords)) })
		defer calm()
		next.ServeHTTP(w, r)
	})
}
