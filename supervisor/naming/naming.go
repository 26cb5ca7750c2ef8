// Package naming turns what users call runs and sessions into ids, and ids into what a user calls
// them.
package naming

import (
	"fmt"
	"strings"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/names"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A Namer knows the names of the runs and sessions of a daemon.
type Namer struct {
	Names *names.Store
	// Owner returns the user of a run, of a session, or of what is left of one: nil if the user is
	// not known. there is false if nothing has that id.
	Owner func(id string) (owner *uint32, there bool)
	// Permissions returns what the ceiling in force lets a caller do.
	Permissions func(caller.Caller) caller.Permissions
}

// Take returns the id of a run or session that a caller asks for by a name: a new one, or where
// the caller has something of that name, that one's id, so that the same request finds it and
// another is refused. Without a name it returns an empty id, and the run gets one that nobody else
// knows. An id of the form that jail makes is taken as it is if nobody has it: a client chooses one
// to end its run by. done must be called when the run is known by its id, or over.
func (s *Namer) Take(c caller.Caller, name string) (id string, done func(), err error) {
	if name == "" {
		return "", func() {}, nil
	}
	if _, err := jail.ParseID(name); err != nil {
		return "", nil, problem.New(problem.Usage, "%v", err)
	}
	u := names.Name{UID: c.UID, Name: name}
	id, done, err = s.Names.Take(u, func() (string, error) { return s.idFor(u) })
	if err != nil {
		return "", nil, problem.New(problem.Failed, "id %s: %w", name, err)
	}
	return id, done, nil
}

// idFor is the id that a name stands for from now on. It is called under the lock of take.
func (s *Namer) idFor(u names.Name) (string, error) {
	if id := s.Names.Find(u); id != "" && s.isThere(id) {
		return id, nil
	}
	// The previous release knew runs by the names that they were given.
	owner, there := s.Owner(u.Name)
	if there && owner != nil && *owner == u.UID || !there && names.IsGlobal(u.Name) {
		return u.Name, nil
	}
	id := string(jail.NewID())
	return id, s.Names.Link(u, id)
}

func (s *Namer) isThere(id string) bool {
	_, there := s.Owner(id)
	return there
}

// Named returns the id of what a caller calls text: a name of their own, an id, or USER/NAME for
// another user's. A name that is none of theirs, and that one user has whose runs they may see,
// is that user's. Whether the caller may see or change what has the id is asked later, and text
// that names nothing is returned as it is.
func (s *Namer) Named(c caller.Caller, text string) (string, error) {
	if who, name, ok := strings.Cut(text, "/"); ok {
		uid, known := names.UserID(who)
		if !known || !s.Permissions(c).Sees(uid) {
			// as for a name that nobody has
			return text, nil
		}
		if id := s.Names.Find(names.Name{UID: uid, Name: name}); id != "" {
			return id, nil
		}
		if owner, _ := s.Owner(name); owner != nil && *owner == uid {
			return name, nil
		}
		return text, nil
	}
	if id := s.Names.Find(names.Name{UID: c.UID, Name: text}); id != "" {
		return id, nil
	}
	if s.isThere(text) || names.IsGlobal(text) {
		return text, nil
	}
	found, may := "", s.Permissions(c)
	for _, uid := range s.Names.Users() {
		id := s.Names.Find(names.Name{UID: uid, Name: text})
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
// they may see that, else its id. "" stays "".
func (s *Namer) Shown(c caller.Caller, id string) string {
	if u := s.Names.NameOf(id); u.Name != "" && s.Permissions(c).Sees(u.UID) {
		return u.Name
	}
	return id
}

// Result is a result for a caller: with the names of what it is about.
func (s *Namer) Result(c caller.Caller, r message.Result) message.Result {
	r.GlobalID, r.ID, r.Session = r.ID, s.Shown(c, r.ID), s.Shown(c, r.Session)
	r.Error = s.Error(c, r.Error)
	return r
}

// Error is an error for a caller, whose texts have names in place of ids.
func (s *Namer) Error(c caller.Caller, e *problem.Error) *problem.Error {
	if e == nil {
		return nil
	}
	shown := *e
	name := func(id string) string { return s.Shown(c, id) }
	shown.Message = names.GlobalID().ReplaceAllStringFunc(e.Message, name)
	shown.Hint = names.GlobalID().ReplaceAllStringFunc(e.Hint, name)
	return &shown
}

// Run is a live run for a caller.
func (s *Namer) Run(c caller.Caller, r message.RunInfo) message.RunInfo {
	r.GlobalID, r.ID, r.Session = r.ID, s.Shown(c, r.ID), s.Shown(c, r.Session)
	return r
}

// Session is a session for a caller.
func (s *Namer) Session(c caller.Caller, i message.SessionInfo) message.SessionInfo {
	i.GlobalID, i.ID = i.ID, s.Shown(c, i.ID)
	return i
}

// Workspace is a shadow for a caller.
func (s *Namer) Workspace(c caller.Caller, w shadows.WorkspaceInfo) shadows.WorkspaceInfo {
	w.GlobalID, w.ID, w.Parent = w.ID, s.Shown(c, w.ID), s.Shown(c, w.Parent)
	return w
}

// Branch is a branch for a caller.
func (s *Namer) Branch(c caller.Caller, b shadows.BranchInfo) shadows.BranchInfo {
	b.GlobalID, b.ID, b.Parent = b.ID, s.Shown(c, b.ID), s.Shown(c, b.Parent)
	for i := range b.Merges {
		b.Merges[i].Into = s.Shown(c, b.Merges[i].Into)
	}
	return b
}

// Detached is a detached run for a caller.
func (s *Namer) Detached(c caller.Caller, d message.DetachedInfo) message.DetachedInfo {
	d.GlobalID, d.ID = d.ID, s.Shown(c, d.ID)
	return d
}

// Verification is a verification for a caller.
func (s *Namer) Verification(c caller.Caller, v rundir.Verification) rundir.Verification {
	v.GlobalID, v.ID = v.ID, s.Shown(c, v.ID)
	return v
}
