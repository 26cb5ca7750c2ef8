// Package runc starts jails and OCI containers from their plans with libcontainer. It is linked
// only into jail-shim and jail-oci, small processes of one jail each, because libcontainer executes
// the calling binary again at each start and moves the caller's threads between mount namespaces.
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
	// Without this import device rules are refused.
	_ "github.com/opencontainers/cgroups/devices"
	"github.com/opencontainers/runc/libcontainer"
	// libcontainer's first stage, in C, which runs before the Go runtime.
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

// Init is the second execution of the shim, inside the new namespaces. It never returns. It reads
// the number of the last capability now, which the library caches: the jail's own proc shows only
// processes.
//
// From here on the process ends with its parent (PR_SET_PDEATHSIG). libcontainer sets this only for
// its first process, not for this grandchild of it, but keeps a set value across the change of ids.
func Init() {
	_, err := capability.LastCap()
	if err = errors.Join(err, sys.DieWithParent()); err != nil {
		fmt.Fprintln(os.Stderr, "jail-shim:", err)
		os.Exit(125)
	}
	libcontainer.Init()
}

// A Jail is a started jail, in which jail-init waits for its restrictions.
type Jail struct {
	PID  int
	held holder

	// root is the directory of the jail's mounts in the mount namespace of the thread that called
	// Start.
	root string
	plan jail.Plan
	// later is the user namespace for the mounts of Attach; nil after Attach, and if Attach is not
	// expected.
	later *os.File
	// shadow is the mounted shadow, opened because tools can change its path if a tmpfs is above
	// it.
	shadow *os.File
	// shown are the changing files of the machine; nil if there are none.
	shown *shown
}

// A holder manages the first process of a jail for the runtime that started it: libcontainer or the
// runtime of an outer layer.
type holder interface {
	kill() error
	// wait waits for the first process.
	wait() (syscall.WaitStatus, error)
	// groups returns the directories of the jail's cgroups by controller; nil if unknown.
	groups() map[string]string
	remove() error
	// explain returns ": " and the runtime's last error, or "".
	explain() string
}

// A contained is the holder of a jail that libcontainer has started.
type contained struct {
	container *libcontainer.Container
	process   *libcontainer.Process
}

func (c contained) kill() error     { return c.container.Signal(syscall.SIGKILL) }
func (c contained) remove() error   { return c.container.Destroy() }
func (c contained) explain() string { return "" }

func (c contained) wait() (syscall.WaitStatus, error) { return statusOf(c.process.Wait()) }

// statusOf converts the results of a Wait. It returns err only if there is no state.
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
	// jail-init's socket for the listener of the inner filter
	Listener *os.File
	Lower    *os.File // the workspace's real directory
	// the detached mount of the shadow's upper layer
	Upper *os.File
	// Frozen are the detached mounts of the shadow's frozen layers, the newest first.
	Frozen []*os.File
	// The network namespace of the plan's NetworkOf.
	Network *os.File
	// Sources of the plan's binds, in order.
	Binds []*os.File
	// Passed are descriptors that jail-init starts with, after its sockets, in a jail whose kernel
	// cannot receive them later.
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

// Start moves the calling thread into a private mount namespace, sets up every layer of the order's
// plan and starts jail-init. The caller must have locked its main thread, and the process must have
// no other children. If ctx ends, Start kills what it has started and returns an error. On error
// nothing is left but the run's directory.
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

// openShadow opens the mounted shadow with O_PATH, before any tool can change its path. It returns
// nil if the jail has no shadow of its own yet.
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
		// A path of exactly that directory.
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

// leave closes this process's copies of the streams and sockets, so that they end with the jail.
func leave(files Files) error {
	var errs []error
	for _, f := range append([]*os.File{files.In, files.Out, files.Err, files.Control, files.Listener,
		files.Network}, files.Passed...) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// checkNetwork returns an error if the network namespace for NetworkOf is the host's.
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

// fdPath returns the path by which other processes can open f.
func fdPath(f *os.File) string {
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(f.Fd()))
}

// newEnv returns the environment of jail-init, not of the tool: no stack traces, and no garbage
// collection below a quarter of memory, the tool's limit in bytes (none if not positive).
func newEnv(memory int64) []string {
	env := []string{"GOTRACEBACK=none", "GOMAXPROCS=2"}
	if memory > 0 {
		env = append(env, "GOGC=off", "GOMEMLIMIT="+strconv.FormatInt(memory/4, 10))
	}
	return env
}

// userNS returns the user namespace to make for a plan. In a user's daemon the owner is the
// daemon's own user.
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

// Kill kills process 1 of the jail, and with it the kernel kills all others (pid_namespaces(7)).
func (j *Jail) Kill() error { return j.held.kill() }

// Wait waits for the jail's first process and returns how it ended.
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

// Remove removes the jail's cgroup and the runtime's state from the host.
func (j *Jail) Remove() error { return j.held.remove() }

// Explain returns ": " and the last error of the outer layer's runtime, or "".
func (j *Jail) Explain() string { return j.held.explain() }
