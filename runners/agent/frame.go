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

// errFrame is wrapped by errors about bytes that are not a valid frame.
var errFrame = errors.New("no proper frame")

// A Writer writes frames: the length of the JSON in four bytes, most significant first, then the
// JSON. Its methods may be called from several goroutines.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes message as one frame, in one call of the underlying writer. It returns an error if
// the JSON is longer than MaxFrame.
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

// A Reader reads frames. It is for one goroutine.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Read decodes the next frame into message. It returns io.EOF if the input ends between two frames,
// and an error that wraps errFrame if the bytes are not a valid frame.
func (r *Reader) Read(message any) error {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", errFrame, err)
	} else if err != nil {
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
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: %w", errFrame, io.ErrUnexpectedEOF)
		}
		return err
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}

// Split calls f with each part of text in order, at most most bytes each. more is true except for
// the last part. An empty text is one empty part.
func Split(text []byte, most int, f func(part []byte, more bool)) {
	for more := true; more; {
		part := text[:min(len(text), most)]
		text = text[len(part):]
		more = len(text) > 0
		f(part, more)
	}
}
