// Package outer puts the jail of a plan into the sandbox of another maker. An adapter writes the
// plan as an OCI bundle (runtime-spec, config.json) and says with which arguments the runtime makes
// the container of it; bubblewrap knows no bundles and gets the plan in its arguments. jail-shim
// starts the runtime. The control group, the root and every mount of
// the host are made before, as for any jail, so that no runtime decides what is visible inside.
package outer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
type Adapter struct {
	// Config returns the plan in the words of the runtime-spec. It looks at nothing but its
	// arguments.
	Config func(p jail.Plan, at Place) (*specs.Spec, error)
	// MakesGroup says that the runtime makes the control group of the plan. The others are started
	// in it.
	MakesGroup bool
	// Unified says that the runtime refuses to work where it sees control groups of version 1.
	Unified bool
	// foreground says that the command that makes a container runs it and ends with it.
	foreground bool
	// options are those of every command.
	options []string
}

// command returns the arguments of a command of the runtime.
func (a *Adapter) command(b Bundle, words ...string) []string {
	return slices.Concat([]string{"--root", b.state(), "--log", b.LogFile()}, a.options, words)
}

// Create returns the arguments that make the container.
func (a *Adapter) Create(b Bundle) []string {
	if !a.foreground {
		return a.command(b, "create", "--bundle", b.Dir, "--pid-file", b.PIDFile(),
			"--preserve-fds="+strconv.Itoa(b.Files), b.ID)
	}
	args := a.command(b, "run", "--bundle", b.Dir)
	for i := range b.Files {
		fd := strconv.Itoa(3 + i)
		args = append(args, "--pass-fd", fd+":"+fd)
	}
	return append(args, b.ID)
}

// Start returns the arguments that let a made container run, or nil if Create runs it and ends with
// it.
func (a *Adapter) Start(b Bundle) []string {
	if a.foreground {
		return nil
	}
	return a.command(b, "start", b.ID)
}

// Delete returns the arguments that remove what is left of the container.
func (a *Adapter) Delete(b Bundle) []string { return a.command(b, "delete", "--force", b.ID) }

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
func For(layer string) (*Adapter, error) {
	if a, ok := adapters[layer]; ok {
		return &a, nil
	}
	return nil, fmt.Errorf("there is no adapter for outer layer %q", layer)
}

var adapters = map[string]Adapter{
	policy.OuterRunc: {Config: configRunc, MakesGroup: true},
	// Unified although jail makes the groups: crun looks at them and refuses hybrid ones. crun 1.8
	// does not know hybrid hierarchies, so its option leaves the control group to jail.
	policy.OuterCrun: {Config: configCrun, Unified: true,
		options: []string{"--cgroup-manager=disabled"}},
	// In the foreground: runsc has its sandbox end with itself only so.
	policy.OuterRunsc: {Config: kernelInside, foreground: true,
		options: []string{"--log-format", "json",
			// The only one that needs no rights over the processor; a /dev/kvm that is there may hang.
			"--platform", "systrap", "--network", "none",
			// runsc is started in the group of the jail, which jail made.
			"--ignore-cgroups",
			// The filters of the plan hold in gVisor's kernel, too.
			"--oci-seccomp",
			// What is written goes to the jail's own mounts, which are bounded, and nowhere else.
			"--overlay2", "none",
			// The host changes files of the workspace while the jail runs.
			"--file-access-mounts", "shared"}},
}

func configRunc(p jail.Plan, at Place) (*specs.Spec, error) {
	spec, err := HostKernel(p, at)
	if err != nil {
		return nil, err
	}
	spec.Linux.CgroupsPath = p.Cgroup.Path
	spec.Linux.Resources, err = Resources(p)
	return spec, err
}

// configCrun binds what is mounted below /dev once more, each by itself: in a user namespace crun
// 1.8 takes a bind without the mounts below it.
func configCrun(p jail.Plan, at Place) (*specs.Spec, error) {
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

// BwrapFiles are the numbers of the descriptors that bubblewrap inherits for itself, bwrap(1).
type BwrapFiles struct {
	// UserNS is the user namespace that was made for the jail.
	UserNS int
	// Filter holds the compiled outer filter.
	Filter int
	// Info is where bubblewrap writes the number of the first process.
	Info int
	// Ready is a pipe with one byte in it, which bubblewrap reads when the jail is made.
	Ready int
}

// Bwrap returns the arguments with which bubblewrap starts jail-init. The root holds every mount of
// the plan but proc: bubblewrap cannot hide the processes of others in a proc, so jail-shim mounts
// one of the same process namespace. The first process becomes a child of jail-shim, and nothing of
// bubblewrap is left beside it.
func Bwrap(p jail.Plan, at Place, fds BwrapFiles) ([]string, error) {
	if p.NetworkOf != "" {
		return nil, errors.New("bubblewrap joins no network namespace of another jail")
	}
	fd := strconv.Itoa
	args := []string{"--userns", fd(fds.UserNS)}
	for _, name := range p.Namespaces {
		switch name {
		case "user", "mount":
			// The one is given, and bubblewrap always makes the other.
		case "pid", "net", "ipc", "uts", "cgroup":
			args = append(args, "--unshare-"+string(name))
		default:
			return nil, fmt.Errorf("namespace %q: unknown kind", name)
		}
	}
	if slices.Contains(p.Namespaces, "pid") {
		args = append(args, "--as-pid-1")
	}
	args = append(args, "--new-session",
		"--uid", strconv.FormatUint(uint64(p.IDs.UID), 10),
		"--gid", strconv.FormatUint(uint64(p.IDs.GID), 10),
		"--hostname", p.Hostname, "--cap-drop", "ALL")
	for _, name := range p.Capabilities {
		args = append(args, "--cap-add", name)
	}
	// Its mounts have their rights already, which are locked, and the nodes in it are the plan's.
	args = append(args, "--dev-bind", at.Root, "/", "--remount-ro", "/", "--chdir", "/",
		"--clearenv")
	for _, entry := range at.Env {
		name, value, _ := strings.Cut(entry, "=")
		args = append(args, "--setenv", name, value)
	}
	args = append(args, "--seccomp", fd(fds.Filter), "--info-fd", fd(fds.Info),
		"--block-fd", fd(fds.Ready), "--")
	return append(args, at.Args...), nil
}

// tryBwrap returns the arguments that start the program /init of a root with the argument try.
func tryBwrap(root, init string) []string {
	return []string{"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
		"--as-pid-1", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
		"--ro-bind", root, "/", "--ro-bind", init, "/init", "--proc", "/proc", "--chdir", "/",
		"--", "/init", "try"}
}
