package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// place identifies a directory that a commit changes, in its journal.
type place struct {
	Path Name     `json:"path"`
	Ino  uint64   `json:"ino"`
	Born sys.Time `json:"born,omitzero"`
	// Handle is the file handle, by which the directory is found after it was moved; see
	// sys.HandleOf.
	Handle []byte `json:"handle,omitempty"`
}

// spareFiles is the number of descriptors in reserve, so that a lack of descriptors never stops the
// end of a commit: the journal, the meta, directories of trees that it removes.
const spareFiles = 16

// lostError means that a directory of a commit is neither at its path nor found by its handle.
type lostError struct{ path Name }

func (e *lostError) Error() string {
	if e.path == "" {
		return "the directory itself is not at its path any more, and cannot be found"
	}
	return fmt.Sprintf("directory %s is not at its path any more, and cannot be found", e.path)
}

// dirs returns the directories that the steps change: there are those that exist before, parents
// first, and fresh are those that the steps make.
func (j *journal) dirs() (there []Name, fresh map[Name]bool) {
	fresh = map[Name]bool{}
	for _, s := range j.Steps {
		if s.makesDir() {
			fresh[s.Path] = true
		}
	}
	seen := map[Name]bool{"": true}
	add := func(dir Name) {
		if !fresh[dir] {
			seen[dir] = true
		}
	}
	for _, s := range j.Steps {
		add(s.Near)
		add(Name(parentOf(string(s.Path))))
		if s.Op == opChmod && s.Old != nil && s.Old.Type == Dir {
			add(s.Path)
		}
	}
	return slices.Sorted(maps.Keys(seen)), fresh
}

func (s step) makesDir() bool { return s.Op == opCreate && s.New.Type == Dir }

// hold opens all existing directories that the steps change, and reserves a descriptor for each
// that they make. From here on these descriptors are used, wherever somebody moves the directories.
func (c *commit) hold() error {
	there, fresh := c.journal.dirs()
	c.hand.held = map[Name]*os.File{}
	err := c.holdEach(there, sys.Rootless())
	for n := len(fresh) + spareFiles; err == nil && n > 0; n-- {
		var f *os.File
		if f, err = sys.Reopen(c.hand.real, sys.OPath); err == nil {
			c.spare = append(c.spare, f)
		}
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		err = fmt.Errorf(
			"%w: the commit changes %d directories, and holds each open until it ends: %v",
			ErrManyDirs, len(there)+len(fresh), err)
	}
	return err
}

// holdRest opens directories that hold could not reach before the modes above were changed.
func (c *commit) holdRest() error {
	there, _ := c.journal.dirs()
	if len(c.journal.Dirs) == len(there) {
		return nil
	}
	if err := c.holdEach(there, false); err != nil {
		return err
	}
	return c.save(staging)
}

// holdEach opens directories as the daemon, so that it can undo changes even if the caller loses
// rights. Each step checks the caller's rights; see inPlace. With closed it leaves out directories
// that the daemon may not reach.
func (c *commit) holdEach(dirs []Name, closed bool) error {
	for _, path := range dirs {
		if c.hand.held[path] != nil {
			continue
		}
		dir, err := openDir(c.hand.real, string(path))
		if closed && errors.Is(err, fs.ErrPermission) {
			continue
		}
		if elsewhere(err) {
			return fmt.Errorf("%s: %w", path, errChanged)
		}
		if err != nil {
			return err
		}
		if err := c.holdOne(path, dir); err != nil {
			return err
		}
	}
	return nil
}

func (c *commit) holdOne(path Name, dir *os.File) error {
	c.hand.held[path] = dir
	st, err := sys.Fstat(dir)
	if err != nil {
		return err
	}
	p := place{Path: path, Ino: st.Ino}
	if p.Born, err = sys.Birth(dir); err != nil {
		return err
	}
	if p.Handle, err = sys.HandleOf(dir); err != nil {
		return err
	}
	c.journal.Dirs = append(c.journal.Dirs, p)
	return nil
}

// holdFresh holds a directory that the commit has just made, in place of a reserved descriptor.
func (c *commit) holdFresh(path Name, made *os.File) error {
	if n := len(c.spare); n > spareFiles {
		c.spare[n-1].Close()
		c.spare = c.spare[:n-1]
	}
	dir, err := sys.Reopen(made, sys.OPath|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	return c.holdOne(path, dir)
}

// release closes the held directories.
func (c *commit) release() {
	c.releaseSpare()
	for _, dir := range c.hand.held {
		if dir != nil {
			dir.Close()
		}
	}
	c.hand.held = nil
}

func (c *commit) releaseSpare() {
	for _, f := range c.spare {
		f.Close()
	}
	c.spare = nil
}

// elsewhere reports whether err means that a directory is not at its path or a mount covers it.
func elsewhere(err error) bool { return missing(err) || errors.Is(err, syscall.EXDEV) }

// dir returns the directory that had this path before the commit: a held one, or one below the
// closest held one. The caller calls done after use.
func (h hand) dir(path Name) (dir *os.File, done func(), err error) {
	for at := path; ; at = Name(parentOf(string(at))) {
		f, known := h.held[at]
		if !known && at != "" {
			continue
		}
		if !known {
			f = h.real
		}
		if f == nil {
			return nil, nil, &lostError{at}
		}
		rest := strings.TrimPrefix(string(path[len(at):]), "/")
		if rest == "" {
			return f, func() {}, nil
		}
		if dir, err = openDir(f, rest); err != nil {
			return nil, nil, err
		}
		return dir, func() { dir.Close() }, nil
	}
}

// inPlace returns an error unless the held directories of these paths are still at their paths and
// the caller can reach them there.
func (h hand) inPlace(paths ...Name) error {
	return h.as.do(func() error {
		for _, path := range paths {
			if path == "" {
				continue
			}
			now, err := openDir(h.real, string(path))
			if elsewhere(err) {
				return fmt.Errorf("%s: %w", path, errChanged)
			}
			if err != nil {
				return err
			}
			same, err := sameInode(now, h.held[path])
			now.Close()
			if err == nil && !same {
				err = fmt.Errorf("%s: %w", path, errChanged)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func sameInode(a, b *os.File) (bool, error) {
	if a == nil || b == nil {
		return false, nil
	}
	x, err := sys.Fstat(a)
	if err != nil {
		return false, err
	}
	y, err := sys.Fstat(b)
	return x.Dev == y.Dev && x.Ino == y.Ino, err
}

// findAgain opens the real directory and the directories of an interrupted commit: by path, or by
// handle if they are not there any more. Those that it does not find are nil in held.
func (c *commit) findAgain() error {
	c.hand.held = map[Name]*os.File{}
	places := map[Name]place{}
	for _, p := range c.journal.Dirs {
		places[p.Path] = p
	}
	if err := c.findRoot(places[""]); err != nil {
		return err
	}
	c.hand.real = c.w.source
	there, _ := c.journal.dirs()
	for _, path := range there {
		if err := c.findOne(places[path], false, path); err != nil {
			return err
		}
	}
	for i, s := range c.journal.Steps {
		if p, known := places[s.Path]; known && s.makesDir() {
			if err := c.findOne(p, true, s.Path,
				Name(join(string(s.Near), c.hand.temp(i)))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *commit) findRoot(p place) error {
	err := opening{c.w}.openSource(c.w.meta.Caller)
	if err == nil || !elsewhere(err) && !errors.Is(err, ErrConflict) {
		return err
	}
	dir, handleErr := c.byHandle(p)
	if dir == nil {
		return errors.Join(handleErr, &lostError{""})
	}
	c.w.source = dir
	return nil
}

// findOne opens a directory at one of its paths or by its handle, and adds it to held, as nil if it
// is not found. A directory that the commit made may have been removed by an earlier rollback; then
// it adds nothing.
func (c *commit) findOne(p place, fresh bool, paths ...Name) error {
	for _, path := range paths {
		dir, err := c.findAt(p, path)
		if err != nil {
			return err
		}
		if dir != nil {
			c.hand.held[paths[0]] = dir
			return nil
		}
	}
	dir, err := c.byHandle(p)
	if err != nil && !errors.Is(err, syscall.ESTALE) {
		return err
	}
	if dir == nil && fresh && (err != nil || c.journal.Phase == undoing) {
		return nil
	}
	c.hand.held[paths[0]] = dir
	return nil
}

// findAt opens the directory p at a path, nil if it is not there.
func (c *commit) findAt(p place, path Name) (*os.File, error) {
	dir, done, err := c.hand.dir(path)
	if elsewhere(err) || errors.As(err, new(*lostError)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer done()
	// A journal of an earlier version has only paths.
	if is, err := p.is(dir); err != nil || !is && p.Ino != 0 {
		return nil, err
	}
	return sys.Reopen(dir, sys.OPath|syscall.O_DIRECTORY)
}

// is reports whether a directory is the one in the journal.
func (p place) is(dir *os.File) (bool, error) {
	st, err := sys.Fstat(dir)
	if err != nil || st.Ino != p.Ino || st.Nlink == 0 {
		return false, err
	}
	born, err := sys.Birth(dir)
	return born == p.Born, err
}

// byHandle opens a directory by its handle. It returns nil if that is impossible: without the
// right, or on a file system without handles. It needs some directory of the same file system: the
// real one, or a parent of its path if the real one itself is not found.
func (c *commit) byHandle(p place) (*os.File, error) {
	if p.Handle == nil || c.w.store.noHandles {
		return nil, nil
	}
	if c.hand.real != nil {
		return p.openFrom(c.hand.real)
	}
	for at := path.Dir(c.w.meta.Path); ; at = path.Dir(at) {
		if above, err := sys.OpenDirPath(at); err == nil {
			dir, err := p.openFrom(above)
			above.Close()
			if dir != nil {
				return dir, nil
			}
			if err != nil && !errors.Is(err, syscall.ESTALE) {
				return nil, err
			}
		}
		if at == "/" || at == "." {
			return nil, nil
		}
	}
}

func (p place) openFrom(near *os.File) (*os.File, error) {
	mount, err := sys.Reopen(near, os.O_RDONLY|syscall.O_DIRECTORY)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer mount.Close()
	dir, err := sys.OpenHandle(mount, p.Handle)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err,
		syscall.EINVAL) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	is, err := p.is(dir)
	if err == nil && !is {
		err = &fs.PathError{Op: "open_by_handle_at", Path: p.Path.String(), Err: syscall.ESTALE}
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// lost returns an error that names the directories that were not found, nil if all were.
func (c *commit) lost() error {
	var lost []error
	for _, path := range slices.Sorted(maps.Keys(c.hand.held)) {
		if c.hand.held[path] == nil {
			lost = append(lost, &lostError{path})
		}
	}
	return someOf(lost)
}

// whereabouts returns the present parent and name of an open directory; "" if it was removed.
func whereabouts(dir *os.File) (parent *os.File, name string, err error) {
	// If somebody moves the directory meanwhile, the name may be outdated, so it is checked.
	for range 10 {
		st, err := sys.Fstat(dir)
		if err != nil || st.Nlink == 0 {
			return nil, "", err
		}
		now, err := sys.PathOf(dir)
		if err != nil {
			return nil, "", err
		}
		parent, err := sys.OpenParent(dir)
		if err != nil {
			return nil, "", err
		}
		at, err := sys.LstatAt(parent, path.Base(now))
		if err == nil && at.Ino == st.Ino && at.Dev == st.Dev {
			return parent, path.Base(now), nil
		}
		parent.Close()
	}
	return nil, "", nil
}

// maxNamed bounds the errors of one kind that are listed one by one.
const maxNamed = 10

// someOf joins the first maxNamed errors and the number of the others.
func someOf(all []error) error {
	if len(all) > maxNamed {
		all = append(slices.Clone(all[:maxNamed]), fmt.Errorf("and %d more", len(all)-maxNamed))
	}
	return errors.Join(all...)
}
