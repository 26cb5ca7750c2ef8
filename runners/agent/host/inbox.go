package host

import (
	"sync"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// An inbox queues the wake and the events that the guest has not got yet.
type inbox struct {
	mu    sync.Mutex
	queue []Next
	first *agent.Wake
	// sleep: jail-agentd sent a Sleep order. failed: an event has failed, so the guest gets no
	// further events.
	sleep, failed bool
	// asleep: the guest was told to end.
	asleep bool
	closed bool
	// changed holds a token after a change that a waiter has not seen.
	changed chan struct{}
}

func (b *inbox) add(o agent.Order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case o.Wake != nil:
		if b.first == nil {
			b.first = o.Wake
		}
		b.queue = append(b.queue, Next{Type: nextWake, Wake: o.Wake})
	case o.Event != nil:
		b.queue = append(b.queue, Next{Type: nextEvent, Event: o.Event})
	case o.Sleep:
		b.sleep = true
	}
	b.tell()
}

// set sets a flag of the inbox to true and wakes a waiter.
func (b *inbox) set(flag *bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*flag = true
	b.tell()
}

func (b *inbox) tell() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// next returns the next item for the guest. It waits for at most d; false means none.
func (b *inbox) next(d time.Duration) (Next, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		if n, ok := b.take(); ok {
			return n, true
		}
		select {
		case <-b.changed:
		case <-timer.C:
			return b.take()
		}
	}
}

func (b *inbox) take() (Next, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sleep || b.failed {
		b.asleep = true
		return Next{Type: nextSleep}, true
	}
	if len(b.queue) == 0 {
		return Next{}, false
	}
	n := b.queue[0]
	b.queue = b.queue[1:]
	return n, true
}

// wakes waits for the first wake and returns it. It returns nil if the inbox was closed before.
func (b *inbox) wakes() *agent.Wake {
	for {
		b.mu.Lock()
		first, closed := b.first, b.closed
		b.mu.Unlock()
		if first != nil || closed {
			return first
		}
		<-b.changed
	}
}

func (b *inbox) hasEvent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.sleep && !b.failed && len(b.queue) > 0
}

// isAsleep reports whether jail-agentd sent a Sleep order and the guest was told to end.
func (b *inbox) isAsleep() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sleep && b.asleep
}
