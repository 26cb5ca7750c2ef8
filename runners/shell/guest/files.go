package guest

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"mvdan.cc/sh/v3/interp"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/internal/sys"
	wasi "github.com/jail-sandbox/jail/runners/wasi/guest"
	"github.com/jail-sandbox/jail/runners/wasi/guest/view"
)

// files opens, lists and tests files for the script itself. The mutex is needed since a view is for
// one goroutine, and a script has one for each part of a pipeline.
type files struct {
	mu   sync.Mutex
	view *view.View
	root *view.Dir
}

func newFiles(inv runners.Invocation, rec view.Recorder) (*files, error) {
	v, err := wasi.View(inv, rec)
	if err != nil {
		return nil, err
	}
	root, e := v.Root()
	if e != 0 {
		v.Close()
		return nil, e
	}
	return &files{view: v, root: root}, nil
}

func (f *files) close() {
	// Closing a directory loses nothing.
	_ = f.root.Close()
	f.view.Close()
}

func (f *files) open(ctx context.Context, name string, flag int, _ fs.FileMode) (io.ReadWriteCloser,
	error) {
	full := absolute(interp.HandlerCtx(ctx).Dir, name)
	if name == "" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
	}
	how := view.How{Read: flag&(os.O_WRONLY|os.O_RDWR) != os.O_WRONLY,
		Write:  flag&(os.O_WRONLY|os.O_RDWR) != 0,
		Create: flag&os.O_CREATE != 0, Truncate: flag&os.O_TRUNC != 0,
		Append: flag&os.O_APPEND != 0, Exclusive: flag&os.O_EXCL != 0, Follow: true}
	f.mu.Lock()
	defer f.mu.Unlock()
	o, e := f.root.Open(relative(full), how)
	if e != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: e}
	}
	if o.Dir != nil {
		_ = o.Dir.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return os.NewFile(uintptr(o.FD), name), nil
}

func (f *files) readDir(_ context.Context, name string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, e := f.root.Open(relative(path.Clean(name)),
		view.How{Read: true, Directory: true, Follow: true})
	if e != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: e}
	}
	defer o.Dir.Close()
	var all []fs.DirEntry
	e = o.Dir.Entries(0, func(entry view.Entry) bool {
		if n := string(entry.Name); n != "." && n != ".." {
			all = append(all, dirEntry{name: n, kind: entry.Type})
		}
		return true
	})
	if e != 0 {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: e}
	}
	return all, nil
}

func (f *files) stat(ctx context.Context, name string, follow bool) (fs.FileInfo, error) {
	full := absolute(interp.HandlerCtx(ctx).Dir, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	st, e := f.root.Stat(relative(full), follow)
	if e != 0 {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: e}
	}
	return info{name: path.Base(full), st: st}, nil
}

// access returns EACCES if the file's mode does not allow mode for the ids of this process. Tools
// have the same ids, and nothing in a jail has different effective ids.
func (f *files) access(ctx context.Context, name string, mode interp.AccessMode) error {
	i, err := f.stat(ctx, name, true)
	if err != nil {
		return err
	}
	st := i.(info).st
	bits := fs.FileMode(st.Mode)
	switch {
	case os.Geteuid() == 0:
		bits = 0o6
		if st.Mode&0o111 != 0 || i.IsDir() {
			bits = 0o7
		}
	case int(st.Uid) == os.Geteuid():
		bits >>= 6
	case int(st.Gid) == os.Getgid():
		bits >>= 3
	}
	if bits&fs.FileMode(mode) != fs.FileMode(mode) {
		return &fs.PathError{Op: "access", Path: name, Err: syscall.EACCES}
	}
	return nil
}

func absolute(dir, name string) string {
	if path.IsAbs(name) {
		return clean(name)
	}
	return clean(dir + "/" + name)
}

// clean collapses repeated slashes. It keeps a slash at the end, which requires a directory, and
// does not resolve "..", which may follow a symbolic link.
func clean(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	return p
}

// relative returns the absolute path full relative to the root: "." for the root itself.
func relative(full string) string {
	if rel := strings.TrimPrefix(full, "/"); rel != "" {
		return rel
	}
	return "."
}

// info implements fs.FileInfo for a sys.Stat.
type info struct {
	name string
	st   sys.Stat
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.st.Size }
func (i info) Mode() fs.FileMode  { return modeOf(i.st.Mode) }
func (i info) ModTime() time.Time { return time.Unix(i.st.Mtim.Unix()) }
func (i info) IsDir() bool        { return i.Mode().IsDir() }
func (i info) Sys() any           { return &i.st }

// kinds maps the file types of st_mode to Go's.
var kinds = map[uint32]fs.FileMode{syscall.S_IFDIR: fs.ModeDir, syscall.S_IFLNK: fs.ModeSymlink,
	syscall.S_IFIFO: fs.ModeNamedPipe, syscall.S_IFSOCK: fs.ModeSocket,
	syscall.S_IFCHR: fs.ModeDevice | fs.ModeCharDevice, syscall.S_IFBLK: fs.ModeDevice}

func modeOf(m uint32) fs.FileMode {
	mode := fs.FileMode(m&0o777) | kinds[m&syscall.S_IFMT]
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid,
		0o1000: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

// dirEntry implements fs.DirEntry by a name and the kernel's DT_ type. DT_UNKNOWN is reported as a
// symbolic link, which the interpreter looks up.
type dirEntry struct {
	name string
	kind uint8
}

func (d dirEntry) Name() string { return d.name }
func (d dirEntry) IsDir() bool  { return d.Type().IsDir() }
func (d dirEntry) Type() fs.FileMode {
	const regular, unknown = 8, 0
	switch d.kind {
	case regular:
		return 0
	case unknown:
		return fs.ModeSymlink
	}
	return kinds[uint32(d.kind)<<12]
}
func (d dirEntry) Info() (fs.FileInfo, error) {
	return info{name: d.name, st: sys.Stat{Mode: uint32(d.kind) << 12}}, nil
}
