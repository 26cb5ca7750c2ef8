// Package session manages the open sessions of a daemon and runs their invocations.
package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/engine"
	"github.com/jail-sandbox/jail/supervisor/lifetime"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/run"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/rungroup"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/shadows"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// A session is one workspace, one /tmp and one set of limits for several invocations, which may run
// at the same time. A jail of its own, in which no tool runs, holds the mounts, and its shim hands
// them out. Each invocation gets a complete jail, with its own namespaces, that uses those mounts,
// in a control group below the session's. So no tool enters an existing jail, and no invocation
// sees the processes, memory or descriptors of another.
//
// The jail that holds the session is a run with the session's id: it is listed, inspected,
// verified, ended and reviewed like any run.
type session struct {
	asked  asked
	runner *run.Runner
	// run is the run whose jail holds the session.
	run *run.Run
	// prewarmed has the prewarmed jails for invocations.
	prewarmed   *prewarm.Session
	invocations *invocations
	engines     engines
	// stands is closed when invocations may begin; state and shadow are set then.
	stands chan struct{}
	state  rundir.State
	shadow *workspace.Workspace
	// gone is closed when nothing is left of the session; run has its result then.
	gone chan struct{}
	// free releases the id of the session.
	free func()
	end  end
}

// end has the state for the end of a session.
type end struct {
	// fate is what the request to stop the session wants done with its shadow. It does not change
	// once the session is over.
	fate  message.Fate
	store *recordStore
	// record is the session's record, nil if the session cannot sleep or has not begun.
	record *record
	// wakes says that the session slept before; woken is its record from then.
	wakes bool
	woken *record
	// stood is when invocations could begin. sleeps says that the session sleeps after its end.
	stood  time.Time
	sleeps bool
	mu     sync.Mutex
	// news are warnings for the next invocation.
	news []string
}

// engines are the shared engines of a session, the modules mounted in them and the pending records
// of ends. All fields are nil if the session shares no engine.
type engines struct {
	set     *engine.Set
	modules *prepare.Modules
	late    *runlog.Late
}

// close ends the engines, which run no invocation, and writes the pending records.
func (e engines) close() error {
	if e.set == nil {
		return nil
	}
	e.set.Close()
	e.modules.Close()
	return e.late.Close()
}

// asked is the request for a session and its user.
type asked struct {
	uid uint32
	// digest is the digest of the request.
	digest      string
	request     message.SessionRequest
	idle, total time.Duration
}

// Sessions has the sessions of a daemon. Its methods may be called from several goroutines.
type Sessions struct {
	runner *run.Runner
	// private says that the daemon serves one client and ends with it, and so has no sessions.
	private bool
	// permissions returns what the ceiling in force permits a caller.
	permissions func(caller.Caller) caller.Permissions
	// mostOfUser is how many sessions one user may have open.
	mostOfUser int
	store      *recordStore

	mu   sync.Mutex
	open map[string]*session
}

// New returns Sessions with none open. private says that the daemon ends with its one client, and
// so has no sessions. permissions returns what the ceiling in force permits a caller. mostOfUser is
// how many sessions one user may have open, 0 for the default. dir stores the records of sessions
// that can sleep, "" if none may.
func New(r *run.Runner, private bool, permissions func(caller.Caller) caller.Permissions,
	mostOfUser int, dir string) *Sessions {
	store := &recordStore{dir: dir, shadow: func(id string) (*workspace.Workspace, error) {
		return r.Shadows.Kept.Get(id)
	}, shadows: func() ([]workspace.Info, error) { return r.Shadows.Kept.List() },
		ended: func(id string) error {
			if r.Shadows == nil {
				return nil
			}
			return r.Shadows.Approvals().EndSession(id)
		}}
	return &Sessions{runner: r, private: private, permissions: permissions, store: store,
		mostOfUser: cmp.Or(mostOfUser, config.UserSessions), open: map[string]*session{}}
}

// Owner returns the user of an open or sleeping session. ok is false if there is none.
func (s *Sessions) Owner(id string) (uid uint32, ok bool) {
	s.mu.Lock()
	h := s.open[id]
	s.mu.Unlock()
	if h == nil {
		return s.store.owner(id)
	}
	return h.asked.uid, true
}

// Bounds of sessions.
const (
	maxSessions = config.MostSessions
	// how many sessions of one user may sleep
	maxUserAsleep = 256
	// pids and bytes of the session's limits per invocation: the threads and memory of its engine
	roomPIDs   = 12
	roomMemory = 32 << 20
)

// files opens the descriptors for the launch of an invocation's jail with plan p. binds are the
// sources of its bind mounts, in order. It also returns the targets of the mounts that are shared
// with the session.
func (h *session) files(p jail.Plan, binds []*os.File) (*mounts.Files, []string, error) {
	var shared []string
	files, holder := &mounts.Files{}, h.run.Process()
	fail := func(err error) (*mounts.Files, []string, error) {
		files.Close()
		if errors.Is(err, launch.ErrNotThere) {
			// The session has ended meanwhile.
			return nil, nil, noSession(string(h.run.Job().ID))
		}
		return nil, nil, problem.New(problem.Failed, "session %s: %w", h.run.Job().ID, err)
	}
	for _, m := range p.Mounts {
		if m.HasSource() {
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
	var err error
	if p.NetworkOf != "" {
		if files.Network, err = holder.Network(); err != nil {
			return fail(err)
		}
		files.Own(files.Network)
	}
	w := p.Workspace
	if w == nil {
		return files, shared, nil
	}
	if w.Shadow {
		files.Lower, err = holder.Share(h.run.Job().Plan.Workspace.Target)
		shared = append(shared, w.Target)
	} else {
		files.Lower, err = workspace.CloneLower(h.run.Job().Source)
	}
	if err != nil {
		return fail(err)
	}
	files.Own(files.Lower)
	return files, shared, nil
}

// refresh makes the mounted shadow show recent changes in the real directory.
func (h *session) refresh() error {
	j := h.run.Job()
	if w := j.Plan.Workspace; w == nil || !w.Shadow {
		return nil
	}
	err := h.run.Process().Refresh()
	switch {
	case errors.Is(err, launch.ErrNotThere):
		return noSession(string(j.ID))
	case err != nil:
		return problem.New(problem.Failed, "session %s: changes of the directory cannot be shown: %w",
			j.ID, err)
	}
	return nil
}

// mayPrewarm returns how many prewarmed jails the session may have: none while an invocation runs,
// and no more than could run.
func (h *session) mayPrewarm() int { return min(prewarm.MaxOfSession, h.invocations.free()) }

// Stands saves the session's record and lets invocations begin.
func (h *session) Stands(st rundir.State, work *workspace.Workspace) {
	h.state, h.shadow, h.end.stood = st, work, time.Now()
	h.remember()
	h.invocations.rest()
	close(h.stands)
}

// Ended ends the invocations of a session whose jail has ended with cause c, and waits for them.
func (h *session) Ended(c *ending.Cause) {
	why := ending.Cause{Signal: 9}
	if c != nil && c.Signal > 0 {
		// the daemon ends, or somebody ended the session
		why.Signal, why.Daemon = c.Signal, c.Daemon
	} else if c != nil && c.Fault != nil {
		why = ending.Cause{Fault: c.Fault}
	}
	h.invocations.endAll(why)
	h.end.sleeps = h.maySleep(c)
	h.runner.Jails.Pool.EndSession(h.prewarmed)
	h.runner.Errors.Failed("record the ends of invocations", string(h.run.Job().ID),
		h.engines.close())
}

// share lets the session's WebAssembly invocations share engines, with places invocations at one
// time.
func (h *session) share(places int64) {
	j := h.run.Job()
	h.engines = engines{
		set: engine.NewSet(string(j.ID), j.Host.IDs.Base, places, h.runner.Jails.Maker,
			h.files),
		modules: &prepare.Modules{},
		late:    runlog.NewLate(h.runner.Log),
	}
}

// Fate returns what the user who stopped the session wants done with its shadow.
func (h *session) Fate() message.Fate { return h.end.fate }

// Close lets no more invocations begin, saves or removes the record, and frees the session's id.
func (h *session) Close() {
	h.invocations.close(nil)
	h.settle()
	h.free()
}

// idled ends a session that was idle for unused.
func (h *session) idled(unused time.Duration) {
	h.run.End(ending.Cause{Limit: ending.LimitIdle, Peak: unused.Milliseconds(),
		Allowed: h.asked.idle.Milliseconds()})
}

// ended reports whether no more invocations may begin. Check it before stands, which stays closed
// after the end.
func (h *session) ended() bool { return h.invocations.ended() }

func noSession(id string) *problem.Error {
	return problem.New(problem.NotFound, "no session %q is open", id).
		WithHint("jail session list shows those that are open")
}

// Start opens a session and returns when it can have invocations. If the caller has an open session
// with this id from the same request, Start returns that one.
func (s *Sessions) Start(ctx context.Context, c caller.Caller,
	req message.SessionRequest) (message.SessionInfo, error) {
	if _, _, err := req.Times(); err != nil {
		return message.SessionInfo{}, err
	}
	if req.Tool != "" || len(req.Args) > 0 || req.Script != nil || req.Terminal != nil ||
		req.Learn {
		return message.SessionInfo{}, problem.New(problem.Usage,
			"a session is started without a tool: its invocations have them")
	}
	if req.ID == "" {
		req.ID = string(jail.NewID())
	}
	return s.begin(ctx, c, req, false)
}

// begin opens a session, or wakes the sleeping session with this id. If wake is true, it only
// wakes.
func (s *Sessions) begin(ctx context.Context, c caller.Caller, req message.SessionRequest,
	wake bool) (message.SessionInfo, error) {
	if s.private {
		return message.SessionInfo{}, problem.New(problem.Refused,
			"a session outlives the command that starts it, so it needs a daemon for all, and "+
				"none answers").
			WithHint("start jaild, as a service or with sudo")
	}
	idle, total, err := req.Times()
	if err != nil {
		return message.SessionInfo{}, err
	}
	if err := s.fallen(ctx, c, req.ID); err != nil {
		return message.SessionInfo{}, err
	}
	// until it can be ended
	leave, err := s.runner.Life.Enter()
	if err != nil {
		return message.SessionInfo{}, err
	}
	h := s.newSession(req.ID, asked{uid: c.UID, digest: req.Digest(), request: req, idle: idle,
		total: total})
	h.end.wakes = wake
	if open, err := s.admit(c, req, h); open != nil || err != nil {
		leave()
		return s.await(ctx, open, err)
	}
	if h.end.woken, err = s.recordFor(c, req, wake); err != nil {
		leave()
		h.Close()
		return message.SessionInfo{}, err
	}
	if h.end.woken != nil {
		total = time.Duration(h.end.woken.LeftMS) * time.Millisecond
	}
	j, err := s.runner.Preparer.Hold(ctx, c, req.Request, total,
		h.end.woken != nil && !h.end.woken.Untouched)
	shared := false
	if err == nil {
		shared, err = sharesEngine(j.Policy, req.SharedEngine)
	}
	if err == nil {
		err = h.commits(j)
	}
	if err == nil {
		err = h.noteWaking(j)
	}
	if err != nil {
		leave()
		h.Close()
		return message.SessionInfo{}, s.runner.Refuse(c, req.Request, j, err).Error
	}
	h.run = s.runner.NewHolding(j, h)
	places := placesFor(j.Policy.Policy().Limits)
	h.invocations.open(string(j.ID), places)
	if shared {
		h.share(places)
	}
	h.prewarmed = prewarm.NewSession(string(j.ID), j.Host.IDs.Base, h.mayPrewarm, h.files)
	s.runner.Life.Go(func() { h.hold(leave) })
	return s.await(ctx, h, nil)
}

// recordFor returns the record of the sleeping session with the request's id, or nil if there is
// none. It returns an error if the session had another request, or if wake is true and there is
// none.
func (s *Sessions) recordFor(c caller.Caller, req message.SessionRequest,
	wake bool) (*record, error) {
	r, err := s.store.sleeping(req.ID)
	switch {
	case err != nil:
		return nil, err
	case r == nil && wake:
		return nil, noSession(req.ID)
	case r != nil && (r.UID != c.UID || r.Digest != req.Digest()):
		return nil, otherRequest(req.ID)
	}
	return r, nil
}

func otherRequest(id string) error {
	return problem.New(problem.Usage, "session id %s is in use, by another request", id)
}

// sharesEngine reports whether the invocations of a session share engines: the policy demands it,
// or permits it and asked is true. It returns an error if asked is true and the policy forbids it.
func sharesEngine(eff policy.Effective, asked bool) (bool, error) {
	switch eff.Policy().Session.Engine {
	case policy.EngineShared:
		return true, nil
	case policy.EngineRequest:
		return asked, nil
	}
	if !asked {
		return false, nil
	}
	by := ""
	for _, l := range eff.Layers() {
		if l.Policy.Session.Engine == policy.EngineOwn {
			by = l.Name
			break
		}
	}
	return false, problem.New(problem.Refused,
		"a shared engine is not permitted: %s says session.engine = \"own\"", by).
		WithHint("start the session without --shared-engine: " +
			"each invocation then has a jail of its own")
}

// newSession returns a session that is not open yet.
func (s *Sessions) newSession(id string, a asked) *session {
	h := &session{asked: a, runner: s.runner, end: end{store: s.store}, stands: make(chan struct{}),
		gone: make(chan struct{})}
	h.invocations = newInvocations(a.idle, h.idled)
	h.free = func() { s.remove(id, h) }
	return h
}

// hold carries out the run whose jail holds the session. It calls tracked when the session can be
// ended.
func (h *session) hold(tracked func()) {
	defer close(h.gone)
	h.runner.Do(context.Background(), h.run, stdio.Streams{Out: io.Discard, Err: io.Discard,
		Tracked: tracked})
}

// begun waits until the session can have invocations or has ended.
func (h *session) begun(ctx context.Context) error {
	select {
	case <-h.stands:
	case <-h.invocations.over:
	case <-ctx.Done():
		return problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	}
	return nil
}

// await waits until the session can have invocations and returns its description. It returns err at
// once if it is not nil.
func (s *Sessions) await(ctx context.Context, h *session, err error) (message.SessionInfo, error) {
	if err != nil {
		return message.SessionInfo{}, err
	}
	if err := h.begun(ctx); err != nil {
		return message.SessionInfo{}, err
	}
	if !h.ended() {
		return h.info(), nil
	}
	if h.run == nil {
		return message.SessionInfo{}, problem.New(problem.Busy,
			"a session of that id could not be started").
			WithHint("try again")
	}
	<-h.gone
	if e := h.run.Result().Error; e != nil {
		return message.SessionInfo{}, e
	}
	return message.SessionInfo{}, problem.New(problem.Failed,
		"session %s ended before it could be used", h.run.Job().ID)
}

// placesFor returns how many invocations may run at one time within a session's limits.
func placesFor(l policy.Limits) int64 {
	return max(1, min(maxAtOnce, l.PIDs/roomPIDs, l.Memory/roomMemory))
}

// admit adds h to the open sessions. If the caller's session from the same request is open, admit
// returns that one instead.
func (s *Sessions) admit(c caller.Caller, req message.SessionRequest, h *session) (*session,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.open[req.ID]; open != nil {
		switch {
		case open.asked.uid != c.UID:
		case open.ended():
			return nil, problem.New(problem.Busy, "session %s is being ended",
				req.ID).WithHint("try again")
		case open.asked.digest == h.asked.digest:
			return open, nil
		}
		return nil, otherRequest(req.ID)
	}
	mine := 0
	for _, other := range s.open {
		if other.asked.uid == c.UID {
			mine++
		}
	}
	asleep, err := s.asleepBeside(c.UID, req.ID)
	if err != nil {
		return nil, problem.New(problem.Failed, "records of sessions: %w", err)
	}
	switch {
	case mine >= s.mostOfUser:
		return nil, problem.New(problem.Busy,
			"you have %d sessions open, as many as one user may have", mine).
			WithHint("jail session list shows them, jail session stop ID ends one; [sessions] " +
				"user of jaild.toml is how many")
	case asleep >= maxUserAsleep:
		return nil, problem.New(problem.Busy,
			"%d sessions of yours sleep, as many as one user may have", asleep).
			WithHint("jail session list shows them, jail session stop ID ends one")
	case len(s.open) >= maxSessions:
		return nil, problem.New(problem.Busy, "%d sessions are open, as many as this daemon takes",
			len(s.open)).
			WithHint("try again when others have ended")
	}
	s.open[req.ID] = h
	return nil, nil
}

func (s *Sessions) remove(id string, h *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] == h {
		delete(s.open, id)
	}
}

// standing returns the session with this id if it takes invocations and the caller may change it.
func (s *Sessions) standing(c caller.Caller, id string) (*session, error) {
	h, err := s.find(c, id)
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

// find returns the session with this id, possibly starting or ending, if the caller may change it.
// If the caller may not see it, the error says that there is none.
func (s *Sessions) find(c caller.Caller, id string) (*session, error) {
	s.mu.Lock()
	h := s.open[id]
	s.mu.Unlock()
	may := s.permissions(c)
	if h == nil || !may.Sees(h.asked.uid) {
		return nil, noSession(id)
	}
	if err := may.Change(h.asked.uid, "session", id); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *session) info() message.SessionInfo {
	st, used := h.state, h.invocations.now()
	if h.end.woken != nil {
		st.Started = h.end.woken.Started
		used.count += h.end.woken.Invocations
	}
	return message.SessionInfo{ID: st.ID, Profile: st.Profile, Policy: st.Policy,
		Workspace: st.Workspace, UID: st.UID, PID: st.PID, Started: st.Started,
		Used: used.last.UTC(), IdleMS: h.asked.idle.Milliseconds(),
		TimeMS: h.asked.total.Milliseconds(), Running: used.running, Invocations: used.count,
		SharedEngine: h.engines.set != nil, State: message.SessionOpen}
}

// List returns the open and sleeping sessions that the caller may see, oldest first.
func (s *Sessions) List(c caller.Caller) []message.SessionInfo {
	may := s.permissions(c)
	s.mu.Lock()
	var open []*session
	here := map[string]bool{}
	for id, h := range s.open {
		here[id] = true
		if may.Sees(h.asked.uid) {
			open = append(open, h)
		}
	}
	s.mu.Unlock()
	all := []message.SessionInfo{}
	for _, h := range open {
		if closed(h.stands) && !h.ended() {
			all = append(all, h.info())
		}
	}
	for _, r := range s.store.all(may.Sees) {
		if !here[r.Request.ID] {
			all = append(all, r.info())
		}
	}
	slices.SortFunc(all, func(a, b message.SessionInfo) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return all
}

// Stop ends a session with its invocations and returns when its shadow is kept, committed or
// discarded. For a session that is already ending it returns the result of that end.
func (s *Sessions) Stop(ctx context.Context, c caller.Caller, id string,
	req message.StopRequest) (message.Result, error) {
	h, err := s.find(c, id)
	if err == nil && h.invocations.rests() {
		// It is falling asleep.
		select {
		case <-h.gone:
			h, err = s.find(c, id)
		case <-ctx.Done():
		}
	}
	if err != nil && problem.From(err).Code == problem.NotFound {
		if r, _ := s.asleep(c, id); r != nil {
			return s.stopAsleep(ctx, c, r, req)
		}
	}
	if err == nil && !h.ended() {
		h, err = s.standing(c, id)
	}
	if err == nil && h.run == nil {
		// The session could not be started.
		err = noSession(id)
	}
	if err != nil {
		return message.Result{}, err
	}
	switch req.Fate {
	case message.FateDefault, message.FateKeep, message.FateDiscard, message.FateCommit:
	default:
		return message.Result{}, problem.New(problem.Usage, "fate %q: want keep, discard or commit",
			req.Fate)
	}
	// The commit would be made with its user's rights.
	if req.Fate == message.FateCommit && !c.MayControl(h.asked.uid) {
		return message.Result{}, problem.New(problem.Refused,
			"session %s is another user's: you may end it, and not commit with its user's rights",
			id).
			WithHint("stop it, and then jail commit " + id + " commits what your own rights allow")
	}
	if req.Fate == message.FateDiscard && h.shadow != nil {
		// Branches depend on the shadow.
		branches, err := workspace.BranchesOf(h.runner.Shadows.Kept).Of(h.shadow)
		if err == nil && len(branches) > 0 {
			err = problem.New(problem.Conflict, "session %s has branches: %s", id,
				strings.Join(branches, ", ")).WithHint("jail branch discard throws them away")
		}
		if err != nil {
			return message.Result{}, err
		}
	}
	h.invocations.close(func() {
		// The fate is read only after the end of the jail.
		if req.Fate != message.FateDefault {
			h.end.fate = req.Fate
		}
	})
	h.run.End(ending.Cause{Over: true})
	// The session also ends if the caller leaves.
	if err := lifetime.Await(ctx, h.gone); err != nil {
		return message.Result{}, err
	}
	return h.run.Result(), nil
}

// Exec runs a tool in a session, which it wakes if it sleeps. Other invocations see its changes to
// the workspace. Errors are in the result.
func (s *Sessions) Exec(ctx context.Context, c caller.Caller, id string, req message.ExecRequest,
	streams stdio.Streams) message.Result {
	var pipes *stdio.Pipes
	// Last, so that neither the session nor other invocations wait for the reader of this output.
	defer func() { pipes.Wait() }()
	// Refuse at once if possible. Nothing begins while it waits for a place or for the session to
	// wake.
	if err := s.mayEnter(c, id); err != nil {
		return s.runner.Refuse(c, message.Request{ID: req.ID}, nil, err)
	}
	streams.Begun()
	h, leave, err := s.awake(ctx, c, id)
	if err == nil {
		// Perhaps jails can be prewarmed again.
		defer s.runner.Jails.Pool.Wake()
		defer leave()
		streams.Tracked, err = s.runner.Life.Enter()
	}
	if err != nil {
		return s.runner.Refuse(c, message.Request{ID: req.ID}, nil, err)
	}
	defer streams.Begun()
	// The shim refreshes meanwhile: the decision does not look at the shadow.
	refreshed := make(chan error, 1)
	go func() { refreshed <- h.refresh() }()
	given := h.given(req.Env)
	j, err := s.runner.Preparer.Invoke(ctx, c, h.requestFor(req, given.Kept.Cwd), given)
	if failed := <-refreshed; failed != nil {
		err = failed
	}
	if err != nil {
		return s.runner.Refuse(c, j.Req, j, err)
	}
	var r *run.Run
	r = s.runner.NewInvocation(j, run.Within{Files: h.files, Shadow: h.shadow,
		Prewarmed: h.prewarmed, Engines: h.engines.set, Late: h.engines.late,
		After: func() *shadows.AutoCommit { return h.after(r) },
		Keep:  func(rep *runners.Kept) *message.Kept { return h.invocations.kept.take(j, rep) },
		News:  h.takeNews()})
	if !h.invocations.join(r) {
		return s.runner.Refuse(c, j.Req, j, noSession(id))
	}
	defer h.left(r)
	var res message.Result
	res, pipes = s.runner.Do(ctx, r, streams)
	return res
}

// given returns what an invocation with the variables env gets from its session.
func (h *session) given(env []string) *prepare.Session {
	j := h.run.Job()
	return &prepare.Session{ID: j.ID, Policy: j.Policy, Plan: j.Plan, IDs: j.Host.IDs,
		Group: rungroup.Session(j.Plan.Cgroup.Path), Source: j.Source, Modules: h.engines.modules,
		Kept: h.invocations.kept.forInvocation(env)}
}

// requestFor returns an invocation's request as the request of a run. cwd is the directory that an
// earlier invocation kept, or "".
func (h *session) requestFor(req message.ExecRequest, cwd string) message.Request {
	of := h.run.Job().Req
	return message.Request{ID: req.ID, Tool: req.Tool, Script: req.Script, Args: req.Args,
		Profile: of.Profile, Policy: of.Policy, PolicyName: of.PolicyName, Dir: req.Dir,
		Cwd: cmp.Or(req.Cwd, cwd, of.Cwd), Workspace: h.run.Job().Workspace(), NoWorkspace: of.NoWorkspace, Fate: message.FateKeep,
		Limits: req.Limits, Env: slices.Concat(of.Env, req.Env), Inherit: req.Inherit,
		Terminal: req.Terminal, KeepEnv: req.KeepEnv}
}
