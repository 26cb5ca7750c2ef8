package preview1

import (
	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi/guest/view"
)

// follow is the lookup flag for links at the end of a path.
const follow = 1

// at reads the directory and the path of a call.
func (p *Process) at(mem memory, fd, ptr, n uint64) (*view.Dir, string, Errno) {
	f, e := p.dir(fd)
	if e != success {
		return nil, "", e
	}
	path, e := mem.path(uint32(ptr), uint32(n))
	return f.dir, path, e
}

// Open flags of path_open.
const (
	openCreate = 1 << iota
	openDirectory
	openExclusive
	openTruncate
	allOpen = 1<<iota - 1
)

func pathOpen(p *Process, mem []byte, a []uint64) Errno {
	at, e := p.dir(a[0])
	if e != success {
		return e
	}
	path, e := memory(mem).path(uint32(a[2]), uint32(a[3]))
	if e != success {
		return e
	}
	oflags, asked, fdflags := uint32(a[4]), a[5], uint32(a[7])
	switch {
	case oflags&^allOpen != 0, fdflags&^allFlags != 0, uint32(a[1])&^follow != 0:
		return errInval
	case oflags&openTruncate != 0 && at.rights.dropped&rightPathFilestatSetSize != 0:
		return errNotcap
	case p.fds.full():
		return errMfile
	}
	if _, ok := memory(mem).at(uint32(a[8]), 4); !ok {
		// A bad pointer is refused before anything is created.
		return errFault
	}
	o, ke := at.dir.Open(path, view.How{
		Read:      asked&(rightFdRead|rightFdReaddir) != 0 || asked&rightFdWrite == 0,
		Write:     asked&rightFdWrite != 0,
		Create:    oflags&openCreate != 0,
		Exclusive: oflags&openExclusive != 0,
		Truncate:  oflags&openTruncate != 0,
		Append:    fdflags&flagAppend != 0 && asked&rightFdWrite != 0,
		Sync:      fdflags&(flagSync|flagRsync) != 0,
		Datasync:  fdflags&flagDsync != 0,
		Directory: oflags&openDirectory != 0,
		Follow:    uint32(a[1])&follow != 0,
	})
	if ke != 0 {
		return wasiErrno(ke)
	}
	f := &file{kind: kindFile, filetype: filetypeOf(o.Stat.Mode), fd: o.FD, flags: uint16(fdflags),
		rights: rights{inherit: a[6] & allRights}}
	if o.Dir != nil {
		f.kind, f.filetype, f.dir, f.flags = kindDir, typeDirectory, o.Dir, 0
		f.rights.base = asked & dirRights
	} else {
		f.rights.base = asked & fileRights
		f.readOnly = o.ReadOnly
	}
	return memory(mem).putU32(uint32(a[8]), p.fds.put(f))
}

func pathFilestatGet(p *Process, mem []byte, a []uint64) Errno {
	d, path, e := p.at(mem, a[0], a[2], a[3])
	if e != success {
		return e
	}
	st, ke := d.Stat(path, a[1]&follow != 0)
	if ke != 0 {
		return wasiErrno(ke)
	}
	return putFilestat(mem, uint32(a[4]), &st, nil)
}

func pathFilestatSetTimes(p *Process, mem []byte, a []uint64) Errno {
	d, path, e := p.at(mem, a[0], a[2], a[3])
	if e != success {
		return e
	}
	ts, e := times(a[4], a[5], uint32(a[6]))
	if e != success {
		return e
	}
	return wasiErrno(d.SetTimes(path, a[1]&follow != 0, &ts))
}

// onPath is a call that has only a directory and a path.
func onPath(p *Process, mem []byte, a []uint64, call func(*view.Dir, string) sys.Errno) Errno {
	d, path, e := p.at(mem, a[0], a[1], a[2])
	if e != success {
		return e
	}
	return wasiErrno(call(d, path))
}

func pathCreateDirectory(p *Process, mem []byte, a []uint64) Errno {
	return onPath(p, mem, a, (*view.Dir).Mkdir)
}

func pathRemoveDirectory(p *Process, mem []byte, a []uint64) Errno {
	return onPath(p, mem, a, (*view.Dir).Rmdir)
}

func pathUnlinkFile(p *Process, mem []byte, a []uint64) Errno {
	return onPath(p, mem, a, (*view.Dir).Unlink)
}

func pathLink(p *Process, mem []byte, a []uint64) Errno {
	from, path, e := p.at(mem, a[0], a[2], a[3])
	if e != success {
		return e
	}
	to, newPath, e := p.at(mem, a[4], a[5], a[6])
	switch {
	case e != success:
		return e
	case a[1]&follow != 0:
		// A link is linked itself, as everywhere but on old systems.
		return errInval
	}
	return wasiErrno(from.Link(path, to, newPath))
}

func pathRename(p *Process, mem []byte, a []uint64) Errno {
	from, path, e := p.at(mem, a[0], a[1], a[2])
	if e != success {
		return e
	}
	to, newPath, e := p.at(mem, a[3], a[4], a[5])
	if e != success {
		return e
	}
	return wasiErrno(from.Rename(path, to, newPath))
}

func pathSymlink(p *Process, mem []byte, a []uint64) Errno {
	target, e := memory(mem).path(uint32(a[0]), uint32(a[1]))
	if e != success {
		return e
	}
	d, path, e := p.at(mem, a[2], a[3], a[4])
	if e != success {
		return e
	}
	return wasiErrno(d.Symlink(target, path))
}

func pathReadlink(p *Process, mem []byte, a []uint64) Errno {
	d, path, e := p.at(mem, a[0], a[1], a[2])
	if e != success {
		return e
	}
	buf, ok := memory(mem).at(uint32(a[3]), uint32(a[4]))
	if !ok {
		return errFault
	}
	n, ke := d.Readlink(path, buf)
	if ke != 0 {
		return wasiErrno(ke)
	}
	return memory(mem).putU32(uint32(a[5]), uint32(n))
}
