package fetch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/policy"
)

// limitError names the limit of fetches that a request exceeds.
type limitError struct {
	// name is a key of the policy file.
	name  string
	limit string
}

func (e *limitError) Error() string { return fmt.Sprintf("%s = %s is used up", e.name, e.limit) }

// purse is the budget of a run, or of one host of a run. Zero bounds are no bounds.
type purse struct {
	mu       sync.Mutex
	key      string // "fetch.limits" or "fetch.allow"
	bounds   policy.FetchBounds
	requests int64
	in, out  int64
	slots    chan struct{}
	// started are the starts within the last second, at most the rate.
	started []time.Time
}

func newPurse(key string, b policy.FetchBounds) *purse {
	p := &purse{key: key, bounds: b}
	if b.Concurrent > 0 && b.Concurrent < maxStreams {
		p.slots = make(chan struct{}, b.Concurrent)
	}
	return p
}

// runBounds returns the limits of a run as bounds. A limit of zero is checked before, by nothing.
func runBounds(f policy.Fetch) policy.FetchBounds {
	of := func(n int64) int64 {
		if n == policy.Unlimited {
			return 0
		}
		return n
	}
	l := f.Limits
	return policy.FetchBounds{Requests: of(l.Requests), BytesIn: of(l.BytesIn),
		BytesOut: of(l.BytesOut), Concurrent: of(l.Concurrent),
		Rate: f.Rate, Timeout: time.Duration(of(int64(l.Timeout)))}
}

func (p *purse) over(name string, limit int64) error {
	_, unit, _ := p.bounds.Get(name)
	return &limitError{p.key + "." + name, unit.Format(limit)}
}

// begin takes one request. It waits for rate and concurrent, and returns an error for other
// exceeded bounds.
func (p *purse) begin(ctx context.Context) error {
	p.mu.Lock()
	if p.bounds.Requests > 0 && p.requests >= p.bounds.Requests {
		p.mu.Unlock()
		return p.over("requests", p.bounds.Requests)
	}
	now := time.Now()
	at := p.next(now)
	wait := at.Sub(now)
	if deadline, ok := ctx.Deadline(); ok && wait > 0 && at.After(deadline) {
		p.mu.Unlock()
		// The request takes no turn from those that can wait for theirs.
		return p.over("rate", p.bounds.Rate)
	}
	p.requests++
	p.start(at)
	p.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return p.over("rate", p.bounds.Rate)
		}
	}
	if p.slots == nil {
		return nil
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return p.over("concurrent", p.bounds.Concurrent)
	}
}

// rate returns how many requests may start in one second, 0 for any number.
func (p *purse) rate() int { return int(min(max(p.bounds.Rate, 0), 1<<16)) }

// next returns the time at which one more request may start. After a pause as many start at once as
// may start in one second; later ones start evenly, since a burst in each second would delay others
// on the machine.
func (p *purse) next(now time.Time) time.Time {
	n := len(p.started)
	if n == 0 || n < p.rate() {
		return now
	}
	at := p.started[0].Add(time.Second)
	if !at.After(now) {
		return now
	}
	if even := p.started[n-1].Add(time.Second / time.Duration(n)); even.After(at) {
		return even
	}
	return at
}

// start takes the turn at the time that next returned.
func (p *purse) start(at time.Time) {
	switch rate := p.rate(); {
	case rate == 0:
		return
	case len(p.started) == rate:
		p.started = append(p.started[:0], p.started[1:]...)
	}
	p.started = append(p.started, at)
}

// turn takes the next turn and returns the time until then.
func (p *purse) turn(now time.Time) time.Duration {
	at := p.next(now)
	p.start(at)
	return at.Sub(now)
}

func (p *purse) end() {
	if p.slots != nil {
		<-p.slots
	}
}

// spend counts bytes and returns an error if they exceed the budget.
func (p *purse) spend(in, out int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in += in
	p.out += out
	if b := p.bounds.BytesIn; b > 0 && in > 0 && p.in > b {
		return p.over("bytes_in", b)
	}
	if b := p.bounds.BytesOut; b > 0 && out > 0 && p.out > b {
		return p.over("bytes_out", b)
	}
	return nil
}

// nothing returns the limit of a run that is zero, which grants no request at all.
func nothing(f policy.Fetch) error {
	for _, name := range policy.FetchLimitNames() {
		if n, unit, _ := f.Limits.Get(name); n <= 0 {
			return &limitError{"fetch.limits." + name, unit.Format(0)}
		}
	}
	return nil
}
