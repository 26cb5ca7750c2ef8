package fetch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail/tick"
	"github.com/jail-sandbox/jail/policy"
)

// limitError is the error for a request that exceeds a limit of the policy.
type limitError struct {
	// name is a key of the policy file.
	name  string
	limit string
}

func (e *limitError) Error() string { return fmt.Sprintf("%s = %s is used up", e.name, e.limit) }

// budget counts the requests and bytes of a run, or of one host in a run. A bound of zero means no
// bound.
type budget struct {
	mu       sync.Mutex
	key      string // "fetch.limits" or "fetch.allow"
	bounds   policy.FetchBounds
	requests int64
	in, out  int64
	slots    chan struct{}
	// started has the start times within the last second, at most as many as the rate.
	started []time.Time
}

func newBudget(key string, bounds policy.FetchBounds) *budget {
	b := &budget{key: key, bounds: bounds}
	if bounds.Concurrent > 0 && bounds.Concurrent < maxStreams {
		b.slots = make(chan struct{}, bounds.Concurrent)
	}
	return b
}

// runBounds returns a run's limits as bounds. Limits of zero do not occur: function nothing has
// refused them before.
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

func (b *budget) over(name string, limit int64) error {
	return &limitError{b.key + "." + name, policy.FieldOf("fetch.limits." + name).Unit.Format(limit)}
}

// begin counts one request. It waits until rate and concurrent allow it. It returns an error if ctx
// ends before, or another bound is exceeded.
func (b *budget) begin(ctx context.Context) error {
	b.mu.Lock()
	if b.bounds.Requests > 0 && b.requests >= b.bounds.Requests {
		b.mu.Unlock()
		return b.over("requests", b.bounds.Requests)
	}
	now := time.Now()
	at := b.next(now)
	wait := at.Sub(now)
	if deadline, ok := ctx.Deadline(); ok && wait > 0 && at.After(deadline) {
		b.mu.Unlock()
		// Do not take a turn from requests that can wait.
		return b.over("rate", b.bounds.Rate)
	}
	b.requests++
	b.start(at)
	b.mu.Unlock()
	if wait > 0 && !tick.Wait(ctx.Done(), wait) {
		return b.over("rate", b.bounds.Rate)
	}
	if b.slots == nil {
		return nil
	}
	select {
	case b.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return b.over("concurrent", b.bounds.Concurrent)
	}
}

// usedUp returns an error if the budget has nothing left for another request. It counts nothing.
func (b *budget) usedUp() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch most := b.bounds; {
	case most.Requests > 0 && b.requests >= most.Requests:
		return b.over("requests", most.Requests)
	case most.BytesIn > 0 && b.in >= most.BytesIn:
		return b.over("bytes_in", most.BytesIn)
	case most.BytesOut > 0 && b.out >= most.BytesOut:
		return b.over("bytes_out", most.BytesOut)
	}
	return nil
}

// rate returns the number of requests that may start in one second; 0 means any number.
func (b *budget) rate() int { return int(min(max(b.bounds.Rate, 0), 1<<16)) }

// next returns the time at which another request may start. After a pause a second's worth of
// requests may start at once. Later ones start evenly, since bursts would delay others on the
// machine.
func (b *budget) next(now time.Time) time.Time {
	n := len(b.started)
	if n == 0 || n < b.rate() {
		return now
	}
	at := b.started[0].Add(time.Second)
	if !at.After(now) {
		return now
	}
	if even := b.started[n-1].Add(time.Second / time.Duration(n)); even.After(at) {
		return even
	}
	return at
}

// start records a request that starts at the time that next returned.
func (b *budget) start(at time.Time) {
	switch rate := b.rate(); {
	case rate == 0:
		return
	case len(b.started) == rate:
		b.started = append(b.started[:0], b.started[1:]...)
	}
	b.started = append(b.started, at)
}

// turn takes the next start time and returns the wait until then.
func (b *budget) turn(now time.Time) time.Duration {
	at := b.next(now)
	b.start(at)
	return at.Sub(now)
}

func (b *budget) end() {
	if b.slots != nil {
		<-b.slots
	}
}

// spend counts bytes. It returns an error if they exceed the budget.
func (b *budget) spend(in, out int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.in += in
	b.out += out
	if limit := b.bounds.BytesIn; limit > 0 && in > 0 && b.in > limit {
		return b.over("bytes_in", limit)
	}
	if limit := b.bounds.BytesOut; limit > 0 && out > 0 && b.out > limit {
		return b.over("bytes_out", limit)
	}
	return nil
}

// nothing returns an error if a limit of the policy is zero, so that no request at all is allowed.
func nothing(f policy.Fetch) error {
	for _, name := range policy.FetchLimitNames() {
		if n, unit, _ := f.Limits.Get(name); n <= 0 {
			return &limitError{"fetch.limits." + name, unit.Format(0)}
		}
	}
	return nil
}

// budgets has the budgets of a run and of its hosts.
type budgets struct {
	run   *budget
	mu    sync.Mutex
	hosts map[string]*budget
}

func newBudgets(f policy.Fetch) *budgets {
	return &budgets{run: newBudget("fetch.limits", runBounds(f)), hosts: map[string]*budget{}}
}

// of returns the budget of a host under the bounds of a rule; nil if bounds are empty.
func (b *budgets) of(host string, bounds policy.FetchBounds) (*budget, error) {
	if bounds == (policy.FetchBounds{}) {
		return nil, nil
	}
	key := host + bounds.String()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hosts[key] == nil {
		if len(b.hosts) >= maxBudgets {
			return nil, &limitError{"hosts of one run", fmt.Sprint(maxBudgets)}
		}
		b.hosts[key] = newBudget("fetch.allow", bounds)
	}
	return b.hosts[key], nil
}
