package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// errChanged: a path is not what the check before the commit saw.
var errChanged = fmt.Errorf("%w, just now", ErrConflict)

// A hand changes the real directory, with the caller's rights, by descriptor, one component at a time.
type hand struct {
	real *os.File // the real directory
	as   Caller
	id   string // of the commit
}

func (h hand) temp(i int) string { return ".jail-" + h.id + "-" + strconv.Itoa(i) }

// at runs f, as the caller, with the directory of a path and the path's last component.
func (h hand) at(path Name, f func(dir *os.File, name string) error) error {
	parent, name := split(string(path))
	return h.in(Name(parent), func(dir *os.File) error { return f(dir, name) })
}

// in runs f, as the caller, with a directory open with O_PATH.
func (h hand) in(path Name, f func(dir *os.File) error) error {
	return h.as.do(func() error {
		dir, err := openDir(h.real, string(path))
		if err != nil {
			return err
		}
		defer dir.Close()
		return f(dir)
	})
}

// openDir opens a directory below root with O_PATH, also by a path longer than the kernel takes at once.
func openDir(root *os.File, path string) (*os.File, error) {
	at, err := sys.OpenSubdirPath(root, ".")
	for err == nil && path != "" {
		piece, rest := path, ""
		if len(path) > 4000 {
			dir, _ := split(path[:4000])
			piece, rest = dir, path[len(dir)+1:]
		}
		var next *os.File
		next, err = sys.OpenSubdirPath(at, piece)
		at.Close()
		at, path = next, rest
	}
	return at, err
}

// apply carries out step i. What it puts in place must have been staged.
func (h hand) apply(i int, s step) error {
	switch s.Op {
	case opChmod:
		return h.chmod(s, s.Mode)
	case opRemove:
		return h.at(s.Path, func(dir *os.File, name string) error {
			if err := expect(dir, name, s.Old); err != nil {
				return err
			}
			return sys.MoveAt(dir, name, dir, h.temp(i), false)
		})
	case opCreate:
		return h.move(s, func(near, dir *os.File, name string) error {
			return sys.MoveAt(near, h.temp(i), dir, name, false)
		})
	}
	return h.move(s, func(near, dir *os.File, name string) error {
		if err := expect(dir, name, s.Old); err != nil {
			return err
		}
		return sys.ExchangeAt(near, h.temp(i), dir, name)
	})
}

// move runs f with the directory of the temporary name and that of the path.
func (h hand) move(s step, f func(near, dir *os.File, name string) error) error {
	return h.at(s.Path, func(dir *os.File, name string) error {
		near, err := openDir(h.real, string(s.Near))
		if err != nil {
			return err
		}
		defer near.Close()
		return f(near, dir, name)
	})
}

func expect(dir *os.File, name string, old *inode) error {
	st, err := sys.LstatAt(dir, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !old.is(st) {
		return fmt.Errorf("%s: %w", Name(dir.Name()+"/"+name), errChanged)
	}
	return err
}

// chmod sets the permission bits of a file or directory; a directory keeps its set-group-id and sticky bits, which say how it is used.
func (h hand) chmod(s step, mode uint32) error {
	return h.as.do(func() error {
		f, err := h.open(s.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := sys.Fstat(f)
		if err != nil {
			return err
		}
		if typeOf(st) == Dir {
			mode |= st.Perm() &^ 0o777
		}
		if t := typeOf(st); t != Dir && t != File || st.Ino != s.chmodded() {
			return fmt.Errorf("%s: %w", s.Path, errChanged)
		}
		return sys.Chmod(f, mode)
	})
}

// open opens a path with O_PATH; the caller of it has the caller's rights.
func (h hand) open(path Name) (*os.File, error) {
	parent, name := split(string(path))
	dir, err := openDir(h.real, parent)
	if err != nil || name == "" {
		return dir, err
	}
	defer dir.Close()
	return sys.OpenPath(dir, name)
}

// find describes a path, or one that is a name in a directory; nil where there is none.
func (h hand) find(dir Name, name string) (st *sys.Stat, err error) {
	err = h.in(dir, func(d *os.File) error {
		found, err := sys.LstatAt(d, name)
		st = &found
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// chmodded is the inode that a chmod is meant for.
func (s step) chmodded() uint64 {
	if s.Old != nil {
		return s.Old.Ino
	}
	return s.Staged
}

// A foreignError says that a path was left alone since someone else changed it meanwhile, and where that is what was there before.
type foreignError struct{ path, aside Name }

func (e *foreignError) Error() string {
	if e.aside == "" {
		return fmt.Sprintf("%s: left alone, since it was changed meanwhile", e.path)
	}
	return fmt.Sprintf("%s: left alone, since it was changed meanwhile; what was there is %s", e.path, e.aside)
}

// undo puts step i back, whether it was carried out or not, as the inodes say.
func (h hand) undo(i int, s step) error {
	if s.Op == opChmod {
		return h.undoChmod(s)
	}
	dir, name := split(string(s.Path))
	now, err := h.find(Name(dir), name)
	if err != nil {
		return err
	}
	aside, err := h.find(s.Near, h.temp(i))
	if err != nil {
		return err
	}
	aboutAside := &foreignError{s.Path, Name(join(string(s.Near), h.temp(i)))}
	switch s.Op {
	case opRemove:
		switch {
		case aside == nil:
			return nil // it was not moved
		case now != nil:
			return aboutAside
		}
		return h.at(s.Path, func(dir *os.File, name string) error {
			return sys.MoveAt(dir, h.temp(i), dir, name, false)
		})
	case opCreate:
		if aside != nil { // it was staged and not moved, so what has the path is not ours
			return h.dropStaged(i, s)
		}
		if now == nil || now.Ino != s.Staged || s.Staged == 0 {
			return nil
		}
		err := h.removeOne(s.Path, s.New.Type == Dir)
		if errors.Is(err, syscall.ENOTEMPTY) {
			return &foreignError{path: s.Path}
		}
		return err
	}
	// Replace: what was staged is either still aside, or has the path and the old one is aside.
	switch {
	case aside == nil:
		return nil
	case aside.Ino != s.Old.Ino:
		return h.dropStaged(i, s)
	case now == nil || now.Ino != s.Staged:
		return aboutAside
	}
	err = h.move(s, func(near, dir *os.File, name string) error {
		return sys.ExchangeAt(near, h.temp(i), dir, name)
	})
	if err != nil {
		return err
	}
	return h.dropStaged(i, s)
}

// missing reports whether err says that a path is not there, or not any more.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

func (h hand) dropStaged(i int, s step) error {
	return h.removeOne(Name(join(string(s.Near), h.temp(i))), s.Op == opCreate && s.New.Type == Dir)
}

func (h hand) undoChmod(s step) error {
	dir, name := split(string(s.Path))
	if name == "" {
		name = "."
	}
	now, err := h.find(Name(dir), name)
	if err != nil || now == nil || now.Mode&0o777 != s.Mode || now.Ino != s.chmodded() {
		return err // not carried out
	}
	return h.chmod(s, s.From)
}

// clean removes for good what step i put aside, after the commit stands. Of a tree it removes what was listed and nothing else: if there
// is more, someone else put it there, and what is left gets its name back. Files that live on under other names are reported to touched.
func (h hand) clean(i int, s step, touched func(sys.Stat)) error {
	if s.Op != opRemove && s.Op != opReplace {
		return nil
	}
	aside, err := h.find(s.Near, h.temp(i))
	if err != nil || aside == nil || aside.Ino != s.Old.Ino {
		return err
	}
	root := Name(join(string(s.Near), h.temp(i)))
	if s.Old.Type != Dir {
		return h.forget(root, touched)
	}
	h.openUp(root)
	for _, b := range s.Below {
		if b.Dir {
			h.openUp(root + "/" + b.Path)
		}
	}
	for _, b := range slices.Backward(s.Below) {
		if b.Dir {
			err = h.removeOne(root+"/"+b.Path, true)
		} else {
			err = h.forget(root+"/"+b.Path, touched)
		}
		// What someone else put there, took away or does not let go is no failure: what stays keeps its directory, and that is reported.
		if err != nil && !missing(err) && !stays(err) {
			return fmt.Errorf("%s: what was removed of it is still aside: %w", s.Path, err)
		}
	}
	if err = h.removeOne(root, true); err == nil || !stays(err) {
		return err
	}
	err = h.at(s.Path, func(dir *os.File, name string) error {
		return sys.MoveAt(dir, h.temp(i), dir, name, false)
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	e := &leftError{path: s.Path}
	if err != nil { // something new has the name
		e.path = root
	}
	return e
}

// stays reports whether err says that something is in the way of a removal, and not that the disk does not do it.
func stays(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EISDIR) || errors.Is(err, fs.ErrPermission)
}

// A leftError says that someone else put something into a directory that a commit removed. It is no failure: that is still there.
type leftError struct{ path Name }

func (e *leftError) Error() string {
	return fmt.Sprintf("%s: something is left in it that was not there when it was reviewed", e.path)
}

// forget removes a file or link.
func (h hand) forget(path Name, touched func(sys.Stat)) error {
	return h.at(path, func(dir *os.File, name string) error {
		f, err := sys.OpenPath(dir, name)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := sys.UnlinkAt(dir, name); err != nil {
			return err
		}
		if st, err := sys.Fstat(f); err == nil && st.Nlink > 0 {
			touched(st)
		}
		return nil
	})
}

// openUp lets the owner remove what is in a directory. Where that fails, so will the removal, and that is reported.
func (h hand) openUp(path Name) {
	h.as.do(func() error {
		f, err := h.open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := sys.Fstat(f)
		if err != nil || st.Mode&0o700 == 0o700 {
			return err
		}
		return sys.Chmod(f, st.Perm()|0o700)
	})
}

func (h hand) removeOne(path Name, dir bool) error {
	if dir {
		return h.at(path, sys.RmdirAt)
	}
	return h.at(path, sys.UnlinkAt)
}
