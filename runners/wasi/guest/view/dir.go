package view

import (
	"path"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Dir is an open directory: one of a mount, or one of the view itself.
type Dir struct {
	v *View
	// Of the view itself; then fd is -1.
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

// FD returns the descriptor, and false for a directory of the view itself.
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

// Self describes the directory itself.
func (d *Dir) Self() (sys.Stat, Errno) {
	if d.m == nil {
		return d.node.stat(), 0
	}
	var st sys.Stat
	return st, sys.ErrnoOf(sys.Fstat(d.fd, &st))
}

// stat returns the stat of a directory of the view itself.
func (n *node) stat() sys.Stat {
	if n.device != nil {
		return *n.device
	}
	return sys.Stat{Mode: sys.SIFDIR | 0o555, Nlink: 2, Ino: n.ino(), Dev: 1, Blksize: 4096}
}

// ino numbers the nodes by their place, so that two are never taken for one.
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

// text is the absolute path of p, below d, for a record.
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
