package pool

import (
	"context"
	"errors"
	"time"
)

// fill makes what is wanted, one after the other, until ctx ends.
func (p *Pool[S, J]) fill(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-ticker.C:
			if p.o.Stale != nil && p.o.Stale() {
				p.Drain()
			}
		}
		p.shrink()
		for p.standBack(ctx) && p.one(ctx) {
			p.shrink() // there may be one to make for ever
		}
	}
}

// standBack lets runs have the processors for a while. It is false at the end of ctx.
func (p *Pool[S, J]) standBack(ctx context.Context) bool {
	for waited := time.Duration(0); p.o.Busy != nil && p.o.Busy() && waited < patience; waited += step {
		select {
		case <-ctx.Done():
		case <-time.After(step):
		}
	}
	return ctx.Err() == nil
}

// one makes one jail, and reports whether there was one to make.
func (p *Pool[S, J]) one(ctx context.Context) bool {
	key, spec, age, ok := p.next()
	if !ok {
		return false
	}
	j, err := p.o.Make(ctx, spec)
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kinds[key]
	switch {
	case errors.Is(err, ErrNoRoom):
	case err != nil:
		p.stats.Failed++
		if k != nil {
			k.failed = p.o.now()
		}
	case p.closed || p.age != age || k == nil:
		p.end([]J{j}) // it was made for nothing
	default:
		p.stats.Made++
		k.waiting = append(k.waiting, j)
	}
	return true
}

// next says what to make: of the kinds that lack some, and have room for it, the one that was asked for last. Where there is no room, one of the kind that was asked for
// longest ago makes it.
func (p *Pool[S, J]) next() (key string, spec S, age int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var latest *kind[S, J]
	now := p.o.now()
	for name, k := range p.kinds {
		if len(k.waiting) < p.wanted(k, now) && now.Sub(k.failed) >= Retry && (latest == nil || k.last().After(latest.last())) &&
			(p.o.Room == nil || p.o.Room(k.spec, len(k.waiting))) {
			key, latest = name, k
		}
	}
	if latest == nil || p.closed {
		return "", spec, 0, false
	}
	if p.waiting() >= p.o.Size {
		var oldest *kind[S, J]
		for _, k := range p.kinds {
			if len(k.waiting) > 0 && k.last().Before(latest.last()) && (oldest == nil || k.last().Before(oldest.last())) {
				oldest = k
			}
		}
		if oldest == nil {
			return "", spec, 0, false
		}
		p.end(oldest.waiting[:1])
		oldest.waiting = oldest.waiting[1:]
	}
	return key, latest.spec, p.age, true
}

// wanted is how many of a kind are to wait.
func (p *Pool[S, J]) wanted(k *kind[S, J], now time.Time) int {
	if now.Sub(k.last()) > Idle {
		return 0
	}
	n := 0
	for _, t := range k.asked {
		if now.Sub(t) <= Window {
			n++
		}
	}
	return min(max(n, 1), p.o.Size)
}

// shrink ends what is more than is wanted, and what has ended by itself, and forgets kinds that nobody asks for.
func (p *Pool[S, J]) shrink() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.now()
	for name, k := range p.kinds {
		var alive []J
		for _, j := range k.waiting {
			if j.Ended() {
				p.end([]J{j})
			} else {
				alive = append(alive, j)
			}
		}
		surplus := 0
		if now.Sub(k.last()) > Linger {
			surplus = max(len(alive)-p.wanted(k, now), 0)
		}
		p.end(alive[:surplus])
		if k.waiting = alive[surplus:]; now.Sub(k.last()) > Idle {
			delete(p.kinds, name)
		}
	}
}

func (p *Pool[S, J]) forgetOldest() {
	oldest := ""
	for name, k := range p.kinds {
		if oldest == "" || k.last().Before(p.kinds[oldest].last()) {
			oldest = name
		}
	}
	p.end(p.kinds[oldest].waiting)
	delete(p.kinds, oldest)
}
