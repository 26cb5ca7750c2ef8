package agent

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxFrame bounds the JSON of one frame, in bytes.
const MaxFrame = 1 << 20

// errFrame is wrapped by errors about bytes that are no frame.
var errFrame = errors.New("no proper frame")

// A Writer writes frames: the length of the JSON in four bytes, most significant first, then the
// JSON. Its methods may be called from several goroutines.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one message in one call of the underlying writer.
func (w *Writer) Write(message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > MaxFrame {
		return fmt.Errorf("%w: a message of %d bytes, more than %d", errFrame, len(body), MaxFrame)
	}
	frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))),
		body...)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.w.Write(frame)
	return err
}

// A Splitter is written the bytes of frames, and gives the JSON of each to take, which may keep it. It
// is for one goroutine. An error of take is one of Write.
type Splitter struct {
	take func(body []byte) error
	// rest is the beginning of a frame.
	rest []byte
}

// NewSplitter returns a Splitter.
func NewSplitter(take func(body []byte) error) *Splitter { return &Splitter{take: take} }

// Write takes the next bytes. It returns an error that wraps errFrame for anything that is no frame.
func (s *Splitter) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for len(s.rest) >= headSize {
		n := binary.BigEndian.Uint32(s.rest)
		if n > MaxFrame {
			return 0, fmt.Errorf("%w: %d bytes, more than %d", errFrame, n, MaxFrame)
		}
		if uint32(len(s.rest)-headSize) < n {
			break
		}
		body := s.rest[headSize : headSize+n : headSize+n]
		s.rest = s.rest[headSize+n:]
		if err := s.take(body); err != nil {
			return 0, err
		}
	}
	if len(s.rest) == 0 {
		// The bytes before are those of frames that were given away.
		s.rest = nil
	}
	return len(p), nil
}

// End returns an error that wraps errFrame in the middle of a frame.
func (s *Splitter) End() error {
	if len(s.rest) > 0 {
		return fmt.Errorf("%w: %w", errFrame, io.ErrUnexpectedEOF)
	}
	return nil
}

// headSize is the size of the length before the JSON.
const headSize = 4

// A Reader reads frames. It is for one goroutine.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Read reads the next frame into message. It returns io.EOF at the end between two frames, and an
// error that wraps errFrame for anything that is no frame.
func (r *Reader) Read(message any) error {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxFrame {
		return fmt.Errorf("%w: %d bytes, more than %d", errFrame, n, MaxFrame)
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	body := r.buf[:n]
	if _, err := io.ReadFull(r.r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}
