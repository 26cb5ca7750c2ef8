// Package rootless lets an ordinary user's daemon start jails if the kernel lets users make user
// namespaces. The daemon runs itself again in a new user and mount namespace, in which it has
// rights over its own mounts and namespaces and none over the host's. Ids are mapped to themselves,
// so that its files and records have the host's ids.
//
// A user's daemon has no right that the user does not have. docs/rootless.md lists what is weaker
// than in root's daemon.
package rootless

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Inside reports whether this process runs in the namespaces of a user's daemon.
func Inside() bool { return sys.Rootless() }

// Needed reports whether this process must enter such namespaces (Run) to start jails.
func Needed() bool { return os.Geteuid() != 0 && !Inside() }

// User returns the user whose daemon this process is, or nil for root's.
func User() *jail.User {
	if !Inside() {
		return nil
	}
	return &jail.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
}

// Settle makes all mounts private. It must be called first inside the namespaces.
func Settle() error { return sys.OwnMounts() }

// SpaceError is returned by Run if the kernel refuses the namespaces.
type SpaceError struct{ Err error }

func (e *SpaceError) Error() string {
	return fmt.Sprintf("user namespaces: none could be made: %v", e.Err)
}
func (e *SpaceError) Unwrap() error { return e.Err }

// lastInherited is the only descriptor besides the streams that the program inside gets.
const lastInherited = 3

// Run runs the program at exe in new namespaces as the same user, waits for it and returns its exit
// code, or 128 plus a signal's number. It passes on descriptor 3 if that is a socket, and forwards
// signals. The kernel kills the program if this process ends.
func Run(exe string, args []string) (int, error) {
	// Pdeathsig refers to the thread that forks.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	cmd := command(exe, args)
	if err := cmd.Start(); err != nil {
		return 0, &SpaceError{Err: err}
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-signals:
				// The process may have ended already.
				_ = cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

var forwarded = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1,
	syscall.SIGUSR2, syscall.SIGQUIT}

func command(exe string, args []string) *exec.Cmd {
	cmd := exec.Command(exe, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// LISTEN_PID names this process, not the program inside.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LISTEN_")
	})
	var st syscall.Stat_t
	if syscall.Fstat(lastInherited, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFSOCK {
		cmd.ExtraFiles = []*os.File{os.NewFile(lastInherited, "inherited")}
	}
	uid, gid := os.Geteuid(), os.Getegid()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  sys.NamespaceFlags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: sys.NamespaceCaps,
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}
