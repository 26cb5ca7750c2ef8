// Package naming translates between the names that users give to runs and sessions and their ids.
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

// A Namer translates the names of a daemon's runs and sessions.
type Namer struct {
	Names *names.Store
	// Owner returns the user of a run, a session or a rest of one; nil if the user is not known.
	// there is false if nothing has that id.
	Owner func(id string) (owner *uint32, there bool)
	// Permissions returns what the ceiling in force permits a caller.
	Permissions func(caller.Caller) caller.Permissions
}

// Take returns the id for a new run or session that a caller names. If the caller has something of
// that name, Take returns its id, so that an equal request finds it and any other fails. It returns
// "" for no name. A name in the form of jail's ids is used as the id if it is free, so that a
// client can choose one to end its run by. done must be called when the run is known by its id, or
// over.
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

// idFor returns the id for a name, and links a new one if needed. It is called under the lock of
// names.Store.Take.
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

// Named returns the id for text: a name of the caller's, an id, or USER/NAME for another user's. A
// name of one other user, whose runs the caller may see, is found too. Text that names nothing is
// returned unchanged. Permissions are checked later.
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

// Shown returns the name of a run or session if it has one that the caller may see, else its id. ""
// stays "".
func (s *Namer) Shown(c caller.Caller, id string) string {
	if u := s.Names.NameOf(id); u.Name != "" && s.Permissions(c).Sees(u.UID) {
		return u.Name
	}
	return id
}

// Result returns r with names in place of ids, for a caller.
func (s *Namer) Result(c caller.Caller, r message.Result) message.Result {
	r.GlobalID, r.ID, r.Session = r.ID, s.Shown(c, r.ID), s.Shown(c, r.Session)
	r.Error = s.Error(c, r.Error)
	return r
}

// Error returns e with names in place of ids in its texts, for a caller. e may be nil.
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

// Run returns r with names in place of ids, for a caller.
func (s *Namer) Run(c caller.Caller, r message.RunInfo) message.RunInfo {
	r.GlobalID, r.ID, r.Session = r.ID, s.Shown(c, r.ID), s.Shown(c, r.Session)
	return r
}

// Session returns i with its name in place of its id, for a caller.
func (s *Namer) Session(c caller.Caller, i message.SessionInfo) message.SessionInfo {
	i.GlobalID, i.ID = i.ID, s.Shown(c, i.ID)
	return i
}

// Workspace returns w with names in place of ids, for a caller.
func (s *Namer) Workspace(c caller.Caller, w shadows.WorkspaceInfo) shadows.WorkspaceInfo {
	w.GlobalID, w.ID, w.Parent = w.ID, s.Shown(c, w.ID), s.Shown(c, w.Parent)
	return w
}

// Branch returns b with names in place of ids, for a caller.
func (s *Namer) Branch(c caller.Caller, b shadows.BranchInfo) shadows.BranchInfo {
	b.GlobalID, b.ID, b.Parent = b.ID, s.Shown(c, b.ID), s.Shown(c, b.Parent)
	for i := range b.Merges {
		b.Merges[i].Into = s.Shown(c, b.Merges[i].Into)
	}
	return b
}

// Detached returns d with its name in place of its id, for a caller.
func (s *Namer) Detached(c caller.Caller, d message.DetachedInfo) message.DetachedInfo {
	d.GlobalID, d.ID = d.ID, s.Shown(c, d.ID)
	return d
}

// Verification returns v with its name in place of its id, for a caller.
func (s *Namer) Verification(c caller.Caller, v rundir.Verification) rundir.Verification {
	v.GlobalID, v.ID = v.ID, s.Shown(c, v.ID)
	return v
}
