package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AsUser runs f with the file rights of another user, on a thread with the given file system ids
// and groups (setfsuid(2), setgroups(2)), and returns its error. f must not start goroutines that
// need those rights. If the ids cannot be restored, the thread ends. For uid 0 f has all rights of
// root.
func AsUser(uid, gid uint32, groups []uint32, f func() error) error {
	if uid == uint32(os.Geteuid()) && gid == uint32(os.Getegid()) {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		// This error stays if f ends its goroutine (runtime.Goexit).
		err := errors.New("as user: the function did not return")
		defer func() { done <- err }()
		saved, switchErr := becomeUser(uid, gid, groups)
		defer func() {
			// Without the unlock the runtime ends the thread together with this goroutine.
			if saved.restore() == nil {
				runtime.UnlockOSThread()
			}
		}()
		if switchErr != nil {
			err = switchErr
			return
		}
		err = f()
	}()
	return <-done
}

type fileIDs struct {
	groups  []uint32
	changed bool
}

func becomeUser(uid, gid uint32, groups []uint32) (fileIDs, error) {
	var s fileIDs
	old, err := unix.Getgroups()
	if err != nil {
		return s, callError("getgroups", err)
	}
	for _, g := range old {
		s.groups = append(s.groups, uint32(g))
	}
	s.changed = true
	if err := setThreadGroups(groups); err != nil {
		return s, err
	}
	if err := setFileIDs(uid, gid); err != nil {
		return s, err
	}
	return s, nil
}

func (s fileIDs) restore() error {
	if !s.changed {
		return nil
	}
	return errors.Join(setFileIDs(uint32(os.Geteuid()), uint32(os.Getegid())),
		setThreadGroups(s.groups))
}

// setFileIDs sets the file system ids of the calling thread: the group first, since a changed user
// has no right to set the group. The calls do not report failure, so the result is read back.
func setFileIDs(uid, gid uint32) error {
	unix.Setfsgid(int(gid))
	if got, err := unix.SetfsgidRetGid(-1); err != nil || uint32(got) != gid {
		return fmt.Errorf("setfsgid %d: the kernel kept %d", gid, got)
	}
	unix.Setfsuid(int(uid))
	if got, err := unix.SetfsuidRetUid(-1); err != nil || uint32(got) != uid {
		return fmt.Errorf("setfsuid %d: the kernel kept %d", uid, got)
	}
	return nil
}

// setThreadGroups is setgroups(2) for the calling thread only; syscall.Setgroups changes all
// threads.
func setThreadGroups(groups []uint32) error {
	groups = slices.Clip(groups)
	_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)),
		uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	if e != 0 {
		return callError("setgroups", e)
	}
	return nil
}
