package supervisor

import (
	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy/syntax"
)

// permissions are what the ceiling in force lets a caller do.
type permissions struct {
	caller     Caller
	read       bool // the runs of all users, and all records
	run        bool // tools, and decide on their own runs and what those left
	administer bool // the runs of others, root's excepted, and the bundles of tools
}

func (s *Supervisor) permissionsOf(c Caller) permissions {
	rules := s.policies.Current().Rules()
	return permissions{c, c.UID == 0 || c.in(rules.Read), mayRun(rules, c), c.UID == 0 || c.in(rules.Administer)}
}

func mayRun(rules syntax.Host, c Caller) bool {
	return c.UID == 0 || rules.Run == nil || c.in(*rules.Run)
}

// decidesOn reports whether the caller has a say in what uid started: its user, root, and administrators, but for what is root's own: whoever decides on that is root.
func (p permissions) decidesOn(uid uint32) bool {
	return p.caller.mayControl(uid) || p.administer && uid != 0
}

// sees reports whether the caller may look at what uid started. To all others the answer is the same as for what does not exist.
func (p permissions) sees(uid uint32) bool { return p.decidesOn(uid) || p.read }

// change refuses a change of what uid started to who may look at it, and no more.
func (p permissions) change(uid uint32, what, id string) error {
	switch {
	case !p.decidesOn(uid):
		return refused(nil, "that is for its user, for root, and unless it is root's for whom [permissions.administer] names", "%s %s is another user's: you may look at it, and not change it", what, id)
	case uid == p.caller.UID && !p.run:
		return mayOnlyLook(p.caller)
	}
	return nil
}

func mayOnlyLook(c Caller) error {
	return refused(nil, "ask whoever keeps the ceiling to name you in [permissions.run]", "uid %d may not run tools, nor change what runs left: the ceiling lets others", c.UID)
}

// administrator refuses everybody but root and whom the ceiling names: what is installed, everybody runs. A user's daemon serves nobody but the user.
func (s *Supervisor) administrator(c Caller, what string) error {
	if !s.permissionsOf(c).administer && rootless.User() == nil {
		return refused(nil, "use sudo", "%s: only root may, and whom [permissions.administer] in the ceiling names", what)
	}
	return nil
}
