package review

import (
	"errors"
	"io"
	"os"

	"github.com/jail-sandbox/jail/cmd/jail/internal/exit"
)

// maxSpill is how much of a list is held in memory until it can be shown.
const maxSpill = 1 << 20

// A spill holds text back: in memory, and from 1 MiB on in an unlinked temporary file. With it a
// list of any length can be sorted by attention.
type spill struct {
	buf  []byte
	file *os.File
}

func (s *spill) Write(p []byte) (int, error) {
	s.buf = append(s.buf, p...)
	if len(s.buf) < maxSpill {
		return len(p), nil
	}
	return len(p), s.flush()
}

func (s *spill) flush() error {
	if s.file == nil {
		f, err := os.CreateTemp("", "jail-diff-")
		if err != nil {
			return exit.Failed(err, "make room below the directory for temporary files, TMPDIR",
				"hold back a long list: %v", exit.Cause(err))
		}
		if err := os.Remove(f.Name()); err != nil {
			return errors.Join(err, f.Close())
		}
		s.file = f
	}
	_, err := s.file.Write(s.buf)
	s.buf = s.buf[:0]
	return err
}

// copyTo writes the text to w, and empties the spill.
func (s *spill) copyTo(w io.Writer) error {
	if s.file != nil {
		defer s.close()
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(w, s.file); err != nil {
			return err
		}
	}
	_, err := w.Write(s.buf)
	s.buf = nil
	return err
}

func (s *spill) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
