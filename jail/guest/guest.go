// Package guest is the first code inside a jail. It applies the remaining restrictions and hands
// over to the tool's runner. It runs as process 1, without capabilities, behind the outer filter;
// the root and the namespaces are already made.
package guest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/landlock"
)

// Self is the path of jail-init inside a jail.
const Self = jail.InitPath

// ErrPassed is set in the environment if standard error is a log of the outer layer and the tool's
// standard error is descriptor control.InitPassed.
const ErrPassed = "JAIL_STDERR=passed"

// Stage2 is the argument that marks the second execution.
const Stage2 = "restricted"

// An Error names the restriction that jail-init could not apply to itself.
type Error struct {
	// "landlock", "limits" or "seccomp"; "jail-init" for other failures
	Layer string
	Err   error
	// Told is true if the host has got the error over the control socket. Standard error is the
	// tool's.
	Told bool
}

func (e *Error) Error() string { return e.Layer + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func layer(name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Layer: name, Err: err}
}

// tell reports a failure to the host over the control socket.
func tell(conn *control.Conn, err error) error {
	e := &Error{}
	if !errors.As(err, &e) {
		e = &Error{Layer: "jail-init", Err: err}
	}
	e.Told = conn.Send(control.Unable{Layer: e.Layer, Failure: e.Err.Error()}) == nil
	return e
}

// Enter is stage 1: it reads its restrictions, applies them and executes jail-init anew, so that
// every thread has them from its first instruction on. It returns only on error.
func Enter(env []string) error {
	// PR_SET_PDEATHSIG belongs to a thread, and this thread executes.
	runtime.LockOSThread()
	conn, err := control.Inherit(control.InitControl)
	if err != nil {
		return err
	}
	return tell(conn, enter(conn, env))
}

func enter(conn *control.Conn, env []string) error {
	if slices.Contains(env, ErrPassed) {
		const stderr = 2
		if err := sys.Replace(stderr, control.InitPassed); err != nil {
			return err
		}
	}
	var order control.Restrict
	if _, err := conn.Receive(&order); err != nil {
		return fmt.Errorf("read restrictions: %w", err)
	}
	// Only now: an outer layer may have started this process as its own child. When the order
	// comes, it is jail-shim's child. If jail-shim ends earlier, no order comes, or nobody takes
	// the listener.
	if err := sys.DieWithParent(); err != nil {
		return err
	}
	if err := checkInside("jail"); err != nil {
		return err
	}
	if order.KernelInside {
		return enterKernelInside(order, env)
	}
	// Before the exec, after which they hold for the new program.
	for _, r := range order.Rlimits {
		if err := sys.SetRlimit(r.Name, r.Value, r.Value); err != nil {
			return layer("limits", err)
		}
	}
	if err := restrictThread(order.Ceiling, order.Landlock); err != nil {
		return err
	}
	if err := CloseOthers(); err != nil {
		return err
	}
	return sys.Exec(Self, []string{Self, Stage2}, env)
}

// checkInside refuses a working directory outside the root, which is a way back to the host
// (CVE-2024-21626).
func checkInside(what string) error {
	if wd, err := os.Getwd(); err != nil || !strings.HasPrefix(wd, "/") {
		return fmt.Errorf("working directory %q is not inside the %s", wd, what)
	}
	return nil
}

// restrictThread puts the calling thread into the domains. The exec that follows ends all other
// threads. Restricting those would need signals, which the kernel drops if too many are pending.
func restrictThread(ceiling *jail.Landlock, own jail.Landlock) error {
	if ceiling != nil {
		if err := landlock.RestrictThread(*ceiling); err != nil {
			return layer("landlock", fmt.Errorf("the host's ceiling: %w", err))
		}
	}
	return layer("landlock", landlock.RestrictThread(own))
}

// enterKernelInside is the rest of stage 1 in a jail with a kernel of its own (gVisor). The outer
// layer has set the rlimits. A kernel with Landlock is an error: the plan was made for another one.
func enterKernelInside(order control.Restrict, env []string) error {
	if abi, err := sys.LandlockABI(); err == nil {
		return layer("landlock", fmt.Errorf(
			"the plan has an outer layer in its place, but this kernel has version %d of it", abi))
	}
	if err := CloseOthers(); err != nil {
		return err
	}
	for fd := range order.Passed {
		if err := sys.ClearCloexec(control.InitPassed + fd); err != nil {
			return err
		}
	}
	return sys.Exec(Self, []string{Self, Stage2}, env)
}

// CloseOthers makes all descriptors but the streams and the two sockets close at the exec that must
// follow: an inherited descriptor is a path back to the host.
func CloseOthers() error {
	if err := sys.CloseFrom(control.InitControl); err != nil {
		return err
	}
	return errors.Join(sys.ClearCloexec(control.InitControl),
		sys.ClearCloexec(control.InitListener))
}

// Confine is stage 2: it loads the inner filter on all threads, after which nothing can be
// executed, and returns the control socket, on which the invocation comes. Call it before the
// engine reads a module or the invocation.
func Confine() (*control.Conn, error) {
	conn, err := control.Inherit(control.InitControl)
	if err != nil {
		return nil, err
	}
	if err := confine(conn); err != nil {
		return nil, tell(conn, err)
	}
	return conn, nil
}

func confine(conn *control.Conn) error {
	// The tool must not be able to end or dump process 1: a too large file and a closed pipe make
	// the write fail instead.
	signal.Ignore(syscall.SIGXFSZ, syscall.SIGPIPE)
	if err := sys.SetDumpable(false); err != nil {
		return err
	}
	var filter control.Filter
	if _, err := conn.Receive(&filter); err != nil {
		return fmt.Errorf("read filter: %w", err)
	}
	if len(filter.Program) == 0 {
		return layer("seccomp", errors.New("inner filter is empty"))
	}
	if len(filter.Ceiling) > 0 {
		if err := sys.LoadFilter(filter.Ceiling); err != nil {
			return layer("seccomp", fmt.Errorf("the host's ceiling: %w", err))
		}
	}
	return layer("seccomp", load(filter))
}

// load loads the filter and sends its listener to jail-shim, which then has the only copy. For a
// silent filter it only reports that the filter is loaded.
func load(filter control.Filter) error {
	toShim, err := control.Inherit(control.InitListener)
	if err != nil {
		return err
	}
	defer toShim.Close()
	if filter.Silent {
		if err := sys.LoadFilter(filter.Program); err != nil {
			return err
		}
		return toShim.Send(control.Listener{})
	}
	listener, err := sys.LoadListenedFilter(filter.Program)
	if err != nil {
		return err
	}
	defer listener.Close()
	return toShim.Send(control.Listener{}, listener)
}
