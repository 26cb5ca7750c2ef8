package preview1

import (
	"encoding/binary"

	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi"
)

// readable returns the open file behind fd, if it may be read.
func (p *Process) readable(fd uint64) (*file, Errno) {
	f := p.fds.get(uint32(fd))
	switch {
	case f == nil:
		return nil, errBadf
	case f.kind == kindDir:
		return nil, errIsdir
	case f.rights.base&rightFdRead == 0:
		return nil, errBadf
	}
	return f, success
}

// writable returns the open file behind fd, if it may be written.
func (p *Process) writable(fd uint64) (*file, Errno) {
	f := p.fds.get(uint32(fd))
	switch {
	case f == nil, f.kind == kindDir, f.rights.base&rightFdWrite == 0:
		return nil, errBadf
	}
	return f, success
}

func fdRead(p *Process, mem []byte, a []uint64) Errno {
	f, e := p.readable(a[0])
	if e != success {
		return e
	}
	iovs, e := memory(mem).vectors(uint32(a[1]), uint32(a[2]), p.room[:0])
	if e != success {
		return e
	}
	n := 0
	if f.fd >= 0 {
		var err error
		n, err = f.read(iovs)
		p.forget()
		if err != nil {
			return errnoOf(err)
		}
	}
	return memory(mem).putU32(uint32(a[3]), uint32(n))
}

// read waits for a stream unless the guest asked not to. The flag is kept here,
// not set on the pipe, which others may share.
func (f *file) read(iovs [][]byte) (int, error) {
	if f.waits() && f.flags&flagNonblock != 0 {
		fds := [1]sys.PollFD{{Fd: int32(f.fd), Events: sys.PollIn}}
		if n, err := sys.Poll(fds[:], &sys.Timespec{}); err == nil && n == 0 {
			return 0, sys.EAGAIN
		}
	}
	for {
		n, err := sys.Readv(f.fd, iovs)
		if err == nil || sys.ErrnoOf(err) != sys.EAGAIN || !f.waits() {
			return n, err
		}
		// A socket, or the parent process left the pipe non-blocking.
		wait(f.fd, sys.PollIn)
	}
}

// waits reports whether reads and writes can wait for another process.
func (f *file) waits() bool { return f.kind == kindStream || f.kind == kindSocket }

func wait(fd int, events int16) {
	fds := [1]sys.PollFD{{Fd: int32(fd), Events: events}}
	// The call that follows returns the error.
	_, _ = sys.Poll(fds[:], nil)
}

func fdWrite(p *Process, mem []byte, a []uint64) Errno {
	f, e := p.writable(a[0])
	if e != success {
		return e
	}
	iovs, e := memory(mem).vectors(uint32(a[1]), uint32(a[2]), p.room[:0])
	if e != success {
		return e
	}
	n, e := p.write(f, iovs)
	if e != success {
		return e
	}
	return memory(mem).putU32(uint32(a[3]), uint32(n))
}

func (p *Process) write(f *file, iovs [][]byte) (int, Errno) {
	if f.fd < 0 {
		n := 0
		for _, b := range iovs {
			n += len(b)
		}
		return n, success
	}
	for {
		n, err := sys.Writev(f.fd, iovs)
		e := sys.ErrnoOf(err)
		again := e == sys.EAGAIN && f.waits() && (f.kind == kindStream || f.flags&flagNonblock == 0)
		if !again {
			p.forget()
		}
		switch {
		case err == nil:
			if f.count != nil {
				*f.count += int64(n)
			}
			return n, success
		case again:
			wait(f.fd, sys.PollOut)
		case e == sys.EPIPE && f.kind != kindSocket:
			// A Unix tool gets SIGPIPE here and ends without a word. Without
			// signals many would print an error, or go on for ever.
			p.exit(wasi.ExitPipe)
			return 0, wasiErrno(e)
		default:
			return 0, wasiErrno(e)
		}
	}
}

func fdPread(p *Process, mem []byte, a []uint64) Errno {
	f, e := p.readable(a[0])
	if e != success {
		return e
	}
	return p.positioned(f, mem, a, sys.Preadv)
}

func fdPwrite(p *Process, mem []byte, a []uint64) Errno {
	f, e := p.writable(a[0])
	if e != success {
		return e
	}
	return p.positioned(f, mem, a, sys.Pwritev)
}

func (p *Process) positioned(f *file, mem []byte, a []uint64,
	call func(int, [][]byte, int64) (int, error)) Errno {
	if f.waits() {
		return wasiErrno(sys.ESPIPE)
	}
	if int64(a[3]) < 0 {
		return errInval
	}
	iovs, e := memory(mem).vectors(uint32(a[1]), uint32(a[2]), p.room[:0])
	if e != success {
		return e
	}
	n, err := call(f.fd, iovs, int64(a[3]))
	p.forget()
	if err != nil {
		return errnoOf(err)
	}
	return memory(mem).putU32(uint32(a[4]), uint32(n))
}

// forget drops the buffers of a call. They point into memory that is given back
// when the guest ends, where Go's collector must find no pointer to it.
func (p *Process) forget() { clear(p.room[:]) }

// seekable returns the regular file behind fd.
func (p *Process) seekable(fd uint64) (*file, Errno) {
	f := p.fds.get(uint32(fd))
	switch {
	case f == nil, f.kind == kindDir:
		return nil, errBadf
	case f.fd < 0:
		return nil, wasiErrno(sys.ESPIPE)
	}
	return f, success
}

func fdSeek(p *Process, mem []byte, a []uint64) Errno {
	return p.seek(mem, a[0], int64(a[1]), uint32(a[2]), uint32(a[3]))
}

func fdTell(p *Process, mem []byte, a []uint64) Errno {
	const current = 1
	return p.seek(mem, a[0], 0, current, uint32(a[1]))
}

func (p *Process) seek(mem []byte, fd uint64, off int64, whence, ptr uint32) Errno {
	f, e := p.seekable(fd)
	if e != success {
		return e
	}
	const end = 2
	if whence&0xff > end {
		return errInval
	}
	n, err := sys.Seek(f.fd, off, int(whence&0xff))
	if err != nil {
		return errnoOf(err)
	}
	return memory(mem).putU64(ptr, uint64(n))
}

// fdReaddir fills the buffer with entries; the last may be cut, which tells the
// guest to ask again from its cookie.
func fdReaddir(p *Process, mem []byte, a []uint64) Errno {
	f, e := p.dir(a[0])
	if e != success {
		return e
	}
	buf, ok := memory(mem).at(uint32(a[1]), uint32(a[2]))
	if !ok {
		return errFault
	}
	used := 0
	ke := f.dir.Entries(a[3], func(ent direntry) bool {
		var head [24]byte
		binary.LittleEndian.PutUint64(head[0:], ent.Next)
		binary.LittleEndian.PutUint64(head[8:], ent.Ino)
		binary.LittleEndian.PutUint32(head[16:], uint32(len(ent.Name)))
		head[20] = direntType(ent.Type)
		n := copy(buf[used:], head[:])
		used += n
		if n < len(head) {
			return false
		}
		n = copy(buf[used:], ent.Name)
		used += n
		return n == len(ent.Name)
	})
	if ke != 0 {
		return wasiErrno(ke)
	}
	return memory(mem).putU32(uint32(a[4]), uint32(used))
}

// direntType translates the kernel's DT_* by way of the mode it stands for.
func direntType(t uint8) uint8 { return filetypeOf(uint32(t) << 12) }
