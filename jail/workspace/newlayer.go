package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A newLayer is a frozen layer that is being written. Until a meta names it, it is nothing.
type newLayer struct {
	store         *Store
	id            string
	bytes, inodes int64
	dir           *os.File
	layer         layer
	// offered: a meta may name it.
	offered bool
}

// newLayer makes an empty layer with these limits, whose root is like root.
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
	unlock, err := s.reserve(layerPrefix+n.id, imageSize(bytes, inodes), bytes)
	if err != nil {
		return n, err
	}
	if n.layer.image, err = s.newImage(n.dir, bytes, inodes); err == nil {
		err = sys.Lock(n.layer.image, true)
	}
	unlock()
	if err == nil {
		err = n.layer.mountImage()
	}
	if err == nil {
		err = n.layer.openRoot()
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

// offer says that a meta is about to name the layer. From here on only dropLayers removes it: an
// error of the replacement of a meta does not say whether it happened.
func (n *newLayer) offer() { n.offered = true }

// drop closes the layer, and removes one that was not offered.
func (n *newLayer) drop() error {
	err := errors.Join(n.layer.close(), closeFiles(&n.dir),
		n.store.unreserve(layerPrefix+n.id))
	if !n.offered {
		err = errors.Join(err, n.store.sweep(layerPrefix+n.id))
	}
	return err
}

// mountAlone mounts a shadow on a thread of its own, whose mount namespace goes with it: only the
// returned descriptor leads to the shadow.
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
	// root is the shadow's.
	root *os.File
	// texts are contents that content does not have.
	texts map[Name]string
	// content returns the directory and the name with the new content of a path.
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
	dir, name := split(string(path))
	at, err := openDir(a.root, dir)
	if err != nil || name == "" {
		return at, err
	}
	defer at.Close()
	return sys.OpenPath(at, name)
}

func (a applier) file(c Change, at, from *os.File, st sys.Stat) error {
	_, name := split(string(c.Path))
	made, err := sys.OpenBeneath(at, name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
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
	if err := made.Truncate(st.Size); err != nil {
		return err
	}
	if err := copyData(made, content); err != nil {
		return err
	}
	sum, _, err := hashFile(made, c.After.Size, a.ctx.Err, nil)
	if err == nil && sum != c.After.SHA256 {
		err = ErrDigest
	}
	// A file system without attributes of users has none to copy.
	_ = copyAttributes(made, content)
	return errors.Join(err, sys.SetMtime(made, st.Mtime))
}

// cutPath cuts the first component off a path.
func cutPath(path string) (first, rest string) {
	first, rest, _ = strings.Cut(path, "/")
	return first, rest
}
