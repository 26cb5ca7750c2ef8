// Package guest is the first code inside a jail: it takes away what is left to take, in order, and hands over to the tool's runner.
// It runs as process 1, without capabilities, behind the outer filter; the root and the namespaces are already made.
package guest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/landlock"
)

// Self is where jail-init lies inside.
const Self = "/run/jail/init"

// Stage2 is the argument that marks the second execution.
const Stage2 = "restricted"

// Enter is stage 1: it reads its restrictions, applies them and executes jail-init anew, so that every thread has them from its
// first instruction on. It returns only on error.
func Enter(env []string) error {
	// The wish to end with the parent belongs to a thread, and this is the one that executes.
	runtime.LockOSThread()
	if err := sys.DieWithParent(); err != nil {
		return err
	}
	conn, err := control.Inherit(control.InitControl)
	if err != nil {
		return err
	}
	var order control.Restrict
	if _, err := conn.Receive(&order); err != nil {
		return fmt.Errorf("read restrictions: %w", err)
	}
	// A working directory outside the root is a way back to the host (CVE-2024-21626).
	if wd, err := os.Getwd(); err != nil || !strings.HasPrefix(wd, "/") {
		return fmt.Errorf("working directory %q is not inside the jail", wd)
	}
	// Before Landlock, which forbids nothing of this, and before the exec that makes them count.
	for _, r := range order.Rlimits {
		resource, ok := sys.Rlimits[r.Name]
		if !ok {
			return fmt.Errorf("rlimit %q: unknown name", r.Name)
		}
		if err := sys.SetRlimit(resource, r.Value); err != nil {
			return fmt.Errorf("rlimit %s: %w", r.Name, err)
		}
	}
	if err := landlock.Restrict(order.Landlock); err != nil {
		return err
	}
	// Last before exec: an inherited descriptor is a path back to the host. The control socket alone goes on.
	if err := sys.CloseFrom(control.InitControl); err != nil {
		return err
	}
	if err := sys.ClearCloexec(control.InitControl); err != nil {
		return err
	}
	return sys.Exec(Self, []string{Self, Stage2}, env)
}

// Confine is stage 2: it loads the inner filter on all threads, after which nothing can be executed any more, and returns the
// control socket, on which the invocation comes.
func Confine() (*control.Conn, error) {
	conn, err := control.Inherit(control.InitControl)
	if err != nil {
		return nil, err
	}
	// Process 1 must not be ended or dumped by what it runs: a file that grows too large and a reader that went away are
	// errors of the write that meets them.
	signal.Ignore(syscall.SIGXFSZ, syscall.SIGPIPE)
	if err := sys.SetDumpable(false); err != nil {
		return nil, err
	}
	var filter control.Filter
	if _, err := conn.Receive(&filter); err != nil {
		return nil, fmt.Errorf("read filter: %w", err)
	}
	if len(filter.Program) == 0 {
		return nil, errors.New("inner filter is empty")
	}
	if err := sys.LoadFilter(filter.Program); err != nil {
		return nil, err
	}
	return conn, nil
}
