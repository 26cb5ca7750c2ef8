// Package prewarm makes jails before they are asked for, so that a run need not wait for its jail.
//
// A [Pool] follows demand. When a jail of some kind has been claimed, the pool makes as many of
// that kind in the background as were claimed within window, one at a time. Once nobody has claimed
// one for linger, one jail of the kind is kept, and after idle none. All kinds together are bounded
// by options.size. If that is too little, the kinds that were claimed last have their jails. A jail
// is given out once and never comes back.
package prewarm

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A member is a prewarmed jail. The caller of Claim decides whether it fits a run.
type member interface {
	// Ended reports whether the jail has ended, by itself or killed from outside.
	Ended() bool
	// Close ends the jail and removes all that is left of it.
	Close()
}

// Times of a pool.
const (
	// window is how long a claim counts when the pool decides how many jails of its kind to make.
	window = time.Second
	// linger is how long after the last claim the pool keeps several jails of a kind.
	linger = 10 * time.Second
	// idle is how long after the last claim the pool keeps any jail of a kind.
	idle = 2 * time.Minute
	// retry is how long the pool waits after it failed to make a jail of a kind.
	retry = 30 * time.Second

	tick = time.Second
	// patience is how long the pool yields to runs.
	patience = 250 * time.Millisecond
	// awaitMost is how long a claim waits for a jail that is being made. On a loaded machine making
	// one takes about a second, so waiting is faster than making another.
	awaitMost = 5 * time.Second
	step      = 5 * time.Millisecond
	maxKinds  = 256
)

// errNoCapacity is the error of options.make when a jail of the kind may not be made any more. The
// pool does not count it as a failure.
var errNoCapacity = errors.New("no capacity for a prewarmed jail of this kind")

// options say how a demand makes jails. S is the specification of a kind, from which each jail of
// that kind is made. All functions but make may be nil.
type options[S any, J member] struct {
	// size is how many prewarmed jails there may be, at least 1.
	size int
	make func(ctx context.Context, spec S) (J, error)
	// busy reports whether runs need the processors now. The pool then waits, at most patience.
	busy func() bool
	// capacity reports whether one more jail of a kind may be made beside those that are prewarmed.
	// The answer may be out of date when make is called, which returns errNoCapacity then.
	capacity func(spec S, prewarmed int) bool
	// awaits reports whether a claim of a kind waits for the jail of that kind which is being made,
	// if none is ready. Without awaits no claim waits.
	awaits func(spec S) bool
	// outdated reports, once for each change, that all prewarmed jails are outdated. The pool asks
	// each second and at each claim.
	outdated func() bool

	// now is time.Now, except in tests.
	now func() time.Time
}

// A demand keeps prewarmed jails of several kinds according to the claims. Its methods may be
// called from several goroutines.
type demand[S any, J member] struct {
	o      options[S, J]
	cancel context.CancelFunc
	wake   chan struct{}
	done   sync.WaitGroup

	mu    sync.Mutex
	kinds map[string]*kind[S, J]
	// age counts the calls of Drain.
	age    int
	stats  stats
	closed bool
	// making is the key of the kind that a jail is being made of.
	making string
	// made is closed when that jail is ready or has failed. It is nil while none is made.
	made chan struct{}
}

type kind[S any, J member] struct {
	spec S
	// prewarmed are the jails that are ready, the oldest first.
	prewarmed []J
	// claims are the times of the last claims, the oldest first.
	claims []time.Time
	// failed is when making a jail of the kind last failed.
	failed time.Time
}

func (k *kind[S, J]) lastClaim() time.Time { return k.claims[len(k.claims)-1] }

// stats are the present numbers of prewarmed jails and kinds, and counts since the pool was made.
type stats struct {
	Prewarmed, Kinds int
	Hits, Misses     int64
	Made, Failed     int64
}

// newDemand returns a demand and starts its goroutine, which ends with Close.
func newDemand[S any, J member](o options[S, J]) *demand[S, J] {
	if o.now == nil {
		o.now = time.Now
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &demand[S, J]{o: o, cancel: cancel, wake: make(chan struct{}, 1),
		kinds: map[string]*kind[S, J]{}}
	p.done.Go(func() { p.fill(ctx) })
	return p
}

// Claim returns a prewarmed jail of the kind key for which fits returns true, and false if there is
// none. From then on the pool prewarms jails of the kind from spec. If options.awaits says so,
// Claim waits for the jail that is being made until ctx ends, at most awaitMost.
func (p *demand[S, J]) Claim(ctx context.Context, key string, spec S, fits func(J) bool) (J, bool) {
	if p.o.outdated != nil && p.o.outdated() {
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
	k.spec, k.claims = spec, append(recent(k.claims, now, p.o.size), now)
	p.Wake()
	j, ok := p.first(key, fits)
	if !ok && p.made != nil && p.making == key && p.o.awaits != nil && p.o.awaits(spec) {
		p.await(ctx)
		j, ok = p.first(key, fits)
	}
	if ok {
		p.stats.Hits++
	} else {
		p.stats.Misses++
	}
	return j, ok
}

// first removes and returns the first ready jail of a kind that fits, and ends those before it.
// p.mu is held.
func (p *demand[S, J]) first(key string, fits func(J) bool) (j J, ok bool) {
	k := p.kinds[key]
	for k != nil && len(k.prewarmed) > 0 {
		j, k.prewarmed = k.prewarmed[0], k.prewarmed[1:]
		if !j.Ended() && fits(j) {
			return j, true
		}
		p.end([]J{j})
	}
	var none J
	return none, false
}

// await waits until the jail that is being made is ready or has failed. p.mu is held, but not
// during the wait.
func (p *demand[S, J]) await(ctx context.Context) {
	made := p.made
	p.mu.Unlock()
	defer p.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, awaitMost)
	defer cancel()
	select {
	case <-made:
	case <-ctx.Done():
	}
}

// recent returns the claims within window, fewer than most of them.
func recent(claims []time.Time, now time.Time, most int) []time.Time {
	for len(claims) > 0 && (now.Sub(claims[0]) > window || len(claims) >= most) {
		claims = claims[1:]
	}
	return claims
}

// end closes jails in the background. p.mu is held.
func (p *demand[S, J]) end(all []J) {
	for _, j := range all {
		p.done.Go(j.Close)
	}
}

// Wake has the pool look again for jails to make. It is called after capacity has been freed.
func (p *demand[S, J]) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Drain ends all prewarmed jails and forgets all claims. It is called after a policy or bundle
// change.
func (p *demand[S, J]) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		p.end(k.prewarmed)
	}
	clear(p.kinds)
	p.age++
}

// Forget ends the prewarmed jails of the kinds that match and forgets the claims of those kinds. A
// jail of such a kind that is being made is ended once it is ready.
func (p *demand[S, J]) Forget(matches func(S) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, k := range p.kinds {
		if matches(k.spec) {
			p.end(k.prewarmed)
			delete(p.kinds, key)
		}
	}
}

// Take removes and returns a prewarmed jail of a kind that matches, which the caller must close. It
// takes from the kind whose last claim is the oldest.
func (p *demand[S, J]) Take(matches func(S) bool) (J, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, ok := p.oldest(func(k *kind[S, J]) bool { return len(k.prewarmed) > 0 && matches(k.spec) })
	if !ok {
		var none J
		return none, false
	}
	k := p.kinds[name]
	j := k.prewarmed[0]
	k.prewarmed = k.prewarmed[1:]
	return j, true
}

// oldest returns the key of the kind with the oldest last claim among those that want accepts. ok
// is false if there is none. p.mu is held.
func (p *demand[S, J]) oldest(want func(*kind[S, J]) bool) (oldest string, ok bool) {
	for name, k := range p.kinds {
		if want(k) && (!ok || k.lastClaim().Before(p.kinds[oldest].lastClaim())) {
			oldest, ok = name, true
		}
	}
	return oldest, ok
}

// Close ends all prewarmed jails, makes no more, and returns when all are removed.
func (p *demand[S, J]) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.Drain()
	p.done.Wait()
}

// Stats returns the pool's numbers.
func (p *demand[S, J]) Stats() stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Kinds, s.Prewarmed = len(p.kinds), p.prewarmed()
	return s
}

func (p *demand[S, J]) prewarmed() (n int) {
	for _, k := range p.kinds {
		n += len(k.prewarmed)
	}
	return n
}

// fill makes the wanted jails, one after the other, until ctx ends.
func (p *demand[S, J]) fill(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-ticker.C:
			if p.o.outdated != nil && p.o.outdated() {
				p.Drain()
			}
		}
		p.shrink()
		for p.yield(ctx) && p.makeOne(ctx) {
			// There may always be one more to make, so shrink is not left to the next tick.
			p.shrink()
		}
	}
}

// yield waits while runs need the processors, at most patience. It returns false once ctx has
// ended.
func (p *demand[S, J]) yield(ctx context.Context) bool {
	patient := time.NewTimer(patience)
	defer patient.Stop()
	for p.o.busy != nil && p.o.busy() {
		select {
		case <-ctx.Done():
			return false
		case <-patient.C:
			return true
		case <-p.wake:
			// Perhaps the last run has ended.
		case <-time.After(step):
		}
	}
	return ctx.Err() == nil
}

// makeOne makes one jail if one is wanted. It returns false if none is.
func (p *demand[S, J]) makeOne(ctx context.Context) bool {
	key, spec, age, ok := p.next()
	if !ok {
		return false
	}
	j, err := p.o.make(ctx, spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.made)
	p.made = nil
	k := p.kinds[key]
	switch {
	case errors.Is(err, errNoCapacity):
	case err != nil:
		p.stats.Failed++
		if k != nil {
			k.failed = p.o.now()
		}
	case p.closed || p.age != age || k == nil:
		// The pool was drained, or the kind forgotten, while the jail was made.
		p.end([]J{j})
	default:
		p.stats.Made++
		k.prewarmed = append(k.prewarmed, j)
	}
	return true
}

// next chooses the kind to make a jail of: of those that lack a jail and have capacity, the one
// claimed last. If the pool is full, next ends a jail of the kind with the oldest last claim. ok is
// false if no jail is to be made.
func (p *demand[S, J]) next() (key string, spec S, age int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var latest *kind[S, J]
	now := p.o.now()
	for name, k := range p.kinds {
		if len(k.prewarmed) < p.wanted(k, now) && now.Sub(k.failed) >= retry &&
			(latest == nil || k.lastClaim().After(latest.lastClaim())) &&
			(p.o.capacity == nil || p.o.capacity(k.spec, len(k.prewarmed))) {
			key, latest = name, k
		}
	}
	if latest == nil || p.closed {
		return "", spec, 0, false
	}
	if p.prewarmed() >= p.o.size {
		name, ok := p.oldest(func(k *kind[S, J]) bool {
			return len(k.prewarmed) > 0 && k.lastClaim().Before(latest.lastClaim())
		})
		if !ok {
			return "", spec, 0, false
		}
		oldest := p.kinds[name]
		p.end(oldest.prewarmed[:1])
		oldest.prewarmed = oldest.prewarmed[1:]
	}
	p.making, p.made = key, make(chan struct{})
	return key, latest.spec, p.age, true
}

// wanted returns how many jails of a kind are to be prewarmed.
func (p *demand[S, J]) wanted(k *kind[S, J], now time.Time) int {
	if now.Sub(k.lastClaim()) > idle {
		return 0
	}
	n := 0
	for _, t := range k.claims {
		if now.Sub(t) <= window {
			n++
		}
	}
	return min(max(n, 1), p.o.size)
}

// shrink closes the jails that have ended or are more than wanted, and forgets idle kinds.
func (p *demand[S, J]) shrink() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.now()
	for name, k := range p.kinds {
		var alive []J
		for _, j := range k.prewarmed {
			if j.Ended() {
				p.end([]J{j})
			} else {
				alive = append(alive, j)
			}
		}
		surplus := 0
		if now.Sub(k.lastClaim()) > linger {
			surplus = max(len(alive)-p.wanted(k, now), 0)
		}
		p.end(alive[:surplus])
		if k.prewarmed = alive[surplus:]; now.Sub(k.lastClaim()) > idle {
			delete(p.kinds, name)
		}
	}
}

func (p *demand[S, J]) forgetOldest() {
	oldest, _ := p.oldest(func(*kind[S, J]) bool { return true })
	p.end(p.kinds[oldest].prewarmed)
	delete(p.kinds, oldest)
}
