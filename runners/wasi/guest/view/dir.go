package view

import (
	"bytes"
	"encoding/binary"
	"path"
	"syscall"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Dir is an open directory of a mount, or a virtual directory of the view.
type Dir struct {
	v *View
	// Set for a virtual directory of the view; then fd is -1.
	node *node
	m    *mount
	fd   int
	// rel is where in the mount the directory was opened, kept right when the
	// guest renames it; "" is the root of the mount. With hidden names it is the
	// real path; otherwise it may lead through links.
	rel string
	// confined keeps ".." inside the mount, as a preopened directory is.
	confined bool

	// Entries read ahead, see Entries.
	buf  []byte
	next int
	at   uint64 // cookie of buf[next:]
}

// FD returns the descriptor, and false for a virtual directory.
func (d *Dir) FD() (int, bool) { return d.fd, d.m != nil }

// Writable reports whether the directory lies on a mount that can be changed.
func (d *Dir) Writable() bool { return d.m != nil && d.m.Write }

// Close closes the directory.
func (d *Dir) Close() Errno {
	delete(d.v.dirs, d)
	if d.m == nil {
		return 0
	}
	return sys.ErrnoOf(sys.Close(d.fd))
}

// Self returns the attributes of the directory itself.
func (d *Dir) Self() (sys.Stat, Errno) {
	if d.m == nil {
		return d.node.stat(), 0
	}
	var st sys.Stat
	return st, sys.ErrnoOf(sys.Fstat(d.fd, &st))
}

// stat returns the attributes of a device, or made-up ones of a virtual directory.
func (n *node) stat() sys.Stat {
	if n.device != nil {
		return *n.device
	}
	return sys.Stat{Mode: syscall.S_IFDIR | 0o555, Nlink: 2, Ino: n.ino(), Dev: 1, Blksize: 4096}
}

// ino returns an inode number that depends on the node's path, so that nodes differ.
func (n *node) ino() uint64 {
	if n.device != nil {
		return n.device.Ino
	}
	if n.parent == nil {
		return 1
	}
	h := n.parent.ino()
	for i := range len(n.name) {
		h = (h ^ uint64(n.name[i])) * 1099511628211
	}
	return h | 1<<62
}

// text returns the absolute path of p, relative to d, for a record.
func (d *Dir) text(p string) string {
	if d.m == nil {
		return path.Join(d.node.path(), p)
	}
	return path.Join(d.m.Path, d.rel, p)
}

// refuse records a refusal and returns its error number.
func (d *Dir) refuse(e Errno, verb, p, rule string) Errno {
	d.v.rec.Denied(verb+" "+d.text(p), rule)
	return e
}

// Entry is one name in a directory.
type Entry struct {
	// cookie of the entry after this one
	Next uint64
	Ino  uint64
	Type uint8 // DT_* of the kernel
	// valid until the next call
	Name []byte
}

// Types of entries that matter here, as the kernel numbers them.
const (
	typeUnknown = 0
	typeDevice  = 2
	typeDir     = 4
)

// readAhead is how much of a directory is kept, in bytes, for each open one.
const readAhead = 16 << 10

// Entries calls yield with the entries from cookie on (0: from the start) until
// it returns false. A cookie is the kernel's own position, so nothing has to be
// remembered for one, and a false one is at worst an error.
func (d *Dir) Entries(cookie uint64, yield func(Entry) bool) Errno {
	if d.m == nil {
		d.node.entries(cookie, yield)
		return 0
	}
	if e := d.seek(cookie); e != 0 {
		return e
	}
	for {
		for d.next < len(d.buf) {
			e, size := parseEntry(d.buf[d.next:])
			if size == 0 {
				return syscall.EIO
			}
			if string(e.Name) == "." {
				if st, errno := d.Self(); errno == 0 {
					// An overlay lists that of the layer below.
					e.Ino = st.Ino
				}
			}
			if !d.omits(e.Name) && !yield(e) {
				return 0
			}
			d.next += size
			d.at = e.Next
		}
		if e := d.fill(); e != 0 || len(d.buf) == 0 {
			return e
		}
	}
}

// omits reports whether the name is hidden.
func (d *Dir) omits(name []byte) bool {
	return d.m.Hidden != nil && string(name) != "." && string(name) != ".." &&
		d.m.Hidden.Match(joinRel(d.rel, string(name)))
}

// seek makes cookie the next entry, from what was read ahead if it is there.
// Cookie 0 always reads again, so that what changed is seen.
func (d *Dir) seek(cookie uint64) Errno {
	if cookie != 0 && cookie == d.at && d.buf != nil {
		return 0
	}
	if int64(cookie) < 0 {
		return syscall.EINVAL
	}
	d.buf, d.next = d.buf[:0], 0
	if _, err := sys.Seek(d.fd, int64(cookie), 0); err != nil {
		return sys.ErrnoOf(err)
	}
	d.at = cookie
	return 0
}

func (d *Dir) fill() Errno {
	if cap(d.buf) == 0 {
		d.buf = make([]byte, readAhead)
	}
	n, err := sys.Getdents(d.fd, d.buf[:cap(d.buf)])
	if err != nil {
		d.buf = d.buf[:0]
		return sys.ErrnoOf(err)
	}
	d.buf, d.next = d.buf[:n], 0
	return 0
}

// parseEntry reads one struct linux_dirent64. size is zero if it is broken.
func parseEntry(b []byte) (e Entry, size int) {
	const header = 19
	if len(b) < header {
		return Entry{}, 0
	}
	size = int(binary.NativeEndian.Uint16(b[16:]))
	if size < header || size > len(b) {
		return Entry{}, 0
	}
	name := b[header:size]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return Entry{
		Ino:  binary.NativeEndian.Uint64(b),
		Next: binary.NativeEndian.Uint64(b[8:]),
		Type: b[18],
		Name: name,
	}, size
}

// entries lists a directory of the view itself.
func (n *node) entries(cookie uint64, yield func(Entry) bool) {
	for i := cookie; i < uint64(len(n.children))+2; i++ {
		e := Entry{Next: i + 1, Ino: n.ino(), Type: typeDir}
		switch i {
		case 0:
			e.Name = []byte(".")
		case 1:
			e.Name = []byte("..")
		default:
			c := n.children[i-2]
			e.Ino, e.Name = c.ino(), []byte(c.name)
			if c.device != nil {
				e.Type = typeDevice
			}
		}
		if !yield(e) {
			return
		}
	}
}
