package supervisor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A session is one workspace, one /tmp and one set of limits for several invocations, which may run
// at one time. A jail of its own, in which no tool ever runs, holds them: its shim hands out its
// mounts. Each invocation gets a jail like that of any run, with all the walls of one, namespaces
// of its own among them, which has those mounts in place of fresh ones, and a control group below
// the session's. So nothing enters a jail that stands, and of two invocations neither sees the
// other's processes, memory or descriptors.
//
// The jail that holds it is a run as any, under the session's name: it is listed, inspected,
// verified and ended as one, and its shadow is reviewed as one's.
type session struct {
	// of the jail that holds it
	run *run
	// control group of its invocations
	group string
	uid   uint32
	// of what was asked for
	digest string
	idle   time.Duration
	total  time.Duration
	places chan struct{} // taken by invocations
	// closed when there can be invocations
	stands chan struct{}
	// closed when there can be no more
	over chan struct{}

	mu      sync.Mutex
	live    map[*run]bool
	waiting int
	count   int64
	used    time.Time
	// runs out when nothing has had a place for too long
	timer  *time.Timer
	closed bool
	// of its shadow, where who stopped it said so; not changed once it is closed
	fate Fate
	// prewarmed has the prewarmed jails of its invocations.
	prewarmed *prewarm.Session
}

const (
	// what the run of the jail that holds one is called
	sessionTool = "session"
	limitIdle   = "idle"
	limitTime   = "time"
)

// Bounds of sessions.
const (
	maxSessions     = 256 // of a daemon
	maxUserSessions = 64
	// invocations of a session that wait for their turn
	maxWaiting = 64
	// invocations of a session at one time, where its limits leave room for more
	maxAtOnce = 64
	// what one of them has for sure of the session's pids: the threads of its engine
	roomPIDs   = 12
	roomMemory = 32 << 20

	DefaultIdle = 10 * time.Minute
	DefaultTime = 8 * time.Hour
	MaxTime     = 7 * 24 * time.Hour
)

// session is the name of the session that the run belongs to, or "".
func (j *job) session() string {
	switch {
	case j == nil:
	case j.hold != nil:
		return string(j.id)
	case j.in != nil:
		return string(j.in.run.job.id)
	}
	return ""
}

// runner is the kind of jail that holds the session. Nothing runs in it; it is the narrowest that
// the policy can have.
func (h *session) runner(eff policy.Effective) string {
	if eff.Policy().Syscalls.Has(policy.GroupWASI) {
		return jail.RunnerWASI
	}
	return jail.RunnerNative
}

// sessionFiles are the inodes of a tmpfs that tools of any kind share.
const sessionFiles = 1 << 17

// fitSession makes the plan one of a session's jail: the one that holds it lasts as long as the
// session may, and its invocations have the file systems that it has.
func (j *job) fitSession() {
	p := &j.plan
	switch {
	case j.hold != nil:
		p.Limits.Wall, p.Limits.CPUTime = j.hold.total, policy.Unlimited
		// of all the session's processes the last to go
		p.Cgroup.OOMScore = 0
		for i, m := range p.Mounts {
			if len(j.eff.Policy().Tools.Native) > 0 && mounts.Shared(m) {
				p.Mounts[i].Files = sessionFiles
			}
		}
	case j.in != nil:
		for i, m := range p.Mounts {
			for _, held := range j.in.run.job.plan.Mounts {
				if mounts.Shared(m) && held.Kind == m.Kind && held.Target == m.Target {
					p.Mounts[i].Size, p.Mounts[i].Files = held.Size, held.Files
				}
			}
		}
	}
}

// launchFiles are the descriptors of the run's launch, and the mounts that are another jail's too.
func (r *run) launchFiles() (*mounts.Files, []string, error) {
	if j := r.job; j.in != nil {
		return j.in.files(j.plan, j.binds)
	}
	files, err := r.s.filesOf(r.job, r.work)
	return files, nil, err
}

// files are those of the launch of one of the session's jails, by its plan and with the sources of
// its binds, in order.
func (h *session) files(p jail.Plan, binds []*os.File) (*mounts.Files, []string, error) {
	var shared []string
	files, holder := &mounts.Files{}, h.run.proc
	fail := func(err error) (*mounts.Files, []string, error) {
		files.Close()
		if errors.Is(err, launch.ErrNotThere) {
			return nil, nil, noSession(string(h.run.job.id)) // it has ended meanwhile
		}
		return nil, nil, problem.New(problem.Failed, "session %s: %w", h.run.job.id, err)
	}
	for _, m := range p.Mounts {
		if m.Kind == jail.MountBind {
			files.Binds, binds = append(files.Binds, binds[0]), binds[1:]
		} else if mounts.Shared(m) {
			f, err := holder.Share(m.Target)
			if err != nil {
				return fail(err)
			}
			files.Own(f)
			files.Binds, shared = append(files.Binds, f), append(shared, m.Target)
		}
	}
	w := p.Workspace
	if w == nil {
		return files, shared, nil
	}
	var err error
	if w.Shadow {
		files.Lower, err = holder.Share(w.Target)
		shared = append(shared, w.Target)
	} else {
		files.Lower, err = workspace.CloneLower(h.run.job.source)
	}
	if err != nil {
		return fail(err)
	}
	files.Own(files.Lower)
	return files, shared, nil
}

// shadow is the one that the run works on, its own or its session's, or nil.
func (r *run) shadow() *workspace.Workspace {
	if r.job.in != nil {
		return r.job.in.run.work
	}
	return r.work
}

// makeGroup makes the control group of a session's invocations, with the session's limits on all of
// them together.
func (r *run) makeGroup() error {
	if r.job.hold == nil {
		return nil
	}
	c := r.job.plan.Cgroup
	r.job.hold.group = rungroup.Session(c.Path)
	err := cgroup.MakeBounded(r.job.hold.group,
		cgroup.Bound{Ceiling: cgroup.Ceiling{Memory: max(c.Memory, 0), PIDs: max(c.PIDs, 0)},
			CPUQuota: c.CPUQuota, CPUPeriod: c.CPUPeriod})
	if err != nil {
		return r.s.layers.Failed("control groups", err)
	}
	return nil
}

func (r *run) dropGroup() {
	if r.job.hold != nil && r.job.hold.group != "" {
		// One that stays is empty, and the next daemon removes it.
		r.log("remove the control group of the session", cgroup.Remove(r.job.hold.group))
	}
}

// clearGroups removes the control groups of sessions whose daemon was killed. Their leaves are gone
// by now.
func (s *Supervisor) clearGroups(dead []*rundir.Dir) error {
	for _, r := range dead {
		leaf := s.leafOf(r.State)
		if leaf == "" || r.State.Session != r.State.ID {
			continue
		}
		if err := cgroup.Remove(rungroup.Session(leaf)); err != nil {
			return problem.New(problem.Failed, "session %s, left by a daemon that was killed: %w",
				r.State.ID, err)
		}
	}
	return nil
}

// usageOf is what the run used: of a session, all its invocations.
func (r *run) usageOf(leaf *cgroup.Leaf) (cgroup.Usage, error) {
	u, err := leaf.Usage()
	if r.job.hold == nil || err != nil {
		return u, err
	}
	all, err := cgroup.Open(r.job.hold.group)
	if err != nil {
		return u, err
	}
	sum, err := all.Usage()
	if err != nil {
		return u, err
	}
	sum.CPU += u.CPU
	// the invocations have told of theirs
	sum.PIDsDenied, sum.OOMKills = 0, u.OOMKills
	return sum, nil
}

// running says that the tool runs, or that the session can have invocations.
func (r *run) running(streams stdio.Streams) {
	if h := r.job.hold; h != nil {
		h.mu.Lock()
		h.rest()
		h.mu.Unlock()
		close(h.stands)
	}
	if streams.Started != nil {
		streams.Started()
	}
}

// endByLimit ends the run for a limit that is watched. That of a session's time is another than
// that of a run's.
func (r *run) endByLimit(c cause) {
	if r.job.hold != nil && c.limit == "wall" {
		c.limit = limitTime
	}
	r.end(c)
}

// idles says that no invocation is there: none runs, is being prepared or waits. h.mu is held.
func (h *session) idles() bool { return !h.closed && h.waiting == 0 && len(h.places) == 0 }

// rest begins to count idle time. h.mu is held.
func (h *session) rest() {
	h.used = time.Now()
	if h.timer != nil {
		h.timer.Stop()
	}
	h.timer = time.AfterFunc(h.idle, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.idles() && time.Since(h.used) >= h.idle {
			h.close()
			h.run.end(cause{limit: limitIdle, peak: time.Since(h.used).Milliseconds()})
		}
	})
}

// leaves is told of each invocation that does not wait, or has no place, any more.
func (h *session) leaves() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idles() {
		h.rest()
	}
}

// ended says that there can be no more invocations. It is asked before anything else: what has
// ended has stood, too.
func (h *session) ended() bool { return closed(h.over) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// close lets no invocation begin any more. h.mu is held.
func (h *session) close() {
	if !h.closed {
		h.closed = true
		close(h.over)
	}
}

// endInvocations ends what still runs in a session whose jail has ended, and waits for it.
func (r *run) endInvocations() {
	h := r.job.hold
	if h == nil {
		return
	}
	h.mu.Lock()
	h.close()
	if h.timer != nil {
		h.timer.Stop()
	}
	var all []*run
	for inv := range h.live {
		all = append(all, inv)
	}
	h.mu.Unlock()
	why := cause{signal: 9}
	if c := r.ended(); c != nil && c.signal > 0 {
		// the daemon ends, or somebody ended the session
		why.signal, why.daemon = c.signal, c.daemon
	} else if c != nil && c.fault != nil {
		why = cause{fault: c.fault}
	}
	for _, inv := range all {
		inv.end(why)
	}
	for _, inv := range all {
		<-inv.done
	}
	r.s.pool.EndSession(h.prewarmed)
}

// mayPrewarm returns how many prewarmed jails the session may have: none beside an invocation, and
// no more than there can be invocations.
func (h *session) mayPrewarm() int {
	if h.ended() || len(h.places) > 0 {
		return 0
	}
	return min(prewarm.MaxOfSession, cap(h.places))
}

// enter waits for a place among the invocations, and returns what gives it back.
func (h *session) enter(ctx context.Context) (func(), error) {
	h.mu.Lock()
	if h.waiting >= maxWaiting {
		h.mu.Unlock()
		return nil, problem.New(problem.Busy,
			"session %s has as many invocations waiting as it may have", string(h.run.job.id)).
			WithHint("try again when some have ended")
	}
	h.waiting++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.waiting--
		h.mu.Unlock()
		h.leaves()
	}()
	if h.ended() {
		return nil, noSession(string(h.run.job.id))
	}
	select {
	case h.places <- struct{}{}:
		return func() {
			<-h.places
			h.leaves()
			// Perhaps jails can be prewarmed again.
			h.run.s.pool.Wake()
		}, nil
	case <-h.over:
		return nil, noSession(string(h.run.job.id))
	case <-ctx.Done():
		return nil, problem.New(problem.Failed,
			"the caller went away before there was a place for its invocation").
			WithCause(ctx.Err())
	}
}

// join takes a run among the session's invocations; not after its end.
func (h *session) join(r *run) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.live[r] = true
	h.count++
	h.used = time.Now()
	return true
}

func (h *session) leave(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.live, r)
	h.used = time.Now()
}

func noSession(id string) *problem.Error {
	return problem.New(problem.NotFound, "no session %q is open", id).
		WithHint("jail session list shows those that are open")
}

// A SessionRequest asks for a session. Of the request it names no tool. The id must be that of the
// path.
type SessionRequest struct {
	Request
	// It ends when nothing has run in it for so many milliseconds; 0 or none is ten minutes.
	IdleMS int64 `json:"idle_ms,omitempty"`
	// It ends after so many milliseconds in any case; 0 or none is eight hours.
	TimeMS int64 `json:"time_ms,omitempty"`
}

// A SessionInfo is an open session.
type SessionInfo struct {
	ID string `json:"id"`
	// The id that no other run has. `id` is the name that its user gave to it, where there is
	// one.
	GlobalID string `json:"global_id,omitempty"`
	Profile  string `json:"profile"`
	Policy   string `json:"policy"`
	// The real directory.
	Workspace string `json:"workspace,omitempty"`
	UID       uint32 `json:"uid"`
	// of the first process of the jail that holds it
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// when an invocation last began or ended
	Used time.Time `json:"used"`
	// It ends when nothing has run in it for so long.
	IdleMS int64 `json:"idle_ms"`
	// It ends after so long in any case.
	TimeMS      int64 `json:"time_ms"`
	Running     int   `json:"running"`     // invocations
	Invocations int64 `json:"invocations"` // since it began
}

// An ExecRequest asks for an invocation in a session. Its limits and variables come on top of the
// session's, and can only narrow them.
type ExecRequest struct {
	// A name for it: an alias of its user alone, under which another user may have something
	// else. Without one it has its global id alone.
	ID string `json:"id,omitempty"`
	// A path to a .wasm file, a command of an installed bundle (grep, core-utils/grep), or a
	// program of the host where the policy has [tools] native. Empty with a script.
	Tool string `json:"tool"`
	// What follows the name of the tool.
	Args runners.Texts `json:"args,omitempty"`
	// The caller's working directory, an absolute path. Where it lies in the workspace, the
	// tool starts there.
	Dir string `json:"dir"`
	// The working directory of the tool: a path below the workspace, or an absolute path in it,
	// of the host or of the jail (/workspace/...). Empty: that of the session, else where dir
	// lies in the workspace, else its root.
	Cwd string `json:"cwd,omitempty"`
	// Each KEY=VALUE, as in a policy file; narrows only.
	Limits []string `json:"limits,omitempty"`
	// NAME=VALUE, given with the run.
	Env []string `json:"env,omitempty"`
	// Inherit is the caller's own environment, NAME=VALUE; the policy passes on what it names.
	Inherit  []string          `json:"inherit,omitempty"`
	Terminal *runners.Terminal `json:"terminal,omitempty"`
}

// A StopRequest ends a session.
type StopRequest struct {
	// What becomes of the shadow; without one what the session was started with.
	Fate Fate `json:"fate,omitempty"`
}

func (q SessionRequest) digest() string {
	// another terminal's variables ask for nothing else
	q.Inherit = nil
	return digestOf(q)
}

func (q SessionRequest) times() (idle, total time.Duration, err error) {
	take := func(name string, ms int64, otherwise time.Duration) time.Duration {
		d := time.Duration(min(max(ms, -1), int64(2*MaxTime/time.Millisecond))) * time.Millisecond
		if ms == 0 {
			return otherwise
		}
		if err == nil && (d < time.Second || d > MaxTime) {
			err = problem.New(problem.Usage,
				"%s time of a session: want at least a second and at most %v", name, MaxTime)
		}
		return d
	}
	idle, total = take("idle", q.IdleMS, DefaultIdle), take("total", q.TimeMS, DefaultTime)
	return idle, total, err
}

// StartSession opens a session and returns when it can have invocations. A session of that id that
// is open already, was asked for in the same words and is the caller's is returned as it is.
func (s *Supervisor) StartSession(ctx context.Context, c caller.Caller,
	req SessionRequest) (SessionInfo, error) {
	idle, total, err := req.times()
	if err != nil {
		return SessionInfo{}, err
	}
	if req.Tool != "" || len(req.Args) > 0 || req.Script != nil || req.Terminal != nil ||
		req.Learn {
		return SessionInfo{}, problem.New(problem.Usage,
			"a session is started without a tool: its invocations have them")
	}
	if s.config.Private {
		return SessionInfo{}, problem.New(problem.Refused,
			"a session outlives the command that starts it, so it needs a daemon for all, and none answers").
			WithHint("start jaild, as a service or with sudo")
	}
	if req.ID == "" {
		req.ID = string(jail.NewID())
	}
	// until it can be ended
	leave, err := s.Enter()
	if err != nil {
		return SessionInfo{}, err
	}
	h := &session{digest: req.digest(), idle: idle, total: total, stands: make(chan struct{}),
		over: make(chan struct{}), live: map[*run]bool{}, used: time.Now()}
	if open, err := s.admitSession(c, req, h); open != nil || err != nil {
		leave()
		return s.await(ctx, open, err)
	}
	j := &job{caller: c, req: req.Request, hold: h}
	err = s.prepareJob(ctx, j)
	if err == nil {
		h.places = make(chan struct{}, placesFor(j.eff.Policy().Limits))
		h.run = s.newRun(j)
		h.prewarmed = prewarm.NewSession(string(j.id), j.ids.Base, h.mayPrewarm, h.files)
	}
	if err != nil {
		leave()
		s.endSession(req.ID, h)
		return SessionInfo{}, s.refuse(c, req.Request, j, err).Error
	}
	s.life.Go(func() {
		h.run.carry(context.Background(), stdio.Streams{Out: io.Discard, Err: io.Discard,
			Tracked: leave})
	})
	return s.await(ctx, h, nil)
}

// await waits until a session can be used.
func (s *Supervisor) await(ctx context.Context, h *session, err error) (SessionInfo, error) {
	if err != nil {
		return SessionInfo{}, err
	}
	select {
	case <-h.stands:
	case <-h.over:
	case <-ctx.Done():
		// nobody may know of it
		return SessionInfo{}, problem.New(problem.Failed,
			"the caller went away").WithCause(ctx.Err())
	}
	if !h.ended() {
		return h.info(), nil
	}
	if h.run == nil {
		return SessionInfo{}, problem.New(problem.Busy,
			"a session of that id could not be started").
			WithHint("try again")
	}
	<-h.run.done
	if e := h.run.result.Error; e != nil {
		return SessionInfo{}, e
	}
	return SessionInfo{}, problem.New(problem.Failed, "session %s ended before it could be used",
		h.run.job.id)
}

// placesFor is how many invocations the limits of a session leave room for at one time.
func placesFor(l policy.Limits) int64 {
	return max(1, min(maxAtOnce, l.PIDs/roomPIDs, l.Memory/roomMemory))
}

// admitSession takes the session among the open ones. Where one of that id is open and it is the
// same, it is returned.
func (s *Supervisor) admitSession(c caller.Caller, req SessionRequest, h *session) (*session,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.sessions[req.ID]; open != nil {
		switch {
		case open.uid != c.UID:
		case open.ended():
			return nil, problem.New(problem.Busy, "session %s is being ended",
				req.ID).WithHint("try again")
		case open.digest == h.digest:
			return open, nil
		}
		return nil, problem.New(problem.Usage, "session id %s is in use, by another request",
			req.ID)
	}
	mine := 0
	for _, other := range s.sessions {
		if other.uid == c.UID {
			mine++
		}
	}
	switch {
	case mine >= maxUserSessions:
		return nil, problem.New(problem.Busy,
			"you have %d sessions open, as many as one user may have", mine).
			WithHint("jail session list shows them, jail session stop ID ends one")
	case len(s.sessions) >= maxSessions:
		return nil, problem.New(problem.Busy, "%d sessions are open, as many as this daemon takes",
			len(s.sessions)).
			WithHint("try again when others have ended")
	}
	h.uid = c.UID
	s.sessions[req.ID] = h
	return nil, nil
}

// endSession lets a session go whose jail has ended, or never stood.
func (s *Supervisor) endSession(id string, h *session) {
	h.mu.Lock()
	h.close()
	h.mu.Unlock()
	s.dropSession(id, h)
}

func (s *Supervisor) dropSession(id string, h *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[id] == h {
		delete(s.sessions, id)
	}
}

// openSession finds a session that takes invocations, for who may change it.
func (s *Supervisor) openSession(c caller.Caller, id string) (*session, error) {
	h, err := s.findSession(c, id)
	switch {
	case err != nil:
		return nil, err
	case h.ended():
		return nil, noSession(id)
	case !closed(h.stands):
		return nil, problem.New(problem.Busy, "session %s is being started",
			id).WithHint("try again")
	}
	return h, nil
}

// findSession finds a session, which may be starting or ending, for who may change it. To whom may
// not see it it is not there.
func (s *Supervisor) findSession(c caller.Caller, id string) (*session, error) {
	s.mu.Lock()
	h := s.sessions[id]
	s.mu.Unlock()
	may := s.permissionsOf(c)
	if h == nil || !may.Sees(h.uid) {
		return nil, noSession(id)
	}
	if err := may.Change(h.uid, "session", id); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *session) info() SessionInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.run.dir.State
	return SessionInfo{ID: st.ID, Profile: st.Profile, Policy: st.Policy, Workspace: st.Workspace,
		UID: st.UID, PID: st.PID, Started: st.Started,
		Used: h.used.UTC(), IdleMS: h.idle.Milliseconds(), TimeMS: h.total.Milliseconds(),
		Running: len(h.live), Invocations: h.count}
}

// Sessions lists the open sessions that the caller may see, the oldest first.
func (s *Supervisor) Sessions(c caller.Caller) []SessionInfo {
	may := s.permissionsOf(c)
	s.mu.Lock()
	var open []*session
	for _, h := range s.sessions {
		if may.Sees(h.uid) {
			open = append(open, h)
		}
	}
	s.mu.Unlock()
	all := []SessionInfo{}
	for _, h := range open {
		if closed(h.stands) && !h.ended() {
			all = append(all, h.info())
		}
	}
	slices.SortFunc(all, func(a, b SessionInfo) int {
		if n := a.Started.Compare(b.Started); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// StopSession ends a session, what still runs in it too, and returns when its shadow has its fate.
// Of one that is ending already it returns the end.
func (s *Supervisor) StopSession(ctx context.Context, c caller.Caller, id string,
	req StopRequest) (Result, error) {
	h, err := s.findSession(c, id)
	if err == nil && !h.ended() {
		h, err = s.openSession(c, id)
	}
	if err == nil && h.run == nil {
		// it could not be started
		err = noSession(id)
	}
	if err != nil {
		return Result{}, err
	}
	switch req.Fate {
	case FateDefault, FateKeep, FateDiscard, FateCommit:
	default:
		return Result{}, problem.New(problem.Usage, "fate %q: want keep, discard or commit",
			req.Fate)
	}
	// it would be made with its user's rights
	if req.Fate == FateCommit && !c.MayControl(h.uid) {
		return Result{}, problem.New(problem.Refused,
			"session %s is another user's: you may end it, and not commit with its user's rights",
			id).
			WithHint("stop it, and then jail commit " + id + " commits what your own rights allow")
	}
	h.mu.Lock()
	// what reads it does so after the end of the jail
	if req.Fate != FateDefault && !h.closed {
		h.fate = req.Fate
	}
	h.close()
	h.mu.Unlock()
	h.run.end(cause{over: true})
	select {
	case <-h.run.done:
		return h.run.result, nil
	case <-ctx.Done():
		// it ends all the same
		return Result{}, problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	}
}

// Exec runs a tool in a session, as Run does without one. What it changes in the workspace is seen
// by the session's other invocations, and reviewed when the session has ended.
func (s *Supervisor) Exec(ctx context.Context, c caller.Caller, id string, req ExecRequest,
	streams stdio.Streams) Result {
	var r *run
	// Last of all: neither the session nor its other invocations wait for who reads of this one.
	defer func() {
		if r != nil {
			r.pumps.Wait()
		}
	}()
	h, err := s.openSession(c, id)
	if err != nil {
		return s.refuse(c, Request{ID: req.ID}, nil, err)
	}
	if h.uid != c.UID {
		return s.refuse(c, Request{ID: req.ID}, nil, problem.New(problem.Refused,
			"session %s is of user %d, and only that user may run tools in it", id, h.uid))
	}
	// while it waits nothing begins
	streams.Begun()
	leave, err := h.enter(ctx)
	if err == nil {
		defer leave()
		streams.Tracked, err = s.Enter()
	}
	if err != nil {
		return s.refuse(c, Request{ID: req.ID}, nil, err)
	}
	defer streams.Begun()
	j := &job{caller: c, req: h.requestFor(req), in: h}
	if err := s.prepareJob(ctx, j); err != nil {
		return s.refuse(c, j.req, j, err)
	}
	r = s.newRun(j)
	if !h.join(r) {
		return s.refuse(c, j.req, j, noSession(id))
	}
	defer h.leave(r)
	return r.carry(ctx, streams)
}

// requestFor is an invocation's request in the words of a run's.
func (h *session) requestFor(req ExecRequest) Request {
	of := h.run.job.req
	return Request{ID: req.ID, Tool: req.Tool, Args: req.Args, Profile: of.Profile,
		Policy: of.Policy, PolicyName: of.PolicyName, Dir: req.Dir, Cwd: cmp.Or(req.Cwd, of.Cwd),
		Workspace: h.run.job.workspace(), NoWorkspace: of.NoWorkspace, Fate: FateKeep,
		Limits: req.Limits, Env: slices.Concat(of.Env, req.Env), Inherit: req.Inherit,
		Terminal: req.Terminal}
}

func (j *job) workspace() string {
	if j.source == nil {
		return ""
	}
	return j.source.Name()
}

// decideIn narrows the session's policy, as it was when the session was started, by what the
// invocation asks for.
func (j *job) decideIn() error {
	flags, err := readFlags(Request{Limits: j.req.Limits})
	if err != nil {
		return err
	}
	layers := append(j.in.run.job.eff.Layers(), policy.Layer{Name: "invocation",
		Source: "command line", Policy: flags.Policy()})
	eff, err := policy.Resolve(layers...)
	if err != nil {
		return problem.New(problem.Usage, "%w", err)
	}
	j.eff, j.resolved = eff, true
	return nil
}

// takeSource takes a descriptor of its own of the session's real directory.
func (j *job) takeSource() error {
	of := j.in.run.job.source
	if of == nil {
		return nil
	}
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(of.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return problem.New(problem.Failed, "workspace: %w", err)
	}
	j.source = os.NewFile(uintptr(fd), of.Name())
	return nil
}
