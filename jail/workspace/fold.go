package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// makeRoom makes sure that the workspace may have more frozen layers. Beyond foldAbove it joins
// those at the top that no other workspace needs.
func (f forking) makeRoom(ctx context.Context, more int) error {
	w := f.w
	if len(w.meta.Layers)+more <= foldAbove {
		return nil
	}
	n, err := (layerStore{w.store}).ofOneAlone(w.meta)
	if err != nil {
		return err
	}
	if n > 1 {
		err := f.fold(ctx, n)
		if err != nil && !errors.Is(err, errOdd) {
			return fmt.Errorf("join frozen layers: %w", err)
		}
	}
	if len(w.meta.Layers)+more > maxLayers {
		return fmt.Errorf("%w: the shadow has %d layers, and merges and forks need more: discard "+
			"branches that are merged", ErrForks, len(w.meta.Layers))
	}
	return nil
}

// ofOneAlone returns how many frozen layers at the top of a workspace no other workspace needs.
func (l layerStore) ofOneAlone(m meta) (int, error) {
	names, err := l.s.names()
	if err != nil {
		return 0, err
	}
	used, err := l.used(names, m.ID)
	if err != nil {
		return 0, err
	}
	n := slices.IndexFunc(m.Layers, func(id string) bool { return used[id] })
	if n < 0 {
		n = len(m.Layers)
	}
	if m.Fork != nil {
		n = min(n, len(m.Layers)-m.Fork.Base)
	}
	return n, nil
}

// errOdd is the error of a fold of layers with special files, which are not copied.
var errOdd = errors.New("a special file")

// fold joins the first n frozen layers into one. The replacement of the meta makes it the
// workspace's, and the others are swept.
func (f forking) fold(ctx context.Context, n int) (err error) {
	w := f.w
	layers, err := (layerStore{w.store}).openStack(w.meta.Layers[:n])
	if err != nil {
		return err
	}
	defer releaseAll(layers)
	top, err := joinRoots(layers)
	if err != nil {
		return err
	}
	defer top.Close()
	root, err := top.stat()
	if err != nil {
		return err
	}
	joined, err := (layerStore{w.store}).newLayer(w.meta.Bytes, w.meta.Inodes, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, joined.drop()) }()
	to, err := joined.layer.openOwn()
	if err != nil {
		return err
	}
	j := joiner{ctx: ctx, links: map[inodeKey]*os.File{}}
	err = j.dir(top, to, 0)
	// A file system with a file that is open for writing does not become read-only.
	j.close()
	to.Close()
	if err != nil {
		return err
	}
	if err := joined.seal(); err != nil {
		return err
	}
	before := w.meta.Layers
	w.meta.Layers = append([]string{joined.id}, before[n:]...)
	joined.offer()
	if err := errors.Join(w.store.dir.Sync(), w.save(true)); err != nil {
		w.meta.Layers = before
		return err
	}
	return nil
}

type inodeKey struct{ dev, ino uint64 }

// joiner copies joined layers into one.
type joiner struct {
	ctx context.Context
	// links are the copies of files with several names.
	links map[inodeKey]*os.File
}

func (f *joiner) close() {
	for _, l := range f.links {
		l.Close()
	}
}

func (f *joiner) dir(from *upperDir, to *os.File, depth int) error {
	if err := f.ctx.Err(); err != nil || depth > maxDepth {
		return errors.Join(err, errTooDeep)
	}
	names, err := from.names()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		at, st, err := from.find(name)
		if err != nil {
			return err
		}
		switch {
		case whiteout(st):
			err = sys.WhiteoutAt(to, name)
		case typeOf(st) == Dir:
			err = f.subdir(from, to, name, st, depth)
		case typeOf(st) == Link:
			err = copyLink(at, to, name, st)
		case typeOf(st) == File:
			err = f.file(at, to, name, st)
		default:
			err = errOdd
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *joiner) subdir(from *upperDir, to *os.File, name string, st sys.Stat, depth int) error {
	sub, err := from.sub(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := sys.MkdirAt(to, name, 0o700); err != nil {
		return err
	}
	made, err := sys.OpenSubdir(to, name)
	if err != nil {
		return err
	}
	defer made.Close()
	if err := f.dir(sub, made, depth+1); err != nil {
		return err
	}
	if sub.opaque {
		if err := sys.SetXattr(made, mark()+"opaque", []byte("y")); err != nil {
			return err
		}
	}
	if err := copyXattrs(made, sub.dirs[0], keptInLayer); err != nil {
		return err
	}
	return errors.Join(sys.Chown(made, st.UID, st.GID), sys.Chmod(made, st.Perm()),
		sys.SetMtime(made, st.Mtime))
}

func copyLink(from, to *os.File, name string, st sys.Stat) error {
	target, err := sys.ReadlinkAt(from, name)
	if err != nil {
		return err
	}
	if err := sys.SymlinkAt(target, to, name); err != nil {
		return err
	}
	made, err := sys.OpenPath(to, name)
	if err != nil {
		return err
	}
	return errors.Join(sys.Chown(made, st.UID, st.GID), made.Close())
}

func (f *joiner) file(from, to *os.File, name string, st sys.Stat) error {
	key := inodeKey{st.Dev, st.Ino}
	if old := f.links[key]; old != nil {
		return sys.LinkInode(old, to, name)
	}
	content, err := openRegular(from, name)
	if err != nil {
		return err
	}
	defer content.Close()
	made, err := newFile(to, name)
	if err != nil {
		return err
	}
	err = copyData(made, content, st.Size)
	if err == nil {
		err = copyXattrs(made, content, keptInLayer)
	}
	if err == nil {
		err = errors.Join(sys.Chown(made, st.UID, st.GID), sys.Chmod(made, st.Perm()),
			sys.SetMtime(made, st.Mtime))
	}
	if err != nil || st.Nlink == 1 {
		return errors.Join(err, made.Close())
	}
	f.links[key] = made
	return nil
}

// keptInLayer reports whether a joined layer keeps an extended attribute: those of users, ACLs, and
// the overlay's marks but for that of an opaque directory.
func keptInLayer(name string) bool {
	return kept(name) || name == "system.posix_acl_default" ||
		strings.HasPrefix(name, mark()) && name != mark()+"opaque"
}
