package view

import (
	"fmt"
	"syscall"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Modes of what a guest creates; the umask of the process narrows them.
const (
	fileMode = 0o666
	dirMode  = 0o777
)

// How says how a path is opened.
type How struct {
	Read, Write       bool
	Create, Exclusive bool
	Truncate, Append  bool
	Sync, Datasync    bool
	// fail unless it is one
	Directory bool
	// Follow a link at the end.
	Follow bool
}

// flags returns the flags for openat2(2). O_NONBLOCK keeps the open of a FIFO from waiting for its
// other end; O_NOCTTY is habit.
func (h How) flags() uint64 {
	f := uint64(syscall.O_NONBLOCK | syscall.O_NOCTTY)
	switch {
	case !h.Write:
		f |= syscall.O_RDONLY
	case h.Read:
		f |= syscall.O_RDWR
	default:
		f |= syscall.O_WRONLY
	}
	for _, x := range [...]struct {
		on   bool
		flag uint64
	}{
		{h.Create, syscall.O_CREAT}, {h.Exclusive, syscall.O_EXCL}, {h.Truncate, syscall.O_TRUNC},
		{h.Append, syscall.O_APPEND}, {h.Sync, syscall.O_SYNC}, {h.Datasync, syscall.O_DSYNC},
		{h.Directory, syscall.O_DIRECTORY}, {!h.Follow, syscall.O_NOFOLLOW},
	} {
		if x.on {
			f |= x.flag
		}
	}
	return f
}

// writes reports whether an open with these options can change anything.
func (h How) writes() bool { return h.Write || h.Create || h.Truncate || h.Append }

func (h How) verb() string {
	if h.writes() {
		return "write"
	}
	return "read"
}

// Opened is a file or a directory; exactly one.
type Opened struct {
	FD   int // of a file
	Dir  *Dir
	Stat sys.Stat
	// On a mount that cannot be changed.
	ReadOnly bool
}

// Open opens a regular file, a directory, or a device of the view. Anything else is refused without
// waiting for it.
func (d *Dir) Open(p string, how How) (Opened, Errno) {
	b, rest, n, f := d.enter(p)
	if f != none {
		return Opened{}, d.fail(f, how.verb(), p)
	}
	if n != nil {
		return d.v.openNode(d, n, p, how)
	}
	flags := how.flags()
	if !b.m.Write {
		var e Errno
		if flags, e = d.openReadOnly(p, how, flags); e != 0 {
			return Opened{}, e
		}
	}
	o, f := d.v.openBeneath(b, rest, flags, mode(flags))
	if f != none {
		return Opened{}, d.openFault(f, p, how, b.m)
	}
	if o.node != nil {
		return d.v.openNode(d, o.node, p, how)
	}
	return d.opened(o, p, how)
}

// mode is the mode that openat2 takes: it refuses one where nothing is created.
func mode(flags uint64) uint64 {
	if flags&syscall.O_CREAT != 0 {
		return fileMode
	}
	return 0
}

// openReadOnly returns the flags for an open on a read-only mount: it refuses writes, and Create
// only opens an existing file.
func (d *Dir) openReadOnly(p string, how How, flags uint64) (uint64, Errno) {
	switch {
	case how.Write && how.Directory:
		return 0, syscall.EISDIR
	case how.Create && how.Exclusive:
		if _, e := d.Stat(p, false); e == 0 {
			return 0, syscall.EEXIST
		}
		return 0, d.refuse(syscall.EROFS, "write", p, RuleReadOnly)
	case how.Write, how.Truncate, how.Append:
		return 0, d.refuse(syscall.EROFS, "write", p, RuleReadOnly)
	}
	return flags &^ (syscall.O_CREAT | syscall.O_EXCL), 0
}

func (d *Dir) openFault(f fault, p string, how How, m *mount) Errno {
	switch {
	case f.rule != "":
		return d.fail(f, how.verb(), p)
	case f.errno == syscall.ENOENT && how.Create && !m.Write, f.errno == syscall.EROFS:
		return d.refuse(syscall.EROFS, "write", p, RuleReadOnly)
	case f.errno == syscall.ENXIO, f.errno == syscall.ENODEV:
		// A socket, or a FIFO without a reader.
		return d.refuse(syscall.EACCES, how.verb(), p, ruleSpecial)
	}
	return f.errno
}

// opened converts an opened path to a file or a Dir.
func (d *Dir) opened(o opened, p string, how How) (Opened, Errno) {
	var st sys.Stat
	if err := sys.Fstat(o.fd, &st); err != nil {
		_ = sys.Close(o.fd)
		return Opened{}, sys.ErrnoOf(err)
	}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return Opened{FD: o.fd, Stat: st, ReadOnly: !o.base.m.Write}, 0
	case syscall.S_IFDIR:
		dir := &Dir{v: d.v, m: o.base.m, fd: o.fd, rel: o.base.rel, confined: o.base.confined}
		d.v.dirs[dir] = struct{}{}
		return Opened{FD: -1, Dir: dir, Stat: st}, 0
	}
	_ = sys.Close(o.fd)
	return Opened{}, d.refuse(syscall.EACCES, how.verb(), p, ruleSpecial)
}

// openNode opens a directory or a device of the view itself.
func (v *View) openNode(d *Dir, n *node, p string, how How) (Opened, Errno) {
	if n.mount != nil {
		o, f := v.openBeneath(base{m: n.mount, fd: n.mount.FD}, ".", how.flags(), 0)
		if f != none {
			return Opened{}, d.openFault(f, p, how, n.mount)
		}
		return d.opened(o, p, how)
	}
	if n.device != nil {
		return d.openedDevice(n, p, how)
	}
	switch {
	case how.Create && how.Exclusive:
		return Opened{}, syscall.EEXIST
	case how.writes():
		return Opened{}, syscall.EISDIR
	}
	return Opened{FD: -1, Dir: &Dir{v: v, node: n, fd: -1}, Stat: n.stat()}, 0
}

// AddDevice lets the guest open the character device at the path p of the jail, by the same path.
// number is the device that has to be there (makedev(3)).
func (v *View) AddDevice(p string, number uint64) error {
	n, err := v.plant(p)
	if err != nil {
		return err
	}
	n.device = &sys.Stat{Mode: syscall.S_IFCHR, Rdev: number}
	fd, e := n.openDevice(sys.OPath | syscall.O_NOFOLLOW)
	if e != 0 {
		return fmt.Errorf("device %s: %w", p, e)
	}
	defer sys.Close(fd)
	if err := sys.Fstat(fd, n.device); err != nil {
		return fmt.Errorf("device %s: %w", p, err)
	}
	return nil
}

// openDevice opens the jail's node. Each open looks at its number.
func (n *node) openDevice(flags uint64) (int, Errno) {
	fd, err := sys.Openat2(sys.AtFDCWD, n.path(), flags, 0, sys.ResolveNoSymlinks)
	if err != nil {
		return -1, sys.ErrnoOf(err)
	}
	var st sys.Stat
	err = sys.Fstat(fd, &st)
	if err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFCHR && st.Rdev == n.device.Rdev {
		return fd, 0
	}
	_ = sys.Close(fd)
	return -1, firstError(sys.ErrnoOf(err), syscall.ENXIO)
}

// openedDevice opens a device for the guest. It ignores flags for files, such as truncation. Reads
// wait, as those of a program of the host do. The times of the node cannot be changed.
func (d *Dir) openedDevice(n *node, p string, how How) (Opened, Errno) {
	switch {
	case how.Create && how.Exclusive:
		return Opened{}, syscall.EEXIST
	case how.Directory:
		return Opened{}, syscall.ENOTDIR
	}
	fd, e := n.openDevice(How{Read: how.Read, Write: how.Write}.flags() &^ syscall.O_NONBLOCK)
	if e == syscall.ENXIO {
		return Opened{}, d.refuse(syscall.EACCES, how.verb(), p, ruleSpecial)
	}
	return Opened{FD: fd, Stat: *n.device, ReadOnly: true}, e
}
