package api

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/jail-sandbox/jail/supervisor/wire"
)

// A FrameKind is the kind of a frame. After the switch to Upgrade both sides send frames: one byte
// of kind, four of length, big-endian, and the content.
//
//	client: Input … Input, InputEnd            its standard input
//	client: Size …                             rows and columns of its terminal, two bytes each,
//	                                           big-endian
//	server: Credit …                           permits one more frame of input; a client starts
//	                                           with four
//	server: Output | ErrorOutput …, Result     the tool's output; at last the result as JSON, and
//	                                           the connection is closed
//	server: Passed, two descriptors            once, if the client asked for it and the daemon's
//	                                           answer agrees: the pipes of standard input and
//	                                           output, so that there are no Input, InputEnd,
//	                                           Credit and Output
//
// A client that closes the connection ends the run.
type FrameKind byte

// frameWriter writes frames of one kind. Several of them may share the connection and its mutex.
type frameWriter struct {
	mu   *sync.Mutex
	conn io.Writer
	kind FrameKind
}

func (w frameWriter) Write(p []byte) (int, error) {
	if len(p) > wire.MaxFrame {
		return 0, tooLarge(int64(len(p)), wire.MaxFrame)
	}
	frame := make([]byte, 0, 5+len(p))
	frame = append(frame, byte(w.kind))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(p)))
	frame = append(frame, p...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.conn.Write(frame); err != nil {
		return 0, err
	}
	return len(p), nil
}

// A frameError means that the other end violated the protocol.
type frameError string

func (e frameError) Error() string { return string(e) }

func tooLarge(size, most int64) error {
	return frameError(fmt.Sprintf("frame of %d bytes, at most %d", size, most))
}

// readFrame reads the next frame, with at most most bytes of content. The content may use buf and
// is valid until the next call.
func readFrame(r *bufio.Reader, buf []byte, most uint32) (FrameKind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > most {
		return 0, nil, tooLarge(int64(size), int64(most))
	}
	if uint32(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	_, err := io.ReadFull(r, buf)
	return FrameKind(head[0]), buf, err
}
