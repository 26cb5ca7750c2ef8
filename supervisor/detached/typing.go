package detached

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
)

// typing passes the standard input of a detached run from the attached client to the tool. Clients
// attach one after another. Input that the tool has not read when its client leaves is dropped, so
// that the next client's input does not come after it.
type typing struct {
	parts chan []byte
	// closed when the input has ended: a client closed it, or the run has ended
	over chan struct{}
	end  func()
	// the unread rest of a part
	rest []byte

	// held while a part is given
	turn chan struct{}
}

func newTyping() *typing {
	over := make(chan struct{})
	return &typing{parts: make(chan []byte), over: over, end: sync.OnceFunc(func() { close(over) }),
		turn: make(chan struct{}, 1)}
}

// Read reads what the client typed. It returns io.EOF when the input has ended.
func (t *typing) Read(p []byte) (int, error) {
	if len(t.rest) == 0 {
		select {
		case t.rest = <-t.parts:
		case <-t.over:
			return 0, io.EOF
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// give waits until the tool reads part. It fails if ctx ends first, which is when the client leaves,
// and with io.ErrClosedPipe if the input has ended.
func (t *typing) give(ctx context.Context, part []byte) error {
	t.turn <- struct{}{}
	defer func() { <-t.turn }()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case t.parts <- part:
		return nil
	case <-t.over:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

// from copies the input of a client to the tool until stop is called. An end of file of in, which a
// client sends, ends the input of the tool. A client that only goes away does not end it.
func (t *typing) from(ctx context.Context, in io.Reader) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		buf := make([]byte, 64<<10)
		for ctx.Err() == nil {
			n, err := in.Read(buf)
			if n > 0 && t.give(ctx, bytes.Clone(buf[:n])) != nil {
				return
			}
			if errors.Is(err, io.EOF) && ctx.Err() == nil {
				t.end()
			}
			if err != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		// Wait until the part that is being given is dropped.
		t.turn <- struct{}{}
		<-t.turn
	}
}
