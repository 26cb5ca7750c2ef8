// Package launch starts jails: one jail-shim each, whose end is the jail's end. It is the daemon's only way to a jail.
package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Launcher knows the binaries that make a jail.
type Launcher struct {
	Shim string // path of jail-shim
	Init string // path of jail-init
}

// Stdio are the tool's streams; the launcher keeps none of them.
type Stdio struct{ In, Out, Err *os.File }

// Files are descriptors for the jail, opened with the caller's rights; the launcher keeps none of them.
type Files struct {
	Lower *os.File   // the workspace's real directory, nil without one
	Upper *os.File   // the detached mount of the shadow's upper layer, nil without one
	Binds []*os.File // the sources of the plan's binds, in order, as Clone returns them
}

// A LayerError says which layer of the stack could not be set up here.
type LayerError struct{ Layer, Reason string }

func (e *LayerError) Error() string { return fmt.Sprintf("layer %s: %s", e.Layer, e.Reason) }

// A Process is one jail, from its start to its removal.
type Process struct {
	PID     int      // of jail-init on the host
	process *os.File // stands for jail-init, also when its number is another's; nil: it had ended at once
	cmd     *exec.Cmd
	shim    *control.Conn
	init    *control.Conn
	exited  chan exit

	sharing sync.Mutex
	shared  chan share // answers to what is asked for under sharing: of Attach without a mount
	ended   chan struct{}

	refused []control.Refused // after Wait
}

// A share is an answer of the shim's.
type share struct {
	mount *os.File
	err   error
}

type exit struct {
	status  control.Exited
	refused []control.Refused
	err     error
}

// Start starts a jail and returns when all its layers stand and its restrictions lie in jail-init's socket; where the order says Later they come with
// Attach. The tool has not started: Invoke does that. A *LayerError means that nothing was left behind.
func (l Launcher) Start(ctx context.Context, o control.Order, stdio Stdio, files Files) (*Process, error) {
	o.InitPath = l.Init
	shim, shimEnd, err := control.Pair("shim")
	if err != nil {
		return nil, err
	}
	initHost, initEnd, err := control.Pair("init")
	if err != nil {
		return nil, errors.Join(err, shim.Close(), shimEnd.Close())
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, shim.Close(), shimEnd.Close(), initHost.Close(), initEnd.Close())
	}
	defer null.Close()

	cmd := exec.Command(l.Shim)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.In, stdio.Out, stdio.Err
	// Nothing of the daemon's environment goes in. The shim lives for one jail and needs no garbage collection.
	cmd.Env = []string{"GOGC=off"}
	cmd.ExtraFiles = append([]*os.File{shimEnd, initHost.File(), initEnd, orNull(files.Lower, null), orNull(files.Upper, null)}, files.Binds...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signal of the daemon's terminal reaches it
	err = cmd.Start()
	// Nobody but the shim may hold its ends, or its death would never be read as the end of what it says.
	shimEnd.Close()
	initEnd.Close()
	if err != nil {
		return nil, errors.Join(err, shim.Close(), initHost.Close())
	}
	p := &Process{cmd: cmd, shim: shim, init: initHost, exited: make(chan exit, 1), shared: make(chan share), ended: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { p.shim.Close() }) // the shim takes that as: kill
	defer stop()
	if err := p.start(o); err != nil {
		p.Release()
		return nil, errors.Join(err, ctx.Err())
	}
	go p.watch()
	return p, nil
}

func orNull(f, null *os.File) *os.File {
	if f == nil {
		return null
	}
	return f
}

func (p *Process) start(o control.Order) error {
	if err := p.shim.Send(o); err != nil {
		return fmt.Errorf("jail-shim: %w", err)
	}
	var said control.FromShim
	if _, err := p.shim.Receive(&said); err != nil {
		return fmt.Errorf("jail-shim ended before the jail stood: %w", err)
	}
	switch {
	case said.Failed != nil:
		return &LayerError{said.Failed.Layer, said.Failed.Error}
	case said.Started == nil:
		return errors.New("jail-shim said neither started nor failed")
	}
	p.PID = said.Started.PID
	return p.open()
}

// watch waits for the end of the jail's first process, and takes what the shim hands out until then.
func (p *Process) watch() {
	said, files, err := p.hear()
	for ; err == nil && (said.Shared != nil || said.Done != nil); said, files, err = p.hear() {
		p.shared <- answerOf(said, files) // whoever asked waits for the answer
	}
	for _, f := range files {
		f.Close()
	}
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("jail-shim was killed")
	case err == nil && said.Failed != nil:
		err = &LayerError{said.Failed.Layer, said.Failed.Error}
	case err == nil && said.Exited == nil:
		err = errors.New("jail-shim did not say how the jail ended")
	}
	end := exit{err: err}
	if err == nil {
		end = exit{status: *said.Exited, refused: said.Refused}
	}
	close(p.ended) // first: whoever has waited for the end is told that it has come
	p.exited <- end
}

func (p *Process) hear() (said control.FromShim, files []*os.File, err error) {
	files, err = p.shim.Receive(&said)
	return said, files, err
}

func answerOf(said control.FromShim, files []*os.File) share {
	if said.Shared != nil {
		return shareOf(*said.Shared, files)
	}
	for _, f := range files {
		f.Close()
	}
	if said.Done.Error != "" {
		return share{err: errors.New(said.Done.Error)}
	}
	return share{}
}

func shareOf(said control.Shared, files []*os.File) share {
	if said.Error == "" && len(files) == 1 {
		return share{mount: files[0]}
	}
	for _, f := range files {
		f.Close()
	}
	if said.Error == "" {
		said.Error = fmt.Sprintf("jail-shim handed out %d mounts for one", len(files))
	}
	return share{err: errors.New(said.Error)}
}

// ErrNotThere says that a jail has ended that something was asked of.
var ErrNotThere = errors.New("the jail has ended")

// Share returns one more mount, detached, of what the jail has at target, the shadow of its workspace or a tmpfs, for another jail of the same ids; see
// control.Order.Shared. The jail itself takes no part in it.
func (p *Process) Share(target string) (*os.File, error) {
	s := p.ask(control.Ask{Share: &control.Share{Target: target}})
	if errors.Is(s.err, ErrNotThere) {
		return nil, fmt.Errorf("share %s: %w", target, s.err)
	}
	return s.mount, s.err
}

// Attach gives a jail that was started with Order.Later the layers of its workspace, and returns when that is attached and jail-init has its
// restrictions in its socket, as Start does otherwise. After an error the jail is only to be released. The launcher keeps none of the files.
func (p *Process) Attach(lower, upper *os.File) error {
	err := p.ask(control.Ask{Attach: &control.Attach{}}, lower, upper).err
	if err != nil && !errors.Is(err, ErrNotThere) {
		return &LayerError{"workspace", err.Error()}
	}
	return err
}

// Ready asks the shim whether the jail is still there.
func (p *Process) Ready() error { return p.ask(control.Ask{Ready: true}).err }

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
	return err == nil && ended // the shim has yet to say so
}

func (p *Process) ask(a control.Ask, files ...*os.File) share {
	p.sharing.Lock()
	defer p.sharing.Unlock()
	if p.Ended() {
		return share{err: ErrNotThere}
	}
	if err := p.shim.Send(a, files...); err != nil {
		return share{err: errors.Join(ErrNotThere, err)}
	}
	select {
	case s := <-p.shared:
		return s
	case <-p.ended:
		return share{err: ErrNotThere}
	}
}

// Invoke hands the invocation and the descriptors that it needs to jail-init.
func (p *Process) Invoke(invocation any, files ...*os.File) error {
	return p.init.Send(invocation, files...)
}

// maxReport bounds what jail-init may say, in bytes: a hundred refusals and their rules take half of it.
const maxReport = 1 << 20

// Report waits for what jail-init says about the run. It is said from inside: the caller checks it as it would a guest's words.
func (p *Process) Report(report any) error {
	files, err := p.init.ReceiveMost(report, maxReport)
	for _, f := range files {
		f.Close()
	}
	return err
}

// Wait waits for the jail's first process to end. It may be called once. The jail's control group is still there, for its figures, until Release.
func (p *Process) Wait() (control.Exited, error) {
	e := <-p.exited
	p.refused = e.refused
	return e.status, e.err
}

// Refused returns the system calls that the jail's inner filter refused, each with its exact count, as the kernel told it to the shim. To be
// called after Wait; a jail whose shim was killed has none.
func (p *Process) Refused() []control.Refused { return p.refused }

// Kill ends every process of the jail by ending the first, whatever it does. It does nothing to one that has ended.
func (p *Process) Kill() error {
	if p.process == nil {
		return ErrEnded
	}
	return sys.Signal(p.process, syscall.SIGKILL)
}

// Release ends the jail if it still runs, waits for its shim, and with it for the removal of everything that the jail had on the host.
func (p *Process) Release() {
	p.shim.Close()
	p.init.Close()
	_ = p.cmd.Wait() // its exit code says nothing that its messages did not
	if p.process != nil {
		p.process.Close()
	}
}

// SealedFile returns an in-memory file that nobody can change any more, to be handed to a jail.
func SealedFile(name string, content []byte) (*os.File, error) { return sys.MemFile(name, content) }

// Clone returns a detached copy of the mount that source, an open file or directory, is on, to be mounted in a jail.
func Clone(source *os.File) (*os.File, error) { return sys.CloneTree(source) }

// Reopen opens a file that SealedFile returned once more, with an offset and a life of its own.
func Reopen(f *os.File) (*os.File, error) { return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd())) }
