package api

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// lastWords is how long, in all, a client may hold up what is written to it once the daemon ends.
const lastWords = 2 * time.Second

// A parting connection is one that the daemon may have to end while it writes to the client. Only
// the time that writes take is bounded: the end of a run may take longer, and a client that reads
// must still get the result.
type parting struct {
	net.Conn

	mu sync.Mutex
	// since is when the client was asked to hurry.
	since time.Time
	left  time.Duration
	// Of the first write that failed, which may have sent a part of a frame.
	err error
}

func newParting(conn net.Conn) *parting { return &parting{Conn: conn, left: lastWords} }

// hurry bounds all writes together from here on, the one that is under way included.
func (p *parting) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = time.Now()
		_ = p.SetWriteDeadline(p.since.Add(p.left))
	}
}

// Write is called by one at a time.
func (p *parting) Write(b []byte) (int, error) {
	return p.write(func() (int, error) { return p.Conn.Write(b) })
}

// write is Write by another call of the connection.
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

// hurried bounds in the same way what is answered without a switch to streams.
func (srv *Server) hurried(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calm := context.AfterFunc(srv.ending,
			func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lastWords)) })
		defer calm()
		next.ServeHTTP(w, r)
	})
}
