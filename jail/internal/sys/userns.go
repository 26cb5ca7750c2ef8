package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An IDMap maps Size ids, from Inside within a user namespace to Host on the host
// (user_namespaces(7)).
type IDMap struct{ Inside, Host, Size uint32 }

// A UserNS describes a user namespace to make.
type UserNS struct {
	UIDs, GIDs []IDMap
	// Owner is the host uid that owns the namespace, to which the kernel charges pending signals,
	// inotify instances and other counts of the namespace. nil is the caller's uid.
	Owner *uint32
	// Counts are limits of the namespace, by their names in /proc/sys/user without "max_". A
	// missing file is skipped: such a kernel does not have these objects.
	Counts map[string]int64
}

// NewUserNS makes a user namespace without processes, for id-mapped mounts and for a jail to join.
// A forked copy of this process makes it and is killed when the id maps are written. The caller
// must be root, or have capabilities over its own user namespace.
func NewUserNS(u UserNS) (*os.File, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	steps, done, err := stepsOf(u)
	if err != nil {
		return nil, err
	}
	defer done()
	pid, err := idleFork(steps)
	if err != nil {
		return nil, err
	}
	ns, err := mapUserNS(fmt.Sprintf("/proc/%d", pid), u.UIDs, u.GIDs)
	if err = errors.Join(err, endCopy(pid)); err != nil && ns != nil {
		ns.Close()
		ns = nil
	}
	return ns, err
}

// endCopy kills and reaps a copy that idleFork made.
func endCopy(pid int) error {
	if err := callError("kill", unix.Kill(pid, unix.SIGKILL)); err != nil {
		return err
	}
	return reap(pid)
}

func reap(pid int) error {
	_, err := retried(func() (int, error) { return unix.Wait4(pid, nil, unix.WALL, nil) })
	return callError("wait4", err)
}

func mapUserNS(proc string, uids, gids []IDMap) (*os.File, error) {
	ns, err := os.Open(proc + "/ns/user")
	if err != nil {
		return nil, err
	}
	return ns, writeIDMaps(proc, uids, gids)
}

func writeIDMaps(proc string, uids, gids []IDMap) error {
	if err := os.WriteFile(proc+"/uid_map", formatIDMap(uids), 0); err != nil {
		return err
	}
	return os.WriteFile(proc+"/gid_map", formatIDMap(gids), 0)
}

func formatIDMap(all []IDMap) []byte {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%d %d %d\n", m.Inside, m.Host, m.Size)
	}
	return []byte(b.String())
}

// UserNSOwner returns the host uid that owns the user namespace of a process (ioctl_ns(2)).
func UserNSOwner(pid int) (uint32, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	return ownerOf(ns)
}

func ownerOf(ns *os.File) (uint32, error) {
	owner, err := unix.IoctlGetUint32(int(ns.Fd()), unix.NS_GET_OWNER_UID)
	return owner, pathError("ioctl NS_GET_OWNER_UID", ns.Name(), err)
}

// copySteps holds the arguments of all calls that a forked copy makes before it waits to be killed.
// They are prepared before the fork, since the copy cannot use the Go runtime.
type copySteps struct {
	// Flags of unshare(2).
	flags uintptr
	owned bool
	// The effective uid for unshare, if owned is set.
	owner  uintptr
	header unix.CapUserHeader
	// The capabilities that unshare needs.
	caps [2]unix.CapUserData
	// A proc file system, for counts.
	proc   int
	counts []countStep
	// Descriptor to which the copy reports its progress.
	report int
	// The report: the step, and the errno if it failed.
	said [2]byte
}

// A countStep writes one file of /proc/sys/user.
type countStep struct {
	// name ends with a NUL
	name, value []byte
}

// Steps of a copy, for what it reports.
const (
	stepDone byte = iota
	stepOwner
	stepCapabilities
	stepNamespaces
	// From here on one step for each count.
	stepCounts
)

func stepsOf(u UserNS) (steps *copySteps, done func(), err error) {
	steps, done = &copySteps{flags: unix.CLONE_NEWUSER, proc: -1}, func() {}
	if u.Owner != nil {
		// setresuid takes -1 as "unchanged".
		if *u.Owner == math.MaxUint32 {
			return nil, nil, errors.New("user namespace: its owner is no user")
		}
		steps.owned, steps.owner = true, uintptr(*u.Owner)
		steps.header.Version = unix.LINUX_CAPABILITY_VERSION_3
		if err := unix.Capget(&steps.header, &steps.caps[0]); err != nil {
			return nil, nil, callError("capget", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(u.Counts)) {
		steps.counts = append(steps.counts, countStep{[]byte("sys/user/max_" + name + "\x00"),
			[]byte(strconv.FormatInt(u.Counts[name], 10))})
	}
	if len(steps.counts) > 0 {
		proc, err := openProc()
		if err != nil {
			return nil, nil, err
		}
		steps.proc, done = int(proc.Fd()), func() { proc.Close() }
	}
	return steps, done, nil
}

// openProc opens a proc file system with writable /proc/sys/user: the host's, or a private one if a
// container manager has made /proc/sys read-only.
func openProc() (*os.File, error) {
	var st unix.Statfs_t
	if err := unix.Statfs("/proc/sys", &st); err != nil {
		return nil, pathError("statfs", "/proc/sys", err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return os.Open("/proc")
	}
	proc, err := newMount("proc", "proc", procAttributes)
	if err != nil {
		return nil, fmt.Errorf("/proc/sys is read-only, and a proc of its own is refused: %w", err)
	}
	return proc, nil
}

// idleFork forks, waits until the copy has made its steps and returns its PID. The copy then waits
// to be killed, and sends no SIGCHLD when it ends. Signals are blocked around the fork: no handler
// of the Go runtime may run in the copy.
func idleFork(steps *copySteps) (int, error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return 0, callError("pipe2", err)
	}
	defer unix.Close(pipe[0])
	steps.report = pipe[1]
	pid, err := blockedFork(steps)
	unix.Close(pipe[1])
	if err != nil {
		return 0, err
	}
	if err := steps.reported(pipe[0]); err != nil {
		return 0, errors.Join(err, endCopy(pid))
	}
	return pid, nil
}

func blockedFork(steps *copySteps) (int, error) {
	parent := uintptr(os.Getpid())
	return blocked(func() (uintptr, unix.Errno) { return rawIdleFork(steps, parent) })
}

// blocked calls fork with all signals blocked and returns the PID of the child. In the calling
// thread it then restores the signal mask; in the child all signals stay blocked.
func blocked(fork func() (uintptr, unix.Errno)) (int, error) {
	var all, old unix.Sigset_t
	for i := range all.Val {
		// Every bit, whatever the width of a word is.
		all.Val[i]--
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, callError("rt_sigprocmask", err)
	}
	pid, errno := fork()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
		return 0, callError("rt_sigprocmask", err)
	}
	if errno != 0 {
		return 0, callError("clone", errno)
	}
	return int(pid), nil
}

// reported reads the copy's report and returns the error of a failed step.
func (c *copySteps) reported(from int) error {
	var said [2]byte
	n, err := retried(func() (int, error) { return unix.Read(from, said[:]) })
	if err != nil || n != len(said) {
		return errors.Join(errors.New("a copy of this process ended before it was asked to"),
			callError("read", err))
	}
	errno := unix.Errno(said[1])
	switch step := said[0]; step {
	case stepDone:
		return nil
	case stepOwner:
		return callError(fmt.Sprintf("setresuid %d", c.owner), errno)
	case stepCapabilities:
		return callError("capset", errno)
	case stepNamespaces:
		return callError("unshare", errno)
	default:
		at := c.counts[step-stepCounts]
		return pathError("write", "/proc/"+string(at.name[:len(at.name)-1]), errno)
	}
}

// rawIdleFork must not be split, raced or preempted: in the copy there is one thread and no Go
// runtime around it.
//
//go:norace
//go:nosplit
func rawIdleFork(c *copySteps, parent uintptr) (uintptr, unix.Errno) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, 0, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	c.said[0], c.said[1] = rawSteps(c)
	// The copy ends with the thread that made it. A change of ids resets this.
	unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	// If that thread has ended already, nothing else would kill the copy.
	if now, _, _ := unix.RawSyscall6(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0); now != parent {
		unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
	unix.RawSyscall6(unix.SYS_WRITE, uintptr(c.report), uintptr(unsafe.Pointer(&c.said[0])), 2, 0,
		0, 0)
	for {
		unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// rawSteps makes the calls. It returns the failed step and its errno.
//
//go:norace
//go:nosplit
func rawSteps(c *copySteps) (step, why byte) {
	if c.owned {
		// The real and the saved id stay, so that the capabilities can be taken up again.
		_, _, errno := unix.RawSyscall6(unix.SYS_SETRESUID, ^uintptr(0), c.owner, ^uintptr(0), 0, 0,
			0)
		if errno != 0 {
			return stepOwner, byte(errno)
		}
		// A host may refuse user namespaces to those who are not privileged.
		_, _, errno = unix.RawSyscall6(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.header)),
			uintptr(unsafe.Pointer(&c.caps[0])), 0, 0, 0, 0)
		if errno != 0 {
			return stepCapabilities, byte(errno)
		}
	}
	if _, _, errno := unix.RawSyscall6(unix.SYS_UNSHARE, c.flags, 0, 0, 0, 0, 0); errno != 0 {
		return stepNamespaces, byte(errno)
	}
	for i := range c.counts {
		n := &c.counts[i]
		fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(c.proc),
			uintptr(unsafe.Pointer(&n.name[0])), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
		if errno == unix.ENOENT {
			continue
		}
		if errno == 0 {
			_, _, errno = unix.RawSyscall6(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&n.value[0])),
				uintptr(len(n.value)), 0, 0, 0)
			unix.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
		}
		if errno != 0 {
			return stepCounts + byte(i), byte(errno)
		}
	}
	return stepDone, 0
}

// forkedFsopen opens an fsopen(2) context of a proc in a child of the calling thread, which shares
// its descriptors, and returns its number.
func forkedFsopen() (int, error) {
	var pipe [2]int
	// Non-blocking, since the child has the write end too and may end without a report.
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, callError("pipe2", err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	name, said := []byte("proc\x00"), [2]int32{}
	pid, err := blocked(func() (uintptr, unix.Errno) { return rawFsopen(&name[0], uintptr(pipe[1]), &said) })
	if err != nil {
		return 0, err
	}
	if err := reap(pid); err != nil {
		return 0, err
	}
	text := make([]byte, unsafe.Sizeof(said))
	if n, err := unix.Read(pipe[0], text); err != nil || n != len(text) {
		return 0, errors.Join(errors.New("a child of this thread ended before it opened a proc"), err)
	}
	if errno := binary.NativeEndian.Uint32(text[4:]); errno != 0 {
		return 0, callError("fsopen proc", unix.Errno(errno))
	}
	return int(binary.NativeEndian.Uint32(text)), nil
}

// rawFsopen runs in a child without a Go runtime, as rawIdleFork: it must not be split, raced or
// preempted.
//
//go:norace
//go:nosplit
func rawFsopen(name *byte, report uintptr, said *[2]int32) (uintptr, unix.Errno) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_FILES, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	fd, _, errno := unix.RawSyscall6(unix.SYS_FSOPEN, uintptr(unsafe.Pointer(name)),
		unix.FSOPEN_CLOEXEC, 0, 0, 0, 0)
	said[0], said[1] = int32(fd), int32(errno)
	unix.RawSyscall6(unix.SYS_WRITE, report, uintptr(unsafe.Pointer(said)), unsafe.Sizeof(*said), 0, 0, 0)
	for {
		unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
}
