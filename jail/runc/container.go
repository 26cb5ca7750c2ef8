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

// InitContainer is the second life of a program that makes containers, inside. It never returns. The
// container outlives its maker, unlike a jail.
func InitContainer() { libcontainer.Init() }

// LogTo has libcontainer write what it notes to a file, as JSON or as text.
func LogTo(f *os.File, asJSON, debug bool) {
	logrus.SetOutput(f)
	if asJSON {
		logrus.SetFormatter(new(logrus.JSONFormatter))
	}
	if debug {
		logrus.SetLevel(logrus.DebugLevel)
	}
}

// LogError writes the failure of a command to that file, and what to do about it unless hint is "".
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
	// Systemd says that cgroupsPath is of the form slice:prefix:name, for systemd to make.
	Systemd bool
}

// A Container is one that was created and not deleted yet.
type Container struct {
	all  Containers
	made *libcontainer.Container
	// Plan is what it was made from.
	Plan oci.Plan
}

// ErrNoContainer says that there is no container of a name.
var ErrNoContainer = libcontainer.ErrNotExist

// planFile is the name of the plan in the directory of a container.
const planFile = "jail-plan.json"

// CreateOptions are what the command line says of a new container.
type CreateOptions struct {
	NoPivot      bool
	NoNewKeyring bool
}

// Create makes a container whose process waits for Start. The working directory is the bundle's. The
// caller must delete the container on error of what follows.
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
	// libcontainer allows devices of its own besides.
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

// letRestrict lets jail-init restrict itself behind the filter of config.json: older ones refuse what
// they do not know. The inner filter, which jail-init loads last, has none of these calls, so nothing
// of the image can make them.
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

// RemoveRest removes what is left of a container that was never made as a whole.
func (c Containers) RemoveRest(id string) error {
	if id == "" || filepath.Base(id) != id || id == "." || id == ".." {
		return fmt.Errorf("container id %q is none", id)
	}
	return os.RemoveAll(filepath.Join(c.Root, id))
}

// IDs lists the containers there are.
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

// A Process is one that is started in a container.
type Process struct {
	Spec specs.Process
	// Console is the socket that the other end of its terminal is sent over; nil without a
	// terminal.
	Console *os.File
	// Preserved are descriptors that the process has above the standard streams.
	Preserved []*os.File
	// Init says that it is the first one.
	Init bool
}

// Begin makes a process of the container, with the standard streams of this program or a terminal. The
// first one waits for Start.
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
	// Of jail-init, not of the program.
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

// order is what jail-init is told.
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

// openInit opens jail-init by a mount that is read-only for good: what a process of the container
// finds of it in /proc leads to no writing (CVE-2019-5736).
func openInit(path string) (*os.File, error) {
	f, err := sys.OpenTarget(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return sys.CloneMount(f)
}

// Start lets the first process go on to its program.
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

// CheckBinds returns an error unless what the container has at the place of each bind is the file
// that was looked at. Nothing of the image runs yet.
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

// CheckProgram returns an error if a container, whose first process has the number pid, has no such
// program or module. It is for the message: jail-init finds the program once more, inside.
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

// StartsModule reports whether the program of a process is a WebAssembly module, where root is the
// directory of the image.
func StartsModule(root string, p specs.Process) (bool, error) {
	dir, err := sys.OpenTarget(root)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	return len(p.Args) > 0 && checkProgram(dir, p, isModule) == nil, nil
}

// mayRun returns fs.ErrPermission for a file that nobody may execute.
func mayRun(f *os.File) error {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fs.ErrPermission
	}
	return nil
}

var errNoModule = errors.New("not a WebAssembly module")

// isModule returns errNoModule for a file that does not begin as a WebAssembly module does. f is open
// with O_PATH.
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

// checkProgram looks for the program of a process in a root directory. fits returns what is wrong with a
// file that has its name.
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
		// As runc, whose words engines look for.
		return fmt.Errorf("exec: %q: executable file not found in $PATH", name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("exec: %q: no such file or directory", name)
	}
	return fmt.Errorf("exec: %q: permission denied", name)
}

// Pid is the number of the first process, 0 if it has ended.
func (c *Container) Pid() int {
	state, err := c.made.OCIState()
	if err != nil {
		return 0
	}
	return state.Pid
}

// Cgroups are the directories of the container's control group by controller, as oci.Made has them.
func (c *Container) Cgroups() (map[string]string, error) {
	s, err := c.made.State()
	if err != nil {
		return nil, err
	}
	return s.CgroupPaths, nil
}

// State is what `state` prints.
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

// CanExec returns an error that says why no further process can be started in the container, or
// nil. In a paused container the process would wait, frozen, and keep the container from ending.
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

// ErrNotRunning says that the container's process has ended.
var ErrNotRunning = libcontainer.ErrNotRunning

// Processes are the numbers of the container's processes on the host.
func (c *Container) Processes() ([]int, error) { return c.made.Processes() }

// Pause freezes the processes of the container, and Resume lets them go on.
func (c *Container) Pause() error { return c.made.Pause() }

// Resume is described at Pause.
func (c *Container) Resume() error { return c.made.Resume() }

// Delete removes what the host has of the container. With force, or if it was never started, its
// processes are killed first. ended is called once they have ended, while the control group is there.
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

// destroy removes the container. A hook poststop that fails is a warning (runtime-spec, lifecycle):
// nothing of the container is left by then.
func (c *Container) destroy() error {
	err := c.made.Destroy()
	_, left := os.Lstat(filepath.Join(c.all.Root, c.made.ID()))
	if err != nil && errors.Is(left, fs.ErrNotExist) {
		logrus.Warn(err)
		return nil
	}
	return err
}

// How long a process may take to end that was killed.
const killPatience, killWait = 1000, 10 * time.Millisecond

// SpecVersion is that of the runtime-spec.
var SpecVersion = specs.Version

// OpenSource opens what a bind shows, to be named by its descriptor, and returns its path without
// links. A relative path is beneath the bundle.
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

// ParseSignal returns the signal of a name, with or without SIG, or of a number.
func ParseSignal(name string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n <= 64 {
		return syscall.Signal(n), nil
	}
	if s := sys.SignalNumber(name); s != 0 {
		return s, nil
	}
	return 0, fmt.Errorf("signal %q: unknown", name)
}

// Features says what of the runtime-spec jail-oci carries out. Capabilities are none: a container
// gets no capability, whichever config.json names.
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
