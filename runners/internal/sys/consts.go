package sys

import "golang.org/x/sys/unix"

// Flags of Openat2.
const (
	ORdonly    = unix.O_RDONLY
	OWronly    = unix.O_WRONLY
	ORdwr      = unix.O_RDWR
	OCreat     = unix.O_CREAT
	OExcl      = unix.O_EXCL
	OTrunc     = unix.O_TRUNC
	OAppend    = unix.O_APPEND
	ONonblock  = unix.O_NONBLOCK
	ODsync     = unix.O_DSYNC
	OSync      = unix.O_SYNC
	ODirectory = unix.O_DIRECTORY
	ONofollow  = unix.O_NOFOLLOW
	OPath      = unix.O_PATH
	ONoctty    = unix.O_NOCTTY
)

// AtFDCWD is the directory argument for an absolute path.
const AtFDCWD = unix.AT_FDCWD

// Resolve is how every guest path is resolved: below the descriptor, through no
// magic link, and on the one mount that was granted.
const (
	ResolveBeneath    = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	ResolveNoSymlinks = unix.RESOLVE_NO_SYMLINKS
	ResolveNoXDev     = unix.RESOLVE_NO_XDEV
)

// File types in Stat.Mode.
const (
	SIFMT   = unix.S_IFMT
	SIFREG  = unix.S_IFREG
	SIFDIR  = unix.S_IFDIR
	SIFLNK  = unix.S_IFLNK
	SIFCHR  = unix.S_IFCHR
	SIFBLK  = unix.S_IFBLK
	SIFIFO  = unix.S_IFIFO
	SIFSOCK = unix.S_IFSOCK
)

// Error numbers that callers compare.
const (
	EACCES       = unix.EACCES
	EAGAIN       = unix.EAGAIN
	EBADF        = unix.EBADF
	EBUSY        = unix.EBUSY
	EEXIST       = unix.EEXIST
	EINVAL       = unix.EINVAL
	EIO          = unix.EIO
	EISDIR       = unix.EISDIR
	ELOOP        = unix.ELOOP
	ENAMETOOLONG = unix.ENAMETOOLONG
	ENOENT       = unix.ENOENT
	ENOTDIR      = unix.ENOTDIR
	ENXIO        = unix.ENXIO
	EPERM        = unix.EPERM
	ECONNRESET   = unix.ECONNRESET
	EPIPE        = unix.EPIPE
	EROFS        = unix.EROFS
	ESPIPE       = unix.ESPIPE
	EXDEV        = unix.EXDEV
	ENODEV       = unix.ENODEV
)
