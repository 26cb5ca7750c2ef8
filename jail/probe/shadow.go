package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/workspace"
)

// shadow makes a shadow of a small directory below scratch and writes to it, by the code of a run:
// loop device, ext4, id-mapped mounts and overlay, in a mount namespace that ends with the attempt.
func shadow(scratch string) Finding {
	const name = "shadow workspaces"
	if f, other := onlyRoot(name); other {
		return f
	}
	dir, err := os.MkdirTemp(scratch, ".probe-")
	if err != nil {
		return unknown(name, "no room to try: %v", err)
	}
	err = errors.Join(tryShadow(dir), os.RemoveAll(dir))
	if err != nil {
		return no(name, "see the lines above, and whether the file system of "+scratch+
			" has id-mapped mounts (ext4, xfs, btrfs)", "%s", short(err))
	}
	if sys.Rootless() {
		return yes(name, "one was made: a tmpfs, and an overlay in a user namespace")
	}
	return yes(name,
		"one was made on the file system of %s: loop device, ext4, id-mapped mounts, overlay",
		scratch)
}

const (
	tryBytes = 8 << 20
	tryFiles = 64
)

func tryShadow(dir string) (err error) {
	real, target := filepath.Join(dir, "real"), filepath.Join(dir, "target")
	for _, d := range []string{real, target} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	store, err := workspace.Open(filepath.Join(dir, "store"))
	if err != nil {
		return err
	}
	source, err := os.Open(real)
	if err != nil {
		return err
	}
	defer source.Close()
	w, err := store.Prepare(workspace.Spec{ID: "probe", Source: source, Bytes: tryBytes,
		Inodes: tryFiles,
		Caller: workspace.Caller{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Discard(), w.Close()) }()
	return attach(w, real, target)
}

func attach(w *workspace.Workspace, real, target string) error {
	lower, err := w.Lower()
	if err != nil {
		return err
	}
	defer lower.Close()
	upper, err := w.Upper()
	if err != nil {
		return err
	}
	defer upper.Close()
	a := workspace.Attachment{Lower: lower, Upper: upper, Base: lastBase, Target: target}
	if !sys.Rootless() {
		if a.UserNS, err = sys.NewUserNS(sys.UserNS{UIDs: ids, GIDs: ids}); err != nil {
			return err
		}
		defer a.UserNS.Close()
	}
	// The mount namespace ends with the thread.
	return sys.OnEndingThread(func() error { return inside(a, real) })
}

// inside checks the shadow in a mount namespace of its own, as the owner of the real directory.
func inside(a workspace.Attachment, real string) error {
	if err := sys.PrivateMounts(); err != nil {
		return err
	}
	if err := workspace.Attach(a); err != nil {
		return err
	}
	// By descriptor, since other threads do not see the mount.
	shadow, err := os.OpenRoot(a.Target)
	if err != nil {
		return err
	}
	defer shadow.Close()
	info, err := shadow.Stat(".")
	if err != nil {
		return err
	}
	owner, group := uint32(lastBase), uint32(lastBase)
	if sys.Rootless() {
		owner, group = uint32(os.Geteuid()), uint32(os.Getegid())
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != owner {
		return fmt.Errorf("the directory's owner is uid %d in the shadow, and should be %d", uid,
			owner)
	}
	err = sys.AsUser(owner, group, nil, func() error {
		return shadow.WriteFile("new", []byte("x"), 0o644)
	})
	if err != nil {
		return fmt.Errorf("write into the shadow: %w", err)
	}
	if _, err := os.Stat(filepath.Join(real, "new")); err == nil {
		return errors.New("a write to the shadow is in the real directory")
	}
	return nil
}

// leastRoom is the size in bytes of the shadow of one run with the limits of the shipped profiles.
const leastRoom = 512 << 20

// RoomName is the name of Room's finding. Room probes no layer: the room that a run needs depends
// on its limits.
const RoomName = "free room"

// room probes the free room of the file system of dir.
func room(dir string) Finding {
	const name = RoomName
	f, err := os.Open(dir)
	if err != nil {
		return unknown(name, "%v", err)
	}
	defer f.Close()
	free, err := sys.FreeBytes(f)
	switch {
	case err != nil:
		return unknown(name, "%v", err)
	case free < leastRoom:
		return no(name, fmt.Sprintf("make room on it, or take less with --limit workspace=%dMiB",
			max(free>>21, 1)),
			"%d MiB on the file system of %s, and a shadow may take %d", free>>20, dir,
			leastRoom>>20)
	}
	return yes(name, "%d MiB on the file system of %s", free>>20, dir)
}

const loopControl = "/dev/loop-control"

// loopDevices attaches a loop device to an in-memory file: the changes of a shadow are in a mounted
// file. It does not rely on /dev/loop-control, which the cgroup of a service can allow while it
// refuses the devices.
func loopDevices() Finding {
	if f, other := onlyRoot(loopName); other {
		return f
	}
	return loopFinding(tryLoop())
}

const loopName = "loop devices"

func loopFinding(err error) Finding {
	atControl := isAt(err, loopControl)
	switch {
	case err == nil:
		return yes(loopName, "%s, and one was attached", loopControl)
	case atControl && errors.Is(err, fs.ErrNotExist):
		return no(loopName, "modprobe loop, or give the container "+loopControl+" and /dev/loop*",
			"there is no %s", loopControl)
	case !atControl && errors.Is(err, syscall.EPERM):
		return no(loopName,
			"modprobe loop, then systemctl restart jaild: a service is refused the devices "+
				"of a driver that was loaded after it started; or allow them in the service's "+
				"DeviceAllow=", "%v", err)
	}
	return no(loopName, "give this process "+loopControl+" and /dev/loop*", "%v", err)
}

func tryLoop() error {
	image, err := sys.ScratchFile("probe")
	if err != nil {
		return err
	}
	defer image.Close()
	if err := image.Truncate(4096); err != nil {
		return err
	}
	device, err := sys.AttachLoop(image, true)
	if err != nil {
		return err
	}
	return device.Close()
}

// isAt reports whether err is about the file at path.
func isAt(err error, path string) bool {
	var at *os.PathError
	return errors.As(err, &at) && at.Path == path
}

// mkfsPaths are the only places of mkfs.ext4 that jail trusts: anybody can change a PATH.
var mkfsPaths = []string{"/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4",
	"/bin/mkfs.ext4"}

// mkfs finds the program that makes the file systems of shadows.
func mkfs() Finding {
	const name = "mkfs.ext4"
	for _, p := range mkfsPaths {
		if _, err := os.Stat(p); err == nil {
			return yes(name, "%s", p)
		}
	}
	return no(name, "install e2fsprogs", "it is nowhere that programs of the system are")
}
