package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// An IDMap maps Size ids, from Inside within a user namespace to Host on the host (user_namespaces(7)).
type IDMap struct{ Inside, Host, Size uint32 }

// NewUserNS makes a user namespace that no process is in, for id-mapped mounts and for a jail to join. A namespace needs a process to be
// made by: it is a copy of this one that makes no step and is killed as soon as the namespace has its maps. A caller must be root.
func NewUserNS(uids, gids []IDMap) (*os.File, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := idleFork(unix.CLONE_NEWUSER)
	if err != nil {
		return nil, err
	}
	ns, err := mapUserNS(fmt.Sprintf("/proc/%d", pid), uids, gids)
	if killErr := callError("kill", unix.Kill(pid, unix.SIGKILL)); killErr != nil {
		err = errors.Join(err, killErr) // it ends with this thread, and nobody may wait for that here
	} else {
		err = errors.Join(err, retryEINTR(func() error {
			_, err := unix.Wait4(pid, nil, unix.WALL, nil)
			return callError("wait4", err)
		}))
	}
	if err != nil && ns != nil {
		ns.Close()
		ns = nil
	}
	return ns, err
}

func mapUserNS(proc string, uids, gids []IDMap) (*os.File, error) {
	ns, err := os.Open(proc + "/ns/user")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(proc+"/uid_map", formatIDMap(uids), 0); err != nil {
		return ns, err
	}
	return ns, os.WriteFile(proc+"/gid_map", formatIDMap(gids), 0)
}

func formatIDMap(all []IDMap) []byte {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%d %d %d\n", m.Inside, m.Host, m.Size)
	}
	return []byte(b.String())
}

// idleFork forks with the given clone flags. The copy waits to be killed and sends no signal when it ends, so nobody but
// the caller needs to know of it. Signals are blocked around it: no handler of the Go runtime may run in the copy.
func idleFork(flags uintptr) (int, error) {
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i]-- // every bit, whatever the width of a word is
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, callError("rt_sigprocmask", err)
	}
	pid, errno := rawIdleFork(flags, uintptr(os.Getpid()))
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
		return 0, callError("rt_sigprocmask", err)
	}
	if errno != 0 {
		return 0, callError("clone", errno)
	}
	return int(pid), nil
}

// rawIdleFork must not be split, raced or preempted: in the copy there is one thread and no Go runtime around it.
//
//go:norace
//go:nosplit
func rawIdleFork(flags, parent uintptr) (uintptr, unix.Errno) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	// If the thread that made it ends first, so does the copy.
	unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	// And if it has ended already, nobody else would end the copy.
	if now, _, _ := unix.RawSyscall6(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0); now != parent {
		unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
	for {
		unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}
