package agents

import (
	"sync"

	"github.com/jail-sandbox/jail/runners/agent"
)

// A hand takes an event for a run that waits for one: the transaction that puts the event into the
// inbox then delivers it, too, so that an agent that is awake gets it one flush of the disk earlier.
// Its methods may be called from several goroutines, and those of the sender on nil.
type hand struct {
	// ready has a token when an event has come, or does not come after all.
	ready chan struct{}

	mu sync.Mutex
	// open: the run waits, and all that was delivered to it is committed. coming: a sender is about
	// to give an event. closed: the run has ended.
	open, coming, closed bool
	given                []agent.Event
}

func newHand() *hand { return &hand{ready: make(chan struct{}, 1)} }

// claim is called by a sender before it appends an event. It returns false if the run cannot take
// it; else give follows.
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

// give hands the event over, nil if there is none to be handed over. It returns false if the run has
// not taken it.
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

// offer says whether the run can take an event now.
func (h *hand) offer(open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = open
}

// take returns the event that was given, if there is one, and whether one is still coming: until
// then the run asks for no others, which could be that one. If not, none comes until the next offer.
func (h *hand) take() (given []agent.Event, coming bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	given, h.given = h.given, nil
	h.open = false
	return given, h.coming
}

// isBusy reports whether an event has come or is coming. If not, none comes until the next offer.
func (h *hand) isBusy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = false
	return h.coming || len(h.given) > 0
}

// close says that the run has ended.
func (h *hand) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
