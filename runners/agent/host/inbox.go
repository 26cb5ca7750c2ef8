package host

import (
	"sync"
	"time"

	"github.com/jail-sandbox/jail/runners/agent"
)

// An inbox queues the orders for the guest.
type inbox struct {
	mu    sync.Mutex
	queue []Next
	first *agent.Wake
	// sleep says that jail-agentd asked for the end of the guest, failed that an event has failed,
	// after which the guest gets no other.
	sleep, failed bool
	// asleep says that the guest has been told to end.
	asleep bool
	closed bool
	// changed receives a value when something has arrived.
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

// set sets one of the flags.
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

// next returns the next item for the guest and waits for it at most d. It reports false on timeout.
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

// wakes waits for the first Wake. It returns nil if none can come any more.
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

// isAsleep reports whether jail-agentd asked for the end of the guest, and the guest knows.
func (b *inbox) isAsleep() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sleep && b.asleep
}
