package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MountFlags are the attributes of a mount, besides nosuid and nodev, which every mount of a jail
// has.
type MountFlags struct {
	Write bool
	Exec  bool
}

func (m MountFlags) attributes() uint64 {
	attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if !m.Write {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	if !m.Exec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	return attr
}

// MountTmpfs mounts a fresh tmpfs on the directory target (tmpfs(5)). options are options of tmpfs,
// such as "mode=0700".
func MountTmpfs(target string, flags MountFlags, options ...string) error {
	mount, err := newMount("tmpfs", target, int(flags.attributes()), options...)
	if err != nil {
		return err
	}
	defer mount.Close()
	return AttachMount(mount, target)
}

// MountTerminals mounts a devpts on the directory target; options are options of devpts. uid and
// gid, host ids, own its directory and ptmx.
func MountTerminals(target, options string, uid, gid uint32) error {
	if err := unix.Mount("devpts", target, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		options); err != nil {
		return pathError("mount devpts", target, err)
	}
	return errors.Join(os.Chown(target, int(uid), int(gid)),
		os.Chown(filepath.Join(target, "ptmx"), int(uid), int(gid)))
}

// MountGroups mounts the cgroup v2 hierarchy on the directory target, unless it is mounted there
// (cgroups(7)).
func MountGroups(target string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return pathError("statfs", target, err)
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return nil
	}
	return pathError("mount cgroup2", target, unix.Mount("cgroup2", target, "cgroup2",
		unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
}

// CloneTree returns a detached copy of the tree at source, an open file or directory, with all
// mounts below it. It must be called in the mount namespace in which source was opened; the copy
// can be attached in any.
func CloneTree(source *os.File) (*os.File, error) {
	return clone(int(source.Fd()), "", source.Name(), unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
}

// CloneOf returns a detached copy of the mount at source, an open file or directory, without the
// mounts below it. Like CloneTree, it must be called in the mount namespace of source.
func CloneOf(source *os.File) (*os.File, error) {
	return clone(int(source.Fd()), "", source.Name(), unix.AT_EMPTY_PATH)
}

// CloneMountOf returns a detached copy of the mount at the path target in the calling thread's
// mount namespace, without the mounts below it. It does not follow a symbolic link at target.
func CloneMountOf(target string) (*os.File, error) {
	return clone(unix.AT_FDCWD, target, target, unix.AT_SYMLINK_NOFOLLOW)
}

// clone returns a detached copy of the mount at path, relative to descriptor dir (open_tree(2)).
// Errors contain name.
func clone(dir int, path, name string, flags uint) (*os.File, error) {
	tree, err := unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
	return opened(tree, "open_tree", name, err)
}

// AttachTree attaches a detached copy of a mount on target. If userns is not nil, it maps the
// owners of files by userns (mount_setattr(2), MOUNT_ATTR_IDMAP).
func AttachTree(tree *os.File, target string, flags MountFlags, userns *os.File) error {
	attr := unix.MountAttr{Attr_set: flags.attributes()}
	if userns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
	}
	return attach(tree, target, unix.AT_RECURSIVE, attr)
}

// AttachShared attaches a detached mount of a file system that is mounted elsewhere too. It sets
// all attributes of the mount except the id mapping, which the mount has already.
func AttachShared(mount *os.File, target string, flags MountFlags) error {
	attr := unix.MountAttr{Attr_set: flags.attributes()}
	attr.Attr_clr = (unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC) &^ attr.Attr_set
	return attach(mount, target, 0, attr)
}

// AttachDevice attaches a detached mount of a device node on target, nosuid and noexec but not
// nodev.
func AttachDevice(tree *os.File, target string) error {
	return attach(tree, target, 0, unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC, Attr_clr: unix.MOUNT_ATTR_NODEV})
}

// attach attaches a detached mount on target with the attributes attr and private propagation.
// flags are 0 or unix.AT_RECURSIVE.
func attach(mount *os.File, target string, flags uint, attr unix.MountAttr) error {
	attr.Propagation = unix.MS_PRIVATE
	if err := setAttributes(mount, target, flags, attr); err != nil {
		return err
	}
	return AttachMount(mount, target)
}

// AttachMount attaches a detached mount to the directory target (move_mount(2)), in the calling
// thread's mount namespace.
func AttachMount(mount *os.File, target string) error {
	return pathError("move_mount", target,
		unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// setAttributes sets the attributes of a mount (mount_setattr(2)). flags are 0, or
// unix.AT_RECURSIVE to include the mounts below. Errors contain name.
func setAttributes(mount *os.File, name string, flags uint, attr unix.MountAttr) error {
	return pathError("mount_setattr", name,
		unix.MountSetattr(int(mount.Fd()), "", unix.AT_EMPTY_PATH|flags, &attr))
}

// MakeReadOnlyMount makes the mount at target read-only, but none below it.
func MakeReadOnlyMount(target string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return pathError("mount_setattr", target,
		unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW, &attr))
}

// OpenNode opens a device node with O_PATH, without opening the device. A link is not followed.
func OpenNode(path string) (*os.File, error) {
	return open(path, path, unix.O_PATH|unix.O_NOFOLLOW)
}

// OpenTarget opens path with O_PATH and follows links.
func OpenTarget(path string) (*os.File, error) { return open(path, path, unix.O_PATH) }

// mountID returns the ID of the mount that f lies on, in decimal as in Mounts (statx(2),
// STATX_MNT_ID). f may be open with O_PATH. A kernel without mount IDs in statx is an error.
func mountID(f *os.File) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return "", pathError("statx", f.Name(), err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return "", pathError("statx", f.Name(),
			errors.New("this kernel does not tell mounts apart"))
	}
	return strconv.FormatUint(st.Mnt_id, 10), nil
}

// CheckCharDevice returns an error unless f is the character device with this major and minor
// number.
func CheckCharDevice(f *os.File, major, minor uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return pathError("fstat", f.Name(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != major ||
		unix.Minor(st.Rdev) != minor {
		return pathError("check", f.Name(),
			fmt.Errorf("is not the character device %d:%d", major, minor))
	}
	return nil
}

// A fsContext is a kernel context to make or reconfigure a file system (fsopen(2), fspick(2)).
type fsContext struct {
	fd int
	// The type of file system, and its source or target, for errors.
	kind, name string
}

func openContext(kind, name string) (fsContext, error) {
	fd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	c := fsContext{fd, kind, name}
	return c, c.failed("fsopen", err)
}

// pickContext returns the context of a mounted file system.
func pickContext(dir int, path, name string, flags int) (fsContext, error) {
	fd, err := unix.Fspick(dir, path, unix.FSPICK_CLOEXEC|flags)
	c := fsContext{fd, name, name}
	return c, c.failed("fspick", err)
}

func (c fsContext) close() { unix.Close(c.fd) }

func (c fsContext) failed(call string, err error) error {
	if c.kind != c.name {
		call += " " + c.kind
	}
	return pathError(call, c.name, err)
}

// newMount returns a detached mount of a fresh file system.
func newMount(kind, name string, attributes int, options ...string) (*os.File, error) {
	c, err := openContext(kind, name)
	if err != nil {
		return nil, err
	}
	return c.made(attributes, options...)
}

// made sets options, makes the file system and returns a detached mount of it. It closes the
// context.
func (c fsContext) made(attributes int, options ...string) (*os.File, error) {
	defer c.close()
	if err := c.set(options...); err != nil {
		return nil, err
	}
	if err := c.create(); err != nil {
		return nil, err
	}
	return c.mount(attributes)
}

// set sets options: flags, or KEY=VALUE (fsconfig(2)).
func (c fsContext) set(options ...string) error {
	for _, o := range options {
		key, value, ok := strings.Cut(o, "=")
		var err error
		if ok {
			err = unix.FsconfigSetString(c.fd, key, value)
		} else {
			err = unix.FsconfigSetFlag(c.fd, key)
		}
		if err != nil {
			return c.failed("fsconfig "+o, err)
		}
	}
	return nil
}

func (c fsContext) create() error { return c.failed("fsconfig create", unix.FsconfigCreate(c.fd)) }

// reconfigure sets options of an existing file system.
func (c fsContext) reconfigure(options ...string) error {
	if err := c.set(options...); err != nil {
		return err
	}
	return c.failed("fsconfig reconfigure", unix.FsconfigReconfigure(c.fd))
}

// mount returns a detached mount of the file system (fsmount(2)).
func (c fsContext) mount(attributes int) (*os.File, error) {
	fd, err := unix.Fsmount(c.fd, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, c.failed("fsmount", err)
	}
	return os.NewFile(uintptr(fd), c.name), nil
}

// AttachIn attaches a detached mount on target in the mount namespace of process pid. target is a
// path below the process's root. No untrusted code may have run in that namespace.
func AttachIn(mount *os.File, pid int, target string) error {
	return inMountsOf(pid, func() error { return AttachMount(mount, target) })
}

// inMountsOf calls f in the mount namespace of a process, on a thread that then ends.
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

// Shown is a detached mount and the path at which to attach it.
type Shown struct {
	Tree   *os.File
	Target string
}

// ShowIn attaches mounts read-only in the mount namespace of process pid. With narrow it then sets
// subset=pid on the proc there (proc(5)): only processes, the mounts in it and /proc/mounts remain.
// The kernel keeps names that are in use, as mount points or as the returned files, which the
// caller must keep open as long as the names are needed. No untrusted code may have run in the
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

// narrowProc sets subset=pid on the proc mounted at dir.
func narrowProc(dir string) error {
	c, err := pickContext(unix.AT_FDCWD, dir, dir, unix.FSPICK_NO_AUTOMOUNT)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.reconfigure(onlyProcesses); err != nil {
		return err
	}
	// The kernel may still have cached names that were looked up before.
	for _, name := range []string{"/sys", "/kcore", "/sysrq-trigger"} {
		if _, err := os.Lstat(dir + name); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s%s is there after the narrowing of the file system", dir, name)
		}
	}
	return nil
}

// onlyProcesses is the mount option of a proc that shows only processes (proc(5)).
const onlyProcesses = "subset=pid"

// NarrowsProc reports whether the kernel can set subset=pid on an existing proc. It tries that on a
// detached one. Newer kernels refuse ("proc: subset=pid cannot be changed").
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

// ProcOf returns a detached mount of a fresh proc of the PID namespace of process pid (proc(5)).
// options are options of proc, such as "hidepid=4". A proc belongs to the PID namespace of the
// process that opens it. Only children of a thread enter another PID namespace (setns(2)), so a
// child opens it.
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
