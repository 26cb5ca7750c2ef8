package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/run"
)

// Bounds of the invocations of a session.
const (
	// maxWaiting is how many wait for their turn.
	maxWaiting = 64
	// maxAtOnce is how many run at one time, where the session's limits leave room for more.
	maxAtOnce = 64
)

// invocations are those of one session: how many there may be at one time, which there are, and
// since when there is none. Its methods may be called from several goroutines.
type invocations struct {
	id string
	// places has an element for each that has a place.
	places chan struct{}
	// over is closed when there can be no more.
	over chan struct{}

	// resting says that there can be no more because there was none for so long.
	resting atomic.Bool

	mu      sync.Mutex
	live    map[*run.Run]bool
	waiting int
	count   int64
	settler settler
	kept    kept
	idling  idling
}

// An idling is how long there has been no invocation. The mu of the invocations guards it.
type idling struct {
	// most is how long there may be none, and over is called then.
	most time.Duration
	over func(unused time.Duration)
	// used is when one last began or ended.
	used  time.Time
	timer *time.Timer
}

// stop stops the timer.
func (i *idling) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

func newInvocations(idle time.Duration, idled func(unused time.Duration)) *invocations {
	return &invocations{over: make(chan struct{}), live: map[*run.Run]bool{},
		idling: idling{most: idle, over: idled, used: time.Now()}}
}

// open names the session, and says how many may run at one time.
func (v *invocations) open(id string, places int64) {
	v.id, v.places = id, make(chan struct{}, places)
}

// ended reports whether there can be no more.
func (v *invocations) ended() bool { return closed(v.over) }

// rests reports whether the session falls asleep, because nothing ran in it.
func (v *invocations) rests() bool { return v.resting.Load() }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// close lets none begin any more. The first close of all calls settle, which may be nil.
func (v *invocations) close(settle func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended() {
		return
	}
	if settle != nil {
		settle()
	}
	v.shut()
}

// shut is close where v.mu is held.
func (v *invocations) shut() {
	if !v.ended() {
		close(v.over)
	}
}

// free is how many could begin, or 0 while there is one.
func (v *invocations) free() int {
	if v.ended() || len(v.places) > 0 {
		return 0
	}
	return cap(v.places)
}

// enter waits for a place, and returns what gives it back.
func (v *invocations) enter(ctx context.Context) (func(), error) {
	v.mu.Lock()
	if v.waiting >= maxWaiting {
		v.mu.Unlock()
		return nil, problem.New(problem.Busy,
			"session %s has as many invocations waiting as it may have", v.id).
			WithHint("try again when some have ended")
	}
	v.waiting++
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.waiting--
		v.mu.Unlock()
		v.left()
	}()
	if v.ended() {
		return nil, noSession(v.id)
	}
	select {
	case v.places <- struct{}{}:
		return func() {
			<-v.places
			v.left()
		}, nil
	case <-v.over:
		return nil, noSession(v.id)
	case <-ctx.Done():
		return nil, problem.New(problem.Failed,
			"the caller went away before there was a place for its invocation").
			WithCause(ctx.Err())
	}
}

// left is called when one no longer waits, or no longer has a place.
func (v *invocations) left() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unused() {
		v.restart()
	}
}

// unused reports whether no invocation runs, is being prepared or waits. v.mu is held.
func (v *invocations) unused() bool { return !v.ended() && v.waiting == 0 && len(v.places) == 0 }

// rest begins to count idle time.
func (v *invocations) rest() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.restart()
}

// restart does what rest does. v.mu is held.
func (v *invocations) restart() {
	v.idling.used = time.Now()
	v.idling.stop()
	v.idling.timer = time.AfterFunc(v.idling.most, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if unused := time.Since(v.idling.used); v.unused() && unused >= v.idling.most {
			v.resting.Store(true)
			v.shut()
			v.idling.over(unused)
		}
	})
}

// sleep lets no more begin, and reports whether none was there. It calls settle before.
func (v *invocations) sleep(settle func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.unused() {
		return false
	}
	settle()
	v.resting.Store(true)
	v.shut()
	v.idling.stop()
	return true
}

// join takes a run among them; not after the end.
func (v *invocations) join(r *run.Run) bool {
	v.settler.begin(r)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended() {
		v.settler.end(r)
		return false
	}
	v.live[r] = true
	v.count++
	v.idling.used = time.Now()
	return true
}

func (v *invocations) leave(r *run.Run) {
	v.settler.end(r)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.live, r)
	v.idling.used = time.Now()
}

// endAll lets none begin any more, ends those that run, and waits for them.
func (v *invocations) endAll(why ending.Cause) {
	v.mu.Lock()
	v.shut()
	v.idling.stop()
	var all []*run.Run
	for r := range v.live {
		all = append(all, r)
	}
	v.mu.Unlock()
	for _, r := range all {
		r.End(why)
	}
	for _, r := range all {
		<-r.Done()
	}
}

// usage is how a session is used.
type usage struct {
	last    time.Time
	running int
	count   int64
}

// now returns how the session has been used so far.
func (v *invocations) now() usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	return usage{v.idling.used, len(v.live), v.count}
}
