package jail

import (
	"path"
	"slices"

	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// CeilingGroup is how the name of the control group ends that holds a leaf to the ceiling's limits.
const CeilingGroup = ".ceiling"

// Loaders are where the C libraries of Linux have their loaders. A program that may run needs one,
// and to grant it grants little: it maps what the mounts let be mapped.
var Loaders = []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1",
	"/lib/ld-linux.so.2"}

// A Ceiling is what the host's ceiling says of a run, told to the kernel once more and by itself:
// not as what is left of it after it met the profile and the request, but as a layer of its own
// around theirs. Each of the kernel's mechanisms holds a process to all of its layers, so what a
// fault of the meet would let through, the ceiling still does not.
type Ceiling struct {
	Policy string `json:"policy"` // digest of the ceiling
	// The group above the leaf; absent where the ceiling has no such limit.
	Cgroup   *Cgroup  `json:"cgroup,omitempty"`
	Landlock Landlock `json:"landlock"` // the outer domain
	// below the inner filter, and refusing with ENOSYS
	Filter seccomp.Filter `json:"filter"`
}

// NewCeiling says what the ceiling by itself lets a jail of that plan do. It uses no meet: it asks
// of each thing in the plan what the ceiling grants of it, and leaves to the jail what is the
// jail's own.
func NewCeiling(ceiling policy.Policy, r Request, p Plan) *Ceiling {
	return &Ceiling{Policy: ceiling.Digest(), Cgroup: ceilingCgroup(ceiling.Limits, r, p),
		Landlock: ceilingLandlock(ceiling, r, p),
		Filter:   seccomp.NewOuterFilter(CeilingGroups(ceiling)...)}
}

// addCeiling puts the ceiling's layers around a plan, where the host has one that says anything.
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

// ceilingCgroup bounds the jail by the ceiling's limits, in a group made for it alone.
func ceilingCgroup(l policy.Limits, r Request, p Plan) *Cgroup {
	if l.Memory == policy.Unlimited && l.PIDs == policy.Unlimited && l.CPUs == policy.Unlimited {
		return nil
	}
	c := newCgroup(l, r)
	c.Path = path.Join(r.Slice, path.Base(p.Cgroup.Path)+CeilingGroup)
	// Of disks that are known later, and of processes.
	c.IORead, c.IOWrite, c.OOMScore = 0, 0, 0
	return &c
}

// CeilingGroups are all that any run under the ceiling may need, and what jail-init still does
// after it has put this filter on.
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

// ceilingLandlock is the domain that jail-init puts itself into before that of the plan.
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

// ceilingRules are what the ceiling grants of one mount of the plan.
func ceilingRules(c policy.Policy, m Mount, native bool) []LandlockRule {
	if m.InProc() || m.Kind == MountImage {
		return nil
	}
	if m.Kind == MountState && len(c.Agent.Normal().Bindings) == 0 {
		return nil
	}
	if m.Kind == MountState || m.Kind == MountProc || m.Kind == MountPTS || m.Kind == MountMachine ||
		paths.Within(CacheDir, m.Target) || m.Target == FilesDir || native && m.Target == shmDir {
		// The jail's own.
		return []LandlockRule{{Path: m.ruleDir(), Write: m.Write, Pipes: m.Kind == MountTmpfs}}
	}
	var rules []LandlockRule
	for _, g := range c.Mounts {
		rule := LandlockRule{Path: m.Target, Write: g.Access&(policy.Write|policy.Tmpfs) != 0,
			Pipes: native && m.Kind == MountTmpfs}
		if m.Kind == MountCache {
			// What a ceiling says of the names of caches is no matter of paths.
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
			// Of the mount is the ceiling's.
			if g.Target != "" && path.Join(g.Target, rel) != m.Target {
				continue
			}
		case some:
			// The ceiling grants a part of the path.
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
