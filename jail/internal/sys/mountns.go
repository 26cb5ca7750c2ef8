package sys

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// AttachIn attaches a detached mount on target in the mount namespace of a process, whose root
// target is seen from. Nothing that is not trusted may have run in that namespace. The thread that
// goes there ends.
func AttachIn(mount *os.File, pid int, target string) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error, 1)
	go func() {
		// For good: nobody else may get this thread.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- callError("unshare CLONE_FS", err)
			return
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			done <- pathError("setns", ns.Name(), err)
			return
		}
		done <- pathError("move_mount", target, unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD,
			target, unix.MOVE_MOUNT_F_EMPTY_PATH))
	}()
	return <-done
}
