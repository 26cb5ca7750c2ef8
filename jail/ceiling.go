package jail

import (
	"path"
	"slices"

	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// CeilingGroup is the suffix of the name of the cgroup that holds the ceiling's limits, above the
// leaf.
const CeilingGroup = ".ceiling"

// Loaders are the paths of the dynamic loaders of C libraries. A dynamic program needs one. To
// grant it grants little: a loader maps only files that the mounts allow to be mapped.
var Loaders = []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1",
	"/lib/ld-linux.so.2"}

// A Ceiling holds the host's ceiling as layers of its own, around those of the effective policy.
// The kernel enforces all layers of each mechanism, so the ceiling holds even if a bug in the
// computation of the effective policy grants too much.
type Ceiling struct {
	Policy string `json:"policy"` // digest of the ceiling
	// The cgroup above the leaf; absent if the ceiling has no cgroup limit.
	Cgroup   *Cgroup  `json:"cgroup,omitempty"`
	Landlock Landlock `json:"landlock"` // the outer domain
	// loaded before the inner filter; refuses with ENOSYS
	Filter seccomp.Filter `json:"filter"`
}

// NewCeiling returns the layers of the ceiling for a plan. It does not use the effective policy:
// for each part of the plan it looks up what the ceiling grants, and grants what belongs to the
// jail itself.
func NewCeiling(ceiling policy.Policy, r Request, p Plan) *Ceiling {
	return &Ceiling{Policy: ceiling.Digest(), Cgroup: ceilingCgroup(ceiling.Limits, r, p),
		Landlock: ceilingLandlock(ceiling, r, p),
		Filter:   seccomp.NewOuterFilter(CeilingGroups(ceiling)...)}
}

// addCeiling sets p.Ceiling if the host has a ceiling, and moves the leaf below the ceiling's
// cgroup.
func addCeiling(p *Plan, eff policy.Effective, r Request) {
	ceiling, ok := eff.Ceiling()
	if !ok {
		return
	}
	p.Ceiling = NewCeiling(ceiling, r, *p)
	if p.Ceiling.Cgroup != nil {
		p.Cgroup.Path = path.Join(p.Ceiling.Cgroup.Path, path.Base(p.Cgroup.Path))
	}
}

// ceilingCgroup returns a cgroup with the ceiling's limits for this one jail, or nil if the ceiling
// limits neither memory, processes nor CPU.
func ceilingCgroup(l policy.Limits, r Request, p Plan) *Cgroup {
	if l.Memory == policy.Unlimited && l.PIDs == policy.Unlimited && l.CPUs == policy.Unlimited {
		return nil
	}
	c := newCgroup(l, r)
	c.Path = path.Join(r.Slice, path.Base(p.Cgroup.Path)+CeilingGroup)
	// These are not limits of this cgroup.
	c.IORead, c.IOWrite, c.OOMScore = 0, 0, 0
	return &c
}

// CeilingGroups returns the seccomp groups that any run under the ceiling may need, and those that
// jail-init itself needs after it has loaded the ceiling's filter.
func CeilingGroups(c policy.Policy) []string {
	n := needsOf(c)
	n.native = c.Syscalls.Has(policy.GroupNative) && len(c.Tools.Native)+len(c.Tools.Images) > 0
	n.inside = c.Outer.Allows(policy.OuterRunsc)
	n.agent = len(c.Agent.Normal().Bindings) > 0
	groups := []string{"confine"}
	if c.Syscalls.Has(policy.GroupWASI) && len(c.Tools.Allow)+len(c.Tools.Modules) > 0 {
		groups = append(append(groups, seccomp.WASIGroups...), "shell", "compile")
	}
	if n.native {
		groups = append(groups, seccomp.NativeGroups...)
	}
	return append(groups, n.groups()...)
}

// ceilingLandlock returns the Landlock domain that jail-init enters before the plan's own.
func ceilingLandlock(c policy.Policy, r Request, p Plan) Landlock {
	native := p.Command.Runner == RunnerNative
	l := initDomain()
	if p.Workspace != nil && c.Workspace.Access != policy.WorkspaceNone {
		l.Rules = append(l.Rules, LandlockRule{Path: p.Workspace.ruleDir(),
			Write: c.Workspace.Access == policy.WorkspaceShadow,
			Exec:  native && AllMayRun(c, policy.WorkspaceDir),
			Pipes: native && c.Workspace.Access == policy.WorkspaceShadow})
	}
	if r.Image != nil && c.Tools.Images.Match(r.Image.Name) {
		l.Rules = append(l.Rules, imageRules(r.Image, p)...)
	}
	for _, m := range p.Mounts {
		l.Rules = append(l.Rules, ceilingRules(c, m, native)...)
	}
	if native {
		for _, program := range r.Programs {
			if c.Tools.Native.Match(program) || AllMayRun(c, program) || slices.Contains(Loaders,
				program) {
				l.Rules = append(l.Rules, LandlockRule{Path: program, Exec: true})
			}
		}
		l.Rules = append(l.Rules, LandlockRule{Path: "/dev", Write: true, Device: true})
	}
	l.addRest(p, c, r)
	return l
}

// ceilingRules returns the rules that the ceiling grants for one mount of the plan.
func ceilingRules(c policy.Policy, m Mount, native bool) []LandlockRule {
	if m.InProc() || m.Kind == MountImage {
		return nil
	}
	if m.Kind == MountState && len(c.Agent.Normal().Bindings) == 0 {
		return nil
	}
	if m.Kind == MountState || m.Kind == MountProc || m.Kind == MountPTS || m.Kind == MountMachine ||
		paths.Within(CacheDir, m.Target) || m.Target == FilesDir || native && m.Target == shmDir {
		// Mounts of the jail itself are no matter of the ceiling.
		return []LandlockRule{{Path: m.ruleDir(), Write: m.Write, Pipes: m.Kind == MountTmpfs}}
	}
	var rules []LandlockRule
	for _, g := range c.Mounts {
		rule := LandlockRule{Path: m.Target, Write: g.Access&(policy.Write|policy.Tmpfs) != 0,
			Pipes: native && m.Kind == MountTmpfs}
		if m.Kind == MountCache {
			// A cache is matched by its name and target.
			rule.Exec, rule.Write = native && AllMayRun(c, m.Target), true
			if g.Access == policy.Cache && (g.Target == "" || paths.Within(g.Target, m.Target)) &&
				(g.Name == "" || g.Name == m.Name) {
				rules = append(rules, rule)
			}
			continue
		}
		if g.Access == policy.Cache || (m.Kind == MountTmpfs) != (g.Source == "") {
			continue
		}
		if m.Kind == MountTmpfs {
			rule.Exec = native && AllMayRun(c, m.Target)
			if g.Target == "" || paths.Within(g.Target, m.Target) {
				rules = append(rules, rule)
			}
			continue
		}
		rel, all := paths.Rel(g.Source, m.Source)
		part, some := paths.Rel(m.Source, g.Source)
		switch {
		case all:
			// The ceiling's path contains the mount's source.
			if g.Target != "" && path.Join(g.Target, rel) != m.Target {
				continue
			}
		case some:
			// The ceiling grants a path below the mount's source.
			rule.Path = path.Join(m.Target, part)
			if g.Target != "" && g.Target != rule.Path {
				continue
			}
		default:
			continue
		}
		rule.Exec = native && g.Access&policy.Exec != 0 && AllMayRun(c, rule.Path)
		rules = append(rules, rule)
	}
	return rules
}
