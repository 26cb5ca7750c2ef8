package jail

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/paths"
)

// An Outer is a third-party sandbox around the jail. Its runtime starts jail-init in place of
// libcontainer, in the cgroup, the root and the mounts that jail made.
type Outer struct {
	// Layer is its name, as in policies: bwrap, crun, runc, runsc.
	Layer   string  `json:"layer"`
	Runtime Runtime `json:"runtime"`
	// Memory and PIDs are the part of the cgroup's limits for the layer itself, in bytes and tasks.
	Memory int64 `json:"memory,omitempty"`
	PIDs   int64 `json:"pids,omitempty"`
	// Instead names what replaces each layer of the jail that is missing inside.
	Instead []Instead `json:"instead,omitempty"`
}

// A Runtime is the program of an outer layer on the host.
type Runtime struct {
	Path string `json:"path"`
	// Version is the first line of the program's --version.
	Version string `json:"version"`
	// Digest is the digest of the program, "sha256:" and hex.
	Digest string `json:"digest"`
}

// An Instead is a missing layer and what replaces it.
type Instead struct {
	Layer string `json:"layer"`
	By    string `json:"by"`
}

// What gVisor needs for itself inside the jail's control group.
const (
	// Bytes: its kernel, and the process that opens files for it.
	runscMemory = 64 << 20
	// Tasks: threads of both, and one more for each process of the tool.
	runscPIDs = 256
)

// ToolMemory returns the tool's part of the cgroup's memory limit in bytes, or -1 without a limit.
func (p Plan) ToolMemory() int64 {
	if p.Outer != nil && p.Cgroup.Memory > 0 {
		return p.Cgroup.Memory - p.Outer.Memory
	}
	return p.Cgroup.Memory
}

// KernelInside reports whether the jail has a kernel of its own (gVisor).
func (p Plan) KernelInside() bool { return p.Outer != nil && p.Outer.Layer == policy.OuterRunsc }

// ByBubblewrap reports whether bubblewrap starts the jail.
func (p Plan) ByBubblewrap() bool { return p.Outer != nil && p.Outer.Layer == policy.OuterBwrap }

// addOuter adds the outer layer that the policy asks for. For gVisor it removes the settings that
// only the host's kernel enforces and lists their replacements. It returns an error if gVisor
// cannot enforce a part of the plan.
func addOuter(p *Plan, pol policy.Policy, r Request) error {
	layer, err := pol.Outer.Choose()
	if err != nil || layer == policy.OuterNone {
		return err
	}
	if r.Runtime == nil {
		return fmt.Errorf("outer layer %s: its runtime was not looked for", layer)
	}
	if r.User != nil {
		return fmt.Errorf("outer layer %s: a user's jail has one id only, which it cannot start with: "+
			"use the daemon of the host, or --outer none", layer)
	}
	p.Outer = &Outer{Layer: layer, Runtime: *r.Runtime}
	if !p.KernelInside() {
		return nil
	}
	if err := heldByMounts(pol, r, *p); err != nil {
		return fmt.Errorf("outer layer %s: %w", layer, err)
	}
	p.Outer.Instead = []Instead{
		{"Landlock", "the view of the mounts, each with its own rights to write and to execute; " +
			"the kernel of gVisor has no Landlock"},
		{"seccomp listener", "the same filters in gVisor's kernel, which refuse with an error and " +
			"tell nobody"},
		{"counts of the user namespace", "gVisor's own namespaces, of which the host's kernel " +
			"sees none"},
		{"filter of system calls to the host", "the filter that gVisor's kernel has on itself"},
	}
	p.Landlock, p.UserCounts = Landlock{}, []UserCount{}
	p.Outer.Memory, p.Outer.PIDs = runscMemory, runscPIDs
	widen := func(c *Cgroup) {
		if c.Memory > 0 {
			c.Memory += runscMemory
		}
		if c.PIDs > 0 {
			c.PIDs += runscPIDs
		}
	}
	widen(&p.Cgroup)
	if p.Ceiling != nil {
		p.Ceiling.Landlock = Landlock{}
		if p.Ceiling.Cgroup != nil {
			c := *p.Ceiling.Cgroup
			widen(&c)
			p.Ceiling.Cgroup = &c
		}
	}
	return nil
}

// heldByMounts returns an error for a plan of which mounts alone cannot enforce a part, which needs
// Landlock or the host's kernel.
func heldByMounts(pol policy.Policy, r Request, p Plan) error {
	switch {
	case r.Image != nil:
		return errors.New("an image is the root of a jail with the host's kernel only: gVisor's " +
			"would have to write to its upper layer from outside; use --outer none")
	case r.Agent != nil:
		return errors.New("agents keep their database apart by Landlock, which it has not")
	case p.FileEvents != "":
		return errors.New("audit.files asks the host's kernel who opens a file, and there it is " +
			"always gVisor: leave audit.files out of the policy")
	}
	if p.Command.Runner != RunnerNative {
		return nil
	}
	var run []string
	for _, m := range p.Mounts {
		if !m.Exec {
			continue
		}
		if !AllMayRun(pol, m.Target) {
			return fmt.Errorf("the policy lets only some programs of mount %s run, which nothing "+
				"but Landlock holds: let all of it run (tools.native %q), or mount the programs "+
				"alone", m.Target, m.Target+"/**")
		}
		run = append(run, m.Target)
	}
	for _, program := range r.Programs {
		if !slices.ContainsFunc(run, func(dir string) bool { return paths.Within(dir, program) }) {
			return fmt.Errorf("program %s lies in no mount of which all may run, and nothing but "+
				"Landlock would let it alone", program)
		}
	}
	return nil
}
