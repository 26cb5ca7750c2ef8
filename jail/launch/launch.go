// Package launch starts jails. Each jail has one jail-shim, and the end of the shim is the end of
// the jail. The daemon starts jails only by this package.
package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Launcher starts jails with the given binaries.
type Launcher struct {
	// Shim is the path of jail-shim.
	Shim string
	// Init is the path of jail-init.
	Init string
	// AgentInit is the path of the jail-init that hosts agents.
	AgentInit string
	// Ahead has a shim that was started before it is needed. It may be nil.
	Ahead *Ahead
	// Patience bounds each step before the tool: until the jail exists, until its workspace is
	// attached, and until jail-init has restricted itself. 0 is 30 s.
	Patience time.Duration
}

// defaultPatience is long, for loaded machines: a step usually takes milliseconds.
const defaultPatience = 30 * time.Second

func (l Launcher) patience() time.Duration {
	if l.Patience > 0 {
		return l.Patience
	}
	return defaultPatience
}

// ErrLate is returned when a step before the tool exceeded Patience. The jail has been killed.
var ErrLate = errors.New("the jail was not ready in time")

// Stdio holds the tool's streams. The launcher keeps none of them.
type Stdio struct{ In, Out, Err *os.File }

// Files holds descriptors for the jail, opened with the caller's rights. The launcher keeps none of
// them.
type Files struct {
	// Lower is the workspace's real directory, nil without a workspace.
	Lower *os.File
	// Upper is the detached mount of the shadow's upper layer, nil without a shadow.
	Upper *os.File
	// Frozen are detached mounts of the shadow's frozen layers, the newest first.
	Frozen []*os.File
	// Network is the network namespace of the plan's NetworkOf, as Network returns it, or nil.
	Network *os.File
	// Binds are the sources of the plan's bind mounts, in order, as Clone returns them.
	Binds []*os.File
	// Passed are what would come with the invocation, for a jail with a kernel of its own, which
	// takes no descriptors later (jail.Plan.KernelInside).
	Passed []*os.File
}

// LayerError names the layer that could not be set up on this host.
type LayerError struct {
	Layer, Reason string
	// Errno is 0 if the kernel refused nothing.
	Errno syscall.Errno
}

func (e *LayerError) Error() string { return fmt.Sprintf("layer %s: %s", e.Layer, e.Reason) }

// Unwrap returns Errno, the kernel's part of the error.
func (e *LayerError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// Process is one jail, from its start to its removal.
type Process struct {
	// PID of jail-init on the host.
	PID int
	// process is the pidfd of jail-init; nil if jail-init ended at once.
	process *os.File
	cmd     *exec.Cmd
	shim    *control.Conn
	init    *control.Conn
	exited  chan exit

	sharing sync.Mutex
	// shared passes the shim's answers to the request that holds sharing. The answer to Attach has
	// no mount.
	shared chan share
	ended  chan struct{}

	patience time.Duration
	// late is true if a step before the tool exceeded Patience and the shim was killed.
	late atomic.Bool

	// refused is valid after Wait.
	refused []control.Refused
}

// share is an answer of the shim.
type share struct {
	mount *os.File
	err   error
}

type exit struct {
	status  control.Exited
	refused []control.Refused
	err     error
}

// Start starts a jail. It returns when all layers are set up and jail-init's socket holds its
// restrictions. The tool does not start before Invoke.
// After a *LayerError nothing of the jail is left.
func (l Launcher) Start(ctx context.Context, o control.Order, stdio Stdio, files Files) (*Process,
	error) {
	o.InitPath, o.Patience = l.Init, l.patience()
	if o.Plan.HostsAgent() {
		o.InitPath = l.AgentInit
	}
	initHost, initEnd, err := control.Pair("init")
	if err != nil {
		return nil, err
	}
	defer initEnd.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, initHost.Close())
	}
	defer null.Close()
	o.Frozen, o.Passed = len(files.Frozen), len(files.Passed)
	shim, err := l.shim()
	if err != nil {
		return nil, errors.Join(err, initHost.Close())
	}
	p := &Process{cmd: shim.cmd, shim: shim.conn, init: initHost, exited: make(chan exit, 1),
		shared: make(chan share), ended: make(chan struct{}), patience: l.patience()}
	// The shim reads the closed socket as an order to kill the jail.
	stop := context.AfterFunc(ctx, func() { p.shim.Close() })
	defer stop()
	defer p.bounded()()
	err = p.shim.SendOrder(o, slices.Concat([]*os.File{orNull(stdio.In, null),
		orNull(stdio.Out, null), orNull(stdio.Err, null), initHost.File(), initEnd,
		orNull(files.Lower, null), orNull(files.Upper, null), orNull(files.Network, null)},
		files.Binds, files.Frozen, files.Passed))
	// Only the jail may hold its end of the socket from now on. Otherwise the shim would not read
	// end of file when the jail ends before jail-init has restricted itself.
	initEnd.Close()
	if err == nil {
		err = p.begin()
	} else {
		err = fmt.Errorf("jail-shim: %w", err)
	}
	if err != nil {
		p.Release()
		if p.aborted() {
			err = &LayerError{"shim", "jail-shim could not start a thread", syscall.EAGAIN}
		}
		return nil, errors.Join(p.lateOr(err), ctx.Err())
	}
	l.Ahead.refill()
	go p.watch()
	return p, nil
}

// bounded kills the shim, and with it the jail, if the step that begins now takes longer than
// Patience. The caller calls done at the end of the step.
func (p *Process) bounded() (done func()) {
	timer := time.AfterFunc(p.patience, func() {
		p.late.Store(true)
		// The shim may have ended by itself.
		_ = p.cmd.Process.Kill()
		// A child of the shim may still hold the other end.
		p.shim.Close()
	})
	return func() { timer.Stop() }
}

// lateOr returns ErrLate if the step exceeded Patience, and err otherwise.
func (p *Process) lateOr(err error) error {
	if p.late.Load() {
		return fmt.Errorf("%w, which is %v", ErrLate, p.patience)
	}
	return err
}

func orNull(f, null *os.File) *os.File {
	if f == nil {
		return null
	}
	return f
}

// begin waits until the shim says that the jail stands.
func (p *Process) begin() error {
	var said control.FromShim
	if _, err := p.shim.Receive(&said); err != nil {
		return fmt.Errorf("jail-shim ended before the jail stood: %w", err)
	}
	switch {
	case said.Failed != nil:
		return layerError(said.Failed)
	case said.Started == nil:
		return errors.New("jail-shim said neither started nor failed")
	}
	p.PID = said.Started.PID
	return p.open()
}

func layerError(f *control.Failed) error { return &LayerError{f.Layer, f.Error, f.Errno} }

// watch waits for the end of the jail's first process, and passes on what the shim sends until
// then.
func (p *Process) watch() {
	said, files, err := p.hear()
	for ; err == nil && (said.Shared != nil || said.Done != nil); said, files, err = p.hear() {
		// The requester waits for the answer.
		p.shared <- answerOf(said, files)
	}
	control.CloseAll(files)
	switch {
	case err != nil && p.late.Load():
		err = p.lateOr(err)
	case errors.Is(err, io.EOF):
		err = errors.New("jail-shim was killed")
	case err == nil && said.Failed != nil:
		err = layerError(said.Failed)
	case err == nil && said.Exited == nil:
		err = errors.New("jail-shim did not say how the jail ended")
	}
	end := exit{err: err}
	if err == nil {
		end = exit{status: *said.Exited, refused: said.Refused}
	}
	// Closed first, so that Ended is true for a caller whose Wait has returned.
	close(p.ended)
	p.exited <- end
}

func (p *Process) hear() (said control.FromShim, files []*os.File, err error) {
	files, err = p.shim.Receive(&said)
	return said, files, err
}

func answerOf(said control.FromShim, files []*os.File) share {
	if said.Shared != nil && said.Shared.Error == "" && len(files) == 1 {
		return share{mount: files[0]}
	}
	control.CloseAll(files)
	switch {
	case said.Shared == nil && said.Done.Error == "":
		return share{}
	case said.Shared == nil:
		return share{err: errors.New(said.Done.Error)}
	case said.Shared.Error == "":
		return share{err: fmt.Errorf("jail-shim handed out %d mounts for one", len(files))}
	}
	return share{err: errors.New(said.Shared.Error)}
}

// ErrNotThere is returned for a request to a jail that has ended.
var ErrNotThere = errors.New("the jail has ended")

// Share returns a detached copy of the mount at target, the shadow of the workspace or a tmpfs, for
// another jail with the same ids. See control.Order.Shared. No process inside the jail takes part.
func (p *Process) Share(target string) (*os.File, error) {
	s := p.ask(control.Ask{Share: &control.Share{Target: target}})
	if errors.Is(s.err, ErrNotThere) {
		return nil, fmt.Errorf("share %s: %w", target, s.err)
	}
	return s.mount, s.err
}

// Network opens the network namespace of the jail, for the launch of another one.
func (p *Process) Network() (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	// Check after the open: until the process has ended, no other has its PID.
	if p.Ended() {
		if err == nil {
			f.Close()
		}
		return nil, ErrNotThere
	}
	return f, err
}

// Attach attaches the layers of the workspace to a jail that was started with Order.Later, or the
// state of its agent, which is lower alone. It returns when they are attached. After an error the
// caller can only release the jail. The launcher keeps none of the files.
func (p *Process) Attach(lower, upper *os.File, frozen ...*os.File) error {
	files := []*os.File{lower}
	if upper != nil {
		files = append(files, upper)
	}
	files = append(files, frozen...)
	err := p.ask(control.Ask{Attach: &control.Attach{}}, files...).err
	if err != nil && !errors.Is(err, ErrNotThere) && !errors.Is(err, ErrLate) {
		return layerError(control.FailedOf("workspace", err))
	}
	return err
}

// Ready asks the shim whether the jail still exists.
func (p *Process) Ready() error { return p.ask(control.Ask{Ready: true}).err }

// Refresh makes the workspace's shadow show the present state of its directory, except for files
// and directories that are open in a jail that shares it.
func (p *Process) Refresh() error { return p.ask(control.Ask{Refresh: true}).err }

// Ended reports whether the jail's first process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
	}
	if p.process == nil {
		return true
	}
	ended, err := sys.HasEnded(p.process)
	// The shim has not reported the end yet.
	return err == nil && ended
}

func (p *Process) ask(a control.Ask, files ...*os.File) share {
	p.sharing.Lock()
	defer p.sharing.Unlock()
	if p.Ended() {
		return share{err: ErrNotThere}
	}
	defer p.bounded()()
	if err := p.shim.Send(a, files...); err != nil {
		return share{err: errors.Join(ErrNotThere, err)}
	}
	select {
	case s := <-p.shared:
		return s
	case <-p.ended:
		return share{err: p.lateOr(ErrNotThere)}
	}
}

// Invoke sends the invocation and its descriptors to jail-init.
func (p *Process) Invoke(invocation any, files ...*os.File) error {
	return p.init.Send(invocation, files...)
}

// maxReport bounds a report of jail-init in bytes: a hundred refusals with their rules take half of
// it.
const maxReport = 1 << 20

// Report waits for jail-init's report about the run. The report comes from inside the jail: the
// caller validates it like input of a guest.
func (p *Process) Report(report any) error {
	files, err := p.init.ReceiveMost(report, maxReport)
	control.CloseAll(files)
	return err
}

// EndReport makes a waiting Report return after it has read what jail-init has sent. The caller
// must know that no process of the jail is left.
func (p *Process) EndReport() error { return p.init.EndReceive() }

// Wait waits for the jail's first process to end. Call it once. The jail's cgroup exists until
// Release, so that its usage can be read.
func (p *Process) Wait() (control.Exited, error) {
	e := <-p.exited
	p.refused = e.refused
	return e.status, e.err
}

// Refused returns the system calls that the inner filter refused, with exact counts, as the shim's
// seccomp notifier counted them. Call it after Wait. The list is empty if the shim was killed.
func (p *Process) Refused() []control.Refused { return p.refused }

// Kill kills the jail's first process, and with it every process of the jail. It does nothing if
// that process has ended.
func (p *Process) Kill() error {
	if p.process == nil {
		return ErrEnded
	}
	return sys.Signal(p.process, syscall.SIGKILL)
}

// Signal sends a signal to the jail's first process, which gets only those that it has a handler
// for (pid_namespaces(7)).
func (p *Process) Signal(s syscall.Signal) error {
	if p.process == nil {
		return ErrEnded
	}
	return sys.Signal(p.process, s)
}

// Release kills the jail if it still runs, and waits for its shim, which removes everything of the
// jail on the host.
func (p *Process) Release() {
	p.shim.Close()
	p.init.Close()
	// The exit code adds nothing to the shim's messages.
	_ = p.cmd.Wait()
	if p.process != nil {
		p.process.Close()
	}
}

// runtimeExit is the exit code of a process that Go's runtime aborts. jail-shim itself exits with 0
// or 125.
const runtimeExit = 2

// aborted reports whether Go's runtime has aborted the shim. Before the jail is started, the usual
// cause is that the runtime cannot start a thread. Its message is lost, since a prewarmed shim has
// no standard error.
func (p *Process) aborted() bool { return p.cmd.ProcessState.ExitCode() == runtimeExit }

// SealedFile returns a sealed in-memory file (memfd_create(2)) with the given content.
func SealedFile(name string, content []byte) (*os.File, error) { return sys.MemFile(name, content) }

// Clone returns a detached copy of the mount that the open file or directory source is on
// (open_tree(2)).
func Clone(source *os.File) (*os.File, error) { return sys.CloneTree(source) }

// Reopen opens a file of SealedFile again, with an offset of its own.
func Reopen(f *os.File) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// ErrEnded is returned for a jail whose first process has already ended.
var ErrEnded = errors.New("the jail's first process has ended")

// StartTime returns the start time of the jail's first process, in clock ticks since boot (field 22
// of proc_pid_stat(5)). PID and start time identify the process for good. The shim is its parent
// and reaps it, and the shim's own PID is not reused before Release, so the PID still belongs to
// that process.
func (p *Process) StartTime() (uint64, error) {
	parent, start, err := sys.ProcStat(p.PID)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", ErrEnded, err)
	}
	if parent != p.cmd.Process.Pid {
		return 0, ErrEnded
	}
	return start, nil
}

// open opens a pidfd of the jail's first process, so that signals cannot reach a later process with
// the same PID.
func (p *Process) open() error {
	process, err := sys.OpenProcess(p.PID)
	if errors.Is(err, syscall.ESRCH) {
		// The shim reports its end.
		return nil
	}
	if err != nil {
		return err
	}
	// StartTime verifies that the PID still belongs to the process.
	if _, err := p.StartTime(); err != nil {
		return process.Close()
	}
	p.process = process
	return nil
}
