// Package outer puts the jail of a plan into the sandbox of another maker. An adapter writes the
// plan as an OCI bundle (runtime-spec, config.json) and says with which arguments the runtime makes
// the container of it; bubblewrap knows no bundles and gets the plan in its arguments. jail-shim
// starts the runtime. The control group, the root and every mount of
// the host are made before, as for any jail, so that no runtime decides what is visible inside.
package outer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/policy"
)

// A Place is what a bundle needs of the host beside the plan.
type Place struct {
	// Root is the directory on which the jail's root is mounted.
	Root string
	// UserNS is a path of the user namespace that was made for the jail.
	UserNS string
	// Args and Env are of jail-init.
	Args, Env []string
}

// A Bundle is a directory with a config.json, below a directory of the run's own.
type Bundle struct {
	// Dir holds config.json and what the runtime keeps.
	Dir string
	ID  string
	// Files is the number of descriptors that jail-init gets from 3 on.
	Files int
}

// PIDFile is where the runtime writes the process of the container.
func (b Bundle) PIDFile() string { return filepath.Join(b.Dir, "pid") }

// LogFile is where the runtime writes what failed.
func (b Bundle) LogFile() string { return filepath.Join(b.Dir, "log") }

func (b Bundle) state() string { return filepath.Join(b.Dir, "state") }

// Write writes config.json.
func (b Bundle) Write(spec *specs.Spec) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Dir, "config.json"), text, 0o600)
}

// An Adapter speaks to one runtime.
type Adapter interface {
	// Config returns the plan in the words of the runtime-spec. It looks at nothing but its
	// arguments.
	Config(p jail.Plan, at Place) (*specs.Spec, error)
	// Create returns the arguments that make the container.
	Create(Bundle) []string
	// Start returns the arguments that let a made container run, or nil if Create runs it and ends
	// with it.
	Start(Bundle) []string
	// Delete returns the arguments that remove what is left of the container.
	Delete(Bundle) []string
	// MakesGroup reports whether the runtime makes the control group of the plan. The others are
	// started in it.
	MakesGroup() bool
	// Unified reports whether the runtime refuses to work where it sees control groups of version 1.
	Unified() bool
}

// GateArg is the argument with which jail-shim executes itself to become a runtime. Gated has the
// others.
const GateArg = "gate"

// UnifiedView is the argument for a runtime that is to see control groups of version 2 alone.
const UnifiedView = "unified"

// Gated returns the arguments with which jail-shim becomes the program path: only once the parent has
// written to the descriptor gate, or at once, where gate is -1.
func Gated(gate int, unified bool, path string, args []string) []string {
	view := "as it is"
	if unified {
		view = UnifiedView
	}
	return append([]string{"jail-shim", GateArg, strconv.Itoa(gate), view, path}, args...)
}

// For returns the adapter of an outer layer that takes an OCI bundle.
func For(layer string) (Adapter, error) {
	switch layer {
	case policy.OuterCrun:
		return crun{}, nil
	case policy.OuterRunc:
		return runc{}, nil
	case policy.OuterRunsc:
		return runsc{}, nil
	}
	return nil, fmt.Errorf("there is no adapter for outer layer %q", layer)
}

type runc struct{}

func (runc) MakesGroup() bool { return true }
func (runc) Unified() bool    { return false }

func (runc) Config(p jail.Plan, at Place) (*specs.Spec, error) {
	spec, err := HostKernel(p, at)
	if err != nil {
		return nil, err
	}
	spec.Linux.CgroupsPath = p.Cgroup.Path
	spec.Linux.Resources, err = Resources(p)
	return spec, err
}

func (runc) Create(b Bundle) []string {
	return []string{"--root", b.state(), "--log", b.LogFile(), "create", "--bundle", b.Dir,
		"--pid-file", b.PIDFile(), "--preserve-fds", strconv.Itoa(b.Files), b.ID}
}

func (runc) Start(b Bundle) []string {
	return []string{"--root", b.state(), "--log", b.LogFile(), "start", b.ID}
}

func (runc) Delete(b Bundle) []string {
	return []string{"--root", b.state(), "--log", b.LogFile(), "delete", "--force", b.ID}
}

type crun struct{}

func (crun) MakesGroup() bool { return false }

// Config binds what is mounted below /dev once more, each by itself: in a user namespace crun 1.8
// takes a bind without the mounts below it.
func (crun) Config(p jail.Plan, at Place) (*specs.Spec, error) {
	spec, err := HostKernel(p, at)
	if err != nil {
		return nil, err
	}
	var below []string
	for _, name := range p.Devices {
		below = append(below, "/dev/"+name)
	}
	for _, m := range p.Mounts {
		if m.Kind == jail.MountTmpfs && strings.HasPrefix(m.Target, "/dev/") {
			below = append(below, m.Target)
		}
	}
	for _, target := range below {
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: target, Type: "bind",
			Source: filepath.Join(at.Root, target), Options: []string{"bind"}})
	}
	return spec, nil
}

// Unified is true although jail makes the groups: crun looks at them and refuses hybrid ones.
func (crun) Unified() bool { return true }

func (c crun) Create(b Bundle) []string {
	return append(c.global(b), "create", "--bundle", b.Dir, "--pid-file", b.PIDFile(),
		"--preserve-fds="+strconv.Itoa(b.Files), b.ID)
}

func (c crun) Start(b Bundle) []string  { return append(c.global(b), "start", b.ID) }
func (c crun) Delete(b Bundle) []string { return append(c.global(b), "delete", "--force", b.ID) }

// global leaves the control group to jail: crun 1.8 does not know hybrid hierarchies.
func (crun) global(b Bundle) []string {
	return []string{"--root=" + b.state(), "--log=" + b.LogFile(), "--cgroup-manager=disabled"}
}

type runsc struct{}

func (runsc) Config(p jail.Plan, at Place) (*specs.Spec, error) { return kernelInside(p, at) }
func (runsc) MakesGroup() bool                                  { return false }
func (runsc) Unified() bool                                     { return false }
func (runsc) Start(Bundle) []string                             { return nil }

// Create runs the container in the foreground: runsc has its sandbox end with itself only so.
func (r runsc) Create(b Bundle) []string {
	args := append(r.global(b), "run", "--bundle", b.Dir)
	for i := range b.Files {
		fd := strconv.Itoa(3 + i)
		args = append(args, "--pass-fd", fd+":"+fd)
	}
	return append(args, b.ID)
}

func (r runsc) Delete(b Bundle) []string { return append(r.global(b), "delete", "--force", b.ID) }

func (runsc) global(b Bundle) []string {
	return []string{"--root", b.state(), "--log", b.LogFile(), "--log-format", "json",
		// The only one that needs no rights over the processor; a /dev/kvm that is there may hang.
		"--platform", "systrap", "--network", "none",
		// runsc is started in the group of the jail, which jail made.
		"--ignore-cgroups",
		// The filters of the plan hold in gVisor's kernel, too.
		"--oci-seccomp",
		// What is written goes to the jail's own mounts, which are bounded, and nowhere else.
		"--overlay2", "none",
		// The host changes files of the workspace while the jail runs.
		"--file-access-mounts", "shared"}
}
