package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// errChanged is returned for a path that changed after the check before the commit.
var errChanged = fmt.Errorf("%w, just now", ErrConflict)

// hand changes the real directory, with the caller's rights, by descriptor, one component at a
// time.
type hand struct {
	real *os.File // the real directory
	as   Caller
	id   string // of the commit
	// held are the directories that the commit changes, by their paths before it; nil for a lost
	// one.
	held map[Name]*os.File
}

func (h hand) temp(i int) string { return ".jail-" + h.id + "-" + strconv.Itoa(i) }

// at runs f, as the caller, with the directory of a path and the path's last component.
func (h hand) at(path Name, f func(dir *os.File, name string) error) error {
	parent, name := split(string(path))
	return h.in(Name(parent), func(dir *os.File) error { return f(dir, name) })
}

// in runs f, as the caller, with a directory that was opened with O_PATH: the held one, wherever it
// is by now.
func (h hand) in(path Name, f func(dir *os.File) error) error {
	return h.as.do(func() error {
		dir, done, err := h.dir(path)
		if err != nil {
			return err
		}
		defer done()
		return f(dir)
	})
}

// statDir describes a directory below root.
func statDir(root *os.File, path string) (sys.Stat, error) {
	dir, err := openDir(root, path)
	if err != nil {
		return sys.Stat{}, err
	}
	defer dir.Close()
	return sys.Fstat(dir)
}

// openDir opens a directory below root with O_PATH, also by a path longer than PATH_MAX.
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

// inDir returns what f returns of the directory below root that has a path, and of the last name of
// the path.
func inDir[P ~string, T any](root *os.File, path P, f func(dir *os.File, name string) (T, error)) (
	out T, err error) {
	parent, name := split(string(path))
	dir, err := openDir(root, parent)
	if err != nil {
		return out, err
	}
	defer dir.Close()
	return f(dir, name)
}

// apply executes step i, in directories that must be where they were. New content must have been
// staged.
func (h hand) apply(i int, s step) error {
	if s.Op == opChmod {
		place := s.Path
		if h.held[place] == nil {
			place = Name(parentOf(string(place)))
		}
		if err := h.inPlace(place); err != nil {
			return err
		}
		return h.chmod(s, s.Mode)
	}
	if err := h.inPlace(s.Near, Name(parentOf(string(s.Path)))); err != nil {
		return err
	}
	switch s.Op {
	case opRemove:
		return h.at(s.Path, func(dir *os.File, name string) error {
			if err := expect(dir, name, s.Old); err != nil {
				return err
			}
			if err := sys.MoveAt(dir, name, dir, h.temp(i), false); err != nil {
				return err
			}
			return tookOld(dir, h.temp(i), s)
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
		if err := sys.ExchangeAt(near, h.temp(i), dir, name); err != nil {
			return err
		}
		return tookOld(near, h.temp(i), s)
	})
}

// tookOld checks that the path that a step has put aside is what the step saw before.
func tookOld(near *os.File, temp string, s step) error {
	st, err := sys.LstatAt(near, temp)
	if err == nil && !s.Old.sameContent(st) {
		err = fmt.Errorf("%s: %w", s.Path, errChanged)
	}
	return err
}

// move runs f with the directory of the temporary name and that of the path.
func (h hand) move(s step, f func(near, dir *os.File, name string) error) error {
	return h.at(s.Path, func(dir *os.File, name string) error {
		near, done, err := h.dir(s.Near)
		if err != nil {
			return err
		}
		defer done()
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

// chmod sets the permission bits of a file or directory. A directory keeps its set-group-id and
// sticky bits, which say how it is used.
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

// open opens a path with O_PATH; the caller of open has the caller's rights. A held directory is
// itself, wherever it is by now.
func (h hand) open(path Name) (*os.File, error) {
	parent, name := split(string(path))
	if _, known := h.held[path]; known || name == "" {
		dir, done, err := h.dir(path)
		if err != nil {
			return nil, err
		}
		defer done()
		return sys.Reopen(dir, sys.OPath|syscall.O_DIRECTORY)
	}
	dir, done, err := h.dir(Name(parent))
	if err != nil {
		return nil, err
	}
	defer done()
	return sys.OpenPath(dir, name)
}

// find describes a name in a directory, nil if the directory has no such name. A lost directory is
// an error. A missing directory below a held one is the commit's own, not made yet or already
// removed.
func (h hand) find(dir Name, name string) (*sys.Stat, error) {
	var found *sys.Stat
	err := h.in(dir, func(d *os.File) error {
		st, err := sys.LstatAt(d, name)
		if err == nil {
			found = &st
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = nil
	}
	return found, err
}

// chmodded returns the inode that a chmod is meant for.
func (s step) chmodded() uint64 {
	if s.Old != nil {
		return s.Old.Ino
	}
	return s.Staged
}

// foreignError is returned for a path that was left alone because somebody else changed it
// meanwhile. It names the place of the previous content.
type foreignError struct {
	path Name
	// aside is "" if there was no previous content.
	aside Name
	how   string
}

func (e *foreignError) Error() string {
	text := fmt.Sprintf("%s: left alone, since it was %s meanwhile", e.path,
		cmp.Or(e.how, "changed"))
	if e.aside != "" {
		text += fmt.Sprintf("; what was there is %s", e.aside)
	}
	return text
}

// errMounted is returned if a mount covers what has to be put back.
var errMounted = errors.New(
	"something is mounted on it: unmount it, and it is put back with the next command that uses " +
		"this run")

// undo reverses step i if the inodes show that it was executed. again is true if undo may have been
// executed before.
func (h hand) undo(i int, s step, again bool) error {
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
	ours, err := h.isMade(s, now)
	if err != nil {
		return err
	}
	switch {
	case s.Op == opCreate:
		return h.undoCreate(i, s, ours, aside != nil, again)
	case aside == nil && !ours:
		// It was not executed.
		return nil
	case aside == nil:
		return &foreignError{path: s.Path, how: "changed, and what was there before removed,"}
	case s.Op == opReplace && ours:
		return h.undoReplace(i, s)
	case s.Op == opReplace && (s.Staged == 0 || aside.Ino == s.Staged):
		return h.dropStaged(i, s)
	case now != nil:
		return h.keepAside(i, s)
	}
	err = h.at(s.Path, func(dir *os.File, name string) error {
		return sys.MoveAt(dir, h.temp(i), dir, name, false)
	})
	// The new content was there, and has been moved or removed.
	if err == nil && s.Op == opReplace {
		err = &foreignError{path: s.Path, how: "moved or removed"}
	}
	return err
}

// isMade reports whether now, at the path of a step, is what the step put there and nobody has
// written to since.
func (h hand) isMade(s step, now *sys.Stat) (bool, error) {
	if now == nil || s.Staged == 0 || now.Ino != s.Staged {
		return false, nil
	}
	if s.Made == nil {
		return true, nil
	}
	if !s.Made.sameContent(*now) && s.Made.Dev == now.Dev {
		return false, nil
	}
	same := false
	err := h.at(s.Path, func(dir *os.File, name string) error {
		f, err := sys.OpenPath(dir, name)
		if elsewhere(err) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		born, err := sys.Birth(f)
		same = born == s.Born
		return err
	})
	return same, err
}

func (h hand) undoReplace(i int, s step) error {
	err := h.move(s, func(near, dir *os.File, name string) error {
		return sys.ExchangeAt(near, h.temp(i), dir, name)
	})
	if err != nil {
		return err
	}
	return h.dropStaged(i, s)
}

func (h hand) undoCreate(i int, s step, ours, aside, again bool) error {
	// It was staged and not moved, so the path holds something else.
	if aside {
		return h.dropStaged(i, s)
	}
	if s.Staged == 0 {
		return nil
	}
	var err error
	switch held := h.held[s.Path]; {
	case ours:
		err = h.removeOne(s.Path, s.makesDir())
	case held != nil:
		err = h.removeHeld(held)
	case !again && !s.makesDir() && h.stands(Name(parentOf(string(s.Path)))):
		return h.unlessMounted(s, &foreignError{path: s.Path, how: "moved, removed or written to"})
	}
	if errors.Is(err, syscall.ENOTEMPTY) {
		return &foreignError{path: s.Path}
	}
	return err
}

// stands reports whether a directory still exists. It may have been removed with all its entries.
func (h hand) stands(path Name) bool {
	dir, done, err := h.dir(path)
	if err != nil {
		return false
	}
	defer done()
	st, err := sys.Fstat(dir)
	return err == nil && st.Nlink > 0
}

// removeHeld removes a directory that somebody has moved, by its present name.
func (h hand) removeHeld(dir *os.File) error {
	parent, name, err := whereabouts(dir)
	if err != nil || name == "" {
		return err
	}
	defer parent.Close()
	return h.as.do(func() error { return sys.RmdirAt(parent, name) })
}

// keepAside renames what was put aside, since something else has its path: name.orig, name.orig-2
// and so on.
func (h hand) keepAside(i int, s step) error {
	if err := h.unlessMounted(s, nil); err != nil {
		return err
	}
	parent, name := split(string(s.Path))
	for n := 1; ; n++ {
		orig := origName(name, n)
		err := h.at(s.Path, func(dir *os.File, _ string) error {
			return sys.MoveAt(dir, h.temp(i), dir, orig, false)
		})
		if errors.Is(err, fs.ErrExist) && n < 1000 {
			continue
		}
		if err != nil {
			return err
		}
		return &foreignError{path: s.Path, aside: Name(join(parent, orig))}
	}
}

func origName(name string, n int) string {
	ext := ".orig"
	if n > 1 {
		ext += "-" + strconv.Itoa(n)
	}
	return name[:min(len(name), 255-len(ext))] + ext
}

// unlessMounted returns errMounted if a mount on the step's path is the cause, and err otherwise.
func (h hand) unlessMounted(s step, err error) error {
	return errors.Join(h.at(s.Path, func(dir *os.File, name string) error {
		mounted, statErr := sys.IsMount(dir, name)
		if errors.Is(statErr, fs.ErrNotExist) {
			return err
		}
		if mounted {
			return fmt.Errorf("%s: %w", s.Path, errMounted)
		}
		return errors.Join(statErr, err)
	}))
}

// missing reports whether err says that a path does not exist, or no longer.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err,
		syscall.ELOOP)
}

func (h hand) dropStaged(i int, s step) error {
	return h.removeOne(Name(join(string(s.Near), h.temp(i))), s.makesDir())
}

func (h hand) undoChmod(s step) error {
	dir, name := split(string(s.Path))
	if _, known := h.held[s.Path]; known || name == "" {
		dir, name = string(s.Path), "."
	}
	now, err := h.find(Name(dir), name)
	if err != nil || now == nil || now.Mode&0o777 != s.Mode || now.Ino != s.chmodded() {
		// It was not executed.
		return err
	}
	return h.chmod(s, s.From)
}

// clean removes what step i put aside, after the commit has succeeded. Of a tree it removes only
// the listed entries: others are somebody else's, and the rest gets its name back. It reports files
// with further links to touched.
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
		// Entries that somebody else added, removed or keeps busy are no failure: they keep their
		// directory, and that is reported.
		if err != nil && !missing(err) && !stays(err) {
			return fmt.Errorf("%s: removed entries are still aside: %w", s.Path, err)
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
	// Something new has the name.
	if err != nil {
		foreign := (*foreignError)(nil)
		if err = h.keepAside(i, s); !errors.As(err, &foreign) {
			return err
		}
		e.path = foreign.aside
	}
	return e
}

// stays reports whether err says that an entry is in the way of a removal, and not that the disk
// failed.
func stays(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EISDIR) || errors.Is(err,
		fs.ErrPermission)
}

// leftError is returned if somebody else put something into a directory that a commit removed. It
// is no failure: the entry is still there.
type leftError struct{ path Name }

func (e *leftError) Error() string {
	return fmt.Sprintf("%s: something is left in it that was not there when it was reviewed",
		e.path)
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

// openUp lets the owner remove the entries of a directory. If it fails, so will the removal, which
// is reported.
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
