package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rootless reports whether this process is an ordinary user's with capabilities over its own user
// namespace only: it has CAP_SYS_ADMIN, and is not root (user_namespaces(7)). The result is cached.
var Rootless = sync.OnceValue(func() bool {
	if os.Geteuid() == 0 {
		return false
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if unix.Capget(&header, &caps[0]) != nil || caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return false
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	// In the host's user namespace, where all ids are mapped, a file may have given the capability.
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
})

// NamespaceCaps are the capabilities that a user's daemon keeps in its own user namespace: for
// mounts, id maps, the capability bounds of jails and files that a tool has made unreadable; and to
// inspect a jail, enter its mount namespace (setns(2)) and kill it.
var NamespaceCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETUID, unix.CAP_SETGID,
	unix.CAP_SETPCAP, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE,
	unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_SYS_PTRACE, unix.CAP_SYS_CHROOT}

// NamespaceFlags are the flags of clone(2) for the namespaces of a user's daemon.
const NamespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS

// OwnMounts makes all mounts of this process's mount namespace private: no mount propagates in or
// out.
func OwnMounts() error {
	return pathError("mount MS_PRIVATE", "/",
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// DropCapabilities drops all capabilities of all threads of the calling process, and prevents that
// an exec gives them back.
func DropCapabilities() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT,
		unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); errno != 0 {
		return callError("prctl PR_CAP_AMBIENT", errno)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)),
		uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		return callError("capset", errno)
	}
	return nil
}

// NewTmpfs returns a detached mount of a fresh tmpfs (tmpfs(5)). bytes and inodes are its maximum
// size and number of inodes.
func NewTmpfs(bytes, inodes int64) (*os.File, error) {
	return newMount("tmpfs", "tmpfs",
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOATIME,
		fmt.Sprintf("size=%d", bytes), fmt.Sprintf("nr_inodes=%d", inodes), "mode=0700")
}

// HasUserXattrs reports whether the file system of dir supports user.* extended attributes, which a
// user's overlay needs. tmpfs has them since Linux 6.6. dir may be open with O_PATH.
func HasUserXattrs(dir *os.File) (bool, error) {
	err := unix.Setxattr(fdPath(dir), "user.probe", []byte("y"), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	if err == nil {
		err = unix.Removexattr(fdPath(dir), "user.probe")
	}
	return err == nil, pathError("fsetxattr", dir.Name(), err)
}

// DetachMount lazily unmounts mount, whatever its path is. Open files keep it alive.
func DetachMount(mount *os.File) error {
	return pathError("umount2", mount.Name(), unix.Unmount(fdPath(mount), unix.MNT_DETACH))
}

// TryNamespaces tries to make the namespaces of a user's daemon in a forked process, which it then
// kills. It returns nil if that works, else the error of the failed step.
func TryNamespaces() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := idleFork(&copySteps{flags: NamespaceFlags})
	if err != nil {
		return err
	}
	proc := fmt.Sprintf("/proc/%d", pid)
	err = os.WriteFile(proc+"/setgroups", []byte("deny"), 0)
	if err == nil {
		uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
		err = writeIDMaps(proc, []IDMap{{uid, uid, 1}}, []IDMap{{gid, gid, 1}})
	}
	return errors.Join(err, endCopy(pid))
}
