// Package pool keeps jails that stand before anybody has asked for them, so that a run need not wait for one to be made. It knows nothing of jails but
// that they can end: what one is, and whether it fits a run, is its owner's to say.
//
// What is kept follows what is asked for. A kind of jail that somebody asked for is made again in the background, as many of it as were asked for within
// Window, one at a time. When nobody has asked for Linger one of it stays, and when nobody has for Idle none. All kinds together are bounded; where that is too little, the kinds that were asked for last
// have the room. A jail is given out once and never comes back.
package pool

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A Jail stands and waits.
type Jail interface {
	Ended() bool // by itself, or killed from outside
	Close()      // ends it and takes away all that is left of it
}

// How long a pool remembers.
const (
	Window = time.Second      // what is asked for within that is made ready to be asked for again at once
	Linger = 10 * time.Second // what is ready stays so
	Idle   = 2 * time.Minute  // after that nothing is kept of a kind
	Retry  = 30 * time.Second // after a failure

	tick     = time.Second
	patience = 250 * time.Millisecond // how long the pool stands back for runs
	step     = 5 * time.Millisecond
	maxKinds = 256
)

// ErrNoRoom says that there is no room for a jail of its kind any more. It is no failure.
var ErrNoRoom = errors.New("there is no room for a jail of its kind")

// Options say how a pool makes what it keeps. S is what a jail of a kind is made from.
type Options[S any, J Jail] struct {
	Size int // jails, at most; at least 1
	Make func(ctx context.Context, spec S) (J, error)
	// Busy says that runs need the processors now. The pool stands back for them, for a while. It may be nil.
	Busy func() bool
	// Room says whether a jail of a kind may be made now, beside so many of it that wait, where kinds have bounds of their own; Make is asked for none
	// otherwise. What it says may not hold for long: Make returns ErrNoRoom then. It may be nil.
	Room func(spec S, waiting int) bool
	// Stale says that what stands was made from what counts no more, once. It is asked now and then, and at each claim. It may be nil.
	Stale func() bool
	now   func() time.Time // tests have another
}

// A Pool keeps jails. Its methods may be called from several goroutines.
type Pool[S any, J Jail] struct {
	o      Options[S, J]
	cancel context.CancelFunc
	wake   chan struct{}
	done   sync.WaitGroup

	mu     sync.Mutex
	kinds  map[string]*kind[S, J]
	age    int // how often the pool was drained
	stats  Stats
	closed bool
}

type kind[S any, J Jail] struct {
	spec    S
	waiting []J // the oldest first
	asked   []time.Time
	failed  time.Time // when the last one could not be made
}

func (k *kind[S, J]) last() time.Time { return k.asked[len(k.asked)-1] }

// Stats are counts since the pool was made, and what it has now.
type Stats struct {
	Waiting, Kinds int
	Hits, Misses   int64
	Made, Failed   int64
}

// New starts a pool.
func New[S any, J Jail](o Options[S, J]) *Pool[S, J] {
	if o.now == nil {
		o.now = time.Now
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool[S, J]{o: o, cancel: cancel, wake: make(chan struct{}, 1), kinds: map[string]*kind[S, J]{}}
	p.done.Go(func() { p.fill(ctx) })
	return p
}

// Claim returns a jail of the kind, which is the caller's from then on, if one waits that fits; and sees to it that there will be one the next time, made
// from spec.
func (p *Pool[S, J]) Claim(key string, spec S, fits func(J) bool) (J, bool) {
	if p.o.Stale != nil && p.o.Stale() {
		p.Drain()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var none J
	if p.closed {
		return none, false
	}
	k := p.kinds[key]
	if k == nil {
		if len(p.kinds) >= maxKinds {
			p.forgetOldest()
		}
		k = &kind[S, J]{}
		p.kinds[key] = k
	}
	now := p.o.now()
	k.spec, k.asked = spec, append(recent(k.asked, now, p.o.Size), now)
	p.poke()
	for len(k.waiting) > 0 {
		j := k.waiting[0]
		k.waiting = k.waiting[1:]
		if !j.Ended() && fits(j) {
			p.stats.Hits++
			return j, true
		}
		p.end([]J{j})
	}
	p.stats.Misses++
	return none, false
}

// recent are the times that still count, and no more of them than there can be jails.
func recent(asked []time.Time, now time.Time, most int) []time.Time {
	for len(asked) > 0 && (now.Sub(asked[0]) > Window || len(asked) >= most) {
		asked = asked[1:]
	}
	return asked
}

// end ends jails without making anybody wait. p.mu is held.
func (p *Pool[S, J]) end(all []J) {
	for _, j := range all {
		p.done.Go(j.Close)
	}
}

func (p *Pool[S, J]) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Drain ends all that waits, and forgets what was asked for: what is made from now on is made from what is asked for from now on.
func (p *Pool[S, J]) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		p.end(k.waiting)
	}
	clear(p.kinds)
	p.age++
}

// Forget ends what waits of the kinds that are made from what matches, and forgets that they were asked for. What is being made of them is for nobody.
func (p *Pool[S, J]) Forget(matches func(S) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, k := range p.kinds {
		if matches(k.spec) {
			p.end(k.waiting)
			delete(p.kinds, key)
		}
	}
}

// Take returns a jail that waits of a kind that matches, of the one that was asked for longest ago: it is the caller's from then on, to be closed.
func (p *Pool[S, J]) Take(matches func(S) bool) (J, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest *kind[S, J]
	for _, k := range p.kinds {
		if len(k.waiting) > 0 && matches(k.spec) && (oldest == nil || k.last().Before(oldest.last())) {
			oldest = k
		}
	}
	if oldest == nil {
		var none J
		return none, false
	}
	j := oldest.waiting[0]
	oldest.waiting = oldest.waiting[1:]
	return j, true
}

// Wake says that there may be room for what there was none for.
func (p *Pool[S, J]) Wake() { p.poke() }

// Close drains the pool for good, and returns when nothing is left of it.
func (p *Pool[S, J]) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.Drain()
	p.done.Wait()
}

// Stats says what the pool has and did.
func (p *Pool[S, J]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Kinds, s.Waiting = len(p.kinds), p.waiting()
	return s
}

func (p *Pool[S, J]) waiting() (n int) {
	for _, k := range p.kinds {
		n += len(k.waiting)
	}
	return n
}
