package fetchtest

import (
	"net"
	"net/http"
	"sync"
	"testing"
)

// HTTP returns a function that serves a host's connections with handler. It offers HTTP/2 over TLS
// if the host's TLS configuration does.
func HTTP(t testing.TB, handler http.HandlerFunc) func(net.Conn) {
	t.Helper()
	l := &handed{conns: make(chan net.Conn), closed: make(chan struct{})}
	var mu sync.Mutex
	ends := map[net.Conn]chan struct{}{}
	server := &http.Server{Handler: handler, ConnState: func(c net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if end := ends[c]; end != nil && (s == http.StateClosed || s == http.StateHijacked) {
			close(end)
			delete(ends, c)
		}
	}}
	var done sync.WaitGroup
	// Serve returns when the listener is closed.
	done.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Close(); done.Wait() })
	return func(c net.Conn) {
		end := make(chan struct{})
		mu.Lock()
		ends[c] = end
		mu.Unlock()
		select {
		case l.conns <- c:
			<-end
		case <-l.closed:
		}
	}
}

// handed is a net.Listener for connections that others have accepted.
type handed struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *handed) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *handed) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *handed) Addr() net.Addr { return &net.TCPAddr{} }
