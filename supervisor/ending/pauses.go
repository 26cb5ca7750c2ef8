package ending

import (
	"sync"
	"time"
)

// maxPause bounds the pauses of a run together.
const maxPause = 10 * time.Minute

// Pauses are the times in which a run waits for somebody's approval. They are no part of its wall
// time, as far as maxPause goes. The zero value is of a run that has not waited. Its methods may be called from several
// goroutines.
type Pauses struct {
	mu sync.Mutex
	// waiting is how many requests of the run wait now, the first of them since begun.
	waiting int
	begun   time.Time
	// sum is how long the pauses took that are over.
	sum time.Duration
}

// Note notes that a request of the run begins to wait, or ends to.
func (p *Pauses) Note(begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case begins && p.waiting == 0:
		p.begun = time.Now()
	case !begins && p.waiting == 1:
		p.sum += time.Since(p.begun)
	}
	if begins {
		p.waiting++
	} else {
		p.waiting--
	}
}

// since returns how much wall time has passed since start.
func (p *Pauses) since(start time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return now.Sub(start) - p.taken(now)
}

// taken returns how long the run has waited, at most maxPause.
func (p *Pauses) taken(now time.Time) time.Duration {
	taken := p.sum
	if p.waiting > 0 {
		taken += now.Sub(p.begun)
	}
	return min(taken, maxPause)
}

// Left returns for how much longer the requests of the run may wait.
func (p *Pauses) Left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maxPause - p.taken(time.Now())
}

// leastWait bounds how often Await looks at a run that waits.
const leastWait = 10 * time.Millisecond

// Await returns how much wall time has passed since start, once that is wall, or false when stop is
// closed before.
func (p *Pauses) Await(start time.Time, wall time.Duration,
	stop <-chan struct{}) (passed time.Duration, ok bool) {
	timer := time.NewTimer(wall - p.since(start))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-stop:
			return 0, false
		}
		if passed = p.since(start); passed >= wall {
			return passed, true
		}
		timer.Reset(max(wall-passed, leastWait))
	}
}
