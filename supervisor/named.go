package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// TakeID returns the id of a run or session that a caller asks for by a name: a new one, or where
// the caller has something of that name, that one's id, so that the same request finds it and
// another is refused. Without a name it is new. An id of the form that jail makes is taken as it
// is if nobody has it: a client chooses one to end its run by. done must be called when the run is
// known by its id, or over.
func (s *Supervisor) TakeID(c caller.Caller, name string) (id string, done func(), err error) {
	if name == "" {
		return string(jail.NewID()), func() {}, nil
	}
	if _, err := jail.ParseID(name); err != nil {
		return "", nil, problem.New(problem.Usage, "%v", err)
	}
	u := names.Name{UID: c.UID, Name: name}
	id, done, err = s.names.Take(u, func() (string, error) { return s.idFor(u) })
	if err != nil {
		return "", nil, problem.New(problem.Failed, "id %s: %w", name, err)
	}
	return id, done, nil
}

// idFor is the id that a name stands for from now on. It is called under the lock of take.
func (s *Supervisor) idFor(u names.Name) (string, error) {
	if id := s.names.Find(u); id != "" && s.isThere(id) {
		return id, nil
	}
	// The previous release knew runs by the names that they were given.
	owner, there := s.ownerOf(u.Name)
	if there && owner != nil && *owner == u.UID || !there && names.IsGlobal(u.Name) {
		return u.Name, nil
	}
	id := string(jail.NewID())
	return id, s.names.Link(u, id)
}

// ownerOf returns whose the run, the session, or what is left of one is, nil where that cannot be
// told, and whether there is any.
func (s *Supervisor) ownerOf(id string) (owner *uint32, there bool) {
	s.mu.Lock()
	r, h := s.active[id], s.sessions[id]
	s.mu.Unlock()
	switch {
	case r != nil:
		return &r.job.caller.UID, true
	case h != nil:
		return &h.uid, true
	}
	if _, about, err := s.outputs.find(id); err == nil {
		return &about.UID, true
	}
	w, err := s.workspaces.Get(id)
	if err == nil {
		defer w.Close()
		uid := w.Info().Caller.UID
		return &uid, true
	}
	if !errors.Is(err, workspace.ErrNotFound) {
		return nil, true
	}
	st, err := s.runs.Read(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false
	case err != nil:
		return nil, true
	}
	return &st.UID, true
}

func (s *Supervisor) isThere(id string) bool {
	_, there := s.ownerOf(id)
	return there
}

// Named returns the id of what a caller calls text: a name of their own, an id, or USER/NAME for
// another user's. A name that is none of theirs, and that one user has whose runs they may see,
// is that user's. Whether the caller may see or change what has the id is asked later, and text
// that names nothing is returned as it is.
func (s *Supervisor) Named(c caller.Caller, text string) (string, error) {
	if who, name, ok := strings.Cut(text, "/"); ok {
		uid, known := names.UserID(who)
		if !known || !s.maySee(c, uid) {
			// as for a name that nobody has
			return text, nil
		}
		if id := s.names.Find(names.Name{UID: uid, Name: name}); id != "" {
			return id, nil
		}
		if owner, _ := s.ownerOf(name); owner != nil && *owner == uid {
			return name, nil
		}
		return text, nil
	}
	if id := s.names.Find(names.Name{UID: c.UID, Name: text}); id != "" {
		return id, nil
	}
	if s.isThere(text) || names.IsGlobal(text) {
		return text, nil
	}
	found, may := "", s.permissionsOf(c)
	for _, uid := range s.names.Users() {
		id := s.names.Find(names.Name{UID: uid, Name: text})
		switch {
		case id == "" || !may.Sees(uid):
		case found != "":
			return "", problem.New(problem.Usage, "several users have something called %q", text).
				WithHint(fmt.Sprintf("write USER/%s", text))
		default:
			found = id
		}
	}
	if found != "" {
		return found, nil
	}
	return text, nil
}

// Shown returns what a run or session is called for a caller: the name that it was given, where
// they may see that, else its id.
func (s *Supervisor) Shown(c caller.Caller, id string) string {
	if u := s.names.NameOf(id); u.Name != "" && s.maySee(c, u.UID) {
		return u.Name
	}
	return id
}

// ShownResult is a result for a caller: with the names of what it is about.
func (s *Supervisor) ShownResult(c caller.Caller, r Result) Result {
	r.GlobalID, r.ID = r.ID, s.Shown(c, r.ID)
	if r.Session != "" {
		r.Session = s.Shown(c, r.Session)
	}
	r.Error = s.ShownError(c, r.Error)
	return r
}

// ShownError is an error for a caller, whose texts have names in place of ids.
func (s *Supervisor) ShownError(c caller.Caller, e *problem.Error) *problem.Error {
	if e == nil {
		return nil
	}
	shown := *e
	name := func(id string) string { return s.Shown(c, id) }
	shown.Message = names.GlobalID.ReplaceAllStringFunc(e.Message, name)
	shown.Hint = names.GlobalID.ReplaceAllStringFunc(e.Hint, name)
	return &shown
}

// named puts into an entry of the log what users call its run, beside the id.
func (s *Supervisor) named(e *audit.Entry) {
	if u := s.names.NameOf(e.Run); u.Name != "" {
		e.RunID, e.Run = e.Run, u.Name
	}
	if u := s.names.NameOf(e.Session); u.Name != "" {
		e.SessionID, e.Session = e.Session, u.Name
	}
}

// ShownRun is a live run for a caller.
func (s *Supervisor) ShownRun(c caller.Caller, r RunInfo) RunInfo {
	r.GlobalID, r.ID = r.ID, s.Shown(c, r.ID)
	if r.Session != "" {
		r.Session = s.Shown(c, r.Session)
	}
	return r
}

// ShownSession is a session for a caller.
func (s *Supervisor) ShownSession(c caller.Caller, i SessionInfo) SessionInfo {
	i.GlobalID, i.ID = i.ID, s.Shown(c, i.ID)
	return i
}

// ShownWorkspace is a shadow for a caller.
func (s *Supervisor) ShownWorkspace(c caller.Caller,
	w shadows.WorkspaceInfo) shadows.WorkspaceInfo {
	w.GlobalID, w.ID = w.ID, s.Shown(c, w.ID)
	return w
}

// ShownDetached is a detached run for a caller.
func (s *Supervisor) ShownDetached(c caller.Caller, d DetachedInfo) DetachedInfo {
	d.GlobalID, d.ID = d.ID, s.Shown(c, d.ID)
	return d
}

// ShownVerification is a verification for a caller.
func (s *Supervisor) ShownVerification(c caller.Caller, v rundir.Verification) rundir.Verification {
	v.GlobalID, v.ID = v.ID, s.Shown(c, v.ID)
	return v
}
