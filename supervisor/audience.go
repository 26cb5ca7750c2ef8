package supervisor

import (
	"os/user"
	"slices"
	"strconv"

	"github.com/jail-sandbox/jail/policy/syntax"
)

// admits asks the ceiling whether a caller may run tools, and use the profile or bring a policy file.
func admits(rules syntax.Host, c Caller, req Request) error {
	if !mayRun(rules, c) {
		return mayOnlyLook(c)
	}
	if req.Policy != "" && rules.SignedBy != nil {
		return refused(nil, "have it signed and put down as a profile, and name that with --profile", "policy %s is not allowed: the ceiling admits signed profiles only", req.PolicyName)
	}
	if rules.Profiles == nil {
		return nil
	}
	name := req.Profile
	if name == "" {
		name = "default"
	}
	audience, named := rules.Profiles[name]
	if req.Policy != "" || !named {
		others, ok := rules.Profiles[syntax.Others]
		if req.Policy != "" && !ok {
			return refused(nil, `[profiles."*"] in the ceiling says who may bring one`, "policy %s is not allowed: the ceiling says who may use which profile, and a policy file of one's own is none of them", req.PolicyName)
		}
		if !ok {
			return nil
		}
		audience = others
	}
	if c.in(audience) {
		return nil
	}
	if req.Policy != "" {
		return refused(nil, "ask whoever keeps the ceiling, or use a profile", "policy %s is not allowed: the ceiling lets others than uid %d bring policy files", req.PolicyName, c.UID)
	}
	return refused(nil, "ask whoever keeps the ceiling, or use another profile: jail profile list", "profile %s is not allowed: the ceiling lets others than uid %d use it", name, c.UID)
}

// in reports whether a caller is one of an audience. A name that the host does not know is nobody.
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
