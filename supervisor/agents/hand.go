package agents

import (
	"sync"

	"github.com/jail-sandbox/jail/runners/agent"
)

// A hand passes an event from a sender directly to a run that waits for one. The transaction that
// puts the event into the inbox then also delivers it, which saves one flush of the disk. Its
// methods may be called from several goroutines, and claim on nil.
type hand struct {
	// ready gets a token after each give.
	ready chan struct{}

	mu sync.Mutex
	// open: the run waits for an event. coming: a sender has called claim, but not give yet.
	// closed: the run has ended.
	open, coming, closed bool
	given                []agent.Event
}

func newHand() *hand { return &hand{ready: make(chan struct{}, 1)} }

// claim is called by a sender before it appends an event. It reports whether the run can take the
// event. If so, the sender must call give afterwards.
func (h *hand) claim() bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open || h.coming || h.closed || len(h.given) > 0 {
		return false
	}
	h.coming = true
	return true
}

// give passes the event to the run, or nil if none was delivered. It reports whether the run takes
// e.
func (h *hand) give(e *agent.Event) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.coming = false
	if e != nil && !h.closed {
		h.given = append(h.given, *e)
	}
	nudge(h.ready)
	return e != nil && !h.closed
}

// offer sets whether the run can take an event now.
func (h *hand) offer(open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = open
}

// take withdraws the offer and returns the events given, and whether one is still coming. If so,
// the run must wait for it before it reads others from the inbox.
func (h *hand) take() (given []agent.Event, coming bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	given, h.given = h.given, nil
	h.open = false
	return given, h.coming
}

// isBusy withdraws the offer and reports whether an event was given or is coming.
func (h *hand) isBusy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = false
	return h.coming || len(h.given) > 0
}

// close marks the run as ended. No further event is taken.
func (h *hand) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
