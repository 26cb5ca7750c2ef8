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

// orderBytes is from how many bytes on no further waiting orders are joined for one read.
const orderBytes = 64 << 10

// orders is an io.Reader of the frames of a run's orders. It joins waiting orders.
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

// Read returns frames of orders. It waits for one, and returns io.ErrClosedPipe when the run ends.
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

// receive returns a writer for the frames of a run's reports. Each report is sent to r.reports,
// which is closed after the last one. An invalid frame kills the run.
func (r *run) receive(ctx context.Context) io.WriteCloser {
	from, to := io.Pipe()
	go func() {
		defer close(r.reports)
		// Later writes then fail.
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
	// Most is the maximum number of bytes to keep.
	Most int

	mu   sync.Mutex
	kept []byte
}

// Write adds p and drops older bytes. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.Most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// String returns the kept bytes.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(t.kept, []byte("?"))))
}
