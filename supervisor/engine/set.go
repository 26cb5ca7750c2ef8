package engine

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxEngines is how many engines of a session may stand, each for another policy: the session's
// own, and what the limits of single invocations and the sections of single tools make of it.
const maxEngines = 4

// A Set has the engines of one session. Its methods may be called from several goroutines.
type Set struct {
	id     string
	places int64
	make   prewarm.Options
	of     *prewarm.Session

	mu     sync.Mutex
	slots  map[string]*slot
	all    map[*Engine]bool
	closed bool
}

// A slot is where the engine of one policy stands.
type slot struct {
	// used is when it was last asked for, and taking how many invocations ask for it now. Both are
	// guarded by the mutex of the set.
	used   time.Time
	taking int

	// starting is held while an engine is looked at or started.
	starting sync.Mutex
	engine   *Engine
}

// NewSet returns the engines of a session, of which none stands. base is the first of the session's
// host ids, places how many invocations there may be at one time, and files opens what a jail
// shares with the session's others.
func NewSet(id string, base uint32, places int64, o prewarm.Options, files prewarm.FilesFunc) *Set {
	return &Set{id: id, places: places, make: o,
		// The invocations have their places already.
		of:    prewarm.NewSession(id, base, func() int { return maxEngines * 2 }, files),
		slots: map[string]*slot{}, all: map[*Engine]bool{}}
}

// A Need is what an invocation needs of an engine.
type Need struct {
	// Policy is the digest of its policy: others share the engine only if theirs is the same.
	Policy string
	// Plan is that of a jail of its own. Its mounts have the compiled modules of the engine, of
	// which that of the invocation is the Module-th.
	Plan   jail.Plan
	Module int
	// Binds are the sources of the bind mounts, where the plan mounts anything of the host.
	Binds []*os.File
	// Caller is with whose rights they are opened.
	Caller asuser.Caller
}

// caches are the directories of the plan's compiled modules, in order.
func (n Need) caches() (all []string) {
	for _, m := range n.Plan.Mounts {
		if m.Kind == jail.MountBind && mounts.IsModule(m) {
			all = append(all, m.Source)
		}
	}
	return all
}

// Take returns a call to the engine that stands for an invocation, or to a new one. The caller
// leaves it.
func (s *Set) Take(ctx context.Context, n Need) (*Call, error) {
	caches := n.caches()
	sl, err := s.slot(n.Policy)
	if err != nil {
		return nil, err
	}
	defer s.taken(sl)
	sl.starting.Lock()
	defer sl.starting.Unlock()
	if e := sl.engine; e != nil {
		if e.fits(n.Module, caches[n.Module]) && !s.outdated(e, n) {
			if c, ok := e.calls.enter(e); ok {
				return c, nil
			}
		}
		// Those that run in it still end in it.
		e.retire()
		sl.engine = nil
	}
	j, err := prewarm.Make(ctx, s.make, prewarm.Spec{Session: s.of, Caller: n.Caller},
		ofEngine(n.Plan, s.places))
	if err != nil {
		return nil, err
	}
	c, err := stand(j, caches)
	if err != nil {
		return nil, problem.New(problem.Busy, "%w", err).WithHint("try again")
	}
	if !s.add(c.engine) {
		c.engine.kill(sessionOver)
		<-c.engine.gone
		return nil, s.over()
	}
	sl.engine = c.engine
	return c, nil
}

// sessionOver says why the engines of a session that has ended are killed.
const sessionOver = "the session has ended"

// add takes a new engine among those of the set until nothing is left of it. It returns false if
// the set is closed.
func (s *Set) add(e *Engine) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[e] = true
	go func() {
		<-e.gone
		s.mu.Lock()
		delete(s.all, e)
		s.mu.Unlock()
	}()
	return true
}

func (s *Set) over() error { return problem.New(problem.NotFound, "session %s has ended", s.id) }

// outdated reports whether a jail that is made now would have something else of the host.
func (s *Set) outdated(e *Engine, n Need) bool {
	return prewarm.HasHost(n.Plan) && e.jail.Outdated(n.Plan, n.Binds)
}

// slot returns the slot of a policy, which stays until the caller calls taken. Where there are too
// many, the engine that was used longest ago and is idle ends.
func (s *Set) slot(policy string) (*slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.over()
	}
	sl := s.slots[policy]
	if sl == nil {
		for len(s.slots) >= maxEngines {
			if !s.forgetOldest() {
				return nil, problem.New(problem.Busy,
					"session %s runs invocations of %d policies in shared engines, "+
						"as many as it may", s.id, maxEngines).
					WithHint("try again when some have ended")
			}
		}
		sl = &slot{}
		s.slots[policy] = sl
	}
	sl.used = time.Now()
	sl.taking++
	return sl, nil
}

// taken says that an invocation has what it wanted of a slot, or has failed.
func (s *Set) taken(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.taking--
}

// forgetOldest ends the idle engine that was used longest ago, and reports whether there was one.
// s.mu is held.
func (s *Set) forgetOldest() bool {
	oldest := ""
	for policy, sl := range s.slots {
		idle := sl.taking == 0 && (sl.engine == nil || sl.engine.calls.idle())
		if idle && (oldest == "" || sl.used.Before(s.slots[oldest].used)) {
			oldest = policy
		}
	}
	sl := s.slots[oldest]
	if sl == nil {
		return false
	}
	if sl.engine != nil {
		sl.engine.retire()
	}
	delete(s.slots, oldest)
	return true
}

// Vacate ends the engines that are idle, and returns when nothing is left of them: an invocation
// that has a jail of its own gets all of the session's limits. s may be nil.
func (s *Set) Vacate() {
	if s == nil {
		return
	}
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, e := range all {
		if e.calls.idle() && e.retire() {
			<-e.gone
		}
	}
}

// Close ends all engines, and returns when nothing is left of them. No invocation is in them any
// more. s may be nil.
func (s *Set) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, e := range all {
		e.kill(sessionOver)
	}
	for _, e := range all {
		<-e.gone
	}
}

// Limits of a process that count in all of its invocations together, or from its start on.
const (
	rlimitCPU   = "cpu"
	rlimitFiles = "nofile"
)

// ofEngine returns the plan of an engine for so many invocations at one time: as that of one, but
// that the limits of its process are not those of one invocation. The engine holds each to its own
// number of descriptors, and to its CPU time.
func ofEngine(p jail.Plan, places int64) jail.Plan {
	p.Rlimits = slices.Clone(p.Rlimits)
	p.Rlimits = slices.DeleteFunc(p.Rlimits, func(l jail.Rlimit) bool {
		return l.Name == rlimitCPU
	})
	for i, l := range p.Rlimits {
		if l.Name == rlimitFiles {
			p.Rlimits[i].Value = min(l.Value*uint64(max(places, 1)), maxFiles)
		}
	}
	return p
}

// maxFiles is the most that the kernel lets any process have by default (fs.nr_open).
const maxFiles = 1 << 20
