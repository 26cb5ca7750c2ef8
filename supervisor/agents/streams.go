package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// reports is a writer of the frames of a run's reports.
type reports struct {
	ctx    context.Context
	r      *run
	frames *agent.Splitter

	mu     sync.Mutex
	closed bool
}

func newReports(ctx context.Context, r *run) *reports {
	out := &reports{ctx: ctx, r: r}
	out.frames = agent.NewSplitter(out.take)
	return out
}

// Write hands the reports over, and waits until they are taken. Nonsense ends the run.
func (out *reports) Write(p []byte) (int, error) {
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.closed {
		return 0, io.ErrClosedPipe
	}
	n, err := out.frames.Write(p)
	if err != nil && out.ctx.Err() == nil {
		out.nonsense(err)
	}
	return n, err
}

func (out *reports) take(body []byte) error {
	var report agent.Report
	if err := json.Unmarshal(body, &report); err != nil {
		return err
	}
	select {
	case out.r.reports <- report:
		return nil
	case <-out.ctx.Done():
		return io.ErrClosedPipe
	}
}

// close says that there are no more reports.
func (out *reports) close() {
	out.mu.Lock()
	defer out.mu.Unlock()
	if err := out.frames.End(); err != nil && !out.closed && out.ctx.Err() == nil {
		out.nonsense(err)
	}
	out.closed = true
	close(out.r.reports)
}

func (out *reports) nonsense(err error) {
	out.closed = true
	out.r.kill(fmt.Errorf("its jail sent nonsense: %w", err))
}
