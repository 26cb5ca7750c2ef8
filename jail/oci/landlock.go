package oci

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
)

// landlock returns the domain of every process of the container. Everything may be read. Programs
// run from the image, and from mounts that grant it. A writable root is writable below its
// directories only, since a rule on the root itself would hold for /proc and /sys too. So no
// process can make a new entry in the root directory.
//
// Signals and abstract sockets are not scoped: each process that is executed in a running
// container has a domain of its own beside that of the first. The namespaces keep them inside.
func (g *granter) landlock(root []string) jail.Landlock {
	l := jail.Landlock{MinABI: 1, Network: g.opensNetwork(g.pol)}
	write := !g.plan.Spec.Root.Readonly
	l.Rules = append(l.Rules, jail.LandlockRule{Path: "/"})
	for _, name := range root {
		dir := "/" + name
		if slices.Contains([]string{procDir, sysDir, devDir}, dir) {
			continue
		}
		l.Rules = append(l.Rules, jail.LandlockRule{Path: dir, Write: write, Exec: true,
			Pipes: write})
	}
	for _, m := range g.plan.Spec.Mounts {
		if rule, ok := kernelRule(m); ok {
			l.Rules = append(l.Rules, rule)
		}
	}
	for _, b := range g.binds {
		l.Rules = append(l.Rules, jail.LandlockRule{Path: b.Target, Write: b.Write, Exec: b.Exec,
			Pipes: b.Write})
	}
	if g.plan.Module {
		// A module's engine has a rule of its own, and modules execute nothing.
		for i := range l.Rules {
			l.Rules[i].Exec = false
		}
	}
	return l
}

// kernelRule returns the rule of a mount that is not a bind. proc and sysfs are read-only.
func kernelRule(m specs.Mount) (jail.LandlockRule, bool) {
	switch m.Type {
	case "tmpfs":
		if m.Destination == devDir {
			return jail.LandlockRule{Path: devDir, Write: true, Device: true}, true
		}
		write := !slices.Contains(m.Options, "ro")
		return jail.LandlockRule{Path: m.Destination, Write: write, Pipes: write,
			Exec: !slices.Contains(m.Options, "noexec")}, true
	case "devpts":
		return jail.LandlockRule{Path: m.Destination, Write: true, Device: true}, true
	}
	return jail.LandlockRule{}, false
}

// opensNetwork reports whether Landlock leaves TCP unrestricted and the network namespace alone
// bounds it: if pol grants the loopback group and the program is no module.
func (g *granter) opensNetwork(pol policy.Policy) bool {
	return pol.Syscalls.Has(policy.GroupLoopback) && !g.plan.Module
}

// ceiling sets the layers of the ceiling, as jail.NewCeiling does for a run: it looks up what the
// ceiling grants on each bind, and grants the image.
func (g *granter) ceiling() {
	c, ok := g.eff.Ceiling()
	if !ok {
		return
	}
	l := jail.Landlock{MinABI: 1, Network: g.opensNetwork(c)}
	own := g.plan.Landlock.Rules[:len(g.plan.Landlock.Rules)-len(g.binds)]
	l.Rules = slices.Clone(own)
	for _, b := range g.binds {
		rule := jail.LandlockRule{Path: b.Target}
		grants := func(r policy.Rights) bool {
			return policy.Mounts{{Source: b.Source, Target: b.Target, Access: r}}.LessEq(c.Mounts)
		}
		rule.Write, rule.Exec = grants(policy.Write), grants(policy.Exec)
		rule.Pipes = rule.Write
		l.Rules = append(l.Rules, rule)
	}
	g.plan.Ceiling = &jail.Ceiling{Policy: c.Digest(), Landlock: l,
		Filter: seccomp.NewOuterFilter(append(jail.CeilingGroups(c), "init")...)}
}
