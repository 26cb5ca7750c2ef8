package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/runners/agent"
)

// orderBytes is how many bytes of orders are joined at least before they are read.
const orderBytes = 64 << 10

// orders is a reader of the frames of a run's orders, which joins those that are there together.
type orders struct {
	ctx  context.Context
	from <-chan agent.Order
	text bytes.Buffer
	to   *agent.Writer
}

func newOrders(ctx context.Context, from <-chan agent.Order) *orders {
	o := &orders{ctx: ctx, from: from}
	o.to = agent.NewWriter(&o.text)
	return o
}

// Read waits for orders until the run ends.
func (o *orders) Read(p []byte) (int, error) {
	if o.text.Len() == 0 {
		select {
		case order := <-o.from:
			if err := o.to.Write(order); err != nil {
				return 0, err
			}
		case <-o.ctx.Done():
			return 0, io.ErrClosedPipe
		}
		for more := true; more && o.text.Len() < orderBytes; {
			select {
			case order := <-o.from:
				if err := o.to.Write(order); err != nil {
					return 0, err
				}
			default:
				more = false
			}
		}
	}
	return o.text.Read(p)
}

// receive returns where the frames of a run's reports go, which are handed over one by one. Close says
// that there are no more. Nonsense ends the run.
func (r *run) receive(ctx context.Context) io.WriteCloser {
	from, to := io.Pipe()
	go func() {
		defer close(r.reports)
		// Nobody reads what comes after the end.
		defer from.Close()
		in := agent.NewReader(from)
		for {
			var report agent.Report
			if err := in.Read(&report); err != nil {
				if !errors.Is(err, io.EOF) && ctx.Err() == nil {
					r.kill(fmt.Errorf("its jail sent nonsense: %w", err))
				}
				return
			}
			select {
			case r.reports <- report:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

// A Tail keeps the last bytes that are written to it. Its methods may be called from several
// goroutines.
type Tail struct {
	// Most is how many bytes are kept.
	Most int

	mu   sync.Mutex
	kept []byte
}

// Write keeps the end of p.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.Most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// String returns what is kept, as text.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(t.kept, []byte("?"))))
}
