package api

import (
	"errors"
	"net"
	"net/http"
	"testing"
)

// Of a lateListener that is closed, Accept comes to know when it is closed again.
type lateListener struct {
	net.Listener
	accepting, late chan struct{}
}

func (l lateListener) Close() error {
	err := l.Listener.Close()
	if err != nil {
		close(l.late)
	}
	return err
}

func (l lateListener) Accept() (net.Conn, error) {
	close(l.accepting)
	<-l.late
	return nil, net.ErrClosed
}

// TestClosedBefore: a daemon that ends closes its listener before it shuts the server down, which
// may come to know of it later.
func TestClosedBefore(t *testing.T) {
	under, err := net.Listen("unix", t.TempDir()+"/sock")
	if err != nil {
		t.Fatal(err)
	}
	l := lateListener{under, make(chan struct{}), make(chan struct{})}
	srv := &Server{leave: func() {}, http: &http.Server{}}
	served := make(chan error)
	go func() { served <- srv.http.Serve(l) }()
	<-l.accepting
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serve: %v", err)
	}
}
