package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A frozen layer is a former upper layer: its shadow was forked, nothing writes to it any more, and
// several shadows use it as a lower layer. The kernel does not allow one directory as upper layer
// of one overlay and lower layer of another (Documentation/filesystems/overlayfs.rst, "Sharing and
// copying layers"), so each of these shadows gets a new upper layer.
//
// <store>/.layer-<id>/ has
//
//	upper.img   its ext4 image
//	layer.json  the bytes and inodes that it takes; see layerMeta
//
// The meta.json of a workspace names its layers. dropLayers removes layers that none names.
const (
	layerPrefix = ".layer-"
	layerRecord = "layer.json"
	// maxLayers bounds the frozen layers of a shadow, those of merges included.
	maxLayers = 40
	// foldAbove is the number of layers above which fold joins those that no other shadow uses.
	foldAbove = 20
)

// layerMeta is layer.json: the bytes and inodes that the content of a frozen layer takes.
type layerMeta struct {
	Bytes  int64 `json:"bytes"`
	Inodes int64 `json:"inodes"`
}

// A frozenLayer is a frozen layer that this process has mounted, read-only.
type frozenLayer struct {
	layerMeta
	set         *frozenSet
	id          string
	users       int
	image, loop *os.File
	mount       *os.File
}

// A layerStore opens, makes and removes the frozen layers of a store.
type layerStore struct{ s *Store }

// frozenSet has the frozen layers that this process has mounted, by id. All shadows share one mount
// of a layer. The zero set is empty.
type frozenSet struct {
	mu  sync.Mutex
	all map[string]*frozenLayer
}

// release ends one use of the layer. The last one unmounts it.
func (f *frozenLayer) release() error {
	f.set.mu.Lock()
	defer f.set.mu.Unlock()
	if f.users--; f.users > 0 {
		return nil
	}
	delete(f.set.all, f.id)
	return closeFiles(&f.mount, &f.loop, &f.image)
}

// openFrozen mounts a frozen layer, or shares its mount. The caller calls release.
func (l layerStore) openFrozen(id string) (*frozenLayer, error) {
	set := &l.s.frozen
	set.mu.Lock()
	defer set.mu.Unlock()
	if f := set.all[id]; f != nil {
		f.users++
		return f, nil
	}
	f := &frozenLayer{set: set, id: id, users: 1}
	if err := f.open(l.s); err != nil {
		err = errors.Join(err, closeFiles(&f.mount, &f.loop, &f.image))
		return nil, fmt.Errorf("frozen layer %s: %w", id, err)
	}
	if set.all == nil {
		set.all = map[string]*frozenLayer{}
	}
	set.all[id] = f
	return f, nil
}

func (f *frozenLayer) open(s *Store) error {
	dir, err := sys.OpenSubdir(s.dir, layerPrefix+f.id)
	if err != nil {
		return err
	}
	defer dir.Close()
	m, err := readJSON[layerMeta](dir, layerRecord)
	if err != nil {
		return err
	}
	f.layerMeta = *m
	if f.image, err = sys.OpenBeneath(dir, "upper.img", os.O_RDONLY, 0); err != nil {
		return err
	}
	f.loop, f.mount, err = mountLoop(f.image, true)
	return err
}

// openLayers mounts the frozen layers of the workspace.
func (o opening) openLayers() error {
	l := &o.w.layer
	if len(l.frozen) > 0 {
		return nil
	}
	all, err := (layerStore{o.w.store}).openStack(o.w.meta.Layers)
	l.frozen = all
	return err
}

func (l layerStore) openStack(ids []string) (all []*frozenLayer, err error) {
	for _, id := range ids {
		f, err := l.openFrozen(id)
		if err != nil {
			return nil, errors.Join(err, releaseAll(all))
		}
		all = append(all, f)
	}
	return all, nil
}

func releaseAll(all []*frozenLayer) (err error) {
	for _, f := range all {
		err = errors.Join(err, f.release())
	}
	return err
}

// FrozenLayers returns detached read-only mounts of the frozen layers of the workspace for Attach,
// the newest first. The caller closes them.
func FrozenLayers(w *Workspace) ([]*os.File, error) {
	return locking(w, "frozen layers", func() ([]*os.File, error) { return mountsOf(w.layer.frozen) })
}

func mountsOf(layers []*frozenLayer) (all []*os.File, err error) {
	for _, f := range layers {
		m, err := sys.MountExt4(f.loop, true)
		if err != nil {
			closeAll(all...)
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// room returns the limits for the workspace's upper layer: its own limits less what the frozen
// layers take, rounded to a 64th of the limit, so that few image templates are needed. The error is
// ErrLimits if too little is left.
func (f forking) room() (bytes, inodes int64, err error) {
	w := f.w
	bytes, inodes = w.meta.Bytes, w.meta.Inodes
	var usedBytes, usedInodes int64
	for _, f := range w.layer.frozen {
		usedBytes += f.Bytes
		usedInodes += f.Inodes
	}
	bytes = (bytes - inSteps(usedBytes, bytes)) &^ 4095
	inodes -= inSteps(usedInodes, inodes)
	if bytes < minBytes || inodes < minInodes {
		err = fmt.Errorf("%w: its frozen layers hold %s and %d files of the %s and %d that the shadow "+
			"may take: commit or discard a part, or start a session with larger limits", ErrLimits,
			size(usedBytes), usedInodes, size(w.meta.Bytes), w.meta.Inodes)
	}
	return bytes, inodes, err
}

func inSteps(used, limit int64) int64 {
	step := max(1, limit/64)
	return (used + step - 1) / step * step
}

// usage returns how many bytes and inodes a layer takes, which was made for the given limits.
func usage(mount *os.File, bytes, inodes int64) (layerMeta, error) {
	freeBytes, freeInodes, err := sys.Room(mount)
	return layerMeta{max(0, bytes+ownBlocks*blockSize-freeBytes),
		max(0, inodes+ownInodes-freeInodes)}, err
}

// dropLayers removes the frozen layers that no workspace names. It removes none if a workspace
// cannot be read. The caller holds the store's lock exclusively.
func (l layerStore) dropLayers() error {
	names, err := l.s.names()
	if err != nil {
		return err
	}
	used, err := l.used(names, "")
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := strings.CutPrefix(name, layerPrefix); ok && !used[id] {
			err = errors.Join(err, l.s.sweep(name))
		}
	}
	return err
}

// used returns the set of the frozen layers that the workspaces among names need. It leaves out the
// workspace except.
func (l layerStore) used(names []string, except string) (map[string]bool, error) {
	used := map[string]bool{}
	for _, name := range names {
		if name == except || checkID(name) != nil {
			continue
		}
		m, err := readJSON[meta](l.s.dir, path.Join(name, "meta.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, id := range m.layersInUse() {
			used[id] = true
		}
	}
	return used, nil
}

// layersInUse returns the frozen layers that the workspace needs, for itself or to undo a merge.
func (m meta) layersInUse() []string {
	all := slices.Clone(m.Layers)
	for _, r := range m.Merges {
		if r.Reverted.IsZero() {
			all = append(all, r.Below...)
		}
	}
	return all
}

// sweepUnused removes the frozen layers that no workspace needs any more.
func (l layerStore) sweepUnused() error {
	release, err := l.s.hold(true)
	if err != nil {
		return err
	}
	defer release()
	return l.dropLayers()
}

// A newLayer is a frozen layer that is being written. It is not used until a meta.json names it.
type newLayer struct {
	store         *Store
	id            string
	bytes, inodes int64
	dir           *os.File
	layer         layer
	// offered: a meta may name it.
	offered bool
}

// newLayer makes an empty layer with these limits. Its root gets the owner and mode of root.
func (l layerStore) newLayer(bytes, inodes int64, root sys.Stat) (n *newLayer, err error) {
	s := l.s
	n = &newLayer{store: s, id: randomName(), bytes: bytes, inodes: inodes}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.drop())
			n = nil
		}
	}()
	if n.dir, err = s.makeDir(layerPrefix + n.id); err != nil {
		return n, err
	}
	unlock, err := s.reserve(layerPrefix+n.id, imageSize(bytes, inodes), bytes, 0)
	if err != nil {
		return n, err
	}
	n.layer.image, err = s.newImage(n.dir, bytes, inodes)
	unlock()
	if err == nil {
		err = n.layer.mountImage()
	}
	if err != nil {
		return n, err
	}
	upper, err := n.layer.openOwn()
	if err != nil {
		return n, err
	}
	return n, errors.Join(sys.Chown(upper, root.UID, root.GID), sys.Chmod(upper, root.Perm()),
		upper.Close())
}

// seal makes the layer durable and read-only.
func (n *newLayer) seal() error {
	used, err := usage(n.layer.mount, n.bytes, n.inodes)
	if err == nil {
		err = n.layer.sync()
	}
	if err == nil {
		err = sys.MakeReadOnly(n.layer.mount)
	}
	if err == nil {
		err = n.layer.image.Sync()
	}
	if err == nil {
		err = folder{n.dir}.writeJSON(layerRecord, used, true)
	}
	return err
}

// offer is called before a meta.json with the layer's name is written. After that only dropLayers
// removes the layer: if the write fails, it may have happened all the same.
func (n *newLayer) offer() { n.offered = true }

// drop closes the layer, and removes it unless offer was called.
func (n *newLayer) drop() error {
	err := errors.Join(n.layer.close(), closeFiles(&n.dir), n.store.unreserve(layerPrefix+n.id))
	if !n.offered {
		err = errors.Join(err, n.store.sweep(layerPrefix+n.id))
	}
	return err
}

// mountAlone mounts a shadow and returns its root. It does so in the mount namespace of a thread
// that ends, so that the shadow can be reached only by the returned descriptor.
func mountAlone(a Attachment) (mount *os.File, err error) {
	err = sys.OnEndingThread(func() error {
		err := sys.PrivateMounts()
		if err == nil {
			mount, err = overlayOf(a)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("mount of the shadow: %w", err)
	}
	root, err := sys.OpenSubdir(mount, ".")
	return root, errors.Join(err, mount.Close())
}

// An applier writes changes into a shadow that only this process has mounted.
type applier struct {
	ctx context.Context
	// root is the root directory of the shadow.
	root *os.File
	// texts are new contents that are not in the files of content.
	texts map[Name]string
	// content returns the directory and the name in it that has the new content of a path.
	content func(Name) (dir *os.File, name string, err error)
}

// apply writes the changes, directories before what is in them.
func (a applier) apply(changes []Change) error {
	for _, c := range slices.Backward(changes) {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		if c.Before == nil || c.Kind == Mode || c.Before.Type == Dir && c.Kind != Deleted &&
			c.Kind != Retyped {
			continue
		}
		if err := a.remove(c); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	for _, c := range changes {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		if c.After == nil {
			continue
		}
		if err := a.write(c); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	return nil
}

func (a applier) remove(c Change) error {
	dir, name := split(string(c.Path))
	at, err := openDir(a.root, dir)
	if err != nil {
		return err
	}
	defer at.Close()
	if c.Before.Type != Dir {
		return sys.UnlinkAt(at, name)
	}
	err = sys.RmdirAt(at, name)
	if errors.Is(err, syscall.ENOTEMPTY) {
		err = &ConflictError{Conflicts: []Conflict{{Path: c.Path,
			Why: "something was made in the directory since", Real: c.Before}}}
	}
	return err
}

func (a applier) write(c Change) error {
	if c.Kind == Mode {
		f, err := a.open(c.Path)
		if err != nil {
			return err
		}
		return errors.Join(sys.Chmod(f, c.After.Mode), f.Close())
	}
	dir, name := split(string(c.Path))
	at, err := openDir(a.root, dir)
	if err != nil {
		return err
	}
	defer at.Close()
	from, old, err := a.content(c.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	st, err := sys.LstatAt(from, old)
	if err != nil {
		return err
	}
	switch c.After.Type {
	case Dir:
		err = sys.MkdirAt(at, name, 0o700)
	case Link:
		err = sys.SymlinkAt(string(c.After.Target), at, name)
	case File:
		err = a.file(c, at, from, st)
	default:
		return fmt.Errorf("a %s is not merged", c.After.Type)
	}
	if err != nil {
		return err
	}
	made, err := sys.OpenPath(at, name)
	if err != nil {
		return err
	}
	defer made.Close()
	err = sys.Chown(made, st.UID, st.GID)
	if c.After.Type != Link {
		err = errors.Join(err, sys.Chmod(made, c.After.Mode))
	}
	return err
}

// open opens a path of the shadow, with O_PATH.
func (a applier) open(path Name) (*os.File, error) {
	if path == "" {
		return openDir(a.root, "")
	}
	return inDir(a.root, path, sys.OpenPath)
}

func (a applier) file(c Change, at, from *os.File, st sys.Stat) error {
	_, name := split(string(c.Path))
	made, err := newFile(at, name)
	if err != nil {
		return err
	}
	defer made.Close()
	if text, ok := a.texts[c.Path]; ok {
		_, err := made.WriteString(text)
		return err
	}
	content, err := openRegular(from, name)
	if err != nil {
		return err
	}
	defer content.Close()
	if err := copyData(made, content, st.Size); err != nil {
		return err
	}
	err = checkContent(a.ctx, made, c.After)
	// A file system without user attributes has none to copy.
	_ = copyXattrs(made, content, kept)
	return errors.Join(err, sys.SetMtime(made, st.Mtime))
}

// makeRoom returns ErrForks if the workspace cannot get that many more frozen layers. Beyond
// foldAbove layers it first joins those at the top that no other workspace needs.
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

// ofOneAlone returns the number of frozen layers at the top of a workspace that no other needs.
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

// errOdd is returned by fold for a layer with special files, which cannot be copied.
var errOdd = errors.New("a special file")

// fold joins the first n frozen layers of the workspace into one. The old ones are swept later.
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

// joiner copies a tree of several layers into one layer.
type joiner struct {
	ctx context.Context
	// links are the copies of files with several hard links, by the inode of the original.
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

// keptInLayer reports whether fold copies an extended attribute: user attributes, ACLs, and those
// of overlayfs except the opaque mark.
func keptInLayer(name string) bool {
	return kept(name) || name == "system.posix_acl_default" ||
		strings.HasPrefix(name, mark()) && name != mark()+"opaque"
}
