package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// layer is the upper layer of a workspace: the file system that a tool writes to. It is an ext4 in
// upper.img behind a loop device, or a tmpfs that upper.img receives when the workspace is kept.
// The zero layer is not open.
type layer struct {
	// image is upper.img. Its lock is exclusive while a jail may write, and shared afterwards.
	image *os.File
	loop  *os.File
	mount *os.File
	// root is the root of mount while a jail may write to it: syncfs reports the errors since it
	// was opened.
	root *os.File
	// lost is the error of the kernel that could not write all of the layer.
	lost error
	// damaged are the paths that did not reach the disk whole; see lookForDamage.
	damaged map[string]bool
	// memory says that mount is a tmpfs, attached in this process's mount namespace; see newMemory.
	memory bool
	// frozen are the frozen layers below it, the newest first.
	frozen []*frozenLayer
}

// openOwn opens the root of what the tool wrote to this layer.
func (l *layer) openOwn() (*os.File, error) { return sys.OpenSubdir(l.mount, "upper") }

func (l *layer) close() error {
	err := errors.Join(l.detachMemory(), closeFiles(&l.root, &l.mount, &l.loop, &l.image),
		releaseAll(l.frozen))
	l.frozen = nil
	return err
}

// closeFiles closes the files that are open and forgets them.
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

// A user's daemon can make no loop device and mount no ext4. Its layers are a tmpfs each, with the
// same two limits, whose content is memory of the run until the workspace is kept. Then it is
// written to upper.img as one file (see archive), and read from there into a tmpfs for a review.

// errNoMarks is returned if the kernel's tmpfs lacks the extended attributes that an overlay of a
// user needs.
var errNoMarks = errors.New(
	"the kernel's tmpfs has no user extended attributes, which a shadow without root needs: boot " +
		"Linux 6.6 or newer")

// inodesOfMemory are the inodes of a layer beside the tool's: its root, upper and work, three that
// the overlay makes in work, and two for attributes, which a tmpfs counts as inodes.
const inodesOfMemory = 8

// lostMemory is errLost for a layer in memory.
type lostMemory struct{}

func (lostMemory) Error() string {
	return "what was written lay in the memory of a jaild that was killed, and is gone with it"
}
func (lostMemory) Is(err error) bool { return err == errLost }

// newMemory makes an empty layer. It is attached on top of the store in this process's own mount
// namespace, since an older kernel makes no second mount of a detached one. Nobody looks it up by
// its name there.
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

// detachMemory must be called before the layer is closed.
func (l *layer) detachMemory() error {
	if !l.memory {
		return nil
	}
	l.memory = false
	return sys.DetachMount(l.mount)
}

// keepMemory writes the layer to its file, which is empty until then. The last line of the file
// marks it as complete.
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

// readMemory makes the layer of a workspace that an earlier process kept, of at most bytes and
// inodes. The image is open already, and locked.
func (l *layer) readMemory(bytes, inodes int64) (err error) {
	if st, err := sys.Fstat(l.image); err != nil || st.Size == 0 {
		return errors.Join(err, lostMemory{})
	}
	// One that took all of its room takes a little more where its directories had been made
	// smaller.
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

// ownerOf returns the owner of a directory of the layer. To a user's daemon other groups than the
// user's first look like nobody's, and cannot be given.
func ownerOf(uid, gid uint32) (uint32, uint32) {
	if sys.Rootless() {
		return uint32(os.Geteuid()), uint32(os.Getegid())
	}
	return uid, gid
}

// mark returns the prefix of an overlay's own attributes.
func mark() string {
	if sys.Rootless() {
		return "user.overlay."
	}
	return "trusted.overlay."
}

// An upperDir is a directory of a shadow above the real directory: that of the layer that the tool
// writes to, joined with those of the frozen layers below it as overlayfs joins them
// (Documentation/filesystems/overlayfs.rst, "Multiple lower layers").
type upperDir struct {
	// dirs are those of the layers that have the directory, the topmost first.
	dirs []*os.File
	// opaque says that nothing below these layers shows through.
	opaque bool
}

// openUpper opens the root of what the tool wrote, in all layers of the workspace.
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

// stat describes the directory itself, which is that of the topmost layer.
func (u *upperDir) stat() (sys.Stat, error) { return sys.Fstat(u.dirs[0]) }

// names returns the names of all layers, deletions included; some may come twice.
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

// find returns the topmost layer's directory that has a name, and what it has there, which may be a
// whiteout. The error is fs.ErrNotExist if no layer has the name.
func (u *upperDir) find(name string) (dir *os.File, st sys.Stat, err error) {
	for _, d := range u.dirs {
		st, err = sys.LstatAt(d, name)
		if !errors.Is(err, fs.ErrNotExist) {
			return d, st, err
		}
	}
	return nil, st, fs.ErrNotExist
}

// sub opens a directory in the directory.
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
		// Where the first one is no directory, the error says so.
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

// isOpaque reports whether a directory of a layer was made anew after another had been deleted. The
// mark is an attribute that only root can set; user.overlay.*, which a tool can write, means
// nothing here. In a user's layer user.overlay.* is the mark, and the overlay reserves these names:
// a tool cannot set them.
func isOpaque(dir *os.File) (bool, error) {
	value, err := sys.Xattr(dir, mark()+"opaque")
	return string(value) == "y", err
}

// open opens a directory below the directory by its path, "" for the directory itself.
func (u *upperDir) open(path string) (*upperDir, error) {
	dir, _, _, err := u.through(path)
	if err == nil && dir == nil {
		err = fs.ErrNotExist
	}
	return dir, err
}

// through opens a directory below the directory by its path. Where the layers have none, dir is nil,
// and lacking is the first part of the path that they do not have. real reports whether the real
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

// at returns the directory of the layer that has a path, which the caller closes, and the last name
// of the path.
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

// Attachment is a workspace that is mounted into a jail's mount namespace.
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
	// Base is the host's id of id 0 of that namespace.
	Base uint32
	// Target is an existing directory.
	Target string
	// Exec lets its files be executed.
	Exec bool
}

// Attach mounts the shadow on a.Target, with owners mapped by a.UserNS: files in the layers keep
// their real owners, and files that the jail's user n writes belong to n. The caller must hold a
// locked thread in a private mount namespace, with root's capabilities. The descriptors of the
// layers stay open; their mounts are used up.
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
