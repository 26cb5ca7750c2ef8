package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PrivateMounts moves the calling thread, which the caller must have locked, into a mount namespace
// of its own from which nothing propagates either way (mount_namespaces(7)).
func PrivateMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return callError("unshare CLONE_NEWNS", err)
	}
	return OwnMounts()
}

// CloseFrom sets close-on-exec on every descriptor from first on, also on the Go runtime's. Call it
// just before exec: a left-over descriptor would be a path back to the host (CVE-2024-21626). It
// does not close them, so that the runtime's poller works until the exec.
func CloseFrom(first int) error {
	err := unix.CloseRange(uint(first), ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
	return callError("close_range", err)
}

// ClearCloexec keeps fd open across the next exec.
func ClearCloexec(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	return callError("fcntl F_SETFD", err)
}

// Replace closes descriptor fd and makes it a copy of descriptor by that stays open across exec. It
// uses F_DUPFD_CLOEXEC, which takes the lowest free number from fd on (fcntl(2)), since the filters
// of a jail do not allow dup2. If another thread has taken fd meanwhile, it returns an error.
func Replace(fd, by int) error {
	if err := unix.Close(fd); err != nil {
		return callError("close", err)
	}
	got, err := unix.FcntlInt(uintptr(by), unix.F_DUPFD_CLOEXEC, fd)
	if err != nil {
		return callError("fcntl F_DUPFD_CLOEXEC", err)
	}
	if got != fd {
		return fmt.Errorf("descriptor %d was taken before it became a copy of %d", fd, by)
	}
	return ClearCloexec(fd)
}

// SetRlimit sets a soft and hard limit of the calling process, by the plan's name of the resource
// (setrlimit(2)). Values above the present hard limit are lowered to it, since raising it needs
// CAP_SYS_RESOURCE.
func SetRlimit(name string, soft, hard uint64) error {
	resource, ok := rlimits[name]
	if !ok {
		return fmt.Errorf("rlimit %q: unknown name", name)
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return fmt.Errorf("rlimit %s: getrlimit: %w", name, err)
	}
	hard = min(hard, now.Max)
	soft = min(soft, hard)
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: soft, Max: hard}); err != nil {
		return fmt.Errorf("rlimit %s: setrlimit to %d, %d: %w", name, soft, hard, err)
	}
	return nil
}

var rlimits = map[string]int{
	"core":       unix.RLIMIT_CORE,
	"cpu":        unix.RLIMIT_CPU,
	"data":       unix.RLIMIT_DATA,
	"fsize":      unix.RLIMIT_FSIZE,
	"nofile":     unix.RLIMIT_NOFILE,
	"nproc":      unix.RLIMIT_NPROC,
	"memlock":    unix.RLIMIT_MEMLOCK,
	"nice":       unix.RLIMIT_NICE,
	"rtprio":     unix.RLIMIT_RTPRIO,
	"stack":      unix.RLIMIT_STACK,
	"msgqueue":   unix.RLIMIT_MSGQUEUE,
	"sigpending": unix.RLIMIT_SIGPENDING,
	"as":         unix.RLIMIT_AS,
	"locks":      unix.RLIMIT_LOCKS,
	"rss":        unix.RLIMIT_RSS,
	"rttime":     unix.RLIMIT_RTTIME,
}

// SetDumpable sets whether other processes of the same user may trace or read the calling process
// (prctl(2)).
func SetDumpable(on bool) error {
	v := uintptr(0)
	if on {
		v = 1
	}
	return callError("prctl PR_SET_DUMPABLE", unix.Prctl(unix.PR_SET_DUMPABLE, v, 0, 0, 0))
}

// LandlockABI returns the Landlock ABI version of the running kernel, 1 or more (landlock(7)).
func LandlockABI() (int, error) {
	const createRulesetVersion = 1
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, createRulesetVersion)
	if errno != 0 {
		return 0, callError("landlock_create_ruleset", errno)
	}
	return int(n), nil
}

// Exec replaces the calling process (execve(2)). It returns only on error.
func Exec(path string, args, env []string) error {
	return pathError("execve", path, unix.Exec(path, args, env))
}

// ScratchFile returns an empty in-memory file (memfd_create(2)).
func ScratchFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	return opened(fd, "memfd_create", name, err)
}

// MemFile returns a sealed, read-only in-memory file with the given content (memfd_create(2)).
func MemFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	f, err := opened(fd, "memfd_create", name, err)
	if err != nil {
		return nil, err
	}
	if _, err = f.Write(content); err == nil {
		err = seal(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// seal makes an in-memory file read-only for good. It retries EBUSY: the kernel itself can hold
// freshly written pages for a moment, and its own wait of 0.1 s is too short on a busy machine.
func seal(f *os.File) error {
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	var err error
	for range 100 {
		if _, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return pathError("fcntl F_ADD_SEALS", f.Name(), err)
}

// KillChildren sends SIGKILL to every child of the calling process. It kills none and returns false
// if the kernel was built without lists of children (CONFIG_PROC_CHILDREN; proc_tid_children(5)).
func KillChildren() bool {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		// A thread may have ended meanwhile.
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				killChild(pid)
			}
		}
	}
	return len(lists) > 0
}

// killChild kills the child pid. The PID may meanwhile belong to another process, so it opens a
// pidfd and then checks the parent.
func killChild(pid int) {
	process, err := OpenProcess(pid)
	if err != nil {
		return
	}
	defer process.Close()
	if parent, _, err := ProcStat(pid); err == nil && parent == os.Getpid() {
		_ = Signal(process, unix.SIGKILL)
	}
}

// ReapChildren waits until every child of the calling process has ended, and reaps them.
func ReapChildren() {
	for {
		_, err := unix.Wait4(-1, nil, unix.WALL, nil)
		if errors.Is(err, unix.ECHILD) {
			return
		}
	}
}

// AdoptOrphans makes the calling process a subreaper, which becomes the parent of orphaned
// descendants (prctl(2), PR_SET_CHILD_SUBREAPER).
func AdoptOrphans() error {
	return callError("prctl PR_SET_CHILD_SUBREAPER",
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// NewSessionKeyring gives the calling process an empty session keyring (keyctl(2)). It returns nil
// on a kernel without keyrings.
func NewSessionKeyring() error {
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno == 0 || errno == unix.ENOSYS {
		return nil
	}
	return callError("keyctl KEYCTL_JOIN_SESSION_KEYRING", errno)
}

// DieWithParent lets the kernel kill the calling process when the thread that is its parent ends
// (prctl(2), PR_SET_PDEATHSIG). It belongs to the calling thread, which the caller must have
// locked, and lives through its exec.
func DieWithParent() error {
	return callError("prctl PR_SET_PDEATHSIG",
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}

// OpenProcess returns a pidfd of the process, which never refers to a later process with the same
// PID (pidfd_open(2)).
func OpenProcess(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, callError("pidfd_open "+strconv.Itoa(pid), err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Signal sends a signal to the process of a pidfd (pidfd_send_signal(2)), and never to a later one
// with the same PID. The error is ESRCH if the process has ended and was waited for.
func Signal(process *os.File, signal unix.Signal) error {
	return control(process, func(fd int) error {
		return callError("pidfd_send_signal", unix.PidfdSendSignal(fd, signal, nil, 0))
	})
}

// control calls do with the descriptor of f and returns the error of do. The descriptor stays open
// until do returns, and a non-blocking descriptor stays non-blocking, unlike with os.File.Fd. If f
// is closed, control returns an error and does not call do.
func control(f syscall.Conn, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := raw.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return err
	}
	return done
}

// HasEnded reports whether the process behind a descriptor of OpenProcess has ended.
func HasEnded(process *os.File) (bool, error) {
	got, err := poll(process.Fd(), unix.POLLIN, 0)
	return got != 0, err
}

// poll waits for events of a descriptor, at most timeout milliseconds (-1 is forever), and returns
// the events that occurred (poll(2)).
func poll(fd uintptr, events int16, timeout int) (got int16, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	_, err = retried(func() (int, error) { return unix.Poll(p, timeout) })
	return p[0].Revents, callError("poll", err)
}

// ProcStat returns the parent of a process and its start time in clock ticks since boot
// (proc_pid_stat(5)). PID and start time identify a process for good; PIDs are reused.
func ProcStat(pid int) (parent int, start uint64, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The name is in parentheses and may contain parentheses.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const state, ppid, starttime = 3, 4, 22
	if len(fields) <= starttime-state {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	parent, err = strconv.Atoi(fields[ppid-state])
	if err != nil {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	start, err = strconv.ParseUint(fields[starttime-state], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return parent, start, nil
}

// AwaitExit waits until the process behind a descriptor of OpenProcess, which need not be a child,
// has exited.
func AwaitExit(process *os.File) error {
	_, err := poll(process.Fd(), unix.POLLIN, -1)
	return err
}

// WaitForeign waits for the exit of a process and then for its status. known is false if the kernel
// reports the status only to the parent (before Linux 6.15), or if the parent does not reap it in
// time.
func WaitForeign(process *os.File) (status unix.WaitStatus, known bool, err error) {
	if err := AwaitExit(process); err != nil {
		return 0, false, err
	}
	// The status is available after the parent has reaped the process.
	for range reapPatience {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		err := unix.IoctlPidfdInfo(int(process.Fd()), &info)
		if err != nil && err != unix.ESRCH {
			return 0, false, nil
		}
		if err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return unix.WaitStatus(info.Exit_code), true, nil
		}
		time.Sleep(reapEvery)
	}
	return 0, false, nil
}

// WaitForeign waits up to reapPatience times reapEvery for the parent to reap the process.
const reapPatience, reapEvery = 1000, 10 * time.Millisecond

// SignalName returns the name of a signal, such as SIGKILL.
func SignalName(s unix.Signal) string { return unix.SignalName(s) }

// SignalNumber returns the signal with a name, with or without SIG, or 0 if there is none.
func SignalNumber(name string) unix.Signal {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return unix.SignalNum(name)
}

// OnEndingThread calls f on a thread that ends after f has returned, and returns f's error. Changes
// to the thread, such as entered namespaces (setns(2), unshare(2)), end with it.
//
// It is never the main thread, which lives as long as the process and whose namespaces /proc/self
// shows.
func OnEndingThread(f func() error) error {
	done := make(chan error, 1)
	go endWith(func() { done <- f() })
	return <-done
}

// endWith calls f on a thread that ends with the calling goroutine.
func endWith(f func()) {
	// Unlocked only if it is the main thread.
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	// This goroutine holds the main thread, so the new goroutine gets another one.
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		endWith(f)
	}()
	<-ended
}
