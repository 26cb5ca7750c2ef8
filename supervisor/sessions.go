package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
)

// A SessionRequest asks for a session. Of the request it names no tool.
type SessionRequest struct {
	Request
	IdleMS int64 `json:"idle_ms,omitempty"` // it ends when nothing has run for so long; 0: DefaultIdle
	TimeMS int64 `json:"time_ms,omitempty"` // it ends then in any case; 0: DefaultTime
}

// A SessionInfo is an open session.
type SessionInfo struct {
	ID          string    `json:"id"`
	Profile     string    `json:"profile"`
	Policy      string    `json:"policy"`
	Workspace   string    `json:"workspace,omitempty"`
	UID         uint32    `json:"uid"`
	PID         int       `json:"pid"` // of the first process of the jail that holds it
	Started     time.Time `json:"started"`
	Used        time.Time `json:"used"` // when an invocation last began or ended
	IdleMS      int64     `json:"idle_ms"`
	TimeMS      int64     `json:"time_ms"`
	Running     int       `json:"running"`     // invocations
	Invocations int64     `json:"invocations"` // since it began
}

// An ExecRequest asks for an invocation in a session. Its limits and variables come on top of the session's, and can only narrow them.
type ExecRequest struct {
	ID       string            `json:"id,omitempty"`
	Tool     string            `json:"tool"`
	Args     runners.Texts     `json:"args,omitempty"` // after the name of the tool
	Dir      string            `json:"dir"`            // the caller's working directory, where a .wasm file is looked for
	Limits   []string          `json:"limits,omitempty"`
	Env      []string          `json:"env,omitempty"`
	Inherit  []string          `json:"inherit,omitempty"`
	Terminal *runners.Terminal `json:"terminal,omitempty"`
}

// A StopRequest ends a session.
type StopRequest struct {
	Fate Fate `json:"fate,omitempty"` // of its shadow; empty: as the session was started
}

func (q SessionRequest) digest() string {
	q.Inherit = nil // another terminal's variables ask for nothing else
	return digestOf(q)
}

func (q SessionRequest) times() (idle, total time.Duration, err error) {
	take := func(name string, ms int64, otherwise time.Duration) time.Duration {
		d := time.Duration(min(max(ms, -1), int64(2*MaxTime/time.Millisecond))) * time.Millisecond
		if ms == 0 {
			return otherwise
		}
		if err == nil && (d < time.Second || d > MaxTime) {
			err = usage("%s time of a session: want at least a second and at most %v", name, MaxTime)
		}
		return d
	}
	idle, total = take("idle", q.IdleMS, DefaultIdle), take("total", q.TimeMS, DefaultTime)
	return idle, total, err
}

// StartSession opens a session and returns when it can have invocations. A session of that id that is open already, was asked for in the same words
// and is the caller's is returned as it is.
func (s *Supervisor) StartSession(ctx context.Context, c Caller, req SessionRequest) (SessionInfo, error) {
	idle, total, err := req.times()
	if err != nil {
		return SessionInfo{}, err
	}
	if req.Tool != "" || len(req.Args) > 0 || req.Script != nil || req.Terminal != nil || req.Learn {
		return SessionInfo{}, usage("a session is started without a tool: its invocations have them")
	}
	if s.config.Private {
		return SessionInfo{}, refused(nil, "start jaild, as a service or with sudo", "a session outlives the command that starts it, so it needs a daemon for all, and none answers")
	}
	if req.ID == "" {
		req.ID = string(jail.NewID())
	}
	leave, err := s.Enter() // until it can be ended
	if err != nil {
		return SessionInfo{}, err
	}
	h := &session{digest: req.digest(), idle: idle, total: total, stands: make(chan struct{}), over: make(chan struct{}), live: map[*run]bool{}, used: time.Now()}
	h.spare.less.L = &h.mu
	if open, err := s.admitSession(c, req, h); open != nil || err != nil {
		leave()
		return s.await(ctx, open, err)
	}
	j := &job{caller: c, req: req.Request, hold: h}
	err = s.prepareJob(ctx, j)
	if err == nil {
		h.places = make(chan struct{}, placesFor(j.eff.Policy().Limits))
		h.run = s.newRun(j)
	}
	if err != nil {
		leave()
		s.endSession(req.ID, h)
		return SessionInfo{}, s.refuse(c, req.Request, j, err).Error
	}
	s.later(func() {
		h.run.carry(context.Background(), Streams{Out: io.Discard, Err: io.Discard, Tracked: leave})
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
	case <-ctx.Done(): // nobody may know of it
		return SessionInfo{}, failed(ctx.Err(), "", "the caller went away")
	}
	if !h.ended() {
		return h.info(), nil
	}
	if h.run == nil {
		return SessionInfo{}, &Error{Code: CodeBusy, Message: "a session of that id could not be started", Hint: "try again"}
	}
	<-h.run.done
	if e := h.run.result.Error; e != nil {
		return SessionInfo{}, e
	}
	return SessionInfo{}, failed(nil, "", "session %s ended before it could be used", h.run.job.id)
}

// placesFor is how many invocations the limits of a session leave room for at one time.
func placesFor(l policy.Limits) int64 {
	return max(1, min(maxAtOnce, l.PIDs/roomPIDs, l.Memory/roomMemory))
}

// admitSession takes the session among the open ones. Where one of that id is open and it is the same, it is returned.
func (s *Supervisor) admitSession(c Caller, req SessionRequest, h *session) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := s.sessions[req.ID]; open != nil {
		switch {
		case open.uid != c.UID:
		case open.ended():
			return nil, &Error{Code: CodeBusy, Message: "session " + req.ID + " is being ended", Hint: "try again"}
		case open.digest == h.digest:
			return open, nil
		}
		return nil, usage("session id %s is in use, by another request", req.ID)
	}
	mine := 0
	for _, other := range s.sessions {
		if other.uid == c.UID {
			mine++
		}
	}
	switch {
	case mine >= maxUserSessions:
		return nil, &Error{Code: CodeBusy, Message: fmt.Sprintf("you have %d sessions open, as many as one user may have", mine), Hint: "jail session list shows them, jail session stop ID ends one"}
	case len(s.sessions) >= maxSessions:
		return nil, &Error{Code: CodeBusy, Message: fmt.Sprintf("%d sessions are open, as many as this daemon takes", len(s.sessions)), Hint: "try again when others have ended"}
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

// openSession finds a session for who may change it. To whom may not see it it is not there.
func (s *Supervisor) openSession(c Caller, id string) (*session, error) {
	s.mu.Lock()
	h := s.sessions[id]
	s.mu.Unlock()
	may := s.permissionsOf(c)
	if h == nil || !may.sees(h.uid) {
		return nil, noSession(id)
	}
	if err := may.change(h.uid, "session", id); err != nil {
		return nil, err
	}
	switch {
	case h.ended():
		return nil, noSession(id)
	case !closed(h.stands):
		return nil, &Error{Code: CodeBusy, Message: "session " + id + " is being started", Hint: "try again"}
	}
	return h, nil
}

func (h *session) info() SessionInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.run.dir.state
	return SessionInfo{ID: st.ID, Profile: st.Profile, Policy: st.Policy, Workspace: st.Workspace, UID: st.UID, PID: st.PID, Started: st.Started,
		Used: h.used.UTC(), IdleMS: h.idle.Milliseconds(), TimeMS: h.total.Milliseconds(), Running: len(h.live), Invocations: h.count}
}

// Sessions lists the open sessions that the caller may see, the oldest first.
func (s *Supervisor) Sessions(c Caller) []SessionInfo {
	may := s.permissionsOf(c)
	s.mu.Lock()
	var open []*session
	for _, h := range s.sessions {
		if may.sees(h.uid) {
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
func (s *Supervisor) StopSession(ctx context.Context, c Caller, id string, req StopRequest) (Result, error) {
	h, err := s.openSession(c, id)
	if err != nil {
		return Result{}, err
	}
	switch req.Fate {
	case FateDefault, FateKeep, FateDiscard, FateCommit:
	default:
		return Result{}, usage("fate %q: want keep, discard or commit", req.Fate)
	}
	if req.Fate == FateCommit && !c.mayControl(h.uid) { // it would be made with its user's rights
		return Result{}, refused(nil, "stop it, and then jail commit "+id+" commits what your own rights allow", "session %s is another user's: you may end it, and not commit with its user's rights", id)
	}
	h.mu.Lock()
	if req.Fate != FateDefault && !h.closed { // what reads it does so after the end of the jail
		h.fate = req.Fate
	}
	h.close()
	h.mu.Unlock()
	h.run.end(cause{over: true})
	select {
	case <-h.run.done:
		return h.run.result, nil
	case <-ctx.Done(): // it ends all the same
		return Result{}, failed(ctx.Err(), "", "the caller went away")
	}
}

// Exec runs a tool in a session, as Run does without one. What it changes in the workspace is seen by the session's other invocations, and reviewed
// when the session has ended.
func (s *Supervisor) Exec(ctx context.Context, c Caller, id string, req ExecRequest, streams Streams) Result {
	var r *run
	defer func() { r.given() }() // last of all: neither the session nor its other invocations wait for who reads of this one
	h, err := s.openSession(c, id)
	if err != nil {
		return s.refuse(c, Request{ID: req.ID}, nil, err)
	}
	if h.uid != c.UID {
		return s.refuse(c, Request{ID: req.ID}, nil, refused(nil, "", "session %s is of user %d, and only that user may run tools in it", id, h.uid))
	}
	streams.begun() // while it waits nothing begins
	leave, err := h.enter(ctx)
	if err == nil {
		defer leave()
		streams.Tracked, err = s.Enter()
	}
	if err != nil {
		return s.refuse(c, Request{ID: req.ID}, nil, err)
	}
	defer streams.begun()
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
	return Request{ID: req.ID, Tool: req.Tool, Args: req.Args, Profile: of.Profile, Policy: of.Policy, PolicyName: of.PolicyName, Dir: req.Dir,
		Workspace: h.run.job.workspace(), NoWorkspace: of.NoWorkspace, Fate: FateKeep, Limits: req.Limits, Env: slices.Concat(of.Env, req.Env), Inherit: req.Inherit,
		Terminal: req.Terminal}
}

func (j *job) workspace() string {
	if j.source == nil {
		return ""
	}
	return j.source.Name()
}

// decideIn narrows the session's policy, as it was when the session was started, by what the invocation asks for.
func (j *job) decideIn() error {
	flags, err := readFlags(Request{Limits: j.req.Limits})
	if err != nil {
		return err
	}
	layers := append(j.in.run.job.eff.Layers(), policy.Layer{Name: "invocation", Source: "command line", Policy: flags.Policy()})
	eff, err := policy.Resolve(layers...)
	if err != nil {
		return &Error{Code: CodeUsage, Message: err.Error(), Err: err}
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
		return failed(err, "", "workspace: %v", err)
	}
	j.source = os.NewFile(uintptr(fd), of.Name())
	return nil
}
