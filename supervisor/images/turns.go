package images

import (
	"context"
	"sync"
)

// turns lets one goroutine at a time work on each key, and a bounded number on all keys. Its methods
// may be called from several goroutines.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
	all  chan struct{}
}

func newTurns(most int) *turns {
	return &turns{busy: map[string]chan struct{}{}, all: make(chan struct{}, most)}
}

// take waits for the turn of a key. The caller calls done after its work.
func (t *turns) take(ctx context.Context, key string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		before := t.busy[key]
		if before == nil {
			t.busy[key] = mine
		}
		t.mu.Unlock()
		if before == nil {
			break
		}
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	release := func() {
		t.mu.Lock()
		delete(t.busy, key)
		t.mu.Unlock()
		close(mine)
	}
	select {
	case t.all <- struct{}{}:
		return func() { <-t.all; release() }, nil
	case <-ctx.Done():
		release()
		return nil, ctx.Err()
	}
}
