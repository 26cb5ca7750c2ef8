package preview1

import (
	"os"

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
	switch mode & sys.SIFMT {
	case sys.SIFREG:
		return typeRegular
	case sys.SIFDIR:
		return typeDirectory
	case sys.SIFLNK:
		return typeSymbolicLink
	case sys.SIFCHR:
		return typeCharacterDevice
	case sys.SIFBLK:
		return typeBlockDevice
	case sys.SIFSOCK:
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
	// Of the kernel; -1 for a stream that was closed, and for a dir.
	fd int
	// A file on a mount that cannot be changed.
	readOnly bool
	dir      *view.Dir

	isPreopen bool
	preopen   string

	rights rights
	// Of the bytes written to a stream.
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
