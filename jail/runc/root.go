package runc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/guest"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy/paths"
)

// rootPath returns a directory to mount the root on, in this process's mount namespace only. The
// jail's users must be able to reach it, which often is not so for a state directory, and it must
// not contain runDir.
func rootPath(runDir string) (string, error) {
	for _, dir := range []string{"/mnt", "/media", "/srv"} {
		info, err := os.Lstat(dir)
		if err == nil && info.IsDir() && info.Mode().Perm()&0o001 != 0 && !paths.Within(dir,
			runDir) {
			return dir, nil
		}
	}
	return "", errors.New(
		"no directory to build the root on: one of /mnt, /media and /srv must be a directory that " +
			"everybody may enter")
}

// rootBytes is the size of the root's mount points and files, without the content of the files.
const rootBytes = 256 << 10

// rootInodes is the number of inodes of mount points and files, without those of the machine.
const rootInodes = 256

// buildRoot makes the jail's root on dir, in the calling thread's private mount namespace: a fresh
// tmpfs or an image, with all mounts of the plan in it. It mounts by descriptor and sets the
// attributes of a mount before it attaches it, which libcontainer does not, so that no mount is
// ever writable or of another source for a moment.
func buildRoot(dir string, o control.Order, given Files, initBinary *os.File,
	userns *os.File) error {
	p, files := o.Plan, given.Binds
	room := rootBytes
	for _, f := range p.Files {
		room += len(f.Text)
	}
	shown, err := machineFiles(p)
	if err != nil {
		return err
	}
	for _, text := range shown {
		room += pageAbove(len(text))
	}
	inodes := rootInodes + 2*len(shown)
	// next calls mount with the next descriptor of the binds.
	next := func(m jail.Mount, mount func(*os.File) error) error {
		if len(files) == 0 {
			return fmt.Errorf("mount %s: no descriptor came for it", m.Target)
		}
		f := files[0]
		files = files[1:]
		return mount(f)
	}
	if image := p.ImageRoot(); image != nil {
		err = next(*image, func(f *os.File) error {
			return mountImage(dir, f, p, int64(room), int64(inodes))
		})
	} else {
		err = sys.MountTmpfs(dir, sys.MountFlags{Write: true, Exec: true}, "mode=0755",
			fmt.Sprintf("size=%d", room), fmt.Sprintf("nr_inodes=%d", inodes))
	}
	if err != nil {
		return err
	}
	for _, m := range p.Mounts {
		target := filepath.Join(dir, m.Target)
		if inDev(m) {
			continue
		}
		switch m.Kind {
		case jail.MountMachine:
			// showMachine mounts it when the jail's proc is there, or an outer layer does.
			if !m.InProc() || p.KernelInside() {
				err = mountPoint(target, !m.InProc())
			}
		case jail.MountProc:
			// libcontainer mounts it, inside the new namespaces, but may not make a directory here
			err = mountPoint(target, true)
		case jail.MountTmpfs:
			if !isShared(o, m) {
				err = mountTmpfs(target, m, p.IDs)
				break
			}
			err = next(m, func(f *os.File) error {
				return attachShared(f, target, sys.MountFlags{Write: m.Write, Exec: m.Exec})
			})
		case jail.MountCache:
			err = next(m, func(f *os.File) error { return mountCache(f, target, m, userns) })
		case jail.MountState:
			if o.Later {
				err = mountPoint(target, true)
			} else {
				err = bindFor(p, given.Lower, target, m, userns)
			}
		case jail.MountBind:
			err = next(m, func(f *os.File) error { return bindFor(p, f, target, m, userns) })
		}
		if err != nil {
			return err
		}
	}
	if err := writeFiles(dir, p.Files); err != nil {
		return err
	}
	if err := writeMachine(dir, shown); err != nil {
		return err
	}
	if err := mountDevices(filepath.Join(dir, devDir), p); err != nil {
		return err
	}
	target := filepath.Join(dir, guest.Self)
	if err := mountPoint(target, false); err != nil {
		return err
	}
	tree, err := sys.CloneTree(initBinary)
	if err != nil {
		return err
	}
	defer tree.Close()
	return sys.AttachTree(tree, target, sys.MountFlags{Exec: true}, nil)
}

// devDir is where device nodes are, below the root.
const devDir = "dev"

// mountDevices mounts a tmpfs on dir, binds the host's device nodes into it and makes it read-only.
// Nodes cannot be made in a user namespace, and a bound node cannot be a link (CVE-2025-31133).
func mountDevices(dir string, p jail.Plan) error {
	if err := mountPoint(dir, true); err != nil {
		return err
	}
	if err := sys.MountTmpfs(dir, sys.MountFlags{Write: true}, "size=64k", "nr_inodes=64",
		"mode=0755"); err != nil {
		return err
	}
	for _, name := range p.Devices {
		if err := bindDevice(name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := mountInDev(dir, p); err != nil {
		return err
	}
	return sys.MakeReadOnlyMount(dir)
}

func bindDevice(name, target string) error {
	number, ok := jail.DeviceNumbers[name]
	if !ok {
		return fmt.Errorf("device %q: not one that a jail may have", name)
	}
	node, err := sys.OpenNode("/dev/" + name)
	if err != nil {
		return err
	}
	defer node.Close()
	if err := sys.CheckCharDevice(node, uint32(number[0]), uint32(number[1])); err != nil {
		return err
	}
	tree, err := sys.CloneTree(node)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := mountPoint(target, false); err != nil {
		return err
	}
	return sys.AttachDevice(tree, target)
}

func mountTmpfs(target string, m jail.Mount, ids jail.IDs) error {
	if err := mountPoint(target, true); err != nil {
		return err
	}
	uid, gid := ids.Host()
	return sys.MountTmpfs(target, sys.MountFlags{Write: m.Write, Exec: m.Exec}, "mode=0700",
		fmt.Sprintf("size=%d", m.Size), fmt.Sprintf("nr_inodes=%d", m.Files),
		fmt.Sprintf("uid=%d", uid), fmt.Sprintf("gid=%d", gid))
}

// mountCache attaches the directory workspace.CacheRoot of a cache's file system, mount. Not all
// kernels can clone a directory of a detached mount (open_tree(2)), so the whole file system is
// mounted at the target for a moment, in this mount namespace only.
func mountCache(mount *os.File, target string, m jail.Mount, userns *os.File) error {
	if err := mountPoint(target, true); err != nil {
		return err
	}
	flags := sys.MountFlags{Write: m.Write, Exec: m.Exec}
	if err := sys.AttachTree(mount, target, flags, nil); err != nil {
		return err
	}
	tree, err := sys.CloneMountOf(filepath.Join(target, workspace.CacheRoot))
	if err := errors.Join(err, sys.DetachTop(target)); err != nil {
		if tree != nil {
			tree.Close()
		}
		return err
	}
	defer tree.Close()
	return sys.AttachTree(tree, target, flags, userns)
}

// bindFor calls bind, without a user namespace in a user's jail.
func bindFor(p jail.Plan, source *os.File, target string, m jail.Mount, userns *os.File) error {
	if p.IDs.User {
		// Owners stay who they are.
		userns = nil
	}
	return bind(source, target, m, userns)
}

// bind attaches a copy of source's mount at target, with owners mapped by userns. If the file
// system cannot map owners, a read-only bind is attached unmapped, which grants fewer rights; a
// writable one is an error.
func bind(source *os.File, target string, m jail.Mount, userns *os.File) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if err := mountPoint(target, info.IsDir()); err != nil {
		return err
	}
	flags := sys.MountFlags{Write: m.Write, Exec: m.Exec}
	err = sys.AttachTree(source, target, flags, userns)
	if err != nil && !m.Write {
		err = sys.AttachTree(source, target, flags, nil)
	}
	if errors.Is(err, syscall.EINVAL) && m.Write {
		return fmt.Errorf(
			"the file system under %s cannot map owners on this kernel, so it cannot be written "+
				"to: mount it read-only, or use ext4, xfs or btrfs (tmpfs from Linux 6.3 on): %w", m.Target, err)
	}
	return err
}

func mountPoint(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o444)
}

// ptsOptions are the mount options of a jail's own devpts, with at most 64 terminals (the kernel's
// Documentation/filesystems/devpts.rst).
const ptsOptions = "newinstance,ptmxmode=0666,mode=0620,max=64"

func isPTS(m jail.Mount) bool { return m.Kind == jail.MountPTS }

// inDev reports whether a mount lies in the directory of the device nodes, which is made later.
func inDev(m jail.Mount) bool { return strings.HasPrefix(m.Target, "/"+devDir+"/") }

// devLinks are the links in /dev to a process's own descriptors.
var devLinks = map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
	"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}

// mountInDev makes the plan's mounts and links in dir, the jail's /dev. It mounts a devpts only for
// bubblewrap; otherwise libcontainer mounts it on the mount point, inside the new namespaces.
func mountInDev(dir string, p jail.Plan) error {
	for _, m := range p.Mounts {
		if !inDev(m) {
			continue
		}
		target := filepath.Join(dir, strings.TrimPrefix(m.Target, "/"+devDir))
		if m.Kind == jail.MountTmpfs {
			if err := mountTmpfs(target, m, p.IDs); err != nil {
				return err
			}
			continue
		}
		if err := mountPoint(target, true); err != nil {
			return err
		}
		if isPTS(m) && p.ByBubblewrap() {
			// bubblewrap mounts a devpts only together with a /dev of its own.
			if err := sys.MountTerminals(target, ptsOptions, p.IDs.Base, p.IDs.HostGroup()); err != nil {
				return err
			}
		}
		if isPTS(m) {
			if err := os.Symlink(filepath.Join(filepath.Base(m.Target), "ptmx"),
				filepath.Join(dir, "ptmx")); err != nil {
				return err
			}
		}
	}
	if p.Command.Runner != jail.RunnerNative {
		return nil
	}
	for name, to := range devLinks {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes files and links below dir, with mode 0444.
func writeFiles(dir string, files []jail.File) error {
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if f.Link != "" {
			if err := os.Symlink(f.Link, path); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, []byte(f.Text), 0o444); err != nil {
			return err
		}
		// Whatever the daemon's umask is.
		if err := os.Chmod(path, 0o444); err != nil {
			return err
		}
	}
	return nil
}
