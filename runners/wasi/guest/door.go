package guest

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// errDoor is returned if the fetch proxy gave no stream: it has too many, or is gone.
var errDoor = errors.New("the fetch proxy gives no stream")

// Door opens streams to the fetch proxy. Several guests may use it at once.
type Door struct {
	way   *way
	scope int
}

// way is the socket that all users of the door share.
type way struct {
	mu   sync.Mutex
	conn *control.Conn
}

// NewDoor takes over the socket that came with the order.
func NewDoor(f *os.File) *Door { return &Door{way: &way{conn: control.New(f)}} }

// As returns the door for guests with one scope of the proxy; see control.Knock. For
// runners.NoFetch it returns nil.
func (d *Door) As(scope int) *Door {
	if d == nil || scope == runners.NoFetch {
		return nil
	}
	return &Door{d.way, scope}
}

// Open returns a new stream to the proxy.
func (d *Door) Open() (*os.File, error) {
	d.way.mu.Lock()
	defer d.way.mu.Unlock()
	if err := d.way.conn.Send(control.Knock{Scope: d.scope}); err != nil {
		return nil, errDoor
	}
	var opened control.Opened
	files, err := d.way.conn.Receive(&opened)
	if err != nil || opened.Refused || len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return nil, errDoor
	}
	return files[0], nil
}

// doorKey finds the door in the context of a run.
type doorKey struct{}

// WithDoor lets the guests of a run fetch.
func WithDoor(ctx context.Context, d *Door) context.Context {
	return context.WithValue(ctx, doorKey{}, d)
}

// WithScope keeps the guests of a run to one scope of the door that ctx has.
func WithScope(ctx context.Context, scope int) context.Context {
	d, _ := ctx.Value(doorKey{}).(*Door)
	return WithDoor(ctx, d.As(scope))
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
