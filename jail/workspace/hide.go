package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// hiding is the layer of whiteouts for the names that the policy hides. It is between the real
// directory and the upper layer, so no tool finds these names by any system call. Nothing is made
// in the real directory, and nothing is decided while the tool runs: a missing name cannot be
// linked, moved or opened by another name.
//
// It is made once, before the run, for the names that exist then and for those that may come: a
// pattern that ends in a plain name, such as .env, is deleted in every existing directory, so that
// it stays hidden when the host makes it during the run. A name in a directory that the host makes
// during the run, or that matches only by a * in the last part of a pattern, is hidden only by the
// tool's own view, if the tool has one.
//
// If a file has several hard links, each must be hidden: the content is readable by any other.
type hiding struct {
	names policy.Names
	// literals are the last parts of patterns that are plain names.
	literals []string
	dirs     []hiddenIn
	count    int64
	source   *os.File
	indexes  []hiddenIndex
	// unedited are the git indexes in which jail cannot set the skip-worktree bits.
	unedited []Name
	// found: the real directory has a name to hide.
	found bool
	// roots maps each edited git index to the directory whose files it names.
	roots map[Name]Name
}

// hiddenIn is a directory with the names to hide in it.
type hiddenIn struct {
	path     string
	uid, gid uint32
	mode     uint32
	names    []string
}

// hiddenLayer is the directory of the hiding layer on the upper layer's image.
const hiddenLayer = "hide"

// whiteoutLinks bounds the links of one whiteout inode.
const whiteoutLinks = 60000

// findHidden finds the names in the real directory that match the patterns. It reads git indexes.
func findHidden(source *os.File, patterns []string) (*hiding, error) {
	h := &hiding{names: policy.Hidden(patterns), source: source, roots: map[Name]Name{}}
	for _, p := range patterns {
		if _, last := split(p); last != "" && !strings.ContainsAny(last, "*?[\\") &&
			!slices.Contains(h.literals, last) {
			h.literals = append(h.literals, last)
		}
	}
	return h, h.dir(source, "", 0)
}

func (h *hiding) dir(parent *os.File, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: %d levels at %.100s…", errTooDeep, depth, Name(path))
	}
	d, err := sys.OpenSubdir(parent, ".")
	if err != nil {
		return err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return err
	}
	st, err := sys.Fstat(d)
	if err != nil {
		return err
	}
	in := hiddenIn{path: path, uid: st.UID, gid: st.GID, mode: st.Perm()}
	for _, name := range h.literals {
		if h.names.Match(join(path, name)) {
			in.names = append(in.names, name)
		}
	}
	for _, e := range entries {
		if !h.names.Match(join(path, e.Name())) {
			continue
		}
		h.found = true
		if !slices.Contains(in.names, e.Name()) {
			in.names = append(in.names, e.Name())
		}
	}
	h.dirs = append(h.dirs, in)
	h.count += int64(len(in.names))
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == ".git" }) {
		if err := h.addIndex(d, path); err != nil {
			return err
		}
	}
	for _, e := range entries {
		full := join(path, e.Name())
		if !e.IsDir() || h.names.Match(full) || !h.names.CouldContain(full) {
			continue
		}
		sub, err := sys.OpenSubdirPath(d, e.Name())
		if missing(err) {
			// Gone meanwhile.
			continue
		}
		if err != nil {
			return err
		}
		err = h.dir(sub, full, depth+1)
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// inodes returns the number of inodes of the hiding layer.
func (h *hiding) inodes() int64 {
	if h == nil || h.count == 0 {
		return 0
	}
	indexes := int64(0)
	for _, x := range h.indexes {
		indexes += 1 + int64(len(x.above))
	}
	// Rounded, since each number has a template.
	return (int64(len(h.dirs)) + h.count/whiteoutLinks + indexes + 3 + 1023) &^ 1023
}

// bytes returns the number of bytes that the copies of git indexes need in the image.
func (h *hiding) bytes() (n int64) {
	if h == nil {
		return 0
	}
	for _, x := range h.indexes {
		n += int64(len(x.content)) + int64(len(x.above)+1)*blockSize
	}
	// Rounded for the same reason.
	return (n + 1<<20 - 1) &^ (1<<20 - 1)
}

// make writes the hiding layer to its directory on the mounted image.
func (h *hiding) make(mount *os.File) error {
	if err := sys.MkdirAt(mount, hiddenLayer, 0o700); err != nil {
		return err
	}
	root, err := sys.OpenSubdirPath(mount, hiddenLayer)
	if err != nil {
		return err
	}
	defer root.Close()
	needed := map[string]bool{"": true}
	for _, d := range h.dirs {
		for at := d.path; len(d.names) > 0 && !needed[at]; at = parentOf(at) {
			needed[at] = true
		}
	}
	w := whiter{}
	defer w.close()
	// Directories before their entries.
	for _, d := range h.dirs {
		if !needed[d.path] {
			continue
		}
		if err := d.make(root, &w); err != nil {
			return err
		}
	}
	return h.makeIndexes(root, &w)
}

// make makes a directory of the hiding layer with its whiteouts and the real one's owner and mode.
func (d hiddenIn) make(root *os.File, w *whiter) error {
	if d.path != "" {
		_, err := inDir(root, d.path, func(parent *os.File, name string) (any, error) {
			return nil, sys.MkdirAt(parent, name, 0o700)
		})
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	at, err := openDir(root, d.path)
	if err != nil {
		return err
	}
	return errors.Join(w.hide(at, d.names), sys.Chown(at, d.uid, d.gid), sys.Chmod(at, d.mode),
		at.Close())
}

// A whiter makes whiteouts. They are hard links to one inode, up to the file system's limit.
type whiter struct {
	white *os.File
	links int
}

func (w *whiter) close() { closeAll(w.white) }

func (w *whiter) hide(at *os.File, names []string) (err error) {
	for _, name := range names {
		if w.white == nil || w.links == whiteoutLinks {
			w.close()
			if err = sys.WhiteoutAt(at, name); err == nil {
				w.white, err = sys.OpenPath(at, name)
			}
			w.links = 0
		} else {
			err = sys.LinkInode(w.white, at, name)
		}
		if err != nil {
			return err
		}
		w.links++
	}
	return nil
}

// To git a hidden tracked file would look deleted, and `git add -A` would delete it. So if a
// repository tracks hidden names, the layer that hides them has a copy of its index in which they
// have the skip-worktree bit: git takes such a file for unchanged without looking. Whatever git
// makes of that copy, a review and a commit see it without the bits; see walker.hideIndex.

// hiddenIndex is the edited copy of one git index.
type hiddenIndex struct {
	// path of the index in the workspace.
	path    string
	content []byte
	real    *os.File
	stat    sys.Stat
	// above are the directories above the index, the outermost first.
	above []hiddenIn
}

// maxIndex bounds an index in bytes; a larger one is not edited.
const maxIndex = 256 << 20

// addIndex adds the git index of a directory with a .git, which is a repository or a file that
// names one. It adds nothing if the index has no hidden names.
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

// warnings returns messages for the user about git indexes that jail could not edit.
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

// editHidden sets x.content to the index with skip-worktree bits for hidden names. It leaves it nil
// if there are none to set.
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
		st, err := statDir(h.source, dir)
		if err != nil {
			return err
		}
		x.above = append([]hiddenIn{{path: dir, uid: st.UID, gid: st.GID, mode: st.Perm()}},
			x.above...)
	}
	return nil
}

// isThere reports whether a path exists in the real directory. A file that is deleted there must
// look deleted to git.
func (h *hiding) isThere(full string) (bool, error) {
	_, err := inDir(h.source, full, sys.LstatAt)
	if missing(err) {
		return false, nil
	}
	return err == nil, err
}

// gitDirOf returns the path of the git directory that the .git in dir is or names, "" if it is not
// below the workspace.
func gitDirOf(dir *os.File, at string) (string, error) {
	st, err := sys.LstatAt(dir, ".git")
	if missing(err) || err == nil && typeOf(st) != Dir && typeOf(st) != File {
		return "", nil
	}
	if err != nil || typeOf(st) == Dir {
		return join(at, ".git"), err
	}
	text, err := readRegular(dir, ".git", 4096)
	if err != nil {
		return "", err
	}
	to, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir: ")
	if !ok || path.IsAbs(to) {
		return "", nil
	}
	to = path.Join(at, to)
	if to == ".." || strings.HasPrefix(to, "../") {
		return "", nil
	}
	return to, nil
}

// makeIndexes writes the copies of the git indexes into the hiding layer.
func (h *hiding) makeIndexes(root *os.File, w *whiter) error {
	for _, x := range h.indexes {
		for _, d := range x.above {
			if err := d.make(root, w); err != nil {
				return err
			}
		}
		if err := x.make(root); err != nil {
			return fmt.Errorf("%s: %w", Name(x.path), err)
		}
	}
	return nil
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
	// git compares the mtime of the index with the mtimes of the files.
	return errors.Join(sys.Chown(f, x.stat.UID, x.stat.GID), sys.Chmod(f, x.stat.Perm()),
		copyXattrs(f, x.real, kept), sys.SetMtime(f, x.stat.Mtime))
}

func (h *hiding) closeIndexes() {
	for _, x := range h.indexes {
		x.real.Close()
	}
}

// hideIndex sets size and hash of c.After to those of a git index without the skip-worktree bits
// that editHidden set. ok is false, and c is unchanged, if it has no such bits. If the index is too
// large to edit, it sets c.Refused.
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

// clearedIndex returns the new content of a git index without the skip-worktree bits of hidden
// names that the real index does not have set. It returns nil if there are none.
func (k *walker) clearedIndex(upper, real *os.File, name string, at Name) ([]byte, error) {
	content, err := readIndex(upper, name)
	if err != nil {
		return nil, err
	}
	theirs := map[string]bool{}
	old, err := lookAs(k, real, func() ([]byte, error) { return readIndex(real, name) })
	if err == nil {
		_, _, err = editIndex(old, func(name string, set bool) bool {
			theirs[name] = set
			return set
		})
	}
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

// clearIndexes adds to texts the content that a commit writes for each changed git index.
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

// bothSides calls f with the parent directories of a path in the layer and in the real directory,
// the latter nil if missing.
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
