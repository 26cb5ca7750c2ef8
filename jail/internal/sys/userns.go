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

// A UserNS is a user namespace that is to be made.
type UserNS struct {
	UIDs, GIDs []IDMap
	// Owner is the user of the host, by its id, to whom the kernel charges what is counted in the
	// namespace: signals that wait, inotify instances and whatever else is counted up the chain of
	// namespaces. It is charged to nobody else. nil is the caller's own.
	Owner *uint32
	// Counts are bounds of the namespace itself, by their names in /proc/sys/user, without "max_".
	// A kernel that does not count a thing has no such file, and gives nobody the thing.
	Counts map[string]int64
}

// NewUserNS makes a user namespace that no process is in, for id-mapped mounts and for a jail to
// join. A namespace needs a process to be made by: it is a copy of this one that is killed as soon
// as the namespace has its maps. A caller must be root, or a user with rights over its own
// namespace.
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

// endCopy ends what idleFork made. The copy ends with this thread, and nobody else may wait for it.
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

// UserNSOwner returns who owns the user namespace of a process, as an id of the host (ioctl_ns(2)).
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

// copySteps are what a copy of this process does before it waits to be killed. All of it lies in
// memory before the fork: the copy has no Go runtime to make anything with.
type copySteps struct {
	// Namespaces that it makes (unshare(2)).
	flags uintptr
	owned bool
	// The user that it is when it makes them, where owned.
	owner  uintptr
	header unix.CapUserHeader
	// That it keeps for that.
	caps [2]unix.CapUserData
	// A proc file system, for counts.
	proc   int
	counts []countStep
	// Where it says how far it has come.
	report int
	// The step and, if it failed, why.
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
	// And on, one for each.
	stepCounts
)

func stepsOf(u UserNS) (steps *copySteps, done func(), err error) {
	steps, done = &copySteps{flags: unix.CLONE_NEWUSER, proc: -1}, func() {}
	if u.Owner != nil {
		// By which setresuid means: as it is.
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

// openProc opens a proc file system whose bounds can be written: the host's, or where a container
// manager has made its /proc/sys read-only, one that nobody else sees.
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

// idleFork forks and returns when the copy has made its steps. The copy waits to be killed and
// sends no signal when it ends, so nobody but the caller needs to know of it. Signals are blocked
// around the fork: no handler of the Go runtime may run in the copy.
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

// blocked forks with all signals blocked.
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

// reported reads what the copy says.
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
	// If the thread that made it ends first, so does the copy. A change of ids takes that back.
	unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	// And if it has ended already, nobody else would end the copy.
	if now, _, _ := unix.RawSyscall6(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0); now != parent {
		unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
	unix.RawSyscall6(unix.SYS_WRITE, uintptr(c.report), uintptr(unsafe.Pointer(&c.said[0])), 2, 0,
		0, 0)
	for {
		unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// rawSteps makes the steps, and returns the one that failed and why.
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

// forkedFsopen opens a context of a proc in a child of the calling thread, which shares its
// descriptors, and returns it.
func forkedFsopen() (int, error) {
	var pipe [2]int
	// The child has the write end, too, and may end without a word.
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

// rawFsopen must not be split, raced or preempted, as rawIdleFork.
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
