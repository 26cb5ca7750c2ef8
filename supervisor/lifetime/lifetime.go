// Package lifetime controls what may begin in a daemon and waits for it, so that an ending daemon
// ends all runs that it has started and leaves nothing half done.
package lifetime

import (
	"context"
	"sync"

	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxCleanups is how many clean-ups may run in the background. Beyond that, CleanUp runs them
// itself.
const maxCleanups = 16

// A Lifetime is the lifetime of one daemon. Its methods may be called from several goroutines.
type Lifetime struct {
	// gate is held for reading from Enter to leave. AwaitEntered locks it for writing.
	gate   sync.RWMutex
	ending context.Context
	end    context.CancelFunc

	background sync.WaitGroup
	// cleanups holds an element for each clean-up in the background.
	cleanups chan struct{}
}

// New returns a Lifetime in which everything may begin.
func New() *Lifetime {
	l := &Lifetime{cleanups: make(chan struct{}, maxCleanups)}
	l.ending, l.end = context.WithCancel(context.Background())
	return l
}

// Enter announces that a run, a session or a stream begins. AwaitEntered waits until leave is
// called; call it once the daemon can end what has begun. After End, Enter returns ErrEnding and
// nothing may begin.
func (l *Lifetime) Enter() (leave func(), err error) {
	l.gate.RLock()
	if l.Ending() {
		l.gate.RUnlock()
		return nil, ErrEnding
	}
	return sync.OnceFunc(l.gate.RUnlock), nil
}

// ErrEnding is the error of Enter after End.
var ErrEnding = problem.New(problem.Ending, "this jaild is being ended, and begins nothing more").
	WithHint("try again when it is there again")

// End makes every later Enter fail, and closes Done.
func (l *Lifetime) End() { l.end() }

// Ending reports whether End was called.
func (l *Lifetime) Ending() bool { return l.ending.Err() != nil }

// Done returns a channel that End closes.
func (l *Lifetime) Done() <-chan struct{} { return l.ending.Done() }

// AwaitEntered waits, after End, until everything that has entered has left.
func (l *Lifetime) AwaitEntered() {
	l.gate.Lock()
	defer l.gate.Unlock()
}

// UntilEnd returns a context that is also cancelled by End, and a function that releases it. It is
// for long waits before a run can be ended, such as for a compilation.
func (l *Lifetime) UntilEnd(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.ending, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Await waits until done is closed. It returns an error if the caller's ctx ends first.
func Await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	}
}

// Go calls f in the background. AwaitBackground waits for it.
func (l *Lifetime) Go(f func()) { l.background.Go(f) }

// CleanUp calls f, which releases resources of a run that has ended, in the background, or at once
// if 16 others are under way.
func (l *Lifetime) CleanUp(f func()) {
	select {
	case l.cleanups <- struct{}{}:
		l.Go(func() {
			defer func() { <-l.cleanups }()
			f()
		})
	default:
		f()
	}
}

// AwaitBackground waits for all functions that Go and CleanUp have started.
func (l *Lifetime) AwaitBackground() { l.background.Wait() }
