package output

import (
	"io"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
)

// Named returns w with a name, which its errors have.
func Named(w io.Writer, name string) io.Writer { return sink{w, name} }

type sink struct {
	io.Writer
	name string
}

// Write writes p; its errors name the stream.
func (s sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = exit.Failed(err, "", "%s: %v", s.name, exit.Cause(err))
	}
	return n, err
}
