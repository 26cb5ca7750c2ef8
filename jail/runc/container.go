package runc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/cgroups/systemd"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/seccomp"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runc/libcontainer/utils"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"github.com/sirupsen/logrus"

	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

// InitContainer is libcontainer's init stage, which runs in the new container in a second execution
// of jail-oci. It never returns. Unlike a jail, the container outlives its creator.
func InitContainer() { libcontainer.Init() }

// LogTo sends libcontainer's log to f, as JSON or as text, with debug messages if debug is set.
func LogTo(f *os.File, asJSON, debug bool) {
	logrus.SetOutput(f)
	if asJSON {
		logrus.SetFormatter(new(logrus.JSONFormatter))
	}
	if debug {
		logrus.SetLevel(logrus.DebugLevel)
	}
}

// LogError writes an error to that log. hint, if not "", says what to do about it.
func LogError(err error, hint string) {
	fields := logrus.Fields{}
	if hint != "" {
		fields["hint"] = hint
	}
	logrus.WithFields(fields).Error(err)
}

// Containers are the containers of one engine, each in a directory of its own below Root.
type Containers struct {
	// Root is an absolute path.
	Root string
	// Init is the path of jail-init.
	Init string
	// Systemd says that systemd makes the cgroups: cgroupsPath has the form slice:prefix:name.
	Systemd bool
}

// A Container is a container that was created and not yet deleted.
type Container struct {
	all  Containers
	made *libcontainer.Container
	// Plan is the plan that it was made from.
	Plan oci.Plan
}

// ErrNoContainer is returned for an id that no container has.
var ErrNoContainer = libcontainer.ErrNotExist

// planFile is the name of the plan in the directory of a container.
const planFile = "jail-plan.json"

// CreateOptions are the options of the command line for a new container.
type CreateOptions struct {
	NoPivot      bool
	NoNewKeyring bool
}

// Create makes a container without a process and stores its plan. The working directory must be the
// bundle. If a later step fails, the caller must delete the container.
func (c Containers) Create(p oci.Plan, o CreateOptions) (*Container, error) {
	config, err := c.config(p, o)
	if err != nil {
		return nil, err
	}
	made, err := libcontainer.Create(c.Root, p.Container, config)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Root, p.Container, planFile), text, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, made.Destroy())
	}
	return &Container{all: c, made: made, Plan: p}, nil
}

func (c Containers) config(p oci.Plan, o CreateOptions) (*configs.Config, error) {
	if c.Systemd && !systemd.IsRunningSystemd() {
		return nil, errors.New("--systemd-cgroup: systemd does not run on this host: have the engine make " +
			"control groups itself (podman --cgroup-manager cgroupfs, containerd SystemdCgroup = false)")
	}
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{
		CgroupName: p.Container, UseSystemdCgroup: c.Systemd, NoPivotRoot: o.NoPivot,
		NoNewKeyring: o.NoNewKeyring, Spec: &p.Spec})
	if err != nil {
		return nil, err
	}
	// libcontainer would also allow devices of its own.
	rules, err := outer.Devices(p.Devices, true)
	if err != nil {
		return nil, err
	}
	group, err := newGroup("", &specs.LinuxResources{Devices: rules})
	if err != nil {
		return nil, err
	}
	config.Cgroups.Resources.Devices = group.Resources.Devices
	if config.Seccomp != nil {
		letRestrict(config.Seccomp)
	} else if config.Seccomp, err = newSeccomp(p.OuterFilter); err != nil {
		return nil, err
	}
	config.NoNewPrivileges = true
	return config, nil
}

// letRestrict allows the calls by which jail-init restricts itself in the filter of config.json,
// which may refuse them. The inner filter, which jail-init loads last, allows none of them, so the
// image's programs cannot make them.
func letRestrict(s *configs.Seccomp) {
	calls := []string{"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
		"seccomp"}
	s.Syscalls = slices.DeleteFunc(s.Syscalls,
		func(c *configs.Syscall) bool { return slices.Contains(calls, c.Name) })
	for _, name := range calls {
		s.Syscalls = append(s.Syscalls, &configs.Syscall{Name: name, Action: configs.Allow})
	}
}

// Load returns a container that Create has made.
func (c Containers) Load(id string) (*Container, error) {
	made, err := libcontainer.Load(c.Root, id)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(c.Root, id, planFile))
	loaded := &Container{all: c, made: made}
	if err == nil {
		err = json.Unmarshal(text, &loaded.Plan)
	}
	if err != nil {
		return nil, fmt.Errorf("container %s: its plan: %w", id, err)
	}
	return loaded, nil
}

// RemoveRest removes the directory of a container whose creation did not complete.
func (c Containers) RemoveRest(id string) error {
	if id == "" || filepath.Base(id) != id || id == "." || id == ".." {
		return fmt.Errorf("container id %q is none", id)
	}
	return os.RemoveAll(filepath.Join(c.Root, id))
}

// IDs returns the ids of all containers.
func (c Containers) IDs() ([]string, error) {
	entries, err := os.ReadDir(c.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// A Process is a process to start in a container.
type Process struct {
	Spec specs.Process
	// Console is the socket to which the master of its terminal is sent; nil without a terminal.
	Console *os.File
	// Preserved are descriptors that the process gets from 3 on.
	Preserved []*os.File
	// Init is true for the container's first process.
	Init bool
}

// Begin starts a process of the container, with the standard streams of this program or a terminal.
// The first process waits for Start before it executes its program.
func (c *Container) Begin(p Process) (*libcontainer.Process, error) {
	order, err := c.order(p)
	if err != nil {
		return nil, err
	}
	defer order.Close()
	init, err := openInit(c.all.Init)
	if err != nil {
		return nil, err
	}
	defer init.Close()
	first := 3 + len(p.Preserved)
	// The environment of jail-init, not of the program.
	env := []string{"GOTRACEBACK=none", "GOMAXPROCS=2"}
	if !c.Plan.Module {
		env = append(env, "GOGC=off")
	}
	process := &libcontainer.Process{
		// Executed by its descriptor: the image has no jail-init.
		Args: []string{"/proc/self/fd/" + strconv.Itoa(first), guest.ContainerArg,
			strconv.Itoa(first + 1)},
		Env:             env,
		Cwd:             p.Spec.Cwd,
		UID:             int(p.Spec.User.UID),
		GID:             int(p.Spec.User.GID),
		Capabilities:    &configs.Capabilities{},
		NoNewPrivileges: new(true),
		AppArmorProfile: p.Spec.ApparmorProfile,
		Label:           p.Spec.SelinuxLabel,
		ExtraFiles:      append(slices.Clone(p.Preserved), init, order),
		Init:            p.Init,
		LogLevel:        strconv.Itoa(int(logrus.GetLevel())),
	}
	for _, g := range p.Spec.User.AdditionalGids {
		process.AdditionalGroups = append(process.AdditionalGroups, int(g))
	}
	if s := p.Spec.ConsoleSize; s != nil {
		process.ConsoleWidth, process.ConsoleHeight = uint16(s.Width), uint16(s.Height)
	}
	if process.ConsoleSocket = p.Console; p.Console == nil {
		process.Stdin, process.Stdout, process.Stderr = os.Stdin, os.Stdout, os.Stderr
	}
	if p.Init {
		return process, c.made.Start(process)
	}
	return process, c.made.Run(process)
}

// order returns an in-memory file with the ContainerOrder for jail-init.
func (c *Container) order(p Process) (*os.File, error) {
	plan := c.Plan
	o := guest.ContainerOrder{Rlimits: plan.ProcessRlimits(&p.Spec), Landlock: plan.Landlock,
		Args: p.Spec.Args, Env: p.Spec.Env, Module: plan.Module, Memory: plan.MemoryLimit()}
	if plan.Ceiling != nil {
		o.Ceiling = &plan.Ceiling.Landlock
		outside, err := libseccomp.CompileOutside(plan.Ceiling.Filter)
		if err != nil {
			return nil, err
		}
		o.Filters = append(o.Filters, outside)
	}
	inner, err := libseccomp.Compile(plan.InnerFilter)
	if err != nil {
		return nil, err
	}
	o.Filters = append(o.Filters, inner)
	if !p.Init {
		if o.Root, err = rootOf(c.Pid()); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return sys.MemFile("jail-order", text)
}

func rootOf(pid int) (*guest.RootID, error) {
	root, err := sys.RootOf(pid)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Stat()
	if err != nil {
		return nil, err
	}
	return new(guest.RootIDOf(info)), nil
}

// openInit opens jail-init through a read-only mount, so that a process of the container cannot
// write to it through /proc (CVE-2019-5736).
func openInit(path string) (*os.File, error) {
	f, err := sys.OpenTarget(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return sys.CloneMount(f)
}

// Start lets the first process execute its program.
func (c *Container) Start() error {
	status, err := c.made.Status()
	switch {
	case err != nil:
		return err
	case status == libcontainer.Created:
		return c.made.Exec()
	case status == libcontainer.Stopped:
		return errors.New("cannot start a container that has stopped")
	}
	return errors.New("cannot start an already running container")
}

// CheckBinds returns an error unless the container's file at each target is the source that was
// checked before. Call it before a program of the image runs.
func (c *Container) CheckBinds(pid int, sources map[string]*os.File) error {
	root, err := sys.RootOf(pid)
	if err != nil {
		return err
	}
	defer root.Close()
	for target, source := range sources {
		if err := sameFile(root, target, source); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	return nil
}

func sameFile(root *os.File, target string, source *os.File) error {
	there, err := sys.FollowInRoot(root, target)
	if err != nil {
		return err
	}
	defer there.Close()
	want, err := source.Stat()
	if err != nil {
		return err
	}
	got, err := there.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(want, got) {
		return fmt.Errorf("the source %s has changed while the container was made", source.Name())
	}
	return nil
}

// CheckProgram returns an error if the container, whose first process is pid, does not have the
// program or module of p. It only gives a better message: jail-init looks the program up again
// inside.
func (c *Container) CheckProgram(pid int, p specs.Process) error {
	root, err := sys.RootOf(pid)
	if err != nil {
		return err
	}
	defer root.Close()
	if c.Plan.Module {
		return checkProgram(root, p, isModule)
	}
	return checkProgram(root, p, mayRun)
}

// StartsModule reports whether the program of a process is a WebAssembly module. root is the root
// directory of the image.
func StartsModule(root string, p specs.Process) (bool, error) {
	dir, err := sys.OpenTarget(root)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	return len(p.Args) > 0 && checkProgram(dir, p, isModule) == nil, nil
}

// mayRun returns fs.ErrPermission unless f is a regular file that somebody may execute.
func mayRun(f *os.File) error {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

var errNoModule = errors.New("not a WebAssembly module")

// isModule returns errNoModule unless f, which is open with O_PATH, is a regular file with the
// magic number of a WebAssembly module.
func isModule(f *os.File) error {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errNoModule
	}
	opened, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return err
	}
	defer opened.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(opened, magic); err != nil || string(magic) != "\x00asm" {
		return errNoModule
	}
	return nil
}

// checkProgram looks up the program of a process below root. fits returns an error for a file of
// that name that is not suitable.
func checkProgram(root *os.File, p specs.Process, fits func(*os.File) error) error {
	name := p.Args[0]
	dirs := []string{""}
	if !strings.Contains(name, "/") {
		for _, v := range p.Env {
			if path, ok := strings.CutPrefix(v, "PATH="); ok {
				dirs = strings.Split(path, ":")
			}
		}
	}
	err := fs.ErrNotExist
	for _, dir := range dirs {
		path := filepath.Join("/", dir, name)
		if strings.Contains(name, "/") && !filepath.IsAbs(name) || dir == "." {
			path = filepath.Join(p.Cwd, name)
		}
		f, openErr := sys.FollowInRoot(root, path)
		if openErr != nil {
			err = openErr
			continue
		}
		err = fits(f)
		f.Close()
		if err == nil {
			return nil
		}
	}
	if errors.Is(err, errNoModule) {
		return fmt.Errorf("exec: %q: %w", name, err)
	}
	if len(dirs) > 1 || dirs[0] != "" {
		// The words of runc, which engines look for.
		return fmt.Errorf("exec: %q: executable file not found in $PATH", name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("exec: %q: no such file or directory", name)
	}
	return fmt.Errorf("exec: %q: permission denied", name)
}

// Pid returns the host PID of the first process, or 0 if it has ended.
func (c *Container) Pid() int {
	state, err := c.made.OCIState()
	if err != nil {
		return 0
	}
	return state.Pid
}

// Cgroups returns the directories of the container's cgroup by controller, as oci.Made has them.
func (c *Container) Cgroups() (map[string]string, error) {
	s, err := c.made.State()
	if err != nil {
		return nil, err
	}
	return s.CgroupPaths, nil
}

// State is the output of the command state (runtime-spec).
type State struct {
	Version     string            `json:"ociVersion"`
	ID          string            `json:"id"`
	Pid         int               `json:"pid"`
	Status      string            `json:"status"`
	Bundle      string            `json:"bundle"`
	Rootfs      string            `json:"rootfs"`
	Created     time.Time         `json:"created"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Owner       string            `json:"owner"`
}

// State returns the state of the container.
func (c *Container) State() (State, error) {
	status, err := c.made.Status()
	if err != nil {
		return State{}, err
	}
	s, err := c.made.State()
	if err != nil {
		return State{}, err
	}
	pid := s.InitProcessPid
	if status == libcontainer.Stopped {
		pid = 0
	}
	bundle, annotations := utils.Annotations(s.Config.Labels)
	return State{Version: specs.Version, ID: s.ID, Pid: pid, Status: status.String(), Bundle: bundle,
		Rootfs: s.Config.Rootfs, Created: s.Created, Annotations: annotations, Owner: "root"}, nil
}

// CanExec returns nil if a further process can be started in the container, and otherwise an error
// that says why not. In a paused container the process would wait, frozen, and keep the container
// from ending.
func (c *Container) CanExec() error {
	status, err := c.made.Status()
	switch {
	case err != nil:
		return err
	case status == libcontainer.Stopped:
		return errors.New("cannot exec in a stopped container")
	case status == libcontainer.Created:
		return errors.New("cannot exec in a container that has not been started")
	case status == libcontainer.Paused:
		return errors.New("cannot exec in a paused container")
	}
	return nil
}

// Signal sends a signal to the first process.
func (c *Container) Signal(s syscall.Signal) error { return c.made.Signal(s) }

// ErrNotRunning is returned if the container's process has ended.
var ErrNotRunning = libcontainer.ErrNotRunning

// Processes returns the host PIDs of the container's processes.
func (c *Container) Processes() ([]int, error) { return c.made.Processes() }

// Pause freezes the processes of the container.
func (c *Container) Pause() error { return c.made.Pause() }

// Resume thaws the processes of a paused container.
func (c *Container) Resume() error { return c.made.Resume() }

// Delete removes the container from the host. With force, or if it was never started, Delete kills
// its processes first. It calls ended after they have ended and before it removes the cgroup.
func (c *Container) Delete(force bool, ended func()) error {
	status, err := c.made.Status()
	if err != nil && !force {
		return err
	}
	if status != libcontainer.Stopped || force {
		if status != libcontainer.Created && !force {
			return fmt.Errorf("cannot delete container %s that is not stopped: %s", c.made.ID(), status)
		}
		_ = c.made.Signal(syscall.SIGKILL)
		for range killPatience {
			if c.made.Signal(syscall.Signal(0)) != nil {
				ended()
				return c.destroy()
			}
			time.Sleep(killWait)
		}
		return fmt.Errorf("container %s: its process does not end", c.made.ID())
	}
	ended()
	return c.destroy()
}

// destroy removes the container. A failed poststop hook is only a warning, since nothing of the
// container is left by then (runtime-spec, lifecycle).
func (c *Container) destroy() error {
	err := c.made.Destroy()
	_, left := os.Lstat(filepath.Join(c.all.Root, c.made.ID()))
	if err != nil && errors.Is(left, fs.ErrNotExist) {
		logrus.Warn(err)
		return nil
	}
	return err
}

// Delete waits up to killPatience times killWait for a killed process to end.
const killPatience, killWait = 1000, 10 * time.Millisecond

// SpecVersion is the version of the runtime-spec.
var SpecVersion = specs.Version

// OpenSource opens the source of a bind with O_PATH and returns its path with links resolved. A
// relative path is below the bundle.
func OpenSource(bundle, path string) (f *os.File, real string, err error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(bundle, path)
	}
	if f, err = sys.OpenTarget(path); err != nil {
		return nil, "", err
	}
	if real, err = sys.PathOf(f); err != nil {
		f.Close()
		return nil, "", err
	}
	return f, real, nil
}

// ParseSignal returns the signal for a name, with or without SIG, or a number.
func ParseSignal(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	if s := sys.SignalNumber(name); s != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("signal %q: unknown", name)
}

// Features returns the features of the runtime-spec that jail-oci implements. There are no
// capabilities: a container gets none, whatever config.json says.
func Features(version string) features.Features {
	yes, no := true, false
	return features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specs.Version,
		Hooks: []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart",
			"poststop"},
		MountOptions: []string{"bind", "rbind", "ro", "rro", "rw", "nosuid", "nodev", "noexec", "exec",
			"private", "rprivate", "relatime", "noatime", "strictatime"},
		Linux: &features.Linux{
			Namespaces:      []string{"cgroup", "ipc", "mount", "network", "pid", "user", "uts"},
			Capabilities:    []string{},
			Cgroup:          &features.Cgroup{V1: &yes, V2: &yes, Systemd: &yes, SystemdUser: &no, Rdma: &yes},
			Apparmor:        &features.Apparmor{Enabled: &yes},
			Selinux:         &features.Selinux{Enabled: &yes},
			IntelRdt:        &features.IntelRdt{Enabled: &no},
			MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &no}},
			NetDevices:      &features.NetDevices{Enabled: &no},
			Seccomp: &features.Seccomp{Enabled: &yes, Actions: seccomp.KnownActions(),
				Operators: seccomp.KnownOperators(), Archs: seccomp.KnownArchs(),
				KnownFlags: seccomp.KnownFlags(), SupportedFlags: seccomp.SupportedFlags()},
		},
		Annotations: map[string]string{"jail.version": version},
	}
}
