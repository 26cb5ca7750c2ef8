package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail/oci"
	"github.com/jail-sandbox/jail/jail/runc"
)

// ioFlags are the flags of every command that starts a process.
type ioFlags struct {
	pidFile, console string
	preserve         int
	detach           bool
}

func (f *ioFlags) add(flags *flag.FlagSet) {
	flags.StringVar(&f.pidFile, "pid-file", "", "")
	flags.StringVar(&f.console, "console-socket", "", "")
	flags.IntVar(&f.preserve, "preserve-fds", 0, "")
}

func (f *ioFlags) addDetach(flags *flag.FlagSet) {
	flags.BoolVar(&f.detach, "detach", false, "")
	flags.BoolVar(&f.detach, "d", false, "")
}

// process returns the process to start, with its descriptors. Call done to close them after the
// start.
func (f *ioFlags) process(spec specs.Process, init bool) (p runc.Process, done func(), err error) {
	p, done = runc.Process{Spec: spec, Init: init}, func() {}
	switch {
	case spec.Terminal && f.console == "":
		return p, done, errors.New("process.terminal needs --console-socket")
	case !spec.Terminal && f.console != "":
		return p, done, errors.New("--console-socket is for a process with process.terminal")
	}
	for fd := 3; fd < 3+f.preserve; fd++ {
		if _, err := os.Stat("/proc/self/fd/" + strconv.Itoa(fd)); err != nil {
			return p, done, fmt.Errorf("--preserve-fds %d: descriptor %d is not open", f.preserve, fd)
		}
		p.Preserved = append(p.Preserved, os.NewFile(uintptr(fd), "preserved"))
	}
	if f.console == "" {
		return p, done, nil
	}
	conn, err := net.Dial("unix", f.console)
	if err != nil {
		return p, done, fmt.Errorf("--console-socket: %w", err)
	}
	defer conn.Close()
	if p.Console, err = conn.(*net.UnixConn).File(); err != nil {
		return p, done, err
	}
	return p, func() { p.Console.Close() }, nil
}

// writePid atomically writes the PID to the file of --pid-file, if given.
func (f *ioFlags) writePid(pid int) error {
	if f.pidFile == "" {
		return nil
	}
	fresh := filepath.Join(filepath.Dir(f.pidFile), "."+filepath.Base(f.pidFile))
	if err := os.WriteFile(fresh, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("--pid-file: %w", err)
	}
	return os.Rename(fresh, f.pidFile)
}

type createFlags struct {
	ioFlags
	bundle  string
	options runc.CreateOptions
	// keep makes run keep the container after its end.
	keep bool
}

func (f *createFlags) parse(name string, args []string) (id string, err error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	f.add(flags)
	if name == "run" {
		f.addDetach(flags)
		flags.Bool("no-subreaper", false, "")
		flags.BoolVar(&f.keep, "keep", false, "")
	}
	flags.StringVar(&f.bundle, "bundle", ".", "")
	flags.StringVar(&f.bundle, "b", ".", "")
	flags.BoolVar(&f.options.NoPivot, "no-pivot", false, "")
	flags.BoolVar(&f.options.NoNewKeyring, "no-new-keyring", false, "")
	rest, err := parse(flags, args, 1)
	if err != nil {
		return "", err
	}
	if f.pidFile != "" {
		if f.pidFile, err = filepath.Abs(f.pidFile); err != nil {
			return "", err
		}
	}
	if f.console != "" {
		if f.console, err = filepath.Abs(f.console); err != nil {
			return "", err
		}
	}
	return rest[0], nil
}

func create(g global, args []string) (int, error) {
	var f createFlags
	id, err := f.parse("create", args)
	if err != nil {
		return 0, err
	}
	_, err = f.make(g, id)
	return 0, err
}

// made is a created container, whose process waits for Start.
type made struct {
	container *runc.Container
	wait      func() (*os.ProcessState, error)
}

func (m made) ended() { reportDeleted(m.container.Plan) }

// make requests a plan from jaild and makes the container. On error nothing of it is left.
func (f *createFlags) make(g global, id string) (m made, err error) {
	// libcontainer takes the bundle from the working directory.
	if err := os.Chdir(f.bundle); err != nil {
		return m, fmt.Errorf("bundle: %w", err)
	}
	bundle, err := os.Getwd()
	if err != nil {
		return m, err
	}
	if _, err := os.Lstat(filepath.Join(g.containers.Root, id)); err == nil {
		return m, fmt.Errorf("container %s exists already", id)
	}
	r, sources, err := request(id, bundle)
	if err != nil {
		return m, err
	}
	defer sources.close()
	plan, err := askPlan(r)
	if err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, report(plan, oci.Made{Error: err.Error()}))
		}
	}()
	if err := os.MkdirAll(g.containers.Root, 0o711); err != nil {
		return m, err
	}
	process, done, err := f.process(*plan.Spec.Process, true)
	if err != nil {
		return m, err
	}
	defer done()
	if m.container, err = g.containers.Create(plan, f.options); err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.container.Delete(true, m.ended))
		}
	}()
	started, err := m.container.Begin(process)
	if err != nil {
		return m, err
	}
	m.wait = started.Wait
	pid, err := started.Pid()
	if err != nil {
		return m, err
	}
	if err := ownNamespaces(pid); err != nil {
		return m, err
	}
	if err := m.container.CheckBinds(pid, sources); err != nil {
		return m, err
	}
	if err := m.container.CheckProgram(pid, *plan.Spec.Process); err != nil {
		return m, err
	}
	cgroups, err := m.container.Cgroups()
	if err != nil {
		return m, err
	}
	// From here on jaild records the end itself.
	if err := report(plan, oci.Made{PID: pid, Cgroups: cgroups}); err != nil {
		return m, err
	}
	return m, f.writePid(pid)
}

// ownNamespaces returns an error if process pid shares a namespace with jail-oci, that is with the
// host: the path of a joined namespace may lead there.
func ownNamespaces(pid int) error {
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		has, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		host, hostErr := os.Readlink("/proc/self/ns/" + kind)
		if err := errors.Join(err, hostErr); err != nil {
			return err
		}
		if has == host {
			return fmt.Errorf("namespace %s: the container would have the host's", kind)
		}
	}
	return nil
}

// sources maps the targets of binds to their open sources.
type sources map[string]*os.File

func (s sources) close() {
	for _, f := range s {
		f.Close()
	}
}

// request reads config.json of a bundle, opens the sources of its binds and returns the request for
// jaild.
func request(id, bundle string) (r oci.Request, opened sources, err error) {
	r = oci.Request{Container: id, Bundle: bundle}
	text, err := os.ReadFile("config.json")
	if err != nil {
		return r, nil, err
	}
	if err := json.Unmarshal(text, &r.Spec); err != nil {
		return r, nil, fmt.Errorf("config.json: %w", err)
	}
	if r.Spec.Root == nil || r.Spec.Root.Path == "" {
		return r, nil, errors.New("config.json: root.path is missing")
	}
	if r.Spec.Root.Path, err = rootOf(bundle, r.Spec.Root.Path); err != nil {
		return r, nil, err
	}
	if r.Root, err = rootNames(r.Spec.Root.Path); err != nil {
		return r, nil, err
	}
	if r.Spec.Process != nil {
		if r.Module, err = runc.StartsModule(r.Spec.Root.Path, *r.Spec.Process); err != nil {
			return r, nil, err
		}
	}
	opened = sources{}
	for i, m := range r.Spec.Mounts {
		if !oci.IsBind(m) {
			continue
		}
		f, real, err := runc.OpenSource(bundle, m.Source)
		if err != nil {
			opened.close()
			return r, nil, fmt.Errorf("mount %s of config.json: source: %w", m.Destination, err)
		}
		if other := opened[m.Destination]; other != nil {
			other.Close()
		}
		r.Spec.Mounts[i].Source, opened[m.Destination] = real, f
	}
	return r, opened, nil
}

// rootOf returns the path of the container's root. A link, or the host's root, is an error.
func rootOf(bundle, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(bundle, path)
	}
	path = filepath.Clean(path)
	info, err := os.Lstat(path)
	if err != nil {
		return "", fmt.Errorf("root.path of config.json: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("root.path of config.json: %s is no directory, but %s", path,
			info.Mode().Type())
	}
	host, err := os.Stat("/")
	if err != nil {
		return "", err
	}
	if os.SameFile(info, host) {
		return "", fmt.Errorf("root.path of config.json: %s is the root of the host", path)
	}
	return path, nil
}

// rootNames returns the directories and files in the root of an image, without links.
func rootNames(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("root.path of config.json: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() || e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// runContainer is the command run: it creates and starts a container and waits for its end.
func runContainer(g global, args []string) (int, error) {
	var f createFlags
	id, err := f.parse("run", args)
	if err != nil {
		return 0, err
	}
	if f.console != "" && !f.detach {
		return 0, misused("run: --console-socket needs --detach")
	}
	m, err := f.make(g, id)
	if err != nil {
		return 0, err
	}
	if err := m.container.Start(); err != nil {
		return 0, errors.Join(err, m.container.Delete(true, m.ended))
	}
	if f.detach {
		return 0, nil
	}
	forwarded := make(chan os.Signal, 64)
	signal.Notify(forwarded)
	go func() {
		for s := range forwarded {
			if s := s.(syscall.Signal); s != syscall.SIGCHLD && s != syscall.SIGURG {
				_ = m.container.Signal(s)
			}
		}
	}()
	state, err := m.wait()
	code := exitCode(state)
	if state == nil {
		return code, errors.Join(err, m.container.Delete(true, m.ended))
	}
	if f.keep {
		return code, nil
	}
	return code, m.container.Delete(false, m.ended)
}

// exitCode returns the exit code of a process, or 128 plus the number of its signal.
func exitCode(state *os.ProcessState) int {
	if state == nil {
		return exitFailed
	}
	if s := state.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal())
	}
	return state.ExitCode()
}

// words is a flag.Value that collects the values of a repeated flag.
type words []string

func (w *words) String() string { return strings.Join(*w, " ") }

func (w *words) Set(v string) error {
	*w = append(*w, v)
	return nil
}
