// Command without runs a program on a host that lacks something, for tests of what is refused there:
//
//	without [-deny CALL=ERRNO]... [-no-userns [-userns-errno ERRNO]] [-no-cgroups] [-no-loop] [-no-unified] [-no-listener]
//	        [-ro DIR]... [-noexec DIR] [-hidepid] [-tmpfs DIR=OPTIONS]... [-pids] -- PROGRAM [ARG...]
//
// What is mounted is mounted in a mount namespace of its own; nothing of it is seen on the host.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var calls = map[string]uint32{
	"landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET, "landlock_restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF,
	"seccomp": unix.SYS_SECCOMP, "open_tree": unix.SYS_OPEN_TREE, "mount_setattr": unix.SYS_MOUNT_SETATTR, "move_mount": unix.SYS_MOVE_MOUNT,
	"fsopen": unix.SYS_FSOPEN, "fsmount": unix.SYS_FSMOUNT, "pivot_root": unix.SYS_PIVOT_ROOT, "memfd_create": unix.SYS_MEMFD_CREATE,
	"openat2": unix.SYS_OPENAT2, "sethostname": unix.SYS_SETHOSTNAME, "capset": unix.SYS_CAPSET,
}

var errnos = map[string]unix.Errno{"ENOSPC": unix.ENOSPC, "EACCES": unix.EACCES, "ENOSYS": unix.ENOSYS, "EPERM": unix.EPERM, "EINVAL": unix.EINVAL, "EOPNOTSUPP": unix.EOPNOTSUPP}

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	var deny, tmpfs list
	flag.Var(&deny, "deny", "CALL=ERRNO")
	flag.Var(&tmpfs, "tmpfs", "DIR=OPTIONS")
	noUserns := flag.Bool("no-userns", false, "refuse new user namespaces")
	flag.StringVar(&odd.usernsErrno, "userns-errno", "EPERM", "how they are refused")
	noCgroups := flag.Bool("no-cgroups", false, "hide the control groups")
	noLoop := flag.Bool("no-loop", false, "hide the loop devices")
	pids := flag.Bool("pids", false, "in a process namespace")
	flag.Var(&odd.readOnly, "ro", "make DIR and what is mounted below it read-only")
	flag.StringVar(&odd.noExec, "noexec", "", "let nothing below DIR be executed")
	flag.BoolVar(&odd.hidePID, "hidepid", false, "hide the processes of others in /proc")
	flag.BoolVar(&odd.noUnified, "no-unified", false, "hide the control groups of version 2 beside those of version 1")
	flag.BoolVar(&odd.noListener, "no-listener", false, "refuse filters with a listener")
	flag.Parse()
	runtime.LockOSThread()
	if err := run(deny, tmpfs, *noUserns, *noCgroups, *noLoop, *pids, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "without:", err)
		os.Exit(99)
	}
}

// odd is what is unusual about a host, of which not all is missing.
var odd struct {
	readOnly                       list
	noExec, usernsErrno            string
	hidePID, noUnified, noListener bool
}

func oddMounts() error {
	for _, dir := range odd.readOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("read-only %s: %w", dir, err)
		}
	}
	if odd.noExec != "" {
		err := unix.Mount(odd.noExec, odd.noExec, "", unix.MS_BIND, "")
		err = errors.Join(err, unix.Mount("", odd.noExec, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOEXEC, ""))
		if err != nil {
			return fmt.Errorf("noexec %s: %w", odd.noExec, err)
		}
	}
	if odd.hidePID {
		if err := unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"); err != nil {
			return fmt.Errorf("hidepid: %w", err)
		}
	}
	if odd.noUnified {
		if err := unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unified: %w", err)
		}
	}
	return nil
}

func run(deny, tmpfs []string, noUserns, noCgroups, noLoop, pids bool, args []string) error {
	if pids {
		return inPIDNamespace(args)
	}
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		return err
	}
	for _, m := range tmpfs {
		dir, options, _ := strings.Cut(m, "=")
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
			return fmt.Errorf("tmpfs on %s: %w", dir, err)
		}
	}
	if noCgroups {
		if err := unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	if noLoop {
		if err := hideLoop(); err != nil {
			return err
		}
	}
	if err := oddMounts(); err != nil {
		return err
	}
	filter, err := newFilter(deny, noUserns)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return unix.Exec(path, args, os.Environ())
}

// inPIDNamespace runs the program where it sees, and can end, only its own processes.
func inPIDNamespace(args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Unshared, not cloned: only then are mounts kept from a host whose own are shared, as under systemd.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	err := cmd.Run()
	if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		os.Exit(e.ExitCode())
	}
	return err
}

// hideLoop puts a /dev in place that has the nodes that every program needs and no others.
func hideLoop() error {
	dir, err := os.MkdirTemp("", "dev-")
	if err != nil {
		return err
	}
	defer os.Remove(dir) // below the mount that has moved away from it
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		node := filepath.Join(dir, name)
		if err := os.WriteFile(node, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, node, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return unix.Mount(dir, "/dev", "", unix.MS_MOVE, "")
}

// Offsets into struct seccomp_data.
const (
	offNumber = 0
	offArg0   = 16
	offArg1   = 24
)

func newFilter(deny []string, noUserns bool) ([]unix.SockFilter, error) {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	ifNot := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	fail := func(e unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(e)}
	}
	filter := []unix.SockFilter{load(offNumber)}
	for _, d := range deny {
		name, errno, _ := strings.Cut(d, "=")
		nr, ok := calls[name]
		e, ok2 := errnos[errno]
		if !ok || !ok2 {
			return nil, fmt.Errorf("-deny %s: unknown", d)
		}
		filter = append(filter, ifNot(nr, 1), fail(e))
	}
	if noUserns {
		filter = append(filter, ifNot(unix.SYS_CLONE3, 1), fail(unix.ENOSYS)) // its flags are in memory; everyone falls back to clone
		for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			filter = append(filter, ifNot(nr, 4), load(offArg0),
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1},
				fail(errnos[odd.usernsErrno]), load(offNumber))
		}
	}
	if odd.noListener {
		filter = append(filter, ifNot(unix.SYS_SECCOMP, 4), load(offArg1),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, Jf: 1},
			fail(unix.EINVAL), load(offNumber))
	}
	return append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}), nil
}
