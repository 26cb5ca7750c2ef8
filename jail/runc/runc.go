// Package runc carries a plan out with libcontainer, of a jail or of an OCI container. It is linked
// only into jail-shim and jail-oci, small processes of one jail each, because the library executes
// the calling binary anew at each start and moves the caller's threads between mount namespaces.
package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/moby/sys/capability"
	// Device rules: without it they are refused.
	_ "github.com/opencontainers/cgroups/devices"
	"github.com/opencontainers/runc/libcontainer"
	// The first stage, in C, before the Go runtime.
	_ "github.com/opencontainers/runc/libcontainer/nsenter"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/paths"
)

// InitArg is the first argument with which libcontainer executes the shim again, inside the new
// namespaces.
const InitArg = "init"

// Init is the second life of the shim, inside. It never returns. The number of the last capability
// is asked for now, and remembered by the library that needs it: the jail's own proc shows
// processes only and would not tell.
//
// It ends with its parent from here on: libcontainer sets that for the first of the processes that
// it makes, of which this is a child's child, but keeps what it finds through the change of ids
// that would clear it.
func Init() {
	_, err := capability.LastCap()
	if err = errors.Join(err, sys.DieWithParent()); err != nil {
		fmt.Fprintln(os.Stderr, "jail-shim:", err)
		os.Exit(125)
	}
	libcontainer.Init()
}

// A Jail is a jail that stands, with jail-init waiting in it for its restrictions.
type Jail struct {
	PID  int
	held holder

	// Where the jail's mounts are in the mount namespace of the thread that started it.
	root string
	plan jail.Plan
	// later is the user namespace for what Attach brings, until then.
	later *os.File
	// shadow is the mounted shadow. What is at its path is for tools to change, if that leads
	// through a tmpfs.
	shadow *os.File
	// What the programs see of the machine; nil where the plan has nothing of it.
	shown *shown
}

// A holder is what started the first process of a jail, and removes what is left of it.
type holder interface {
	kill() error
	// wait waits for the first process.
	wait() (syscall.WaitStatus, error)
	// groups are the directories of the jail's control groups, by the name of the controller.
	groups() map[string]string
	remove() error
	// explain returns what is known of a failure of its own, after ": ", or nothing.
	explain() string
}

// A contained is a jail that libcontainer has started.
type contained struct {
	container *libcontainer.Container
	process   *libcontainer.Process
}

func (c contained) kill() error     { return c.container.Signal(syscall.SIGKILL) }
func (c contained) remove() error   { return c.container.Destroy() }
func (c contained) explain() string { return "" }

func (c contained) wait() (syscall.WaitStatus, error) { return statusOf(c.process.Wait()) }

// statusOf returns the status of a process that was waited for.
func statusOf(state *os.ProcessState, err error) (syscall.WaitStatus, error) {
	if state == nil {
		return 0, err
	}
	return state.Sys().(syscall.WaitStatus), nil
}

func (c contained) groups() map[string]string {
	state, err := c.container.State()
	if err != nil {
		return nil
	}
	return state.CgroupPaths
}

// Files are the descriptors that a plan needs, opened by the daemon.
type Files struct {
	// In, Out and Err are the tool's streams.
	In, Out, Err *os.File
	Control      *os.File // jail-init's control socket
	// and its socket for the listener of the inner filter
	Listener *os.File
	Lower    *os.File // the workspace's real directory
	// the detached mount of its upper layer
	Upper *os.File
	// Frozen are the detached mounts of its frozen layers, the newest first.
	Frozen []*os.File
	// The network namespace of the plan's NetworkOf.
	Network *os.File
	// Sources of the plan's binds, in order.
	Binds []*os.File
	// Passed are for jail-init from the start, behind its sockets, where no descriptor can be sent.
	Passed []*os.File
}

// A LayerError says which layer could not be set up.
type LayerError struct {
	Layer string
	Err   error
}

func (e *LayerError) Error() string { return e.Layer + ": " + e.Err.Error() }
func (e *LayerError) Unwrap() error { return e.Err }

func layer(name string, err error) error {
	if err == nil {
		return nil
	}
	return &LayerError{name, err}
}

// Start sets up every layer of the order's plan, in a mount namespace of the calling thread's own,
// and starts jail-init. The caller must have locked its main thread. On error nothing is left but
// the run's directory. The end of ctx is an error: Start then kills what it has started. The
// calling process must have no other children.
func Start(ctx context.Context, o control.Order, files Files) (*Jail, error) {
	if err := layer("mount", sys.PrivateMounts()); err != nil {
		return nil, err
	}
	if err := layer("namespaces", checkNetwork(o.Plan, files.Network)); err != nil {
		return nil, err
	}
	var userns *os.File
	err := interruptible(ctx, 0, func() (err error) {
		userns, err = sys.NewUserNS(userNS(o.Plan))
		return err
	})
	if err != nil {
		if userns != nil {
			userns.Close()
		}
		return nil, layer("user namespace", err)
	}
	kept := false
	defer func() {
		if !kept {
			userns.Close()
		}
	}()
	root, err := rootPath(o.RunDir)
	if err != nil {
		return nil, layer("mount", err)
	}
	initBinary, err := os.Open(o.InitPath)
	if err != nil {
		return nil, layer("mount", err)
	}
	defer initBinary.Close()
	if err := layer("mount", buildRoot(root, o, files, initBinary, userns)); err != nil {
		return nil, err
	}
	if err := layer("workspace", attachWorkspace(root, o, files, userns)); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	shadow, err := openShadow(root, o)
	if err != nil {
		return nil, layer("workspace", err)
	}
	j, err := start(ctx, o, root, files, userns)
	if err != nil {
		shadow.Close()
		return nil, err
	}
	j.root, j.plan, j.shadow = root, o.Plan, shadow
	if err := layer("mount", j.showMachine()); err != nil {
		_ = j.Kill()
		_, waitErr := j.Wait()
		return nil, errors.Join(err, waitErr, j.Remove())
	}
	if o.Later {
		j.later, kept = userns, true
	}
	return j, nil
}

// openShadow opens the shadow to be named by its descriptor, before any tool can change what leads
// to it. It returns nil if the jail has no shadow of its own yet.
func openShadow(root string, o control.Order) (*os.File, error) {
	w := o.Plan.Workspace
	if w == nil || !w.Shadow || o.Later || slices.Contains(o.Shared, w.Target) {
		return nil, nil
	}
	return sys.OpenTarget(filepath.Join(root, w.Target))
}

func attachWorkspace(root string, o control.Order, files Files, userns *os.File) error {
	p := o.Plan
	if p.Workspace == nil {
		return nil
	}
	target := filepath.Join(root, p.Workspace.Target)
	if slices.ContainsFunc(p.Mounts, func(m jail.Mount) bool {
		return isShared(o, m) && paths.Within(m.Target, p.Workspace.Target)
	}) {
		// An earlier tool may have put a link in the way.
		point, err := sys.MakeDirBelow(root, p.Workspace.Target)
		if err != nil {
			return fmt.Errorf("an earlier tool has put something else in the way: %w", err)
		}
		defer point.Close()
		// A name that leads to that very directory.
		target = fmt.Sprintf("/proc/self/fd/%d/.", point.Fd())
	} else if err := mountPoint(target, true); err != nil {
		return err
	}
	if slices.Contains(o.Shared, p.Workspace.Target) {
		return sys.AttachShared(files.Lower, target,
			sys.MountFlags{Write: p.Workspace.Shadow, Exec: p.Workspace.Exec})
	}
	if o.Later {
		if !p.Workspace.MayComeLater() {
			return errors.New("its Landlock domain cannot precede it")
		}
		return nil
	}
	if !p.Workspace.Shadow {
		files.Upper = nil
	}
	if p.IDs.User {
		// Owners stay who they are.
		userns = nil
	}
	return workspace.Attach(workspace.Attachment{Lower: files.Lower, Upper: files.Upper,
		Frozen: files.Frozen, UserNS: userns, Base: p.IDs.Base, Target: target, Exec: p.Workspace.Exec})
}

func start(ctx context.Context, o control.Order, root string, files Files,
	userns *os.File) (*Jail, error) {
	if o.Plan.Outer != nil {
		c, pid, err := startOuter(ctx, o, root, files, userns)
		if err != nil {
			return nil, layer("outer "+o.Plan.Outer.Layer, err)
		}
		if err := leave(files); err != nil {
			return nil, layer("namespaces", errors.Join(err, c.kill(), c.remove()))
		}
		return &Jail{PID: pid, held: c}, nil
	}
	config, err := newConfig(o.Plan, root, fdPath(userns), fdPath(files.Network))
	if err != nil {
		return nil, layer("plan", err)
	}
	container, err := libcontainer.Create(filepath.Join(o.RunDir, "runc"), string(o.Plan.ID),
		config)
	if err != nil {
		return nil, layer("container", err)
	}
	process := &libcontainer.Process{
		Args:            []string{guest.Self},
		Env:             newEnv(o.Plan.ToolMemory()),
		Cwd:             "/",
		UID:             int(o.Plan.IDs.UID),
		GID:             int(o.Plan.IDs.GID),
		Stdin:           files.In,
		Stdout:          files.Out,
		Stderr:          files.Err,
		ExtraFiles:      []*os.File{files.Control, files.Listener},
		NoNewPrivileges: &o.Plan.NoNewPrivileges,
		Init:            true,
	}
	if err := run(ctx, container, process); err != nil {
		return nil, layer("namespaces", errors.Join(err, container.Destroy()))
	}
	pid, err := process.Pid()
	if err = errors.Join(err, leave(files)); err != nil {
		return nil, layer("namespaces", errors.Join(err, container.Destroy()))
	}
	return &Jail{PID: pid, held: contained{container, process}}, nil
}

// leave gives up the streams and the sockets, which are the jail's now and end when it does.
func leave(files Files) error {
	var errs []error
	for _, f := range append([]*os.File{files.In, files.Out, files.Err, files.Control, files.Listener,
		files.Network}, files.Passed...) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// checkNetwork refuses a network namespace of another jail that is the host's.
func checkNetwork(p jail.Plan, network *os.File) error {
	if p.NetworkOf == "" {
		return nil
	}
	given, err := network.Stat()
	host, hostErr := os.Stat("/proc/self/ns/net")
	if err = errors.Join(err, hostErr); err == nil && os.SameFile(given, host) {
		err = errors.New("the network namespace of the session is the host's")
	}
	return err
}

// fdPath is a path by which other processes find an open file of this one.
func fdPath(f *os.File) string {
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(f.Fd()))
}

// newEnv is the environment of jail-init, not of the tool: no stack traces, and a garbage collector
// that does not run before the engine has used a good part of the jail's memory, which few tools
// ever do.
func newEnv(memory int64) []string {
	env := []string{"GOTRACEBACK=none", "GOMAXPROCS=2"}
	if memory > 0 {
		env = append(env, "GOGC=off", "GOMEMLIMIT="+strconv.FormatInt(memory/4, 10))
	}
	return env
}

// userNS is the user namespace of a plan's jail. A user's daemon is the user already, and nobody
// else.
func userNS(p jail.Plan) sys.UserNS {
	u := sys.UserNS{UIDs: idMap(p.IDs, p.IDs.Base), GIDs: idMap(p.IDs, p.IDs.HostGroup()),
		Counts: map[string]int64{}}
	if !p.IDs.User {
		u.Owner = &p.IDs.Owner
	}
	for _, c := range p.UserCounts {
		u.Counts[c.Name] = c.Value
	}
	return u
}

func idMap(ids jail.IDs, base uint32) []sys.IDMap {
	all := []sys.IDMap{{Inside: 0, Host: base, Size: ids.Size}}
	for _, e := range ids.Extra {
		all = append(all, sys.IDMap{Inside: e.Inside, Host: e.Host, Size: 1})
	}
	return all
}

// Kill ends every process of the jail: the end of process 1 is the end of its process namespace
// (pid_namespaces(7)).
func (j *Jail) Kill() error { return j.held.kill() }

// Wait waits for the jail's first process and says how it ended.
func (j *Jail) Wait() (control.Exited, error) {
	status, err := j.held.wait()
	if err != nil {
		return control.Exited{}, fmt.Errorf("wait for jail-init: %w", err)
	}
	if status.Signaled() {
		return control.Exited{Signal: int(status.Signal())}, nil
	}
	return control.Exited{Code: status.ExitStatus()}, nil
}

// Remove takes away what is left of the jail on the host: its control group.
func (j *Jail) Remove() error { return j.held.remove() }

// Explain returns what the runtime of an outer layer has last said of a failure, after ": ", or
// nothing.
func (j *Jail) Explain() string { return j.held.explain() }
