// Package outer runs a jail inside a third-party sandbox. An adapter writes the plan as an OCI
// bundle (runtime-spec, config.json) and returns the arguments of the runtime; bubblewrap gets the
// plan in its arguments. jail-shim starts the runtime. The cgroup, the root and the mounts of the
// host are made before, as for any jail, so that no runtime decides what is visible inside.
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

// A Place holds what config.json needs besides the plan.
type Place struct {
	// Root is the directory on which the jail's root is mounted.
	Root string
	// UserNS is a path of the user namespace that was made for the jail.
	UserNS string
	// Args and Env are jail-init's arguments and environment.
	Args, Env []string
}

// A Bundle is an OCI bundle: a directory with a config.json, below the run's directory.
type Bundle struct {
	// Dir holds config.json, and the runtime's state and log.
	Dir string
	ID  string
	// Files is the number of descriptors that jail-init gets from 3 on.
	Files int
}

// PIDFile returns the path of the file to which the runtime writes the first process's PID.
func (b Bundle) PIDFile() string { return filepath.Join(b.Dir, "pid") }

// LogFile returns the path of the runtime's log.
func (b Bundle) LogFile() string { return filepath.Join(b.Dir, "log") }

func (b Bundle) state() string { return filepath.Join(b.Dir, "state") }

// Write writes spec to config.json.
func (b Bundle) Write(spec *specs.Spec) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Dir, "config.json"), text, 0o600)
}

// An Adapter knows the configuration and the command line of one runtime.
type Adapter struct {
	// Config returns config.json for a plan. It looks at nothing but its arguments.
	Config func(p jail.Plan, at Place) (*specs.Spec, error)
	// MakesGroup says that the runtime makes the plan's cgroup. Otherwise jail starts the runtime
	// in it.
	MakesGroup bool
	// Unified says that the runtime fails if it sees cgroup v1 hierarchies.
	Unified bool
	// foreground says that the command of Create runs as long as the container.
	foreground bool
	// options are given to every command.
	options []string
}

// command returns the runtime's arguments for a command.
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

// Start returns the arguments that start a created container, or nil if Create has started it.
func (a *Adapter) Start(b Bundle) []string {
	if a.foreground {
		return nil
	}
	return a.command(b, "start", b.ID)
}

// Delete returns the arguments that remove what is left of the container.
func (a *Adapter) Delete(b Bundle) []string { return a.command(b, "delete", "--force", b.ID) }

// GateArg is the first argument of a jail-shim that becomes a runtime. See Gated.
const GateArg = "gate"

// UnifiedView is the argument that makes /sys/fs/cgroup show cgroup v2 only.
const UnifiedView = "unified"

// Gated returns the arguments with which jail-shim executes the program path with args, after its
// parent has written to descriptor gate, or at once if gate is -1. See runc.Gate.
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
	// crun 1.8 refuses hybrid cgroup hierarchies even if it does not make the cgroup. The option
	// leaves the cgroup to jail.
	policy.OuterCrun: {Config: configCrun, Unified: true,
		options: []string{"--cgroup-manager=disabled"}},
	// Only in the foreground does runsc's sandbox end with runsc.
	policy.OuterRunsc: {Config: kernelInside, foreground: true,
		options: []string{"--log-format", "json",
			// The only platform that does not need /dev/kvm, which may hang.
			"--platform", "systrap", "--network", "none",
			// jail starts runsc in the jail's cgroup.
			"--ignore-cgroups",
			// gVisor's kernel enforces the plan's filters too.
			"--oci-seccomp",
			// No overlays of runsc: writes go to the jail's own mounts, which have limits.
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

// configCrun binds every mount below /dev separately: in a user namespace crun 1.8 does not bind
// recursively.
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

// BwrapFiles are the numbers of descriptors that bubblewrap inherits for its own use (bwrap(1)).
type BwrapFiles struct {
	// UserNS is the user namespace that was made for the jail.
	UserNS int
	// Filter holds the compiled outer filter.
	Filter int
	// Info is for --info-fd, to which bubblewrap writes the PID of the first process.
	Info int
	// Ready is for --block-fd: a pipe with one byte, which bubblewrap reads when the jail is made.
	Ready int
}

// Bwrap returns the arguments with which bubblewrap starts jail-init. The root has every mount of
// the plan except proc, which jail-shim mounts because bubblewrap does not support hidepid. The
// first process becomes a child of jail-shim, and bubblewrap is killed.
func Bwrap(p jail.Plan, at Place, fds BwrapFiles) ([]string, error) {
	if p.NetworkOf != "" {
		return nil, errors.New("bubblewrap joins no network namespace of another jail")
	}
	fd := strconv.Itoa
	args := []string{"--userns", fd(fds.UserNS)}
	for _, name := range p.Namespaces {
		switch name {
		case "user", "mount":
			// The user namespace is given, and bubblewrap always makes a mount namespace.
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
	// The mounts in the root have their flags already, which are locked. --dev-bind keeps device
	// nodes usable; only the plan's are there.
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

// tryBwrap returns the arguments with which bubblewrap runs init, as /init, with the argument try.
func tryBwrap(root, init string) []string {
	return []string{"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
		"--as-pid-1", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
		"--ro-bind", root, "/", "--ro-bind", init, "/init", "--proc", "/proc", "--chdir", "/",
		"--", "/init", "try"}
}
