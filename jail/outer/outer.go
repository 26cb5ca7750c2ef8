// Package outer puts the jail of a plan into the sandbox of another maker. An adapter writes the
// plan as an OCI bundle (runtime-spec, config.json) and says with which arguments the runtime makes
// the container of it; jail-shim starts the runtime. The control group, the root and every mount of
// the host are made before, as for any jail, so that no runtime decides what is visible inside.
package outer

import (
	"fmt"
	"path/filepath"
	"strconv"

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

// logFile is where the runtime writes what failed.
func (b Bundle) logFile() string { return filepath.Join(b.Dir, "log") }

func (b Bundle) state() string { return filepath.Join(b.Dir, "state") }

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
}

// For returns the adapter of an outer layer.
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

func (runc) Config(p jail.Plan, at Place) (*specs.Spec, error) { return hostKernel(p, at, true) }
func (runc) MakesGroup() bool                                  { return true }

func (runc) Create(b Bundle) []string {
	return []string{"--root", b.state(), "--log", b.logFile(), "create", "--bundle", b.Dir,
		"--pid-file", b.PIDFile(), "--preserve-fds", strconv.Itoa(b.Files), b.ID}
}

func (runc) Start(b Bundle) []string {
	return []string{"--root", b.state(), "--log", b.logFile(), "start", b.ID}
}

func (runc) Delete(b Bundle) []string {
	return []string{"--root", b.state(), "--log", b.logFile(), "delete", "--force", b.ID}
}

type crun struct{}

func (crun) Config(p jail.Plan, at Place) (*specs.Spec, error) { return hostKernel(p, at, false) }
func (crun) MakesGroup() bool                                  { return false }

func (c crun) Create(b Bundle) []string {
	return append(c.global(b), "create", "--bundle", b.Dir, "--pid-file", b.PIDFile(),
		"--preserve-fds="+strconv.Itoa(b.Files), b.ID)
}

func (c crun) Start(b Bundle) []string  { return append(c.global(b), "start", b.ID) }
func (c crun) Delete(b Bundle) []string { return append(c.global(b), "delete", "--force", b.ID) }

// global leaves the control group to jail: crun 1.8 does not know hybrid hierarchies.
func (crun) global(b Bundle) []string {
	return []string{"--root=" + b.state(), "--log=" + b.logFile(), "--cgroup-manager=disabled"}
}

type runsc struct{}

func (runsc) Config(p jail.Plan, at Place) (*specs.Spec, error) { return kernelInside(p, at) }
func (runsc) MakesGroup() bool                                  { return false }
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
	return []string{"--root", b.state(), "--log", b.logFile(), "--log-format", "json",
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
