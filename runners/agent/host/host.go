// Package host is the host of an agent: a part of process 1 of the agent's jail. It exchanges
// frames with jail-agentd over the run's standard streams, hands events to the guest (a module or a
// program), answers or forwards the guest's calls, and opens the agent's database (package store).
//
// The guest asks for the next event (Wait) and calls its bindings (Call). It works on one event at
// a time. Its writes to the database, the effects that it asks for and the event's number are one
// transaction, which its call of HOST.checkpoint commits. The host reports an event as done when
// the commit is on the disk; several commits may share one sync.
package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/runners/agent/store"
)

const (
	// grace is how long after an event's deadline the guest may still end the event, before the
	// host ends the process.
	grace = time.Second
	// toSleep is how long a guest may take to end after it got a Sleep order.
	toSleep = 5 * time.Second
	// maxUnsynced is how long a commit may wait for others to share a sync with.
	maxUnsynced = 10 * time.Millisecond
	// maxLeft bounds the size of Left in one Ready, in bytes.
	maxLeft = agent.MaxFrame / 8
)

// Options configure a Host.
type Options struct {
	// ID is agent:USER:NAME.
	ID string
	// Bindings are the names of the bindings that the guest may call.
	Bindings []string
	// Dir is the directory of the database, Size the maximum size of the database in bytes.
	Dir  string
	Size int64
	// Deadline is how long the guest may work on an event.
	Deadline time.Duration
	// Once: the guest is a program that runs once. It has no events and no database, and
	// jail-agentd answers all its calls (once.go).
	Once bool
	// In and Out carry the frames from and to jail-agentd.
	In  io.Reader
	Out io.Writer
	// Event is called with AGENT/SEQ before the guest gets an event, and with an empty string after
	// the event has ended. It may be nil.
	Event func(name string)
	// Exit ends the process. It may be called from any goroutine, when the guest does not end in
	// time or jail-agentd is gone.
	Exit func(code int)
}

// A Host serves one guest. Its methods may be called from several goroutines.
type Host struct {
	o     Options
	out   *agent.Writer
	inbox inbox
	calls calls

	// mu guards the fields below. It is held while an SQL statement runs.
	mu    sync.Mutex
	store *store.Store
	// work is what the guest works on, or nil.
	work *work
	// done are the events whose commits are not on the disk yet.
	done []agent.Effects
	// admin are operations that wait for the end of the transaction.
	admin admin
}

// New opens the database, reports to jail-agentd that the host is ready, and starts to read orders.
// If the database cannot be opened, New reports the error and returns it.
func New(ctx context.Context, o Options) (*Host, error) {
	h := &Host{o: o, out: agent.NewWriter(o.Out)}
	h.inbox.changed = make(chan struct{}, 1)
	if o.Once {
		go h.read()
		return h, nil
	}
	var err error
	if h.store, err = store.Open(ctx, o.Dir, o.Size); err == nil {
		err = h.ready(ctx)
	}
	if err != nil {
		// The caller reports the error, too.
		_ = h.out.Write(agent.Report{Ready: &agent.Ready{Error: err.Error()}})
		return nil, err
	}
	go h.read()
	return h, nil
}

// ready reports the last committed event, and the committed effects that are not settled.
func (h *Host) ready(ctx context.Context) error {
	left, err := h.store.Left(ctx)
	if err != nil {
		return err
	}
	for more := true; more; {
		r := agent.Ready{Committed: h.store.Committed()}
		for size := 0; len(left) > 0; left = left[1:] {
			text, err := json.Marshal(left[0])
			if err != nil {
				return err
			}
			// The effects of one event always fit into a frame.
			if size += len(text); size > maxLeft && len(r.Left) > 0 {
				break
			}
			r.Left = append(r.Left, left[0])
		}
		more = len(left) > 0
		r.More = more
		if err := h.out.Write(agent.Report{Ready: &r}); err != nil {
			return err
		}
	}
	return nil
}

// Wake waits for the order that says why the agent was woken. It fails if jail-agentd is gone.
func (h *Host) Wake() (agent.Wake, error) {
	w := h.inbox.wakes()
	if w == nil {
		return agent.Wake{}, errors.New("jail-agentd has gone before it said why the agent is woken")
	}
	return *w, nil
}

// read handles orders until jail-agentd is gone. Then it ends the process.
func (h *Host) read() {
	in := agent.NewReader(h.o.In)
	for {
		var order agent.Order
		if err := in.Read(&order); err != nil {
			break
		}
		switch {
		case order.Reply != nil:
			h.calls.reply(*order.Reply)
		case h.o.Once:
			// A program that runs once gets only replies.
		case order.Settled > 0:
			h.mu.Lock()
			h.store.Settle(order.Settled)
			h.mu.Unlock()
		case order.Admin != nil:
			h.administer(*order.Admin)
		default:
			h.inbox.add(order)
		}
	}
	h.inbox.set(&h.inbox.closed)
	h.o.Exit(1)
}

// report sends a report to jail-agentd. If this fails, it ends the process.
func (h *Host) report(r agent.Report) {
	if err := h.out.Write(r); err != nil {
		h.o.Exit(1)
	}
}

// complain logs an error of the host itself.
func (h *Host) complain(message string) {
	h.report(agent.Report{Log: &agent.Log{Level: "error", Message: message}})
}

// A work is what the guest works on: an event, or a use of the database outside of an event, which
// the next Wait commits.
type work struct {
	event  *agent.Event // nil outside of an event
	ctx    context.Context
	cancel context.CancelFunc
	// killer ends the process if the guest does not end its event.
	killer *time.Timer

	effects []agent.Effect
	size    int // bytes of the effects
	called  int // calls that have an idempotency key
	// failed is why the event cannot be committed.
	failed *agent.Error
}

// onEvent returns the current work if it is an event, else nil. h.mu is held.
func (h *Host) onEvent() *work {
	if h.work == nil || h.work.event == nil {
		return nil
	}
	return h.work
}

// begin starts the work on e, which may be nil, and its deadline. h.mu is held.
func (h *Host) begin(e *agent.Event) *work {
	w := &work{event: e}
	w.ctx, w.cancel = context.WithTimeout(context.Background(), h.o.Deadline)
	if e != nil {
		w.killer = time.AfterFunc(h.o.Deadline+grace, func() { h.kill(w) })
		if h.o.Event != nil {
			h.o.Event(fmt.Sprintf("%s/%d", h.o.ID, e.Seq))
		}
	}
	h.work = w
	return w
}

// end ends the current work, without commit or rollback. h.mu is held.
func (h *Host) end() {
	h.work.cancel()
	if h.work.killer != nil {
		h.work.killer.Stop()
		if h.o.Event != nil {
			h.o.Event("")
		}
	}
	h.work = nil
}

// kill reports that event w has failed and ends the process, unless w has ended meanwhile.
func (h *Host) kill(w *work) {
	flushed := make(chan bool)
	go func() {
		h.mu.Lock()
		current := h.work == w
		if current {
			h.flush()
		}
		h.mu.Unlock()
		flushed <- current
	}()
	select {
	case current := <-flushed:
		if !current {
			// The event ended meanwhile.
			return
		}
	case <-time.After(grace):
		// An SQL statement runs on and holds h.mu.
	}
	h.report(agent.Report{Failed: &agent.Failed{Seq: w.event.Seq, Code: agent.ErrDeadline,
		Message: fmt.Sprintf("the guest has not ended the event within %v", h.o.Deadline)}})
	h.o.Exit(1)
}

// fail rolls the current work back and, if it is an event, reports it as failed. h.mu is held.
func (h *Host) fail(why *agent.Error) {
	w := h.work
	h.end()
	if err := h.store.Rollback(context.Background()); err != nil {
		h.complain("the database cannot be opened again: " + err.Error())
		h.o.Exit(1)
		return
	}
	if w.event != nil {
		h.flush()
		// No other event may overtake this one.
		h.inbox.set(&h.inbox.failed)
		h.report(agent.Report{Failed: &agent.Failed{Seq: w.event.Seq, Code: why.Code,
			Message: why.Message}})
		return
	}
	h.complain("what was written outside of an event is lost: " + why.Message)
}

// commit commits the current work. If it returns an error, the caller must call fail. h.mu is held.
func (h *Host) commit() *agent.Error {
	w := h.work
	if w.failed != nil {
		return w.failed
	}
	if !h.store.Inside() {
		if w.event == nil {
			h.end()
			return nil
		}
		if err := h.store.Begin(w.ctx); err != nil {
			return asError(err)
		}
	}
	e := agent.Effects{Effects: w.effects}
	if w.event != nil {
		e.Seq = w.event.Seq
	}
	if err := h.store.Commit(w.ctx, e); err != nil {
		return asError(err)
	}
	h.end()
	if e.Seq > 0 {
		h.done = append(h.done, e)
	}
	return nil
}

// committed syncs and reports the committed events: at once if no further event waits, else after
// maxUnsynced, so that events can share a sync. h.mu is held.
func (h *Host) committed() {
	switch {
	case !h.inbox.hasEvent():
		h.flush()
	case len(h.done) == 1:
		time.AfterFunc(maxUnsynced, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.flush()
		})
	}
}

// flush syncs the database and then reports the committed events as done. h.mu is held.
func (h *Host) flush() {
	if err := h.store.Sync(); err != nil {
		h.complain("the database cannot be put on the disk: " + err.Error())
		h.o.Exit(1)
		return
	}
	for i := range h.done {
		h.report(agent.Report{Done: &h.done[i]})
	}
	h.done = nil
}

// A Next tells the guest what to do next. Type says which other field is set.
type Next struct {
	Type  string       `json:"type"`
	Wake  *agent.Wake  `json:"wake,omitempty"`
	Event *agent.Event `json:"event,omitempty"`
}

// Types of a Next.
const (
	nextWake  = "wake"
	nextEvent = "event"
	nextSleep = "sleep"
	nextNone  = "none"
)

// maxWait is the longest time that Wait waits.
const maxWait = 30 * time.Second

// Wait returns the next wake, event or sleep for the guest, or the type none if nothing comes
// within d. If the guest has not committed its current event, that event fails.
func (h *Host) Wait(d time.Duration) Next {
	if h.o.Once {
		return Next{Type: nextNone}
	}
	h.mu.Lock()
	if h.work != nil {
		h.ended()
	}
	h.operate()
	h.mu.Unlock()
	until := time.Now().Add(min(max(d, 0), maxWait))
	for {
		next, ok := h.inbox.next(time.Until(until))
		switch {
		case !ok:
			return Next{Type: nextNone}
		case next.Type == nextSleep:
			time.AfterFunc(toSleep, func() { h.o.Exit(1) })
			return next
		case next.Type == nextEvent:
			h.mu.Lock()
			fresh := next.Event.Seq > h.store.Committed()
			if fresh {
				h.begin(next.Event)
			} else {
				h.done = append(h.done, agent.Effects{Seq: next.Event.Seq})
				h.committed()
			}
			h.mu.Unlock()
			if !fresh {
				continue
			}
		}
		return next
	}
}

// ended ends the work that the guest has left open: an event fails, writes outside of an event are
// committed. h.mu is held.
func (h *Host) ended() {
	if h.work.event != nil {
		h.fail(cmp.Or(h.work.failed, agent.Errorf(agent.ErrFailed,
			"the guest asked for the next event without a checkpoint of this one")))
		return
	}
	if err := h.commit(); err != nil {
		h.fail(err)
		return
	}
	h.flush()
}

// Close fails an event that the guest has left open, with the reason why the guest ended, and
// closes the database. asked says that the guest ended because of a Sleep order.
func (h *Host) Close(asked bool, why string) error {
	if h.o.Once {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.onEvent(); w != nil {
		h.fail(cmp.Or(w.failed, agent.Errorf(agent.ErrFailed, "%s", why)))
	} else if h.work != nil {
		h.ended()
	}
	h.flush()
	if err := h.store.Close(); err != nil {
		return err
	}
	if asked {
		h.report(agent.Report{Slept: true})
	}
	return nil
}

// Asleep reports whether jail-agentd sent a Sleep order and the guest was told to end.
func (h *Host) Asleep() bool { return h.inbox.isAsleep() }

func asError(err error) *agent.Error {
	if e, ok := errors.AsType[*agent.Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return agent.Errorf(agent.ErrDeadline, "the time of the event is over")
	}
	return agent.Errorf(agent.ErrStorage, "%v", err)
}
