package preview1

import (
	"os"
	"syscall"

	"github.com/jail-sandbox/jail/runners/internal/sys"
	"github.com/jail-sandbox/jail/runners/wasi/guest/view"
)

type kind uint8

const (
	kindStream kind = iota // stdin, stdout, stderr
	// a regular file, or a device of the view
	kindFile
	kindDir
	// Hands out streams to the fetch proxy.
	kindListener
	kindSocket // one of them
)

// Flags of a descriptor.
const (
	flagAppend = 1 << iota
	flagDsync
	flagNonblock
	flagRsync
	flagSync
	allFlags = 1<<iota - 1
)

// Types of files.
const (
	typeUnknown         = 0
	typeBlockDevice     = 1
	typeCharacterDevice = 2
	typeDirectory       = 3
	typeRegular         = 4
	typeSocketStream    = 6
	typeSymbolicLink    = 7
)

func filetypeOf(mode uint32) uint8 {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return typeRegular
	case syscall.S_IFDIR:
		return typeDirectory
	case syscall.S_IFLNK:
		return typeSymbolicLink
	case syscall.S_IFCHR:
		return typeCharacterDevice
	case syscall.S_IFBLK:
		return typeBlockDevice
	case syscall.S_IFSOCK:
		return typeSocketStream
	}
	// A FIFO has no type in WASI.
	return typeUnknown
}

// file is an open descriptor.
type file struct {
	kind     kind
	filetype uint8
	flags    uint16
	// The kernel's descriptor; -1 for a closed stream and for a directory.
	fd int
	// A file on a mount that cannot be changed.
	readOnly bool
	dir      *view.Dir

	isPreopen bool
	preopen   string

	rights rights
	// Counts the bytes written to a stream.
	count *int64

	accept func() (*os.File, error) // of a listener
	socket *os.File                 // holds fd
}

func (f *file) close() Errno {
	switch f.kind {
	case kindFile:
		return errnoOf(sys.Close(f.fd))
	case kindDir:
		return wasiErrno(f.dir.Close())
	case kindSocket:
		if f.socket.Close() != nil {
			return errIO
		}
	}
	// The owner closes a stream.
	return success
}

// table holds the descriptors. Numbers are given out lowest first.
type table struct {
	files []*file
	open  int
	most  int
	peak  int
}

func (t *table) get(fd uint32) *file {
	if uint64(fd) >= uint64(len(t.files)) {
		return nil
	}
	return t.files[fd]
}

// full reports whether no further descriptor may be opened.
func (t *table) full() bool { return t.open >= t.most }

// put gives f the lowest free number.
func (t *table) put(f *file) uint32 {
	t.open++
	t.peak = max(t.peak, t.open)
	for i, g := range t.files {
		if g == nil {
			t.files[i] = f
			return uint32(i)
		}
	}
	t.files = append(t.files, f)
	return uint32(len(t.files) - 1)
}

func (t *table) remove(fd uint32) {
	t.files[fd] = nil
	t.open--
}

// Rights of WASI preview 1. They are reported, because libraries ask for them to learn how a file
// may be used, and a guest may drop its own. They protect nothing: the mounts and the kernel decide
// what a guest may do.
const (
	rightFdDatasync = 1 << iota
	rightFdRead
	rightFdSeek
	rightFdstatSetFlags
	rightFdSync
	rightFdTell
	rightFdWrite
	rightFdAdvise
	rightFdAllocate
	rightPathCreateDirectory
	rightPathCreateFile
	rightPathLinkSource
	rightPathLinkTarget
	rightPathOpen
	rightFdReaddir
	rightPathReadlink
	rightPathRenameSource
	rightPathRenameTarget
	rightPathFilestatGet
	rightPathFilestatSetSize
	rightPathFilestatSetTimes
	rightFdFilestatGet
	rightFdFilestatSetSize
	rightFdFilestatSetTimes
	rightPathSymlink
	rightPathRemoveDirectory
	rightPathUnlinkFile
	rightPollFdReadwrite

	allRights = 1<<iota - 1

	dirRights = rightPathCreateDirectory | rightPathCreateFile | rightPathLinkSource | rightPathLinkTarget |
		rightPathOpen | rightFdReaddir | rightPathReadlink | rightPathRenameSource | rightPathRenameTarget |
		rightPathFilestatGet | rightPathFilestatSetSize | rightPathFilestatSetTimes | rightFdFilestatGet |
		rightFdFilestatSetTimes | rightPathSymlink | rightPathRemoveDirectory | rightPathUnlinkFile |
		rightFdstatSetFlags | rightFdSync | rightFdDatasync | rightFdAdvise

	fileRights = rightFdDatasync | rightFdRead | rightFdSeek | rightFdstatSetFlags | rightFdSync |
		rightFdTell | rightFdWrite | rightFdAdvise | rightFdAllocate | rightFdFilestatGet |
		rightFdFilestatSetSize | rightFdFilestatSetTimes | rightPollFdReadwrite

	rightSockShutdown = 1 << 28
	rightSockAccept   = 1 << 29
	listenerRights    = rightSockAccept | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite
	socketRights      = rightFdRead | rightFdWrite | rightSockShutdown | rightFdstatSetFlags |
		rightFdFilestatGet | rightPollFdReadwrite

	stdinRights  = rightFdRead | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite
	stdoutRights = rightFdWrite | rightFdstatSetFlags | rightFdFilestatGet | rightPollFdReadwrite
)

// rights are the reported rights of one descriptor.
type rights struct {
	// inherit are the rights of files that are opened below a directory.
	base, inherit uint64
	// dropped are the rights that the guest gave up.
	dropped uint64
}

// narrow drops all rights except base and inherit. It reports false if the descriptor lacks one of
// these.
func (r *rights) narrow(base, inherit uint64) bool {
	if base&^r.base != 0 || inherit&^r.inherit != 0 {
		return false
	}
	r.dropped |= r.base &^ base
	r.base, r.inherit = base, inherit
	return true
}
