package workspace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/policy"
)

// hiding is the layer that deletes the names that the policy hides. It is between the real
// directory and the upper layer, so no tool finds these names by any call. Nothing is made in the
// real directory, and nothing is decided while the tool runs: a missing name cannot be linked,
// moved or opened by another name.
//
// It is made once, before the run, for the names that exist then and for those that may come: a
// pattern that ends in a plain name, such as .env, is deleted in every existing directory, so that
// it stays hidden when the host makes it during the run. A name in a directory that the host makes
// during the run, or that matches only by a * in the last part of a pattern, is hidden only by the
// tool's own view, if the tool has one.
//
// Each link of a file with several must be hidden: the content is readable by a name that is not.
type hiding struct {
	names policy.Names
	// literals are the last parts of patterns that are plain names.
	literals []string
	dirs     []hiddenIn
	count    int64
	source   *os.File
	indexes  []hiddenIndex
	// unedited are the indexes in which jail cannot set the bits.
	unedited []Name
	// found says that there is a name to hide.
	found bool
	// roots maps each index to the directory whose files it names.
	roots map[Name]Name
}

// hiddenIn is a directory with the names that are deleted in it.
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

// findHidden walks the real directory by name only.
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

// bytes returns the room that the copies of indexes need beside the tool's writes.
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

// make writes the hiding layer.
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
	links := 0
	var white *os.File
	defer func() {
		if white != nil {
			white.Close()
		}
	}()
	// Directories before their entries.
	for _, d := range h.dirs {
		if !needed[d.path] {
			continue
		}
		if d.path != "" {
			parent, name := split(d.path)
			p, err := openDir(root, parent)
			if err != nil {
				return err
			}
			err = sys.MkdirAt(p, name, 0o700)
			p.Close()
			if err != nil {
				return err
			}
		}
		at, err := openDir(root, d.path)
		if err != nil {
			return err
		}
		for _, name := range d.names {
			if white == nil || links == whiteoutLinks {
				if white != nil {
					white.Close()
				}
				if err = sys.WhiteoutAt(at, name); err == nil {
					white, err = sys.OpenPath(at, name)
				}
				links = 0
			} else {
				err = sys.LinkInode(white, at, name)
			}
			if err != nil {
				break
			}
			links++
		}
		err = errors.Join(err, sys.Chown(at, d.uid, d.gid), sys.Chmod(at, d.mode), at.Close())
		if err != nil {
			return err
		}
	}
	return h.makeIndexes(root)
}
