package sys

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// PrivateMounts moves the calling thread, which the caller must have locked, into a mount namespace
// of its own from which nothing propagates either way (mount_namespaces(7)).
func PrivateMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return callError("unshare CLONE_NEWNS", err)
	}
	return pathError("mount MS_PRIVATE", "/",
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// CloseFrom closes every descriptor from first on, those that the Go runtime holds excepted by
// nobody: call it only just before exec, where a left-over descriptor is a path back to the host
// (CVE-2024-21626). It marks instead of closes, so that the runtime's poller stays whole until the
// exec.
func CloseFrom(first int) error {
	err := unix.CloseRange(uint(first), ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC)
	return callError("close_range", err)
}

// ClearCloexec lets fd live through the next exec.
func ClearCloexec(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	return callError("fcntl F_SETFD", err)
}

// LeaveStdio replaces descriptors 0, 1 and 2 by /dev/null. Otherwise the reader of a pipe would
// wait for this process, too.
func LeaveStdio() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", os.DevNull, err)
	}
	defer unix.Close(null)
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return callError("dup3", err)
		}
	}
	return nil
}

// SetRlimit sets both the soft and the hard limit of the calling process (setrlimit(2)).
// A value above the present hard limit is lowered to it, since raising needs CAP_SYS_RESOURCE.
func SetRlimit(resource int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return fmt.Errorf("getrlimit %d: %w", resource, err)
	}
	value = min(value, now.Max)
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
		return fmt.Errorf("setrlimit %d to %d: %w", resource, value, err)
	}
	return nil
}

// Rlimits by the name that a plan gives them (setrlimit(2)).
var Rlimits = map[string]int{
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

// LandlockABI returns the version of Landlock that the running kernel speaks, 1 or more
// (landlock(7)).
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
	if err != nil {
		return nil, pathError("memfd_create", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// MemFile returns a sealed, read-only in-memory file with the given content (memfd_create(2)).
func MemFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, pathError("memfd_create", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(content); err != nil {
		f.Close()
		return nil, err
	}
	if err := seal(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// seal makes an in-memory file read-only for good. The kernel refuses (EBUSY) while anything else
// holds a page of the file, as its own batches of freshly written pages do on other processors for
// a moment; it waits a tenth of a second itself, which is too short on a busy machine.
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
