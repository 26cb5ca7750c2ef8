// Package caller identifies the callers of jaild and decides what the host's ceiling permits them:
// to run tools, to use a profile, and to see or change the runs of others.
package caller

import (
	"math"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jail-sandbox/jail/jail/asuser"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// A Caller is the process at the other end of the daemon's socket, as the kernel identifies it.
type Caller struct {
	asuser.Caller
	PID int
	Exe string
	// Home is the home directory, where known. It cannot be a workspace.
	Home string
	// Connection identifies the caller's connection to the daemon.
	Connection string
}

// Actor returns the caller in the form of audit records.
func (c Caller) Actor() audit.Actor { return audit.Actor{UID: c.UID, PID: c.PID, Exe: c.Exe} }

// Workspace returns the caller with whose rights a shadow is made and committed.
func (c Caller) Workspace() workspace.Caller {
	return workspace.Caller{UID: c.UID, GID: c.GID, Groups: c.Groups}
}

// Of returns a Caller for a user of the host with the user's current groups, and no process. known
// is false, and the Caller has no groups, if the user is not in the user database.
func Of(uid uint32) (c Caller, known bool) {
	// No group has this number: chown(2) takes it for none.
	c.UID, c.GID = uid, math.MaxUint32
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return c, false
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return c, false
	}
	c.GID = uint32(gid)
	all, err := u.GroupIds()
	if err != nil {
		return c, true
	}
	for _, text := range all {
		if gid, err := strconv.ParseUint(text, 10, 32); err == nil {
			c.Groups = append(c.Groups, uint32(gid))
		}
	}
	return c, true
}

// OwnsAgent reports whether the agent id, agent:USER:NAME, has the caller's name or number as USER.
// The name of a facet also has the names of its parents: agent:USER:NAME/FACET.
func (c Caller) OwnsAgent(id string) bool {
	rest, ok := strings.CutPrefix(id, "agent:")
	owner, name, named := strings.Cut(rest, ":")
	if !ok || !named || !agentName().MatchString(name) {
		return false
	}
	uid := strconv.FormatUint(uint64(c.UID), 10)
	if owner == uid {
		return true
	}
	u, err := user.LookupId(uid)
	return err == nil && u.Username == owner
}

var agentName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}(/[a-z][a-z0-9._-]{0,62}){0,4}$`)
})

// MayControl reports whether the caller is the user uid or root.
func (c Caller) MayControl(uid uint32) bool { return c.UID == 0 || c.UID == uid }

// in reports whether the caller belongs to an audience. Names unknown to the host match nobody.
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
