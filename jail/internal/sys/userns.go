package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

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
