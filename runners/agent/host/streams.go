package host

import (
	"net"
	"net/http"
	"os"
)

// Streams is a net.Listener for connections of the guest. They are files, since package net needs
// system calls that a jail does not allow.
type Streams struct{ waiting chan *os.File }

// Serve starts an HTTP server for the guest's calls and returns its listener.
func (h *Host) Serve() *Streams {
	s := &Streams{make(chan *os.File)}
	// The server runs as long as the process.
	go func() { _ = http.Serve(s, h) }()
	return s
}

// Take gives the server the connection f.
func (s *Streams) Take(f *os.File) { s.waiting <- f }

// Open makes a new connection to the server and returns the guest's end.
func (s *Streams) Open() (*os.File, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	s.Take(ours)
	return theirs, nil
}

// Accept waits for the next connection.
func (s *Streams) Accept() (net.Conn, error) { return stream{<-s.waiting}, nil }

// Close does nothing: the streams end with the process.
func (s *Streams) Close() error { return nil }

// Addr returns an empty address, for net.Listener.
func (s *Streams) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// stream makes a file a net.Conn.
type stream struct{ *os.File }

func (stream) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "unix"} }
func (stream) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }
