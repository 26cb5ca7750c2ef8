package guest

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// ErrDoor says that the fetch proxy gave no stream: it has too many, or is gone.
var ErrDoor = errors.New("the fetch proxy gives no stream")

// A Door is the jail's way to the fetch proxy: it hands out streams. Several guests may use it at once.
type Door struct {
	mu   sync.Mutex
	conn *control.Conn
}

// NewDoor takes over the socket that came with the order.
func NewDoor(f *os.File) *Door { return &Door{conn: control.New(f)} }

// Open returns a new stream to the proxy.
func (d *Door) Open() (*os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.conn.Send(control.Knock{}); err != nil {
		return nil, ErrDoor
	}
	var opened control.Opened
	files, err := d.conn.Receive(&opened)
	if err != nil || opened.Refused || len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return nil, ErrDoor
	}
	return files[0], nil
}

// doorKey finds the door in the context of a run.
type doorKey struct{}

// WithDoor lets the guests of a run fetch.
func WithDoor(ctx context.Context, d *Door) context.Context {
	return context.WithValue(ctx, doorKey{}, d)
}

// opener returns how a run's guests get streams, or nil if they get none.
func opener(ctx context.Context) func() (*os.File, error) {
	if d, ok := ctx.Value(doorKey{}).(*Door); ok && d != nil {
		return d.Open
	}
	return nil
}

// granted are the imports beyond preview 1 of a run's guests.
func granted(ctx context.Context) []wasi.Import {
	if opener(ctx) == nil {
		return nil
	}
	return wasi.FetchFunctions[:]
}
