package caller

import (
	"cmp"

	"github.com/jail-sandbox/jail/jail/rootless"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// Permissions are what the ceiling in force permits a caller.
type Permissions struct {
	Caller Caller
	// Read permits to see the runs of all users and all records.
	Read bool
	// Run permits to run tools, and to decide on the caller's own runs and their results.
	Run bool
	// administer permits to change the runs of others, except root's, and the bundles of tools.
	administer bool
	// approve is whether [permissions.approve] names the caller; nil if there is no such section.
	approve *bool
}

// PermissionsOf returns what the rules of the ceiling permit a caller. Root may do everything.
func PermissionsOf(rules syntax.Host, c Caller) Permissions {
	p := Permissions{Caller: c, Read: c.UID == 0 || c.in(rules.Read), Run: mayRun(rules, c),
		administer: c.UID == 0 || c.in(rules.Administer)}
	if rules.Approve != nil {
		named := c.UID == 0 || c.in(*rules.Approve)
		p.approve = &named
	}
	return p
}

func mayRun(rules syntax.Host, c Caller) bool {
	return c.UID == 0 || rules.Run == nil || c.in(*rules.Run)
}

// decidesOn reports whether the caller may decide on what user uid started: it is uid or root, or
// an administrator and uid is not root.
func (p Permissions) decidesOn(uid uint32) bool {
	return p.Caller.MayControl(uid) || p.administer && uid != 0
}

// Sees reports whether the caller may look at what user uid started. To other callers it must look
// as if it did not exist.
func (p Permissions) Sees(uid uint32) bool { return p.decidesOn(uid) || p.Read }

// SeesAction reports whether the caller may look at an action of uid that waits for an approval: as
// Sees, or because [permissions.approve] names the caller.
func (p Permissions) SeesAction(uid uint32) bool {
	return p.Sees(uid) || p.approve != nil && *p.approve
}

// Approve returns an error unless the caller may decide on an action of uid that the caller sees.
func (p Permissions) Approve(uid uint32) error {
	switch {
	case p.approve != nil && !*p.approve:
		return problem.New(problem.Refused,
			"uid %d may not decide on this: [permissions.approve] of the ceiling names others",
			p.Caller.UID).WithHint("ask one whom the ceiling names")
	case p.approve == nil && !p.decidesOn(uid):
		return problem.New(problem.Refused,
			"this action is another user's: you may look at it, and not decide on it").
			WithHint("that is for its user, and for root")
	case p.approve == nil && uid == p.Caller.UID && !p.Run:
		return MayOnlyLook(p.Caller)
	}
	return nil
}

// Change returns an error if the caller sees what user uid started but may not change it. what and
// id name the object in the message.
func (p Permissions) Change(uid uint32, what, id string) error {
	switch {
	case !p.decidesOn(uid):
		return problem.New(problem.Refused,
			"%s %s is another user's: you may look at it, and not change it", what, id).
			WithHint("that is for its user, for root, and unless it is root's for whom " +
				"[permissions.administer] names")
	case uid == p.Caller.UID && !p.Run:
		return MayOnlyLook(p.Caller)
	}
	return nil
}

// MayOnlyLook returns the error for a caller whom the ceiling does not permit to run tools.
func MayOnlyLook(c Caller) error {
	return problem.New(problem.Refused,
		"uid %d may not run tools or change kept workspaces: [permissions.run] of the ceiling "+
			"does not name it",
		c.UID).
		WithHint("ask the administrator who maintains the ceiling to name you in [permissions.run]")
}

// Administrator returns an error unless the caller may administer the host, for example install
// tools for other users. The user of a user's own daemon always may.
func (p Permissions) Administrator(what string) error {
	if !p.administer && rootless.User() == nil {
		return problem.New(problem.Refused,
			"%s: only root may, and the users whom [permissions.administer] of the ceiling names", what).
			WithHint("use sudo")
	}
	return nil
}

// MayUse returns an error if the ceiling forbids the caller to run tools, to use the profile ("" is
// "default"), or, if own is true, to bring its own policy policyFile instead of a profile.
func MayUse(rules syntax.Host, c Caller, profile string, own bool, policyFile string) error {
	if !mayRun(rules, c) {
		return MayOnlyLook(c)
	}
	if own && rules.SignedBy != nil {
		return problem.New(problem.Refused,
			"policy %s is not allowed: the ceiling admits signed profiles only", policyFile).
			WithHint("have the policy signed and installed as a profile, and use it by --profile " +
				"NAME")
	}
	if rules.Profiles == nil {
		return nil
	}
	name := cmp.Or(profile, "default")
	audience, named := rules.Profiles[name]
	if own || !named {
		others, ok := rules.Profiles[syntax.Others]
		if own && !ok {
			return problem.New(problem.Refused,
				"policy %s is not allowed: the ceiling restricts profiles to users, and no entry "+
					"allows policy files", policyFile).
				WithHint(`[profiles."*"] of the ceiling names the users who may bring a policy file`)
		}
		if !ok {
			return nil
		}
		audience = others
	}
	if c.in(audience) {
		return nil
	}
	if own {
		return problem.New(problem.Refused,
			"policy %s is not allowed: the ceiling lets only other users than uid %d bring policy "+
				"files",
			policyFile, c.UID).
			WithHint("ask the administrator who maintains the ceiling, or use a profile")
	}
	return problem.New(problem.Refused,
		"profile %s is not allowed: the ceiling lets only other users than uid %d use it", name, c.UID).
		WithHint("ask the administrator who maintains the ceiling, or use another profile: jail " +
			"profile list")
}
