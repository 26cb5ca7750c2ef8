package prewarm

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/mounts"
)

// A Session has the prewarmed jails of one session. Their shadow, /tmp, limits and policy are known
// in advance, so such a jail is complete: all mounts and layers are set up and the module is
// loaded.
//
// A prewarmed jail uses up processes and memory of the session's limits. So jails are prewarmed
// only while no invocation runs, and Vacate ends the unused ones before a tool starts.
type Session struct {
	id    string
	base  uint32
	room  func() int
	files FilesFunc

	mu sync.Mutex
	// unclaimed counts the jails with processes that no invocation has claimed: ready, being made
	// or ending.
	unclaimed int
	// all counts the jails, claimed ones too, until nothing of them is left.
	all int
	// stop cancels the jail that is being made; nil if none is.
	stop context.CancelFunc
	// less is signalled when a jail is removed.
	less sync.Cond
}

// FilesFunc opens what a jail with that plan shares with the session's other jails. binds are the
// sources of its bind mounts. It also returns the targets of the shared mounts.
type FilesFunc func(plan jail.Plan, binds []*os.File) (*mounts.Files, []string, error)

// NewSession returns a Session whose jails use host ids from base on. room returns how many
// prewarmed jails it may have now.
func NewSession(id string, base uint32, room func() int, files FilesFunc) *Session {
	s := &Session{id: id, base: base, room: room, files: files}
	s.less.L = &s.mu
	return s
}

// MaxOfSession is how many jails, each of another kind, may be prewarmed for a session. All of them
// are ended for each invocation and made again after it.
const MaxOfSession = 2

// pollEvery is how often Vacate checks for jails that are being made.
const pollEvery = time.Millisecond

// capacity reports whether one more jail may be made beside the prewarmed ones of its kind.
func (s Spec) capacity(prewarmed int) bool {
	if s.Session == nil {
		return true
	}
	s.Session.mu.Lock()
	defer s.Session.mu.Unlock()
	return prewarmed == 0 && s.Session.hasRoom()
}

// awaits reports whether a claim waits for the jail of its kind that is being made. An invocation
// does, since it is the only one to use the jail. Runs outside of sessions do not, since several
// would wait for one jail.
func (s Spec) awaits() bool { return s.Session != nil }

// hasRoom reports whether one more jail may be made. s.mu is held until the jail is counted, so
// that [Pool.EndSession] and [Pool.Vacate] cannot miss the jail.
func (s *Session) hasRoom() bool { return s.unclaimed < s.room() }

// reserve counts a jail that is about to be made. stop cancels that.
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

// made notes that the making of a jail is over.
func (s *Session) made() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = nil
}

// halt cancels the jail that is being made, if any.
func (s *Session) halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
}

// claimed notes that an invocation has claimed the jail, or that it has no processes left. It may
// be called more than once for a jail.
func (s *Session) claimed(j *Jail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.claimed {
		j.claimed = true
		s.unclaimed--
	}
}

// gone notes that a jail was removed, or could not be made.
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

// Vacate ends the prewarmed jails of a session and returns when no process of them is left. It
// passes cleanUp functions that remove the rest. The session's room must be 0 by then.
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
		// A jail is being made or is ending.
		s.halt()
		time.Sleep(pollEvery)
	}
}

// VacateMeanwhile calls Vacate in the background. wait returns when that is done.
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

// EndSession ends the prewarmed jails of a closed session, and returns when all its jails are
// removed, claimed ones too. The session's room must be 0 by then.
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
