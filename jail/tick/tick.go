// Package tick waits and repeats work until a channel is closed.
package tick

import (
	"iter"
	"time"
)

// Each yields once for each time that every has passed, until done is closed. A tick that comes
// while the body of the loop runs is kept, further ones are lost.
func Each(done <-chan struct{}, every time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}

// Wait waits for d, and reports false if done was closed before.
func Wait(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return false
	case <-time.After(d):
		return true
	}
}
