// Package guest starts a native program inside a jail, as a child of process 1. The program can
// neither trace nor end process 1, which has nothing that the program may use and is behind the
// same layers. When the program has ended, process 1 ends, and with it every other process of the
// jail (pid_namespaces(7)).
package guest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/jail-sandbox/jail/jail/landlock"
	"github.com/jail-sandbox/jail/runners"
)

// exitSignal plus the number of a signal is the exit code of a program that the signal ended.
const exitSignal = 128

// Run starts the order's program and waits for its end. sizes, proxy and host are nil without a
// terminal, a fetch proxy or an agent. Process 1 closes the program's streams after the start, so
// that their ends are seen. An agent's streams belong to its host, and its program writes to
// standard error only. The error says why the program could not be started.
func Run(order runners.Order, sizes Sizes, proxy Proxy, host Host) (_ runners.Report, err error) {
	n := order.Native
	// Catch all signals and drop them. The kernel ignores signals without a handler for process 1
	// (pid_namespaces(7)), but the Go runtime has handlers that end the process. SIG_IGN would be
	// inherited by the program.
	signal.Notify(make(chan os.Signal, 1))
	terminated := onTerminate()
	if n.Relay.IsValid() && proxy != nil {
		if err := relay(n.Relay, proxy); err != nil {
			return runners.Report{}, err
		}
	}
	if host != nil {
		if err := listen(order.Agent.Listen, host.Take); err != nil {
			return runners.Report{}, fmt.Errorf("listen for the agent's calls: %w", err)
		}
	}
	// Here and not in the child, to tell the error from one of execve(2).
	dir := cmp.Or(order.Invocation.Cwd, "/")
	if err := syscall.Chdir(dir); err != nil {
		return runners.Report{}, &runners.StartError{Op: runners.OpCwd, Path: dir,
			Errno: int(err.(syscall.Errno)), Err: err}
	}
	start := &syscall.ProcAttr{Env: order.Invocation.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true}}
	if order.Joined {
		start.Files[2] = start.Files[1]
	}
	if order.NoInput && n.Terminal == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return runners.Report{}, fmt.Errorf("no standard input: %w", err)
		}
		defer null.Close()
		start.Files[0] = null.Fd()
	}
	finish := func() {}
	if n.Terminal != nil {
		t, err := openTerminal(*n.Terminal)
		if err != nil {
			return runners.Report{}, fmt.Errorf("terminal: %w", err)
		}
		fd := t.slave.Fd()
		start.Files = []uintptr{fd, fd, fd}
		// Descriptor 0 of the child.
		start.Sys.Setctty = true
		finish = t.drain
		t.carry(sizes)
	}
	var keep *keeper
	if n.Keep {
		if keep, err = newKeeper(start); err != nil {
			return runners.Report{}, fmt.Errorf("pipe for the environment: %w", err)
		}
	}
	if host != nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return runners.Report{}, err
		}
		defer null.Close()
		start.Files = []uintptr{null.Fd(), 2, 2}
	}
	pid, err := fork(order, start)
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return runners.Report{}, &runners.StartError{Op: runners.OpExec, Path: n.Program,
			Errno: int(errno), Err: errno}
	} else if err != nil {
		return runners.Report{}, fmt.Errorf("execute %s: %w", n.Program, err)
	}
	if keep != nil {
		keep.begin()
	}
	// The directory was for the child. Process 1 must be in the root, as jail verify checks.
	if err := syscall.Chdir("/"); err != nil {
		return runners.Report{}, fmt.Errorf("working directory of process 1: %w", err)
	}
	if n.Terminal == nil && host == nil {
		if err := leaveStreams(); err != nil {
			return runners.Report{}, err
		}
	}
	status, err := reap(pid)
	if err != nil {
		return runners.Report{}, err
	}
	left, err := endOthers(terminated.Load())
	if err != nil {
		return runners.Report{}, err
	}
	finish()
	rep := reportOf(status)
	rep.LeftProcesses = left
	if keep != nil {
		rep.Kept = keep.end()
	}
	return rep, nil
}

// fork starts the program. For an agent's program it restricts a temporary thread with a narrower
// Landlock domain, which the program inherits from that thread.
func fork(order runners.Order, start *syscall.ProcAttr) (pid int, err error) {
	program, args := order.Native.Program, order.Invocation.Args
	if order.Agent == nil || order.Agent.Landlock == nil {
		return syscall.ForkExec(program, args, start)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A thread that is locked when its goroutine ends is ended with it.
		runtime.LockOSThread()
		if err = landlock.RestrictThread(*order.Agent.Landlock); err != nil {
			err = fmt.Errorf("the program's own domain: %w", err)
			return
		}
		pid, err = syscall.ForkExec(program, args, start)
	}()
	<-done
	return pid, err
}

// onTerminate sends SIGTERM to every process of the jail when process 1 gets
// runners.SignalTerminate. The returned value is true from then on.
func onTerminate() *atomic.Bool {
	terminated := new(atomic.Bool)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.Signal(runners.SignalTerminate))
	go func() {
		<-signals
		terminated.Store(true)
		// Everybody but process 1.
		_ = syscall.Kill(-1, syscall.SIGTERM)
	}()
	return terminated
}

// endOthers kills all processes but process 1, waits for their end and returns their number. If
// terminated, it waits for them to end by themselves; the host bounds that time.
func endOthers(terminated bool) (left int64, err error) {
	if !terminated {
		_ = syscall.Kill(-1, syscall.SIGKILL)
	}
	for {
		var status syscall.WaitStatus
		// Orphans are children of process 1, so that it sees the end of all.
		_, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			return left, nil
		case err != nil:
			return left, fmt.Errorf("wait for processes that the program left: %w", err)
		case !terminated && status.Signaled() && status.Signal() == syscall.SIGKILL:
			left++
		}
	}
}

// leaveStreams closes process 1's copies of the program's streams.
func leaveStreams() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
			return fmt.Errorf("let go of descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// reap reaps ended processes of the jail, including orphans, until process first has ended, and
// returns the status of that.
func reap(first int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return status, fmt.Errorf("wait for the program: %w", err)
		case pid == first && (status.Exited() || status.Signaled()):
			return status, nil
		}
	}
}

func reportOf(status syscall.WaitStatus) runners.Report {
	if !status.Signaled() {
		return runners.Report{ExitCode: status.ExitStatus()}
	}
	rep := runners.Report{ExitCode: exitSignal + int(status.Signal()), Signal: int(status.Signal())}
	if status.Signal() == syscall.SIGXFSZ {
		rep.LimitsMet = []runners.LimitMet{{Name: "file_size"}}
	}
	return rep
}
