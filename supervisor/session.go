package supervisor

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
)

// A session is one workspace, one /tmp and one set of limits for several invocations, which may run at one time. A jail of its own, in which no tool
// ever runs, holds them: its shim hands out its mounts. Each invocation gets a jail like that of any run, with all the walls of one, namespaces
// of its own among them, which has those mounts in place of fresh ones, and a control group below the session's. So nothing enters a jail that stands,
// and of two invocations neither sees the other's processes, memory or descriptors.
//
// The jail that holds it is a run as any, under the session's name: it is listed, inspected, verified and ended as one, and its shadow is reviewed as
// one's.
type session struct {
	run    *run   // of the jail that holds it
	group  string // control group of its invocations
	uid    uint32
	digest string // of what was asked for
	idle   time.Duration
	total  time.Duration
	places chan struct{} // taken by invocations
	stands chan struct{} // closed when there can be invocations
	over   chan struct{} // closed when there can be no more

	mu      sync.Mutex
	live    map[*run]bool
	waiting int
	count   int64
	used    time.Time
	timer   *time.Timer // runs out when nothing has had a place for too long
	closed  bool
	fate    Fate // of its shadow, where who stopped it said so; not changed once it is closed
	spare   spares
}

const (
	sessionTool = "session" // what the run of the jail that holds one is called
	groupSuffix = ".session"
	limitIdle   = "idle"
	limitTime   = "time"
)

// Bounds of sessions.
const (
	maxSessions     = 256 // of a daemon
	maxUserSessions = 64
	maxWaiting      = 64 // invocations of a session that wait for their turn
	maxAtOnce       = 64 // invocations of a session at one time, where its limits leave room for more
	roomPIDs        = 12 // what one of them has for sure of the session's pids: the threads of its engine
	roomMemory      = 32 << 20

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

// runner is the kind of jail that holds the session. Nothing runs in it; it is the narrowest that the policy can have.
func (h *session) runner(eff policy.Effective) string {
	if eff.Policy().Syscalls.Has(policy.GroupWASI) {
		return jail.RunnerWASI
	}
	return jail.RunnerNative
}

// sessionFiles are the inodes of a tmpfs that tools of any kind share.
const sessionFiles = 1 << 17

// fitSession makes the plan one of a session's jail: the one that holds it lasts as long as the session may, and its invocations have the file systems
// that it has.
func (j *job) fitSession() {
	p := &j.plan
	switch {
	case j.hold != nil:
		p.Limits.Wall, p.Limits.CPUTime = j.hold.total, policy.Unlimited
		p.Cgroup.OOMScore = 0 // of all the session's processes the last to go
		for i, m := range p.Mounts {
			if len(j.eff.Policy().Tools.Native) > 0 && sharable(m) {
				p.Mounts[i].Files = sessionFiles
			}
		}
	case j.in != nil:
		for i, m := range p.Mounts {
			for _, held := range j.in.run.job.plan.Mounts {
				if sharable(m) && held.Kind == m.Kind && held.Target == m.Target {
					p.Mounts[i].Size, p.Mounts[i].Files = held.Size, held.Files
				}
			}
		}
	}
}

// sharable says which mounts a session's jails have together: the tmpfs mounts of the policy, and not what every system has for itself.
func sharable(m jail.Mount) bool {
	return m.Kind == jail.MountTmpfs && !strings.HasPrefix(m.Target, "/dev/")
}

// launchFiles are the descriptors of the run's launch, and the mounts that are another jail's too.
func (r *run) launchFiles() (*openFiles, []string, error) {
	if j := r.job; j.in != nil {
		return j.in.files(j.plan, j.binds)
	}
	files, err := r.job.files(r.work)
	return files, nil, err
}

// files are those of the launch of one of the session's jails, by its plan and with the sources of its binds, in order.
func (h *session) files(p jail.Plan, binds []*os.File) (*openFiles, []string, error) {
	var shared []string
	files, holder := &openFiles{}, h.run.proc
	fail := func(err error) (*openFiles, []string, error) {
		files.close()
		if errors.Is(err, launch.ErrNotThere) {
			return nil, nil, noSession(string(h.run.job.id)) // it has ended meanwhile
		}
		return nil, nil, failed(err, "", "session %s: %v", h.run.job.id, err)
	}
	for _, m := range p.Mounts {
		if m.Kind == jail.MountBind {
			files.Binds, binds = append(files.Binds, binds[0]), binds[1:]
		} else if sharable(m) {
			f, err := holder.Share(m.Target)
			if err != nil {
				return fail(err)
			}
			files.Binds, files.own, shared = append(files.Binds, f), append(files.own, f), append(shared, m.Target)
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
	files.own = append(files.own, files.Lower)
	return files, shared, nil
}

// shadow is the one that the run works on, its own or its session's, or nil.
func (r *run) shadow() *workspace.Workspace {
	if r.job.in != nil {
		return r.job.in.run.work
	}
	return r.work
}

// groupOf is the control group of the invocations of a session whose jail has this leaf.
func groupOf(leaf string) string { return besideCeiling(leaf) + groupSuffix }

// isGroup reports whether dir can be the group of that session's invocations.
func (s *Supervisor) isGroup(dir, session string) bool {
	_, err := jail.ParseID(session)
	name := path.Base(dir)
	return err == nil && path.Dir(dir) == s.config.Slice && strings.HasPrefix(name, session+".") && strings.HasSuffix(name, groupSuffix)
}

// makeGroup makes the control group of a session's invocations, with the session's limits on all of them together.
func (r *run) makeGroup() error {
	if r.job.hold == nil {
		return nil
	}
	c := r.job.plan.Cgroup
	r.job.hold.group = groupOf(c.Path)
	err := cgroup.MakeBounded(r.job.hold.group, cgroup.Bound{Ceiling: cgroup.Ceiling{Memory: max(c.Memory, 0), PIDs: max(c.PIDs, 0)},
		CPUQuota: c.CPUQuota, CPUPeriod: c.CPUPeriod})
	if err != nil {
		return failed(err, "", "%v", err)
	}
	return nil
}

func (r *run) dropGroup() {
	if r.job.hold != nil && r.job.hold.group != "" {
		_ = cgroup.Remove(r.job.hold.group) // one that stays is empty, and the next daemon removes it
	}
}

// clearGroups removes the control groups of sessions whose daemon was killed. Their leaves are gone by now.
func (s *Supervisor) clearGroups(dead []*runDir) error {
	for _, r := range dead {
		leaf := s.leafOf(r.state)
		if leaf == "" || r.state.Session != r.state.ID {
			continue
		}
		if err := cgroup.Remove(groupOf(leaf)); err != nil {
			return failed(err, "", "session %s, left by a daemon that was killed: %v", r.state.ID, err)
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
	sum.PIDsDenied, sum.OOMKills = 0, u.OOMKills // the invocations have told of theirs
	return sum, nil
}

// running says that the tool runs, or that the session can have invocations.
func (r *run) running(streams Streams) {
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

// endByLimit ends the run for a limit that is watched. That of a session's time is another than that of a run's.
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

// ended says that there can be no more invocations. It is asked before anything else: what has ended has stood, too.
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
		why.signal = c.signal // the daemon ends, or somebody ended the session
	}
	for _, inv := range all {
		inv.end(why)
	}
	for _, inv := range all {
		<-inv.done
	}
	r.s.endSpares(h)
}

// enter waits for a place among the invocations, and returns what gives it back.
func (h *session) enter(ctx context.Context) (func(), error) {
	h.mu.Lock()
	if h.waiting >= maxWaiting {
		h.mu.Unlock()
		return nil, &Error{Code: CodeBusy, Message: "session " + string(h.run.job.id) + " has as many invocations waiting as it may have", Hint: "try again when some have ended"}
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
			h.run.s.wakePool() // it may be that there can be jails that wait again
		}, nil
	case <-h.over:
		return nil, noSession(string(h.run.job.id))
	case <-ctx.Done():
		return nil, failed(ctx.Err(), "", "the caller went away before there was a place for its invocation")
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

func noSession(id string) *Error {
	return notFound("jail session list shows those that are open", "no session %q is open", id)
}
