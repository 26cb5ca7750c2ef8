package prewarm

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/mounts"
)

// A Session is what jails are prewarmed for the invocations of. More is known of an invocation than
// of a run: the shadow, /tmp, the limits and the policy. So its jail is complete: every mount and
// every layer is set up, its module is loaded, and only the invocation is left to be handed over.
//
// A prewarmed jail uses processes and memory of the session, which the session's tools may use up.
// So there is none beside an invocation: jails are prewarmed while no invocation is there, and when
// one comes, Vacate ends those that it does not take before its tool starts.
type Session struct {
	id    string
	base  uint32
	room  func() int
	files FilesFunc

	mu sync.Mutex
	// unclaimed is how many jails may have processes and are no invocation's: they are prewarmed,
	// being made or on their way out.
	unclaimed int
	// all is how many jails there are, with those of invocations, until nothing is left of them.
	all int
	// stop ends the making of the jail that is being made. The pool makes one at a time.
	stop context.CancelFunc
	// less is signalled when a jail is gone.
	less sync.Cond
}

// FilesFunc opens what a jail by that plan shares with the session's other jails. binds are the
// sources of its bind mounts. It also returns the targets of the shared mounts.
type FilesFunc func(plan jail.Plan, binds []*os.File) (*mounts.Files, []string, error)

// NewSession returns the Session with that id, whose jails have host ids from base on. room returns
// how many prewarmed jails it may have now.
func NewSession(id string, base uint32, room func() int, files FilesFunc) *Session {
	s := &Session{id: id, base: base, room: room, files: files}
	s.less.L = &s.mu
	return s
}

// MaxOfSession is how many jails may be prewarmed for a session's invocations, each of another
// kind: all of them end with each invocation and are made again after it.
const MaxOfSession = 2

// pollEvery is how often Vacate looks whether a jail that is being made has gone.
const pollEvery = time.Millisecond

// capacity reports whether one more jail may be made beside so many of its kind.
func (s Spec) capacity(prewarmed int) bool {
	if s.Session == nil {
		return true
	}
	s.Session.mu.Lock()
	defer s.Session.mu.Unlock()
	return prewarmed == 0 && s.Session.hasRoom()
}

// awaits reports whether a claim waits for the jail of its kind that is being made. That of an
// invocation does: the jail is ready before a new one would be, and is the only one of its kind in
// the session. Runs outside of sessions do not: several would wait for one jail.
func (s Spec) awaits() bool { return s.Session != nil }

// hasRoom is asked with s.mu held, so that a jail which is made after the session was closed, or an
// invocation has come, is seen by neither [Pool.EndSession] nor [Pool.Vacate] too late.
func (s *Session) hasRoom() bool { return s.unclaimed < s.room() }

// reserve takes a place for a jail that is being made. stop ends its making.
func (s *Session) reserve(stop context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hasRoom() {
		return errNoCapacity
	}
	s.unclaimed++
	s.all++
	s.stop = stop
	return nil
}

// made notes that no jail is being made any more.
func (s *Session) made() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = nil
}

// halt ends the making of a jail, if one is being made.
func (s *Session) halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
}

// claimed notes that an invocation has the jail, or that none of its processes is left. It may be
// called more than once for a jail.
func (s *Session) claimed(j *Jail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.claimed {
		j.claimed = true
		s.unclaimed--
	}
}

// gone notes that nothing is left of a jail, or that none was made.
func (s *Session) gone(j *Jail) {
	s.claimed(j)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	s.less.Broadcast()
}

func (s *Session) hasUnclaimed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unclaimed > 0
}

// Vacate ends the prewarmed jails of a session and returns when nothing of them runs. cleanUp is
// called to have the rest of each be removed. The session's room must be 0 by then.
func (p *Pool) Vacate(s *Session, cleanUp func(func())) {
	if p == nil || s == nil {
		return
	}
	for s.hasUnclaimed() {
		if j, ok := p.jails.Take(func(spec Spec) bool { return spec.Session == s }); ok {
			j.vacate()
			cleanUp(j.Close)
			continue
		}
		// One is being made, or on its way out.
		s.halt()
		time.Sleep(pollEvery)
	}
}

// VacateMeanwhile is Vacate in the background. wait returns when it is done.
func (p *Pool) VacateMeanwhile(s *Session, cleanUp func(func())) (wait func()) {
	if p == nil || s == nil || !s.hasUnclaimed() {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Vacate(s, cleanUp)
	}()
	return func() { <-done }
}

// EndSession ends the prewarmed jails of a session that is closed, and returns when nothing is left
// of them, nor of those that invocations had. The session's room must be 0 by then.
func (p *Pool) EndSession(s *Session) {
	if p == nil || s == nil {
		return
	}
	p.jails.Forget(func(spec Spec) bool { return spec.Session == s })
	s.halt()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.all > 0 {
		s.less.Wait()
	}
}
