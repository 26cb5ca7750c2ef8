package detached

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
)

// typing is the input of a detached run, on its way from the attached client, one at a time.
// The tool need not read: what a client still has to say when it goes is dropped, and nothing of it
// stays behind.
type typing struct {
	parts chan []byte
	// closed when there is no more: a client has said so, or the run has ended
	over chan struct{}
	end  func()
	// of the part that the tool reads
	rest []byte

	// taken by who gives a part
	turn chan struct{}
}

func newTyping() *typing {
	over := make(chan struct{})
	return &typing{parts: make(chan []byte), over: over, end: sync.OnceFunc(func() { close(over) }),
		turn: make(chan struct{}, 1)}
}

// Read gives the tool what is typed.
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

// give waits until the tool takes a part, no longer than the client is there.
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

// from gives the tool what a client types, until stop. The end of that is the end of the tool's
// input only where the client says so, and not where it went away.
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
		// what was being given is dropped
		t.turn <- struct{}{}
		<-t.turn
	}
}
