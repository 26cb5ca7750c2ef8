package hostfetch

import (
	"os"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi/guest/linear"
)

// stream is a connection to the proxy with a read buffer.
type stream struct {
	file  *os.File // holds fd
	fd    int
	until time.Time // zero: for ever
	// read and not yet used, in room
	ahead []byte
	room  [8 << 10]byte
}

func newStream(f *os.File, until time.Time) (*stream, error) {
	s := &stream{file: f, fd: int(f.Fd()), until: until}
	if err := syscall.SetNonblock(s.fd, true); err != nil {
		f.Close()
		return nil, linear.Fail(noStream, "fcntl: %v", err)
	}
	return s, nil
}

// nothing is left to be said on it
func (s *stream) close() { _ = s.file.Close() }

// wait waits for events until the deadline.
func (s *stream) wait(events int16) error {
	for {
		var most *sys.Timespec
		if !s.until.IsZero() {
			left := time.Until(s.until)
			if left <= 0 {
				return s.late()
			}
			most = &sys.Timespec{Sec: int64(left / time.Second), Nsec: int64(left % time.Second)}
		}
		fds := [1]sys.PollFD{{Fd: int32(s.fd), Events: events}}
		n, err := sys.Poll(fds[:], most)
		if err != nil {
			return linear.Fail(cutShort, "%v", err)
		}
		if n > 0 {
			return nil
		}
	}
}

func (s *stream) late() error {
	return linear.Fail(timedOut, "the time that the request was given is over")
}

func (s *stream) isLate() bool { return !s.until.IsZero() && !time.Now().Before(s.until) }

// isClosed reports whether err says that the proxy has closed its receiving side.
func isClosed(err error) bool { return linear.Has(err, bodyClosed) }

// write writes all of b.
func (s *stream) write(b []byte) error {
	for len(b) > 0 {
		if s.isLate() {
			return s.late()
		}
		n, err := sys.Writev(s.fd, [][]byte{b})
		switch e := sys.ErrnoOf(err); {
		case err == nil:
			b = b[n:]
		case e == syscall.EAGAIN:
			if err := s.wait(sys.PollOut); err != nil {
				return err
			}
		case e == syscall.EPIPE, e == syscall.ECONNRESET:
			return linear.Fail(bodyClosed, "the fetch proxy reads no more of the request")
		default:
			return linear.Fail(cutShort, "the stream to the fetch proxy: %v", e)
		}
	}
	return nil
}

// read reads some bytes into b, which is not empty; 0 is the end.
func (s *stream) read(b []byte) (int, error) {
	if len(s.ahead) > 0 {
		n := copy(b, s.ahead)
		s.ahead = s.ahead[n:]
		return n, nil
	}
	for {
		if s.isLate() {
			return 0, s.late()
		}
		n, err := sys.Readv(s.fd, [][]byte{b})
		switch e := sys.ErrnoOf(err); {
		case err == nil:
			return n, nil
		case e == syscall.EAGAIN:
			if err := s.wait(sys.PollIn); err != nil {
				return 0, err
			}
		default:
			return 0, linear.Fail(cutShort, "the fetch proxy ended the stream")
		}
	}
}

// fill reads ahead.
func (s *stream) fill() error {
	n, err := s.read(s.room[:])
	if err == nil && n == 0 {
		err = linear.Fail(cutShort, "the fetch proxy ended the stream before the answer's end")
	}
	if err == nil {
		s.ahead = s.room[:n]
	}
	return err
}

// line reads one line of at most most bytes and returns it without its end.
func (s *stream) line(most int) ([]byte, error) {
	var out []byte
	for {
		if len(s.ahead) == 0 {
			if err := s.fill(); err != nil {
				return nil, err
			}
		}
		c := s.ahead[0]
		s.ahead = s.ahead[1:]
		switch {
		case c == '\n' && len(out) > 0 && out[len(out)-1] == '\r':
			return out[:len(out)-1], nil
		case c == '\n':
			return nil, linear.Fail(badAnswer, "a line of the answer ends without CR LF")
		case len(out) >= most:
			return nil, linear.Fail(badAnswer, "a line of the answer is longer than %d bytes", most)
		}
		out = append(out, c)
	}
}
