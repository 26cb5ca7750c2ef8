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

// hand changes the real directory with the caller's rights. It reaches directories by descriptor,
// one path component at a time.
type hand struct {
	real *os.File // the real directory
	as   Caller
	id   string // of the commit
	// held maps the path of each directory that the commit changes, as before the commit, to its
	// descriptor; nil for a directory that was not found again.
	held map[Name]*os.File
}

func (h hand) temp(i int) string { return ".jail-" + h.id + "-" + strconv.Itoa(i) }

// at calls f, with the caller's rights, with the parent directory of path and its last component.
func (h hand) at(path Name, f func(dir *os.File, name string) error) error {
	parent, name := split(string(path))
	return h.in(Name(parent), func(dir *os.File) error { return f(dir, name) })
}

// in calls f, with the caller's rights, with the directory that had this path before the commit,
// opened with O_PATH. It may have been moved since.
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

// statDir returns the stat of a directory below root.
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

// inDir calls f with the parent directory of path, which is below root, and the last component of
// path. It returns f's results.
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

// apply executes step i. It returns errChanged if a directory of the step was moved. New content
// must have been staged.
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

// tookOld returns errChanged unless the content that a step moved to temp is s.Old.
func tookOld(near *os.File, temp string, s step) error {
	st, err := sys.LstatAt(near, temp)
	if err == nil && !s.Old.sameContent(st) {
		err = fmt.Errorf("%s: %w", s.Path, errChanged)
	}
	return err
}

// move calls f, with the caller's rights, with the directory of the step's temporary name, and the
// parent directory and last component of its path.
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

// open opens a path with O_PATH. It must be called with the caller's rights. A held directory is
// opened by its descriptor, wherever it was moved.
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

// find returns the stat of a name in a directory, nil if there is no such name, or if dir is below
// a held directory and does not exist. It returns an error if dir was not found again.
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

// chmodded returns the number of the inode whose mode an opChmod step changes.
func (s step) chmodded() uint64 {
	if s.Old != nil {
		return s.Old.Ino
	}
	return s.Staged
}

// foreignError means that undo left a path as it is, because somebody else changed it meanwhile.
type foreignError struct {
	path Name
	// aside is the path to which the previous content was moved, "" for none.
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

// errMounted is returned by undo if a mount covers the path to restore.
var errMounted = errors.New(
	"something is mounted on it: unmount it, and it is put back with the next command that uses " +
		"this run")

// undo reverses step i if the inodes show that it was executed. again: undo may have run before.
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

// isMade reports whether now, the stat of the step's path, is of the inode that the step put there,
// unchanged since.
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

// stands reports whether a directory still exists.
func (h hand) stands(path Name) bool {
	dir, done, err := h.dir(path)
	if err != nil {
		return false
	}
	defer done()
	st, err := sys.Fstat(dir)
	return err == nil && st.Nlink > 0
}

// removeHeld removes an open directory that somebody has moved. It finds its present name.
func (h hand) removeHeld(dir *os.File) error {
	parent, name, err := whereabouts(dir)
	if err != nil || name == "" {
		return err
	}
	defer parent.Close()
	return h.as.do(func() error { return sys.RmdirAt(parent, name) })
}

// keepAside moves the content that step i put aside to name.orig, name.orig-2 and so on, since
// something else is at its path. It returns a *foreignError with that path.
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

// unlessMounted returns errMounted if something is mounted on the step's path, and err otherwise.
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

// missing reports whether err means that a path does not exist, or leads through something that is
// no directory.
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

// clean removes the content that step i put aside, after the commit has succeeded. Of a directory
// it removes only the entries that the step lists. If others are left, it moves the directory back
// and returns a *leftError. It calls touched for each removed file that has other links.
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
		// Entries that somebody else added, removed or keeps busy are no failure: their directory
		// stays, and a *leftError is returned below.
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

// stays reports whether err means that a directory is not empty, that a name is a directory now, or
// that it may not be removed, and not that the disk failed.
func stays(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EISDIR) || errors.Is(err,
		fs.ErrPermission)
}

// leftError means that a directory which a commit removed still exists, since somebody else put
// something into it. The commit has succeeded all the same.
type leftError struct{ path Name }

func (e *leftError) Error() string {
	return fmt.Sprintf("%s: something is left in it that was not there when it was reviewed",
		e.path)
}

// forget removes a file or symbolic link. It calls touched if the file has other links.
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

// openUp adds mode 0700 to a directory, so that its owner can remove the entries. Errors are
// ignored: the removal would fail, too.
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
