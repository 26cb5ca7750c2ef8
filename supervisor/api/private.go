package api

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/jail-sandbox/jail/jail/control"
)

// A private daemon serves the one process that started it, over an inherited socket: each message
// on it carries a new connection. So it needs no path that others could take or guess, and ends
// with its client.

// privateFD is the number of the inherited descriptor of a private daemon.
const privateFD = 3

type privateListener struct {
	conn *control.Conn
}

// ListenPrivate returns the listener of a private daemon. Accept fails with net.ErrClosed when the
// client is gone.
func ListenPrivate() (net.Listener, error) {
	conn, err := control.Inherit(privateFD)
	if err != nil {
		return nil, err
	}
	return &privateListener{conn}, nil
}

func (l *privateListener) Accept() (net.Conn, error) {
	var hello struct{}
	files, err := l.conn.Receive(&hello)
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		return nil, net.ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("connection of the client: %w", err)
	}
	defer func() { control.CloseAll(files) }()
	if len(files) != 1 {
		return nil, fmt.Errorf("a connection came with %d descriptors", len(files))
	}
	conn, err := net.FileConn(files[0])
	if err != nil {
		return nil, fmt.Errorf("connection of the client: %w", err)
	}
	return conn, nil
}

func (l *privateListener) Close() error { return l.conn.Close() }

func (l *privateListener) Addr() net.Addr { return &net.UnixAddr{Name: "private", Net: "unix"} }

// dialPrivate makes a connection to the private daemon at the other end of conn.
func dialPrivate(conn *control.Conn) (net.Conn, error) {
	own, theirs, err := control.Pair("connection")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	defer theirs.Close()
	if err := conn.Send(struct{}{}, theirs); err != nil {
		return nil, err
	}
	return net.FileConn(own.File())
}
