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
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/mounts"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/prewarm"
	"github.com/jail-sandbox/jail/supervisor/problem"
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
	asked
	places chan struct{} // taken by invocations
	// closed when there can be invocations
	stands chan struct{}
	// closed when there can be no more
	over chan struct{}

	// drop lets no more invocations begin, and makes the id of the session free.
	drop func()

	mu sync.Mutex
	invocations
	// runs out when nothing has had a place for too long
	timer *time.Timer
	// of its shadow, where who stopped it said so; not changed once the session is over
	fate message.Fate
	// prewarmed has the prewarmed jails of its invocations.
	prewarmed *prewarm.Session
}

// asked is who asked for a session, and for which.
type asked struct {
	uid uint32
	// digest is of the request.
	digest      string
	idle, total time.Duration
}

// invocations are those of a session.
type invocations struct {
	live    map[*run]bool
	waiting int
	count   int64
	// used is when one last began or ended.
	used time.Time
}

// Sessions are the open sessions of a daemon. Its methods may be called from several goroutines.
type Sessions struct {
	runner *runner
	// private says that the daemon ends with its one client, and so has no sessions.
	private bool
	// permissions returns what the ceiling in force lets a caller do.
	permissions func(caller.Caller) caller.Permissions

	mu   sync.Mutex
	open map[string]*session
}

// owner returns whose a session is.
func (s *Sessions) owner(id string) (uid uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.open[id]
	if h == nil {
		return 0, false
	}
	return h.uid, true
}

const (
	limitIdle = "idle"
	limitTime = "time"
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
)

// launchFiles are the descriptors of the run's launch, and the mounts that are another jail's too.
func (r *run) launchFiles() (*mounts.Files, []string, error) {
	if j := r.job; j.In != nil {
		return r.session.files(j.Plan, j.Binds)
	}
	files, err := r.s.filesOf(r.job, r.work.Workspace())
	return files, nil, err
}

// files are those of the launch of one of the session's jails, by its plan and with the sources of
// its binds, in order.
func (h *session) files(p jail.Plan, binds []*os.File) (*mounts.Files, []string, error) {
	var shared []string
	files, holder := &mounts.Files{}, h.run.Process()
	fail := func(err error) (*mounts.Files, []string, error) {
		files.Close()
		if errors.Is(err, launch.ErrNotThere) {
			return nil, nil, noSession(string(h.run.job.ID)) // it has ended meanwhile
		}
		return nil, nil, problem.New(problem.Failed, "session %s: %w", h.run.job.ID, err)
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
		files.Lower, err = workspace.CloneLower(h.run.job.Source)
	}
	if err != nil {
		return fail(err)
	}
	files.Own(files.Lower)
	return files, shared, nil
}

// shadow is the one that the run works on, its own or its session's, or nil.
func (r *run) shadow() *workspace.Workspace {
	if r.job.In != nil {
		return r.session.run.work.Workspace()
	}
	return r.work.Workspace()
}

// makeGroup makes the control group of a session's invocations, with the session's limits on all of
// them together.
func (r *run) makeGroup() error {
	if r.job.Holds == 0 {
		return nil
	}
	c := r.job.Plan.Cgroup
	r.session.group = rungroup.Session(c.Path)
	err := cgroup.MakeBounded(r.session.group,
		cgroup.Bound{Ceiling: cgroup.Ceiling{Memory: max(c.Memory, 0), PIDs: max(c.PIDs, 0)},
			CPUQuota: c.CPUQuota, CPUPeriod: c.CPUPeriod})
	if err != nil {
		return r.s.layers.Failed("control groups", err)
	}
	return nil
}

func (r *run) dropGroup() {
	if r.job.Holds > 0 && r.session.group != "" {
		// One that stays is empty, and the next daemon removes it.
		r.log("remove the control group of the session", cgroup.Remove(r.session.group))
	}
}

// usageOf is what the run used: of a session, all its invocations.
func (r *run) usageOf(leaf *cgroup.Leaf) (cgroup.Usage, error) {
	u, err := leaf.Usage()
	if r.job.Holds == 0 || err != nil {
		return u, err
	}
	all, err := cgroup.Open(r.session.group)
	if err != nil {
		return u, err
	}
	defer all.Close()
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
	if h := r.session; r.job.Holds > 0 {
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
func (r *run) endByLimit(c ending.Cause) {
	if r.job.Holds > 0 && c.Limit == "wall" {
		c.Limit = limitTime
	}
	r.End(c)
}

// idles says that no invocation is there: none runs, is being prepared or waits. h.mu is held.
func (h *session) idles() bool { return !h.ended() && h.waiting == 0 && len(h.places) == 0 }

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
			h.run.End(ending.Cause{Limit: limitIdle, Peak: time.Since(h.used).Milliseconds()})
		}
	})
}

// leaves is called when an invocation no longer waits, or no longer has a place.
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
	if !h.ended() {
		close(h.over)
	}
}

// endInvocations ends what still runs in a session whose jail has ended, and waits for it.
func (r *run) endInvocations() {
	h := r.session
	if r.job.Holds == 0 {
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
	why := ending.Cause{Signal: 9}
	if c := r.Ended(); c != nil && c.Signal > 0 {
		// the daemon ends, or somebody ended the session
		why.Signal, why.Daemon = c.Signal, c.Daemon
	} else if c != nil && c.Fault != nil {
		why = ending.Cause{Fault: c.Fault}
	}
	for _, inv := range all {
		inv.End(why)
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
			"session %s has as many invocations waiting as it may have", string(h.run.job.ID)).
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
		return nil, noSession(string(h.run.job.ID))
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
		return nil, noSession(string(h.run.job.ID))
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
	if h.ended() {
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

// Start opens a session and returns when it can have invocations. A session of that id that
// is open already, was asked for in the same words and is the caller's is returned as it is.
func (s *Sessions) Start(ctx context.Context, c caller.Caller,
	req message.SessionRequest) (message.SessionInfo, error) {
	idle, total, err := req.Times()
	if err != nil {
		return message.SessionInfo{}, err
	}
	if req.Tool != "" || len(req.Args) > 0 || req.Script != nil || req.Terminal != nil ||
		req.Learn {
		return message.SessionInfo{}, problem.New(problem.Usage,
			"a session is started without a tool: its invocations have them")
	}
	if s.private {
		return message.SessionInfo{}, problem.New(problem.Refused,
			"a session outlives the command that starts it, so it needs a daemon for all, and none answers").
			WithHint("start jaild, as a service or with sudo")
	}
	if req.ID == "" {
		req.ID = string(jail.NewID())
	}
	// until it can be ended
	leave, err := s.runner.life.Enter()
	if err != nil {
		return message.SessionInfo{}, err
	}
	h := &session{asked: asked{uid: c.UID, digest: req.Digest(), idle: idle, total: total},
		stands: make(chan struct{}), over: make(chan struct{}),
		invocations: invocations{live: map[*run]bool{}, used: time.Now()}}
	h.drop = func() { s.end(req.ID, h) }
	if open, err := s.admit(c, req, h); open != nil || err != nil {
		leave()
		return s.await(ctx, open, err)
	}
	j, err := s.runner.preparer.Hold(ctx, c, req.Request, total)
	if err == nil {
		h.places = make(chan struct{}, placesFor(j.Policy.Policy().Limits))
		h.run = s.runner.newRun(j, h)
		h.prewarmed = prewarm.NewSession(string(j.ID), j.IDs.Base, h.mayPrewarm, h.files)
	}
	if err != nil {
		leave()
		h.drop()
		return message.SessionInfo{}, s.runner.refuse(c, req.Request, j, err).Error
	}
	s.runner.life.Go(func() {
		h.run.carry(context.Background(), stdio.Streams{Out: io.Discard, Err: io.Discard,
			Tracked: leave})
	})
	return s.await(ctx, h, nil)
}

// await waits until a session can be used.
func (s *Sessions) await(ctx context.Context, h *session, err error) (message.SessionInfo, error) {
	if err != nil {
		return message.SessionInfo{}, err
	}
	select {
	case <-h.stands:
	case <-h.over:
	case <-ctx.Done():
		// nobody may know of it
		return message.SessionInfo{}, problem.New(problem.Failed,
			"the caller went away").WithCause(ctx.Err())
	}
	if !h.ended() {
		return h.info(), nil
	}
	if h.run == nil {
		return message.SessionInfo{}, problem.New(problem.Busy,
			"a session of that id could not be started").
			WithHint("try again")
	}
	<-h.run.done
	if e := h.run.result.Error; e != nil {
		return message.SessionInfo{}, e
	}
	return message.SessionInfo{}, problem.New(problem.Failed,
		"session %s ended before it could be used",
		h.run.job.ID)
}

// placesFor is how many invocations the limits of a session leave room for at one time.
func placesFor(l policy.Limits) int64 {
	return max(1, min(maxAtOnce, l.PIDs/roomPIDs, l.Memory/roomMemory))
}

// admit takes the session among the open ones. Where one of that id is open and it is the
// same, it is returned.
func (s *Sessions) admit(c caller.Caller, req message.SessionRequest, h *session) (*session,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.open[req.ID]; open != nil {
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
	for _, other := range s.open {
		if other.uid == c.UID {
			mine++
		}
	}
	switch {
	case mine >= maxUserSessions:
		return nil, problem.New(problem.Busy,
			"you have %d sessions open, as many as one user may have", mine).
			WithHint("jail session list shows them, jail session stop ID ends one")
	case len(s.open) >= maxSessions:
		return nil, problem.New(problem.Busy, "%d sessions are open, as many as this daemon takes",
			len(s.open)).
			WithHint("try again when others have ended")
	}
	s.open[req.ID] = h
	return nil, nil
}

// end lets a session go whose jail has ended, or never stood.
func (s *Sessions) end(id string, h *session) {
	h.mu.Lock()
	h.close()
	h.mu.Unlock()
	s.remove(id, h)
}

func (s *Sessions) remove(id string, h *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[id] == h {
		delete(s.open, id)
	}
}

// standing finds a session that takes invocations, for who may change it.
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

// find finds a session, which may be starting or ending, for who may change it. To whom may
// not see it it is not there.
func (s *Sessions) find(c caller.Caller, id string) (*session, error) {
	s.mu.Lock()
	h := s.open[id]
	s.mu.Unlock()
	may := s.permissions(c)
	if h == nil || !may.Sees(h.uid) {
		return nil, noSession(id)
	}
	if err := may.Change(h.uid, "session", id); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *session) info() message.SessionInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.run.dir.State
	return message.SessionInfo{ID: st.ID, Profile: st.Profile, Policy: st.Policy,
		Workspace: st.Workspace,
		UID:       st.UID, PID: st.PID, Started: st.Started,
		Used: h.used.UTC(), IdleMS: h.idle.Milliseconds(), TimeMS: h.total.Milliseconds(),
		Running: len(h.live), Invocations: h.count}
}

// List lists the open sessions that the caller may see, the oldest first.
func (s *Sessions) List(c caller.Caller) []message.SessionInfo {
	may := s.permissions(c)
	s.mu.Lock()
	var open []*session
	for _, h := range s.open {
		if may.Sees(h.uid) {
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
	slices.SortFunc(all, func(a, b message.SessionInfo) int {
		if n := a.Started.Compare(b.Started); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// Stop ends a session, what still runs in it too, and returns when its shadow has its fate.
// Of one that is ending already it returns the end.
func (s *Sessions) Stop(ctx context.Context, c caller.Caller, id string,
	req message.StopRequest) (message.Result, error) {
	h, err := s.find(c, id)
	if err == nil && !h.ended() {
		h, err = s.standing(c, id)
	}
	if err == nil && h.run == nil {
		// it could not be started
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
	// it would be made with its user's rights
	if req.Fate == message.FateCommit && !c.MayControl(h.uid) {
		return message.Result{}, problem.New(problem.Refused,
			"session %s is another user's: you may end it, and not commit with its user's rights",
			id).
			WithHint("stop it, and then jail commit " + id + " commits what your own rights allow")
	}
	h.mu.Lock()
	// what reads it does so after the end of the jail
	if req.Fate != message.FateDefault && !h.ended() {
		h.fate = req.Fate
	}
	h.close()
	h.mu.Unlock()
	h.run.End(ending.Cause{Over: true})
	select {
	case <-h.run.done:
		return h.run.result, nil
	case <-ctx.Done():
		// it ends all the same
		return message.Result{}, problem.New(problem.Failed, "the caller went away").WithCause(ctx.Err())
	}
}

// Exec runs a tool in a session, as Run does without one. What it changes in the workspace is seen
// by the session's other invocations, and reviewed when the session has ended.
func (s *Sessions) Exec(ctx context.Context, c caller.Caller, id string, req message.ExecRequest,
	streams stdio.Streams) message.Result {
	var r *run
	// Last of all: neither the session nor its other invocations wait for who reads of this one.
	defer func() {
		if r != nil {
			r.pumps.Wait()
		}
	}()
	h, err := s.standing(c, id)
	if err != nil {
		return s.runner.refuse(c, message.Request{ID: req.ID}, nil, err)
	}
	if h.uid != c.UID {
		return s.runner.refuse(c, message.Request{ID: req.ID}, nil, problem.New(problem.Refused,
			"session %s is of user %d, and only that user may run tools in it", id, h.uid))
	}
	// while it waits nothing begins
	streams.Begun()
	leave, err := h.enter(ctx)
	if err == nil {
		defer leave()
		streams.Tracked, err = s.runner.life.Enter()
	}
	if err != nil {
		return s.runner.refuse(c, message.Request{ID: req.ID}, nil, err)
	}
	defer streams.Begun()
	j, err := s.runner.preparer.Invoke(ctx, c, h.requestFor(req), h.given())
	if err != nil {
		return s.runner.refuse(c, j.Req, j, err)
	}
	r = s.runner.newRun(j, h)
	if !h.join(r) {
		return s.runner.refuse(c, j.Req, j, noSession(id))
	}
	defer h.leave(r)
	return r.carry(ctx, streams)
}

// given is what an invocation has of the session.
func (h *session) given() *prepare.Session {
	j := h.run.job
	return &prepare.Session{ID: j.ID, Policy: j.Policy, Plan: j.Plan, IDs: j.IDs, Group: h.group,
		Source: j.Source}
}

// requestFor is an invocation's request in the words of a run's.
func (h *session) requestFor(req message.ExecRequest) message.Request {
	of := h.run.job.Req
	return message.Request{ID: req.ID, Tool: req.Tool, Args: req.Args, Profile: of.Profile,
		Policy: of.Policy, PolicyName: of.PolicyName, Dir: req.Dir, Cwd: cmp.Or(req.Cwd, of.Cwd),
		Workspace: h.run.job.Workspace(), NoWorkspace: of.NoWorkspace, Fate: message.FateKeep,
		Limits: req.Limits, Env: slices.Concat(of.Env, req.Env), Inherit: req.Inherit,
		Terminal: req.Terminal}
}
