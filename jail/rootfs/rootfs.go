// Package rootfs unpacks the layers of OCI images into a directory that becomes the root of a jail.
// Layers are untrusted: the kernel resolves every name with the directory as the root, so that no
// link and no ".." leads out of it; only directories, regular files, hard links and symbolic links
// are made; and the size of everything is checked before it is written.
//
// https://github.com/opencontainers/image-spec/blob/v1.1.1/layer.md
package rootfs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Errors to compare with.
var (
	// ErrLayer is wrapped by errors about layers that cannot be unpacked.
	ErrLayer = errors.New("layer that cannot be unpacked")
	// ErrTooLarge is wrapped by errors about layers that exceed the Bounds.
	ErrTooLarge = errors.New("image is too large")
)

// Bounds limit all layers of an image together. Files that a later layer deletes count too.
type Bounds struct {
	// Bytes is the maximum size of the archives, and also of the files.
	Bytes int64
	// Entries is the maximum number of entries in the archives.
	Entries int
	// Free is the number of bytes that must stay free on the file system.
	Free int64
}

const (
	// maxDepth is the maximum number of directories above a name in an archive or in the tree.
	maxDepth = 128
	// block is the unit in which sizes are counted, in bytes. Every entry counts one.
	block = 4096
	// freeEvery is the number of bytes after which the free space is checked again.
	freeEvery = 32 << 20
)

// Special names in layers.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	// Prefix of aufs' own names, which are ignored.
	reserved = ".wh..wh."
)

// A TreeUsage counts what the layers of a tree have used.
type TreeUsage struct {
	// Bytes is the size of all files in whole blocks, and one block for each entry.
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
	// LeftOut counts the devices and named pipes of the layers, which are never made.
	LeftOut int `json:"left_out,omitempty"`
}

// A Tree is a directory into which layers are unpacked, the lowest first. Nothing else may change
// it meanwhile. It is for one goroutine.
type Tree struct {
	root   *os.File
	bounds Bounds
	used   TreeUsage
	// read counts the archive bytes that Add has read, looked those that Delete has read.
	read, looked int64
	// checked is used.Bytes when the free space was last looked at.
	checked int64
	// depth is the number of directories above the root.
	depth int
	// dir is the directory of the last entry, and dirName its name in the archive.
	dir     *os.File
	dirName string
}

// New returns a Tree in the empty directory root.
func New(root *os.File, b Bounds) (*Tree, error) {
	path, err := sys.PathOf(root)
	if err != nil {
		return nil, err
	}
	return &Tree{root: root, bounds: b, depth: strings.Count(path, "/")}, nil
}

// Used returns what the layers have used so far.
func (t *Tree) Used() TreeUsage { return t.used }

// Close closes the files of the tree except its root.
func (t *Tree) Close() { t.leave() }

// Delete deletes the entries that a layer's whiteouts name. It must be called before Add with the
// same layer, since whiteouts apply only to the layers below, wherever they stand in the archive.
func (t *Tree) Delete(ctx context.Context, layer io.Reader) error {
	defer t.leave()
	return t.each(ctx, layer, &t.looked, func(h *tar.Header, _ io.Reader) error {
		dir, base, err := split(h.Name)
		if err != nil || !strings.HasPrefix(base, whiteout) {
			return err
		}
		if base != opaque && strings.HasPrefix(base, reserved) {
			return nil
		}
		parent, err := t.open(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		if err != nil {
			return failed(h.Name, err)
		}
		if base != opaque {
			name := strings.TrimPrefix(base, whiteout)
			if name == "" || name == "." || name == ".." {
				return wrong("whiteout %.200q names no file", h.Name)
			}
			return t.remove(parent, name)
		}
		list, err := sys.OpenSubdir(parent, ".")
		if err != nil {
			return err
		}
		defer list.Close()
		names, err := list.Readdirnames(-1)
		if err != nil {
			return err
		}
		for _, name := range names {
			if parent, err = t.open(dir); err == nil {
				err = t.remove(parent, name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Add unpacks a layer. All files belong to this process's user and have no set-id bits and no
// extended attributes. Devices and named pipes are left out.
func (t *Tree) Add(ctx context.Context, layer io.Reader) error {
	defer t.leave()
	return t.each(ctx, layer, &t.read, t.add)
}

// each calls f for each entry of a layer. It reads the layer to its end and adds the bytes read to
// n.
func (t *Tree) each(ctx context.Context, layer io.Reader, n *int64,
	f func(*tar.Header, io.Reader) error) error {
	counted := &counter{ctx: ctx, r: layer, n: n, most: t.bounds.Bytes}
	r := tar.NewReader(counted)
	for entries := 0; ; entries++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			// Read the padding after the archive too, which belongs to the digest.
			_, err = io.Copy(io.Discard, counted)
			return err
		}
		if err != nil {
			return broken(err)
		}
		if entries >= t.bounds.Entries {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, t.bounds.Entries)
		}
		if err := f(h, r); err != nil {
			return err
		}
	}
}

// A counter is a reader that counts bytes and fails with ErrTooLarge after the maximum.
type counter struct {
	ctx  context.Context
	r    io.Reader
	n    *int64
	most int64
}

func (c *counter) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if *c.n += int64(n); *c.n > c.most {
		return 0, fmt.Errorf("%w: its archives are larger than %d bytes", ErrTooLarge, c.most)
	}
	return n, err
}

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrLayer, fmt.Errorf(format, args...))
}

// broken wraps ErrLayer around an error of reading an archive, unless the underlying reader failed.
func broken(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		return wrong("its archive is damaged or cut off: %w", err)
	}
	return err
}

// failed returns an error about the entry name. It wraps ErrLayer if the name itself is the cause.
func failed(name string, err error) error {
	for _, known := range []struct {
		errno syscall.Errno
		why   string
	}{{syscall.ENOTDIR, "a file is in the way"}, {syscall.ELOOP, "too many links lead there"},
		{syscall.ENAMETOOLONG, "the name is too long"}, {syscall.EMLINK, "too many links"},
		{syscall.EXDEV, "a link leads out"}, {syscall.ENOENT, "a link leads nowhere"},
		{syscall.EINVAL, "it is no name"}} {
		if errors.Is(err, known.errno) {
			return wrong("entry %.200q: %s", name, known.why)
		}
	}
	return err
}

// split returns the directory and the last component of a name in an archive. Both are empty for
// the root. A leading slash is ignored.
func split(name string) (dir, base string, err error) {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			return "", "", wrong("entry %.200q leads upwards", name)
		}
		parts = append(parts, part)
	}
	switch n := len(parts); {
	case n == 0:
		return "", "", nil
	case n > maxDepth:
		return "", "", wrong("entry %.200q lies in more than %d directories", name, maxDepth)
	default:
		return strings.Join(parts[:n-1], "/"), parts[n-1], nil
	}
}

func (t *Tree) leave() {
	if t.dir != nil && t.dir != t.root {
		t.dir.Close()
	}
	t.dir, t.dirName = nil, ""
}

// open opens a directory of the tree, following links inside the tree. The tree closes it.
func (t *Tree) open(name string) (*os.File, error) {
	if t.dir != nil && t.dirName == name {
		return t.dir, nil
	}
	t.leave()
	if name == "" {
		t.dir = t.root
		return t.root, nil
	}
	dir, err := sys.OpenDirScoped(t.root, name)
	if err != nil {
		return nil, err
	}
	// Links may lead deeper than the name shows.
	path, err := sys.PathOf(dir)
	if err == nil && strings.Count(path, "/")-t.depth > maxDepth {
		err = syscall.ENAMETOOLONG
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	t.dir, t.dirName = dir, name
	return dir, nil
}

// parent opens a directory like open, and makes missing directories.
func (t *Tree) parent(name string) (*os.File, error) {
	dir, err := t.open(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	above, base := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		above, base = name[:i], name[i+1:]
	}
	in, err := t.parent(above)
	if err != nil {
		return nil, err
	}
	if err := t.take(0); err != nil {
		return nil, err
	}
	// If a dangling link is in the way, open returns an error.
	if err := sys.MkdirAt(in, base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if dir, err = t.open(name); err != nil {
		return nil, err
	}
	return dir, sys.Chmod(dir, 0o755)
}

// remove deletes an entry and all below it.
func (t *Tree) remove(dir *os.File, name string) error {
	root, err := sys.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// It may be the directory that is open.
	t.leave()
	return root.RemoveAll(name)
}

// take adds an entry of size bytes to the usage before it is made, and returns ErrTooLarge beyond
// the bounds.
func (t *Tree) take(size int64) error {
	t.used.Entries++
	if size < 0 || size > t.bounds.Bytes {
		return fmt.Errorf("%w: a file of %d bytes", ErrTooLarge, size)
	}
	t.used.Bytes += (size+block-1)/block*block + block
	switch {
	case t.used.Entries > t.bounds.Entries:
		return fmt.Errorf("%w: more than %d files", ErrTooLarge, t.bounds.Entries)
	case t.used.Bytes > t.bounds.Bytes:
		return fmt.Errorf("%w: its files take more than %d bytes", ErrTooLarge, t.bounds.Bytes)
	case t.used.Entries > 1 && t.used.Bytes-t.checked < freeEvery:
		return nil
	}
	t.checked = t.used.Bytes
	free, inodes, err := sys.Room(t.root)
	if err == nil && (free < t.bounds.Free+freeEvery+size || inodes > 0 && inodes < block) {
		err = fmt.Errorf("%w: the disk has %d bytes and %d files free", ErrTooLarge, free, inodes)
	}
	return err
}

// add makes one entry. It replaces an existing entry, except a directory by a directory.
func (t *Tree) add(h *tar.Header, body io.Reader) error {
	name, base, err := split(h.Name)
	if err != nil {
		return err
	}
	switch {
	case h.Typeflag == tar.TypeXGlobalHeader, base == "", strings.HasPrefix(base, whiteout):
		return nil
	}
	dir, err := t.parent(name)
	if err != nil {
		return failed(h.Name, err)
	}
	size := int64(0)
	if isFile(h) {
		size = h.Size
	}
	if err := t.take(size); err != nil {
		return err
	}
	err = t.create(dir, base, h, body)
	if !errors.Is(err, fs.ErrExist) {
		return failed(h.Name, err)
	}
	if err := t.remove(dir, base); err != nil {
		return err
	}
	if dir, err = t.open(name); err == nil {
		err = t.create(dir, base, h, body)
	}
	return failed(h.Name, err)
}

func isFile(h *tar.Header) bool {
	return h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse ||
		h.Typeflag == tar.TypeCont
}

// create makes one entry whose name is free.
func (t *Tree) create(dir *os.File, base string, h *tar.Header, body io.Reader) error {
	// No set-id bits, which would have no effect on the nosuid mount.
	perm := uint32(h.Mode) & 0o777
	switch {
	case isFile(h):
		return t.file(dir, base, perm, h, body)
	case h.Typeflag == tar.TypeDir:
		// The owner always has all rights, so that an unprivileged user can delete the tree later.
		return makeDir(dir, base, perm|0o700|uint32(h.Mode)&syscall.S_ISVTX)
	case h.Typeflag == tar.TypeSymlink:
		if h.Linkname == "" {
			return wrong("link %.200q leads to no name", h.Name)
		}
		return sys.SymlinkAt(h.Linkname, dir, base)
	case h.Typeflag == tar.TypeLink:
		return t.link(dir, base, h)
	case h.Typeflag == tar.TypeChar, h.Typeflag == tar.TypeBlock, h.Typeflag == tar.TypeFifo:
		t.used.LeftOut++
		// The entry of the layers below has been replaced.
		if _, err := sys.LstatAt(dir, base); err == nil {
			return t.remove(dir, base)
		}
		return nil
	}
	return wrong("entry %.200q is of a kind %q that no layer has", h.Name, h.Typeflag)
}

func makeDir(dir *os.File, base string, perm uint32) error {
	err := sys.MkdirAt(dir, base, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if st, statErr := sys.LstatAt(dir, base); statErr == nil && st.Mode&syscall.S_IFMT ==
			syscall.S_IFDIR {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	made, err := sys.OpenSubdirPath(dir, base)
	if err != nil {
		return err
	}
	return errors.Join(sys.Chmod(made, perm), made.Close())
}

func (t *Tree) file(dir *os.File, base string, perm uint32, h *tar.Header, body io.Reader) error {
	f, err := sys.OpenBeneath(dir, base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	if err != nil {
		err = broken(err)
	}
	if err == nil {
		err = errors.Join(sys.Chmod(f, perm), sys.SetMtime(f, sys.Time{Sec: h.ModTime.Unix(),
			Nsec: int64(h.ModTime.Nanosecond())}))
	}
	return errors.Join(err, f.Close())
}

// link makes a hard link to a file or symbolic link of the tree.
func (t *Tree) link(dir *os.File, base string, h *tar.Header) error {
	name, last, err := split(h.Linkname)
	if err != nil {
		return err
	}
	if last == "" {
		return wrong("link %.200q: %.200q is no file", h.Name, h.Linkname)
	}
	from := t.root
	if name != "" {
		// Not by open, which would close the directory of the entry.
		if from, err = sys.OpenDirScoped(t.root, name); err != nil {
			return err
		}
		defer from.Close()
	}
	target, err := sys.OpenPath(from, last)
	if err != nil {
		return err
	}
	defer target.Close()
	st, err := sys.Fstat(target)
	if err != nil {
		return err
	}
	if kind := st.Mode & syscall.S_IFMT; kind != syscall.S_IFREG && kind != syscall.S_IFLNK {
		return wrong("link %.200q: %.200q is no file", h.Name, h.Linkname)
	}
	return sys.LinkInode(target, dir, base)
}

// Sync writes the file system of a complete tree to disk (syncfs(2)).
func Sync(root *os.File) error { return sys.Syncfs(root) }
