package host

import (
	"net"
	"net/http"
	"os"
)

// Streams is a net.Listener for connections of the guest that are plain files: package net would
// make system calls that no jail allows.
type Streams struct{ waiting chan *os.File }

// Serve answers the calls of the guest as HTTP on streams that it returns.
func (h *Host) Serve() *Streams {
	s := &Streams{make(chan *os.File)}
	// It serves as long as the process lives.
	go func() { _ = http.Serve(s, h) }()
	return s
}

// Take passes a connection of the guest to Accept.
func (s *Streams) Take(f *os.File) { s.waiting <- f }

// Open returns the guest's end of a new connection.
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

// Addr returns an empty address.
func (s *Streams) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// stream implements net.Conn for a file.
type stream struct{ *os.File }

func (stream) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "unix"} }
func (stream) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }
