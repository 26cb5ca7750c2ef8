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

// maxEngines is how many engines a session may have, one for each policy. Limits of single
// invocations and policy sections for single tools make further policies.
const maxEngines = 4

// A Set has the shared engines of one session. Its methods may be called from several goroutines.
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

// A slot has the engine of one policy, if it runs.
type slot struct {
	// used is when the slot was last requested. taking counts the requests under way. Both are
	// guarded by the mutex of the set.
	used   time.Time
	taking int

	// starting is held while the engine is checked or started.
	starting sync.Mutex
	engine   *Engine
}

// NewSet returns a Set without engines. base is the first of the session's host ids. places is how
// many invocations may run at one time. files opens what a jail shares with the session.
func NewSet(id string, base uint32, places int64, o prewarm.Options, files prewarm.FilesFunc) *Set {
	return &Set{id: id, places: places, make: o,
		// The invocations have places already, so room is not the bound.
		of:    prewarm.NewSession(id, base, func() int { return maxEngines * 2 }, files),
		slots: map[string]*slot{}, all: map[*Engine]bool{}}
}

// A Need describes what an invocation needs of an engine.
type Need struct {
	// Policy is the digest of its policy. Only invocations with the same one share an engine.
	Policy string
	// Plan is the plan for a jail of its own. It mounts the compiled modules of the engine. The
	// invocation uses number Module of them.
	Plan   jail.Plan
	Module int
	// Binds are the sources of the bind mounts of host files, if the plan has any.
	Binds []*os.File
	// Caller is the user with whose rights Binds are opened.
	Caller asuser.Caller
}

// caches returns the directories of the plan's compiled modules, in order.
func (n Need) caches() (all []string) {
	for _, m := range n.Plan.Mounts {
		if m.Kind == jail.MountBind && mounts.IsModule(m) {
			all = append(all, m.Source)
		}
	}
	return all
}

// Take returns a call to the running engine for the policy of n, or to a new engine. The caller
// must call Leave on it.
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
		// Its running invocations still end in it.
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

// add adds a new engine to the set until its jail is removed. It returns false if the set is
// closed.
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

// outdated reports whether a new jail would mount other files of the host.
func (s *Set) outdated(e *Engine, n Need) bool {
	return prewarm.HasHost(n.Plan) && e.jail.Outdated(n.Plan, n.Binds)
}

// slot returns the slot of a policy, which stays until the caller calls taken. If there are too
// many, it ends the idle engine that was used longest ago.
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

// taken ends a request that slot began.
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

// Vacate ends the idle engines and waits until they are removed, so that an invocation in its own
// jail gets all of the session's limits. s may be nil.
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

// Close ends all engines, which run no invocation, and waits until they are removed. s may be nil.
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

// Rlimits that count for all invocations of an engine's process together.
const (
	rlimitCPU   = "cpu"
	rlimitFiles = "nofile"
)

// ofEngine returns the plan of an engine for places invocations at one time: p without the CPU
// rlimit and with more descriptors. The engine itself enforces these limits on each invocation.
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

// maxFiles is the default bound on a process's descriptors (fs.nr_open).
const maxFiles = 1 << 20
