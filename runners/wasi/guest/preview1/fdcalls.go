package preview1

import (
	"encoding/binary"
	"syscall"

	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest/view"
)

type direntry = view.Entry

// file returns the open file or directory of the guest's descriptor fd.
func (p *Process) file(fd uint64) (*file, Errno) {
	if f := p.fds.get(uint32(fd)); f != nil {
		return f, success
	}
	return nil, errBadf
}

// dir returns the open directory of fd. Another kind of file is an error.
func (p *Process) dir(fd uint64) (*file, Errno) {
	f, e := p.file(fd)
	if e == success && f.kind != kindDir {
		e = errNotdir
	}
	return f, e
}

// preopened returns the directory behind fd that was open from the start.
func (p *Process) preopened(fd uint64) (*file, Errno) {
	f, e := p.file(fd)
	if e == success && !f.isPreopen {
		e = errBadf
	}
	return f, e
}

// advices are the kernel's numbers of WASI's hints, which stand in another order.
var advices = [...]int{0, 2, 1, 3, 4, 5}

func fdAdvise(p *Process, f *file, _ []byte, a []uint64) Errno {
	if uint32(a[3]) >= uint32(len(advices)) || int64(a[1]) < 0 || int64(a[2]) < 0 {
		return errInval
	}
	return errnoOf(sys.Advise(f.fd, int64(a[1]), int64(a[2]), advices[uint32(a[3])]))
}

func fdAllocate(p *Process, f *file, _ []byte, a []uint64) Errno {
	if int64(a[1]) < 0 || int64(a[2]) <= 0 {
		return errInval
	}
	if f.fd < 0 {
		return wasiErrno(syscall.ESPIPE)
	}
	return errnoOf(sys.Allocate(f.fd, int64(a[1]), int64(a[2])))
}

func fdClose(p *Process, f *file, _ []byte, a []uint64) Errno {
	p.fds.remove(uint32(a[0]))
	return f.close()
}

// fdRenumber moves a descriptor onto another one, which is closed. Both have to
// be open, so a number that was never given out cannot be made up.
func fdRenumber(p *Process, _ []byte, a []uint64) Errno {
	from, to := p.fds.get(uint32(a[0])), p.fds.get(uint32(a[1]))
	switch {
	case from == nil || to == nil:
		return errBadf
	case from == to:
		return success
	}
	e := to.close()
	p.fds.files[uint32(a[1])] = from
	p.fds.remove(uint32(a[0]))
	return e
}

func fdSync(_ *Process, f *file, _ []byte, _ []uint64) Errno     { return f.sync(sys.Sync) }
func fdDatasync(_ *Process, f *file, _ []byte, _ []uint64) Errno { return f.sync(sys.Datasync) }

func (f *file) sync(call func(int) error) Errno {
	n, ok := f.kernel()
	if !ok {
		return success
	}
	return errnoOf(call(n))
}

// kernel returns the kernel's descriptor, if there is one.
func (f *file) kernel() (int, bool) {
	if f.kind == kindDir {
		return f.dir.FD()
	}
	return f.fd, f.fd >= 0
}

func fdFdstatGet(p *Process, f *file, mem []byte, a []uint64) Errno {
	b, ok := memory(mem).at(uint32(a[1]), 24)
	if !ok {
		return errFault
	}
	clear(b)
	b[0] = f.filetype
	if f.kind == kindDir {
		b[0] = typeDirectory
	}
	binary.LittleEndian.PutUint16(b[2:], f.flags)
	binary.LittleEndian.PutUint64(b[8:], f.rights.base)
	binary.LittleEndian.PutUint64(b[16:], f.rights.inherit)
	return success
}

func fdFdstatSetFlags(p *Process, f *file, _ []byte, a []uint64) Errno {
	want := uint32(a[1])
	const settable = flagAppend | flagNonblock
	switch {
	case want&^allFlags != 0:
		return errInval
	case (uint16(want)^f.flags)&^settable != 0:
		// The kernel cannot change how an open file is synced.
		return errNotsup
	}
	if f.kind == kindFile && (uint16(want)^f.flags)&flagAppend != 0 {
		flags, err := sys.StatusFlags(f.fd)
		if err != nil {
			return errnoOf(err)
		}
		flags &^= syscall.O_APPEND
		if want&flagAppend != 0 {
			flags |= syscall.O_APPEND
		}
		if err := sys.SetStatusFlags(f.fd, flags); err != nil {
			return errnoOf(err)
		}
	}
	f.flags = uint16(want)
	return success
}

func fdFdstatSetRights(p *Process, f *file, _ []byte, a []uint64) Errno {
	if !f.rights.narrow(a[1], a[2]) {
		return errNotcap
	}
	return success
}

func fdFilestatGet(p *Process, f *file, mem []byte, a []uint64) Errno {
	var st sys.Stat
	switch {
	case f.kind == kindDir:
		var e sys.Errno
		if st, e = f.dir.Self(); e != 0 {
			return wasiErrno(e)
		}
	case f.fd >= 0:
		if err := sys.Fstat(f.fd, &st); err != nil {
			return errnoOf(err)
		}
	}
	return putFilestat(mem, uint32(a[1]), &st, f)
}

// putFilestat writes a filestat. f, if given, knows its type better.
func putFilestat(m memory, ptr uint32, st *sys.Stat, f *file) Errno {
	b, ok := m.at(ptr, 64)
	if !ok {
		return errFault
	}
	clear(b)
	binary.LittleEndian.PutUint64(b[0:], st.Dev)
	binary.LittleEndian.PutUint64(b[8:], st.Ino)
	b[16] = filetypeOf(st.Mode)
	if f != nil && f.kind != kindFile && f.kind != kindDir {
		b[16] = f.filetype
	}
	binary.LittleEndian.PutUint64(b[24:], uint64(st.Nlink))
	binary.LittleEndian.PutUint64(b[32:], uint64(st.Size))
	binary.LittleEndian.PutUint64(b[40:], uint64(st.Atim.Nano()))
	binary.LittleEndian.PutUint64(b[48:], uint64(st.Mtim.Nano()))
	binary.LittleEndian.PutUint64(b[56:], uint64(st.Ctim.Nano()))
	return success
}

func fdFilestatSetSize(p *Process, f *file, _ []byte, a []uint64) Errno {
	if int64(a[1]) < 0 || f.kind != kindFile {
		return errInval
	}
	return errnoOf(sys.Truncate(f.fd, int64(a[1])))
}

func fdFilestatSetTimes(p *Process, f *file, _ []byte, a []uint64) Errno {
	ts, e := times(a[1], a[2], uint32(a[3]))
	if e != success {
		return e
	}
	n, ok := f.kernel()
	switch {
	case !ok, f.waits():
		return errInval
	case !f.onWritable():
		p.denials.Add(Layer, "write times of an open file", view.RuleReadOnly)
		return wasiErrno(syscall.EROFS)
	}
	return errnoOf(sys.Futimens(n, &ts))
}

// onWritable reports whether the file lies on a mount that can be changed.
func (f *file) onWritable() bool {
	if f.kind == kindDir {
		return f.dir.Writable()
	}
	return !f.readOnly
}

// times converts the two times and the flags of a set-times call to arguments of utimensat(2).
func times(atim, mtim uint64, flags uint32) (ts [2]sys.Timespec, e Errno) {
	const atimSet, atimNow, mtimSet, mtimNow = 1, 2, 4, 8
	if flags&^0xf != 0 || flags&(atimSet|atimNow) == atimSet|atimNow ||
		flags&(mtimSet|mtimNow) == mtimSet|mtimNow {
		return ts, errInval
	}
	return [2]sys.Timespec{
		timespec(atim, flags&atimSet != 0, flags&atimNow != 0),
		timespec(mtim, flags&mtimSet != 0, flags&mtimNow != 0),
	}, success
}

func timespec(ns uint64, set, now bool) sys.Timespec {
	switch {
	case now:
		return sys.Timespec{Nsec: sys.UTIMENow}
	case set:
		return sys.Timespec{Sec: int64(ns / 1e9), Nsec: int64(ns % 1e9)}
	}
	return sys.Timespec{Nsec: sys.UTIMEOmit}
}

func fdPrestatGet(p *Process, f *file, mem []byte, a []uint64) Errno {
	b, ok := memory(mem).at(uint32(a[1]), 8)
	if !ok {
		return errFault
	}
	// The tag of a directory is zero.
	clear(b)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(f.preopen)))
	return success
}

func fdPrestatDirName(p *Process, f *file, mem []byte, a []uint64) Errno {
	if uint32(a[2]) < uint32(len(f.preopen)) {
		return errNameLong
	}
	b, ok := memory(mem).at(uint32(a[1]), uint32(len(f.preopen)))
	if !ok {
		return errFault
	}
	copy(b, f.preopen)
	return success
}

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

func fdRead(p *Process, f *file, mem []byte, a []uint64) Errno {
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

// read waits for data of a stream unless the guest set nonblocking mode. The mode is kept here and
// not set on the pipe, which other processes may share.
func (f *file) read(iovs [][]byte) (int, error) {
	if f.waits() && f.flags&flagNonblock != 0 {
		fds := [1]sys.PollFD{{Fd: int32(f.fd), Events: sys.PollIn}}
		if n, err := sys.Poll(fds[:], &sys.Timespec{}); err == nil && n == 0 {
			return 0, syscall.EAGAIN
		}
	}
	for {
		n, err := sys.Readv(f.fd, iovs)
		if err == nil || sys.ErrnoOf(err) != syscall.EAGAIN || !f.waits() {
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

func fdWrite(p *Process, f *file, mem []byte, a []uint64) Errno {
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
		again := e == syscall.EAGAIN && f.waits() &&
			(f.kind == kindStream || f.flags&flagNonblock == 0)
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
		case e == syscall.EPIPE && f.kind != kindSocket:
			// A Unix tool gets SIGPIPE here and ends without a word. Without
			// signals many would print an error, or go on for ever.
			p.exit(wasi.ExitPipe)
			return 0, wasiErrno(e)
		default:
			return 0, wasiErrno(e)
		}
	}
}

func fdPread(p *Process, f *file, mem []byte, a []uint64) Errno {
	return p.positioned(f, mem, a, sys.Preadv)
}

func fdPwrite(p *Process, f *file, mem []byte, a []uint64) Errno {
	return p.positioned(f, mem, a, sys.Pwritev)
}

func (p *Process) positioned(f *file, mem []byte, a []uint64,
	call func(int, [][]byte, int64) (int, error)) Errno {
	if f.waits() {
		return wasiErrno(syscall.ESPIPE)
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

// forget clears the buffers of a call: no pointers into linear memory may remain after it is
// unmapped.
func (p *Process) forget() { clear(p.room[:]) }

// seekable returns the regular file behind fd.
func (p *Process) seekable(fd uint64) (*file, Errno) {
	f := p.fds.get(uint32(fd))
	switch {
	case f == nil, f.kind == kindDir:
		return nil, errBadf
	case f.fd < 0:
		return nil, wasiErrno(syscall.ESPIPE)
	}
	return f, success
}

func fdSeek(p *Process, f *file, mem []byte, a []uint64) Errno {
	return f.seek(mem, int64(a[1]), uint32(a[2]), uint32(a[3]))
}

func fdTell(p *Process, f *file, mem []byte, a []uint64) Errno {
	const current = 1
	return f.seek(mem, 0, current, uint32(a[1]))
}

func (f *file) seek(mem []byte, off int64, whence, ptr uint32) Errno {
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
func fdReaddir(p *Process, f *file, mem []byte, a []uint64) Errno {
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
