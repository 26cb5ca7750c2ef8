// Package caller says who asks jaild for something, and what the host's ceiling permits them: to
// run tools, to use a profile, to read the runs of others and to change them.
package caller

import (
	"os/user"
	"slices"
	"strconv"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// A Caller is the process at the other end of the socket, as the kernel names it.
type Caller struct {
	asuser.Caller
	PID int
	Exe string
	// Home is the home directory, where known. It cannot be a workspace.
	Home string
	// Connection tells the connections of the callers of a daemon apart.
	Connection string
}

// Actor returns the caller as the records of the audit log name one.
func (c Caller) Actor() audit.Actor { return audit.Actor{UID: c.UID, PID: c.PID, Exe: c.Exe} }

// Workspace returns the caller with whose rights a shadow is made and committed.
func (c Caller) Workspace() workspace.Caller {
	return workspace.Caller{UID: c.UID, GID: c.GID, Groups: c.Groups}
}

// MayControl reports whether the caller is the user uid or root.
func (c Caller) MayControl(uid uint32) bool { return c.UID == 0 || c.UID == uid }

// in reports whether the caller belongs to an audience. A name that the host does not know matches
// nobody.
func (c Caller) in(a syntax.Audience) bool {
	isUser := func(name string) bool {
		if id, err := strconv.ParseUint(name, 10, 32); err == nil {
			return uint32(id) == c.UID
		}
		u, err := user.Lookup(name)
		return err == nil && u.Uid == strconv.FormatUint(uint64(c.UID), 10)
	}
	isGroup := func(name string) bool {
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			g, lookErr := user.LookupGroup(name)
			if lookErr != nil {
				return false
			}
			if id, err = strconv.ParseUint(g.Gid, 10, 32); err != nil {
				return false
			}
		}
		return uint32(id) == c.GID || slices.Contains(c.Groups, uint32(id))
	}
	return slices.ContainsFunc(a.Users, isUser) || slices.ContainsFunc(a.Groups, isGroup)
}
