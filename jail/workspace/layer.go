package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// layer is the upper layer of a workspace: the file system that a tool writes to. It is an ext4
// image upper.img on a loop device, or a tmpfs that Keep saves to upper.img. The zero layer is not
// open.
type layer struct {
	// image is upper.img. Its lock is exclusive while a jail may write, and shared afterwards.
	image *os.File
	loop  *os.File
	mount *os.File
	// root is the root directory of mount, open while a jail may write to it: syncfs(2) on it
	// reports the write errors since it was opened.
	root *os.File
	// lost is the kernel's error if it could not write all of the layer.
	lost error
	// damaged are the paths of which a part did not reach the disk; see lookForDamage.
	damaged map[string]bool
	// memory: mount is a tmpfs that is attached in this process's mount namespace; see newMemory.
	memory bool
	// frozen are the frozen layers below the upper layer, the newest first.
	frozen []*frozenLayer
}

// openOwn opens the directory upper of this layer, without the frozen layers.
func (l *layer) openOwn() (*os.File, error) { return sys.OpenSubdir(l.mount, "upper") }

func (l *layer) close() error {
	err := errors.Join(l.detachMemory(), closeFiles(&l.root, &l.mount, &l.loop, &l.image),
		releaseAll(l.frozen))
	l.frozen = nil
	return err
}

// closeFiles closes the files that are not nil and sets them to nil.
func closeFiles(files ...**os.File) error {
	var err error
	for _, f := range files {
		if *f != nil {
			err = errors.Join(err, (*f).Close())
			*f = nil
		}
	}
	return err
}

// A user's own daemon can make no loop device and mount no ext4. Each of its layers is a tmpfs with
// the same limits. Its content is in memory until Keep writes it to upper.img as an archive (see
// archived). A review reads the archive into a new tmpfs.

// errNoMarks is returned if the kernel's tmpfs lacks user extended attributes, which an overlay
// without root needs.
var errNoMarks = errors.New(
	"the kernel's tmpfs has no user extended attributes, which a shadow without root needs: boot " +
		"Linux 6.6 or newer")

// inodesOfMemory is the number of inodes of a tmpfs layer that are not the tool's: root, upper and
// work, three that the overlay makes in work, and two for attributes, which a tmpfs counts, too.
const inodesOfMemory = 8

// lostMemory is the error for a layer that was in the memory of a killed daemon. It is an errLost.
type lostMemory struct{}

func (lostMemory) Error() string {
	return "what was written lay in the memory of a jaild that was killed, and is gone with it"
}
func (lostMemory) Is(err error) bool { return err == errLost }

// newMemory makes an empty layer, a tmpfs. It attaches the mount on top of the store's directory in
// this process's own mount namespace, since older kernels cannot clone a detached mount.
func (l *layer) newMemory(store *os.File, bytes, inodes int64) (err error) {
	if l.mount, err = sys.NewTmpfs(bytes, inodes+inodesOfMemory); err != nil {
		return err
	}
	if ok, err := sys.HasUserXattrs(l.mount); err != nil {
		return err
	} else if !ok {
		return errNoMarks
	}
	at, err := sys.PathOf(store)
	if err != nil {
		return err
	}
	if err := sys.AttachMount(l.mount, at); err != nil {
		return err
	}
	l.memory = true
	return nil
}

// detachMemory unmounts a layer in memory. It must be called before the layer's files are closed.
func (l *layer) detachMemory() error {
	if !l.memory {
		return nil
	}
	l.memory = false
	return sys.DetachMount(l.mount)
}

// keepMemory writes a layer in memory to upper.img as an archive.
func (l *layer) keepMemory() error {
	upper, err := l.openOwn()
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := l.image.Truncate(0); err != nil {
		return err
	}
	if _, err := l.image.Seek(0, 0); err != nil {
		return err
	}
	return writeArchive(l.image, upper)
}

// readMemory reads the archive that an earlier process kept into a new read-only tmpfs, of at most
// bytes and inodes. l.image must be open and locked.
func (l *layer) readMemory(bytes, inodes int64) (err error) {
	if st, err := sys.Fstat(l.image); err != nil || st.Size == 0 {
		return errors.Join(err, lostMemory{})
	}
	// A full layer may need a little more space now, if its directories had shrunk.
	if l.mount, err = sys.NewTmpfs(bytes+1<<20, 2*inodes+inodesOfMemory); err != nil {
		return err
	}
	if err := sys.MkdirAt(l.mount, "upper", 0o700); err != nil {
		return err
	}
	upper, err := l.openOwn()
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := readArchive(l.image, upper); err != nil {
		return fmt.Errorf("upper.img: %w", err)
	}
	return sys.MakeReadOnly(l.mount)
}

// ownerOf returns the uid and gid to set on a directory of the layer: uid and gid, or without root
// those of this process, since a user namespace cannot set others.
func ownerOf(uid, gid uint32) (uint32, uint32) {
	if sys.Rootless() {
		return uint32(os.Geteuid()), uint32(os.Getegid())
	}
	return uid, gid
}

// mark returns the prefix of overlayfs's own extended attributes.
func mark() string {
	if sys.Rootless() {
		return "user.overlay."
	}
	return "trusted.overlay."
}

// An upperDir is one directory of a shadow without the real directory: in the upper layer, merged
// with the frozen layers below it as overlayfs does (Documentation/filesystems/overlayfs.rst,
// "Multiple lower layers").
type upperDir struct {
	// dirs are the directory in each layer that has it, the topmost first.
	dirs []*os.File
	// opaque: nothing below these layers shows through.
	opaque bool
}

// openUpper opens the root directory of all layers of the workspace, the frozen ones included.
func (l *layer) openUpper() (*upperDir, error) {
	if l.mount == nil {
		return joinRoots(l.frozen)
	}
	own, err := l.openOwn()
	if err != nil {
		return nil, err
	}
	below, err := joinRoots(l.frozen)
	if err != nil {
		own.Close()
		return nil, err
	}
	below.dirs = append([]*os.File{own}, below.dirs...)
	return below, nil
}

func joinRoots(layers []*frozenLayer) (*upperDir, error) {
	u := &upperDir{}
	for _, l := range layers {
		root, err := sys.OpenSubdir(l.mount, "upper")
		if err != nil {
			u.Close()
			return nil, err
		}
		u.dirs = append(u.dirs, root)
	}
	return u, nil
}

// Close closes the directory.
func (u *upperDir) Close() {
	if u != nil {
		closeAll(u.dirs...)
	}
}

// stat returns the stat of the directory in the topmost layer.
func (u *upperDir) stat() (sys.Stat, error) { return sys.Fstat(u.dirs[0]) }

// names returns the names in all layers, whiteouts included. A name may occur several times.
func (u *upperDir) names() (all []string, err error) {
	for _, d := range u.dirs {
		names, err := d.Readdirnames(-1)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	return all, nil
}

// find returns the directory of the topmost layer that has a name, and the stat of the entry, which
// may be a whiteout. The error is fs.ErrNotExist if no layer has the name.
func (u *upperDir) find(name string) (dir *os.File, st sys.Stat, err error) {
	for _, d := range u.dirs {
		st, err = sys.LstatAt(d, name)
		if !errors.Is(err, fs.ErrNotExist) {
			return d, st, err
		}
	}
	return nil, st, fs.ErrNotExist
}

// sub opens a subdirectory. The error is fs.ErrNotExist if no layer has it.
func (u *upperDir) sub(name string) (sub *upperDir, err error) {
	sub = &upperDir{opaque: u.opaque}
	defer func() {
		if err != nil {
			sub.Close()
			sub = nil
		}
	}()
	for _, d := range u.dirs {
		st, err := sys.LstatAt(d, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if len(sub.dirs) > 0 && typeOf(st) != Dir {
			// A directory was made where a lower layer has something else, or nothing.
			sub.opaque = true
			return sub, nil
		}
		// This fails if the topmost entry is no directory.
		f, err := sys.OpenSubdir(d, name)
		if err != nil {
			return nil, err
		}
		sub.dirs = append(sub.dirs, f)
		covers, err := isOpaque(f)
		if err != nil {
			return nil, err
		}
		if covers {
			sub.opaque = true
			return sub, nil
		}
	}
	if len(sub.dirs) == 0 {
		return nil, fs.ErrNotExist
	}
	return sub, nil
}

// isOpaque reports whether a directory of a layer is opaque: it hides the one below. The mark is a
// trusted.overlay attribute, which only root can set. user.overlay attributes, which a tool can
// set, are ignored. Without root the mark is a user.overlay attribute. The overlay reserves these
// names then, so a tool cannot set them.
func isOpaque(dir *os.File) (bool, error) {
	value, err := sys.Xattr(dir, mark()+"opaque")
	return string(value) == "y", err
}

// open opens a directory by its path below u, "" for u itself. The error is fs.ErrNotExist if the
// layers do not have it.
func (u *upperDir) open(path string) (*upperDir, error) {
	dir, _, _, err := u.through(path)
	if err == nil && dir == nil {
		err = fs.ErrNotExist
	}
	return dir, err
}

// through opens a directory by its path below u. If the layers do not have it, dir is nil, and
// lacking is the first part of the path that they do not have. real reports whether the real
// directory shows through there. The error is fs.ErrNotExist if a part of the path is no directory.
func (u *upperDir) through(path string) (dir *upperDir, real bool, lacking string, err error) {
	dir = &upperDir{opaque: u.opaque}
	for _, d := range u.dirs {
		f, err := sys.OpenSubdir(d, ".")
		if err != nil {
			dir.Close()
			return nil, false, "", err
		}
		dir.dirs = append(dir.dirs, f)
	}
	at := ""
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		at = join(at, name)
		_, st, err := dir.find(name)
		if errors.Is(err, fs.ErrNotExist) {
			dir.Close()
			return nil, !dir.opaque, at, nil
		}
		if err == nil && typeOf(st) != Dir {
			err = fs.ErrNotExist
		}
		var next *upperDir
		if err == nil {
			next, err = dir.sub(name)
		}
		dir.Close()
		if err != nil {
			return nil, false, "", err
		}
		dir = next
	}
	return dir, !dir.opaque, "", nil
}

// at returns the parent directory of a path in the topmost layer that has the path, and the last
// component of the path. The caller closes dir. The error is fs.ErrNotExist if no layer has it.
func (u *upperDir) at(path Name) (dir *os.File, name string, err error) {
	parent, name := split(string(path))
	d, err := u.open(parent)
	if err != nil {
		return nil, "", err
	}
	defer d.Close()
	found, _, err := d.find(name)
	if err != nil {
		return nil, "", err
	}
	dir, err = sys.OpenSubdir(found, ".")
	return dir, name, err
}

// Attachment says how to mount a workspace into a jail's mount namespace.
type Attachment struct {
	// Lower is from Workspace.Lower or CloneLower.
	Lower *os.File
	// Upper is from Workspace.Upper; nil mounts the real directory read-only, without a shadow.
	Upper *os.File
	// Frozen are the layers between the two, the newest first; from FrozenLayers.
	Frozen []*os.File
	// UserNS is the user namespace whose id mapping both layers get; nil leaves owners unmapped,
	// and the tool is the user.
	UserNS *os.File
	// Base is the host's id to which id 0 of that namespace maps.
	Base uint32
	// Target is an existing directory.
	Target string
	// Exec allows the execution of files in the workspace.
	Exec bool
}

// Attach mounts the shadow on a.Target, with owners mapped by a.UserNS: files in the layers keep
// their real owners, and files that the jail's user n writes belong to n. The caller must run on a
// locked thread in a private mount namespace, with root's capabilities. The descriptors of the
// layers stay open, but cannot be attached a second time.
//
// Overlays of id-mapped layers need Linux 5.19; the file system of the real directory must support
// id-mapped mounts.
func Attach(a Attachment) error {
	if err := mapIDs(a.Lower, a.UserNS); err != nil {
		return fmt.Errorf(
			"attach workspace: the file system of the directory cannot map owners: %w", err)
	}
	if a.Upper == nil {
		return attachAs(a, a.Lower)
	}
	for _, layer := range append([]*os.File{a.Upper}, a.Frozen...) {
		if err := mapIDs(layer, a.UserNS); err != nil {
			return fmt.Errorf("attach workspace: %w", err)
		}
	}
	overlay, err := overlayOf(a)
	if err != nil {
		return fmt.Errorf("attach workspace: %w", err)
	}
	defer overlay.Close()
	return attachAs(a, overlay)
}

func mapIDs(mount, userns *os.File) error {
	if userns == nil {
		return nil
	}
	return sys.MapMountIDs(mount, userns)
}

func attachAs(a Attachment, mount *os.File) error {
	if !a.Exec {
		if err := sys.RefuseExec(mount); err != nil {
			return fmt.Errorf("attach workspace: %w", err)
		}
	}
	return sys.AttachMount(mount, a.Target)
}

// overlayOf makes the overlay mount, detached. An overlay takes layers only from attached mounts,
// so they are mounted on the target until the overlay has its own copies.
func overlayOf(a Attachment) (overlay *os.File, err error) {
	for _, layer := range append([]*os.File{a.Lower, a.Upper}, a.Frozen...) {
		if err := sys.AttachMount(layer, a.Target); err != nil {
			return nil, err
		}
		defer func() {
			err = errors.Join(err, sys.DetachTop(a.Target))
			if err != nil && overlay != nil {
				overlay.Close()
				overlay = nil
			}
		}()
	}
	return sys.MountOverlay(sys.Overlay{Lower: a.Lower, Frozen: a.Frozen, Upper: a.Upper,
		ID: a.Base})
}
