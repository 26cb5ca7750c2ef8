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
	// maxWaiting is how many invocations may wait for a place.
	maxWaiting = 64
	// maxAtOnce is how many may run at one time, if the session's limits permit it.
	maxAtOnce = 64
)

// invocations has the running and waiting invocations of one session and its idle time. Its methods
// may be called from several goroutines.
type invocations struct {
	id string
	// places holds one element per invocation that has a place.
	places chan struct{}
	// over is closed when no more invocations may begin.
	over chan struct{}

	// resting says that no more may begin because the session was idle for too long.
	resting atomic.Bool

	mu      sync.Mutex
	live    map[*run.Run]bool
	waiting int
	count   int64
	settler settler
	kept    kept
	idling  idling
}

// An idling measures how long a session has had no invocation. The mu of the invocations guards it.
type idling struct {
	// most is how long the session may be idle; over is called after that.
	most time.Duration
	over func(unused time.Duration)
	// used is when an invocation last began or ended.
	used  time.Time
	timer *time.Timer
}

// stop stops the timer, if there is one.
func (i *idling) stop() {
	if i.timer != nil {
		i.timer.Stop()
	}
}

func newInvocations(idle time.Duration, idled func(unused time.Duration)) *invocations {
	return &invocations{over: make(chan struct{}), live: map[*run.Run]bool{},
		idling: idling{most: idle, over: idled, used: time.Now()}}
}

// open sets the session's id and how many invocations may run at one time.
func (v *invocations) open(id string, places int64) {
	v.id, v.places = id, make(chan struct{}, places)
}

// ended reports whether no more invocations may begin.
func (v *invocations) ended() bool { return closed(v.over) }

// rests reports whether the session falls asleep or sleeps because it was idle.
func (v *invocations) rests() bool { return v.resting.Load() }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// close lets no more invocations begin. The first call also calls settle, which may be nil.
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

// shut closes over. v.mu is held.
func (v *invocations) shut() {
	if !v.ended() {
		close(v.over)
	}
}

// free returns how many invocations could begin, or 0 if one has a place or the session is over.
func (v *invocations) free() int {
	if v.ended() || len(v.places) > 0 {
		return 0
	}
	return cap(v.places)
}

// enter waits for a place for an invocation. Call the returned function to give the place back.
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

// left is called when an invocation no longer waits or gives its place back. It restarts the idle
// time if none is left.
func (v *invocations) left() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.unused() {
		v.restart()
	}
}

// unused reports whether no invocation waits or has a place in a session that is not over. v.mu is
// held.
func (v *invocations) unused() bool { return !v.ended() && v.waiting == 0 && len(v.places) == 0 }

// rest starts the idle time.
func (v *invocations) rest() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.restart()
}

// restart starts the idle time anew. v.mu is held.
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

// sleep calls settle and lets no more invocations begin, if there are none. Otherwise it returns
// false.
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

// join adds a running invocation. It returns false if no more may begin.
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

// endAll lets no more invocations begin, ends the running ones and waits for them.
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

// usage has the last use of a session, and its running and total invocations.
type usage struct {
	last    time.Time
	running int
	count   int64
}

// now returns the usage of the session so far.
func (v *invocations) now() usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	return usage{v.idling.used, len(v.live), v.count}
}
