package preview1

import (
	"encoding/binary"

	"github.com/jail-sandbox/jail/runners/internal/sys"
)

// Call is one function of preview 1. mem is all of linear memory; a holds the
// parameters as the engine has them, each in 64 bits.
type Call func(p *Process, mem []byte, a []uint64) Errno

// Lookup returns the function of that name, or nil.
func Lookup(name string) Call { return calls[name] }

var calls = map[string]Call{
	"args_get":                argsGet,
	"args_sizes_get":          argsSizesGet,
	"clock_res_get":           clockResGet,
	"clock_time_get":          clockTimeGet,
	"environ_get":             environGet,
	"environ_sizes_get":       environSizesGet,
	"fd_advise":               on((*Process).seekable, fdAdvise),
	"fd_allocate":             on((*Process).writable, fdAllocate),
	"fd_close":                on((*Process).file, fdClose),
	"fd_datasync":             on((*Process).file, fdDatasync),
	"fd_fdstat_get":           on((*Process).file, fdFdstatGet),
	"fd_fdstat_set_flags":     on((*Process).file, fdFdstatSetFlags),
	"fd_fdstat_set_rights":    on((*Process).file, fdFdstatSetRights),
	"fd_filestat_get":         on((*Process).file, fdFilestatGet),
	"fd_filestat_set_size":    on((*Process).writable, fdFilestatSetSize),
	"fd_filestat_set_times":   on((*Process).file, fdFilestatSetTimes),
	"fd_pread":                on((*Process).readable, fdPread),
	"fd_prestat_dir_name":     on((*Process).preopened, fdPrestatDirName),
	"fd_prestat_get":          on((*Process).preopened, fdPrestatGet),
	"fd_pwrite":               on((*Process).writable, fdPwrite),
	"fd_read":                 readFd,
	"fd_readdir":              on((*Process).dir, fdReaddir),
	"fd_renumber":             fdRenumber,
	"fd_seek":                 on((*Process).seekable, fdSeek),
	"fd_sync":                 on((*Process).file, fdSync),
	"fd_tell":                 on((*Process).seekable, fdTell),
	"fd_write":                writeFd,
	"path_create_directory":   pathCreateDirectory,
	"path_filestat_get":       pathFilestatGet,
	"path_filestat_set_times": pathFilestatSetTimes,
	"path_link":               pathLink,
	"path_open":               pathOpen,
	"path_readlink":           pathReadlink,
	"path_remove_directory":   pathRemoveDirectory,
	"path_rename":             pathRename,
	"path_symlink":            pathSymlink,
	"path_unlink_file":        pathUnlinkFile,
	"poll_oneoff":             pollOneoff,
	"proc_exit":               procExit,
	"proc_raise":              procRaise,
	"random_get":              randomGet,
	"sched_yield":             schedYield,
	"sock_accept":             sockAccept,
	"sock_recv":               sockRecv,
	"sock_send":               sockSend,
	"sock_shutdown":           sockShutdown,
}

var (
	readFd  = on((*Process).readable, fdRead)
	writeFd = on((*Process).writable, fdWrite)
)

// on returns the Call that looks up the file of its first parameter with find and calls the
// function with it.
func on(find func(p *Process, fd uint64) (*file, Errno),
	call func(p *Process, f *file, mem []byte, a []uint64) Errno) Call {
	return func(p *Process, mem []byte, a []uint64) Errno {
		f, e := find(p, a[0])
		if e != success {
			return e
		}
		return call(p, f, mem, a)
	}
}

// Errno is an error number of WASI preview 1; zero is success.
type Errno uint16

// The error numbers that this package gives by itself.
const (
	success        Errno = 0
	errBadf        Errno = 8
	errFault       Errno = 21
	errFbig        Errno = 22
	errInval       Errno = 28
	errIntr        Errno = 27
	errIO          Errno = 29
	errConnRefused Errno = 14
	errIsdir       Errno = 31
	errMfile       Errno = 33
	errNameLong    Errno = 37
	errNospc       Errno = 51
	errNotdir      Errno = 54
	errNotsock     Errno = 57
	errNotsup      Errno = 58
	errNotcap      Errno = 76
)

// fromKernel is indexed by the kernel's error numbers (asm-generic). What has
// no number in WASI is EIO.
var fromKernel = [...]Errno{
	1: 63, 2: 44, 3: 71, 4: 27, 5: 29, 6: 60, 7: 1, 8: 45, 9: 8, 10: 12,
	11: 6, 12: 48, 13: 2, 14: 21, 15: 29, 16: 10, 17: 20, 18: 75, 19: 43, 20: 54,
	21: 31, 22: 28, 23: 41, 24: 33, 25: 59, 26: 74, 27: 22, 28: 51, 29: 70, 30: 69,
	31: 34, 32: 64, 33: 18, 34: 68, 35: 16, 36: 37, 37: 46, 38: 52, 39: 55, 40: 32,
	75: 61, 84: 25, 88: 57, 95: 58, 103: 13, 104: 15, 107: 53, 110: 73, 111: 14, 116: 72, 122: 19,
}

// wasiErrno translates an error number of the kernel.
func wasiErrno(e sys.Errno) Errno {
	if e == 0 {
		return success
	}
	if int(e) < len(fromKernel) && fromKernel[e] != 0 {
		return fromKernel[e]
	}
	return errIO
}

func errnoOf(err error) Errno { return wasiErrno(sys.ErrnoOf(err)) }

// memory is the guest's linear memory for the time of one call. Every access is
// by a pointer and a length that the guest chose, so every one is checked.
type memory []byte

// at returns the n bytes at ptr, or false if they are not all in the memory.
func (m memory) at(ptr, n uint32) ([]byte, bool) {
	end := uint64(ptr) + uint64(n)
	if end > uint64(len(m)) {
		return nil, false
	}
	return m[ptr:end:end], true
}

func (m memory) putU32(ptr, v uint32) Errno {
	b, ok := m.at(ptr, 4)
	if !ok {
		return errFault
	}
	binary.LittleEndian.PutUint32(b, v)
	return success
}

func (m memory) putU64(ptr uint32, v uint64) Errno {
	b, ok := m.at(ptr, 8)
	if !ok {
		return errFault
	}
	binary.LittleEndian.PutUint64(b, v)
	return success
}

// maxPathBytes is more than any path may have; longer ones are not copied.
const maxPathBytes = 4096

// path reads a path. It is copied, so that it cannot change while it is used.
func (m memory) path(ptr, n uint32) (string, Errno) {
	b, ok := m.at(ptr, n)
	switch {
	case !ok:
		return "", errFault
	case n > maxPathBytes:
		return "", errNameLong
	}
	return string(b), success
}

// maxVectors bounds the buffers of one call, as the kernel does; a longer list
// is served in part, which every reader and writer has to expect.
const maxVectors = 1024

// vectors reads a list of n buffers. It uses room for the slices.
func (m memory) vectors(ptr, n uint32, room [][]byte) ([][]byte, Errno) {
	n = min(n, maxVectors)
	list, ok := m.at(ptr, n*8)
	if !ok {
		return nil, errFault
	}
	for ; len(list) > 0; list = list[8:] {
		b, ok := m.at(binary.LittleEndian.Uint32(list), binary.LittleEndian.Uint32(list[4:]))
		if !ok {
			return nil, errFault
		}
		room = append(room, b)
	}
	return room, success
}
