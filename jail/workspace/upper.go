package workspace

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

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
	at := &upperDir{opaque: u.opaque}
	for _, d := range u.dirs {
		f, err := sys.OpenSubdir(d, ".")
		if err != nil {
			at.Close()
			return nil, err
		}
		at.dirs = append(at.dirs, f)
	}
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		next, err := at.sub(name)
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// through opens a directory below the directory by its path. Where the layers have none, dir is nil,
// and lacking is the first part of the path that they do not have. real reports whether the real
// directory shows through there. The error is fs.ErrNotExist if a part of the path is no directory.
func (u *upperDir) through(path string) (dir *upperDir, real bool, lacking string, err error) {
	if dir, err = u.open(""); err != nil {
		return nil, false, "", err
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
