package fetch

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/jail-sandbox/jail/jail/control"
)

// keptFrame is the largest buffer, in bytes, that is kept for the next message.
const keptFrame = 64 << 10

// frames reads messages of jail/control, and packed ones in the same frames, from a socket that no
// longer carries descriptors. One system call reads as many messages as are queued, up to the size
// of the buffer. The kernel drops descriptors that are sent nevertheless.
type frames struct {
	r    *bufio.Reader
	body []byte
}

// newFrames returns a reader of the messages after those that conn has received.
func newFrames(conn *control.Conn) *frames {
	return &frames{r: bufio.NewReaderSize(conn.File(), 16<<10)}
}

// receive reads one message. It returns io.EOF after the last message.
func (f *frames) receive(message any) error {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(head[:]))
	if size > control.MaxMessage {
		return fmt.Errorf("control message of %d bytes: %w", size, control.ErrTooLarge)
	}
	if size > cap(f.body) {
		f.body = make([]byte, size)
	}
	body := f.body[:size]
	if cap(f.body) > keptFrame {
		f.body = nil
	}
	if _, err := io.ReadFull(f.r, body); errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	if packed, ok := message.(interface {
		unpack(kind byte, body []byte) error
	}); ok && size > 0 && body[0] != '{' {
		return packed.unpack(body[0], body[1:])
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("control message %T: %w", message, err)
	}
	return nil
}
