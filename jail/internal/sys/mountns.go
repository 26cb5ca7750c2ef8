package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// AttachIn attaches a detached mount on target in the mount namespace of a process, whose root
// target is seen from. Nothing that is not trusted may have run in that namespace.
func AttachIn(mount *os.File, pid int, target string) error {
	return inMountsOf(pid, func() error { return AttachMount(mount, target) })
}

// inMountsOf calls f in the mount namespace of a process. The thread that goes there ends.
func inMountsOf(pid int, f func() error) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	return OnEndingThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return callError("unshare CLONE_FS", err)
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return pathError("setns", ns.Name(), err)
		}
		return f()
	})
}

// Shown is a detached mount and where it goes.
type Shown struct {
	Tree   *os.File
	Target string
}

// ShowIn attaches mounts read-only in the mount namespace of a process. With narrow it then leaves of
// the proc there only processes (proc(5), subset=pid), what is mounted on other names of it, and
// /proc/mounts, a link to the table of the process that reads it. The kernel still finds a name
// that somebody holds: a mount point, or one of the files that ShowIn returns, which the caller
// keeps open as long as the names are to be there. Nothing that is not trusted may have run in the
// namespace.
func ShowIn(pid int, mounts []Shown, narrow bool) (held []*os.File, err error) {
	err = inMountsOf(pid, func() error {
		for _, m := range mounts {
			if err := AttachTree(m.Tree, m.Target, MountFlags{}, nil); err != nil {
				return err
			}
		}
		if !narrow {
			return nil
		}
		name, err := OpenNode("/proc/mounts")
		if err != nil {
			return err
		}
		held = append(held, name)
		return narrowProc("/proc")
	})
	return held, err
}

// narrowProc takes everything from a mounted proc but processes.
func narrowProc(dir string) error {
	c, err := pickContext(unix.AT_FDCWD, dir, dir, unix.FSPICK_NO_AUTOMOUNT)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.reconfigure(onlyProcesses); err != nil {
		return err
	}
	// The kernel may have kept a name that somebody has looked at.
	for _, name := range []string{"/sys", "/kcore", "/sysrq-trigger"} {
		if _, err := os.Lstat(dir + name); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s%s is there after the narrowing of the file system", dir, name)
		}
	}
	return nil
}

// onlyProcesses is the option of a proc with nothing else (proc(5)).
const onlyProcesses = "subset=pid"

// NarrowsProc tries whether the kernel sets subset=pid on a proc that is mounted already, on one
// that is attached nowhere. Newer kernels refuse ("proc: subset=pid cannot be changed").
func NarrowsProc() (bool, error) {
	c, err := openContext("proc", "proc")
	if err != nil {
		return false, err
	}
	defer c.close()
	if err := c.create(); err != nil {
		return false, err
	}
	mount, err := c.mount(0)
	if err != nil {
		return false, err
	}
	defer mount.Close()
	err = c.reconfigure(onlyProcesses)
	if errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	return err == nil, err
}

// ProcOf returns a detached mount of a fresh proc that shows the process namespace of a process
// (proc(5)); options are its own, as "hidepid=4". A proc is of the namespace of the process that opens
// it, and that is a child of a thread that ends: a thread enters no process namespace, but its
// children do (setns(2)).
func ProcOf(pid int, options ...string) (*os.File, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var tree *os.File
	err = OnEndingThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWPID); err != nil {
			return pathError("setns", ns.Name(), err)
		}
		fd, err := forkedFsopen()
		if err == nil {
			tree, err = fsContext{fd, "proc", "proc"}.made(procAttributes, options...)
		}
		return err
	})
	return tree, err
}

const procAttributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
