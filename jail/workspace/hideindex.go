package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// To git a hidden tracked file would look deleted, and `git add -A` would delete it. So if a
// repository tracks hidden names, the layer that hides them has a copy of its index in which they
// have the skip-worktree bit: git takes such a file for unchanged without looking. Whatever git
// makes of that copy, a review and a commit see it without the bits; see walker.hideIndex.

// hiddenIndex is the copy of one index.
type hiddenIndex struct {
	// path of the index.
	path    string
	content []byte
	real    *os.File
	stat    sys.Stat
	// above are the directories above it, the outermost first.
	above []hiddenIn
}

// maxIndex bounds an index in bytes; a larger one is not edited.
const maxIndex = 256 << 20

// addIndex reads the .git of a directory: a repository, or a file that names a submodule's.
func (h *hiding) addIndex(dir *os.File, at string) error {
	gitDir, err := gitDirOf(dir, at)
	if err != nil || gitDir == "" {
		return err
	}
	x := hiddenIndex{path: join(gitDir, "index")}
	parent, err := openDir(h.source, gitDir)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	st, err := sys.LstatAt(parent, "index")
	if missing(err) || err == nil && typeOf(st) != File {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Size > maxIndex {
		h.unedited = append(h.unedited, Name(x.path))
		return nil
	}
	if x.real, err = openRegular(parent, "index"); err != nil {
		return err
	}
	if err = h.editHidden(&x, at); err != nil || x.content == nil {
		return errors.Join(err, x.real.Close())
	}
	h.indexes = append(h.indexes, x)
	h.roots[Name(x.path)] = Name(at)
	return nil
}

// warnings says which indexes of git stay as they are although there are names to hide.
func (h *hiding) warnings() (all []string) {
	if !h.found {
		return nil
	}
	for _, index := range h.unedited {
		all = append(all, fmt.Sprintf("git takes hidden files for deleted, and git add -A deletes "+
			"them in its index: jail cannot change %s, which is split, damaged or larger than %s; "+
			"git update-index --no-split-index joins a split one", index, size(maxIndex)))
	}
	return all
}

// editHidden sets the bits, and leaves the content nil if there are none to set.
func (h *hiding) editHidden(x *hiddenIndex, root string) (err error) {
	if x.stat, err = sys.Fstat(x.real); err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(x.real, maxIndex))
	if err != nil {
		return err
	}
	var looked error
	content, changed, err := editIndex(content, func(name string, set bool) bool {
		full := join(root, name)
		if set || looked != nil || !h.names.Match(full) {
			return set
		}
		set, looked = h.isThere(full)
		return set
	})
	if errors.Is(err, errIndex) {
		h.unedited = append(h.unedited, Name(x.path))
		return nil
	}
	if err != nil || looked != nil || !changed {
		return errors.Join(err, looked)
	}
	x.content = content
	for dir := parentOf(x.path); dir != ""; dir = parentOf(dir) {
		d, err := openDir(h.source, dir)
		if err != nil {
			return err
		}
		st, err := sys.Fstat(d)
		d.Close()
		if err != nil {
			return err
		}
		x.above = append([]hiddenIn{{path: dir, uid: st.UID, gid: st.GID, mode: st.Perm()}},
			x.above...)
	}
	return nil
}

// isThere reports whether a path is in the real directory. A deleted file stays deleted.
func (h *hiding) isThere(full string) (bool, error) {
	parent, name := split(full)
	d, err := openDir(h.source, parent)
	if err == nil {
		defer d.Close()
		_, err = sys.LstatAt(d, name)
	}
	if missing(err) {
		return false, nil
	}
	return err == nil, err
}

// gitDirOf returns the git directory of a directory with a .git, "" if it is not below the
// workspace.
func gitDirOf(dir *os.File, at string) (string, error) {
	st, err := sys.LstatAt(dir, ".git")
	if missing(err) || err == nil && typeOf(st) != Dir && typeOf(st) != File {
		return "", nil
	}
	if err != nil || typeOf(st) == Dir {
		return join(at, ".git"), err
	}
	f, err := openRegular(dir, ".git")
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", err
	}
	to, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
	if !ok || path.IsAbs(to) {
		return "", nil
	}
	to = path.Join(at, to)
	if to == ".." || strings.HasPrefix(to, "../") {
		return "", nil
	}
	return to, nil
}

// makeIndexes writes the copies into the layer.
func (h *hiding) makeIndexes(root *os.File) error {
	for _, x := range h.indexes {
		for _, d := range x.above {
			if err := makeAbove(root, d); err != nil {
				return err
			}
		}
		if err := x.make(root); err != nil {
			return fmt.Errorf("%s: %w", Name(x.path), err)
		}
	}
	return nil
}

// makeAbove makes a missing directory of the layer with the attributes of the real one.
func makeAbove(root *os.File, d hiddenIn) error {
	parent, name := split(d.path)
	p, err := openDir(root, parent)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := sys.MkdirAt(p, name, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	at, err := sys.OpenSubdirPath(p, name)
	if err != nil {
		return err
	}
	defer at.Close()
	return errors.Join(sys.Chown(at, d.uid, d.gid), sys.Chmod(at, d.mode))
}

func (x hiddenIndex) make(root *os.File) error {
	parent, name := split(x.path)
	p, err := openDir(root, parent)
	if err != nil {
		return err
	}
	defer p.Close()
	f, err := newFile(p, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(x.content); err != nil {
		return err
	}
	// git compares the time of the index with those of the files.
	return errors.Join(sys.Chown(f, x.stat.UID, x.stat.GID), sys.Chmod(f, x.stat.Perm()),
		copyXattrs(f, x.real, kept), sys.SetMtime(f, x.stat.Mtime))
}

func (h *hiding) closeIndexes() {
	for _, x := range h.indexes {
		x.real.Close()
	}
}

// hideIndex describes the new content of an index without the bits that hide set. ok reports
// whether it has such bits.
func (k *walker) hideIndex(c *Change, upper, real *os.File, name string, after sys.Stat) (
	ok bool, err error,
) {
	if _, ok := k.meta.Indexes[c.Path]; !ok {
		return false, nil
	}
	if after.Size > maxIndex {
		c.Refused = fmt.Sprintf(
			"an index of git of %s is too large to take out of it what hide set",
			size(after.Size))
		return true, nil
	}
	content, err := k.clearedIndex(upper, real, name, c.Path)
	if content == nil || err != nil {
		return false, err
	}
	n := textNode(string(content), c.After.Mode)
	c.After.Size, c.After.SHA256, c.Binary = n.Size, n.SHA256, true
	return true, nil
}

// clearedIndex returns the new content of an index without the bits that hide set: those of hidden
// names that the real index does not have. It returns nil if there are none.
func (k *walker) clearedIndex(upper, real *os.File, name string, at Name) ([]byte, error) {
	content, err := readIndex(upper, name)
	if err != nil {
		return nil, err
	}
	theirs := map[string]bool{}
	err = k.look(real, func() error {
		old, err := readIndex(real, name)
		if err == nil {
			_, _, err = editIndex(old, func(name string, set bool) bool {
				theirs[name] = set
				return set
			})
		}
		return err
	})
	if err != nil && !missing(err) && !errors.Is(err, errIndex) {
		return nil, err
	}
	root := string(k.meta.Indexes[at])
	content, changed, err := editIndex(content, func(name string, set bool) bool {
		return set && (theirs[name] || !k.hide.Match(join(root, name)))
	})
	if errors.Is(err, errIndex) || !changed {
		return nil, nil
	}
	return content, err
}

func readIndex(dir *os.File, name string) ([]byte, error) {
	if dir == nil {
		return nil, os.ErrNotExist
	}
	f, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxIndex))
}

// clearIndexes makes the text that a commit writes for each changed index.
func (d decision) clearIndexes(changes []Change, texts map[Name]string) error {
	k := &walker{as: d.w.meta.Caller, meta: &d.w.meta, hide: policy.Hidden(d.w.meta.Hide)}
	for _, c := range changes {
		_, ok := d.w.meta.Indexes[c.Path]
		if !ok || c.After == nil || c.After.Type != File || c.Refused != "" {
			continue
		}
		content, err := d.bothSides(c.Path, func(upper, real *os.File, name string) ([]byte,
			error) {
			return k.clearedIndex(upper, real, name, c.Path)
		})
		if err != nil {
			return err
		}
		if content != nil {
			texts[c.Path] = string(bytes.Clone(content))
		}
	}
	return nil
}

// bothSides runs f with the directories of a path in the layer and in the real directory, nil for a
// missing one.
func (d decision) bothSides(
	at Name, f func(upper, real *os.File, name string) ([]byte, error),
) ([]byte, error) {
	parent, name := split(string(at))
	root, err := d.w.layer.openUpper()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	upper, _, err := root.at(at)
	if err != nil {
		return nil, err
	}
	defer upper.Close()
	real, err := openDir(d.w.source, parent)
	if err != nil && !missing(err) {
		return nil, err
	}
	defer closeAll(real)
	return f(upper, real, name)
}
