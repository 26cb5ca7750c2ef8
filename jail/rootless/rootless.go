// Package rootless lets an ordinary user's daemon start jails, where the kernel lets users make
// user namespaces: the daemon runs itself again in a user and a mount namespace of its own, in
// which it has rights over what it makes and over nothing of the host. Its ids inside are those
// outside, so that what it sees, keeps and records carries the names that the host knows.
//
// A user's daemon has no right that the user has not. What is weaker than with root's is in
// docs/rootless.md.
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

// Inside reports whether this process is in such namespaces.
func Inside() bool { return sys.Rootless() }

// Needed reports whether this process must enter them to start jails.
func Needed() bool { return os.Geteuid() != 0 && !Inside() }

// User returns whose jails this process starts; nil if it is root's.
func User() *jail.User {
	if !Inside() {
		return nil
	}
	return &jail.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
}

// Settle is called first inside: what is mounted from here on is seen by nobody else.
func Settle() error { return sys.OwnMounts() }

// SpaceError says that the kernel refuses the namespaces.
type SpaceError struct{ Err error }

func (e *SpaceError) Error() string {
	return fmt.Sprintf("user namespaces: none could be made: %v", e.Err)
}
func (e *SpaceError) Unwrap() error { return e.Err }

// lastInherited is the highest descriptor, beside the streams, that goes on to the program inside.
const lastInherited = 3

// Run runs the program at exe in new namespaces, as the same user, and returns its exit code when
// it has ended. Descriptor 3 is handed on if it is open; signals that a service manager sends are.
// It ends with this process, whatever ends that.
func Run(exe string, args []string) (int, error) {
	// The wish to end with the parent is about the thread that forks.
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
	// A socket that a service manager passed names this process, which does not use it.
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
