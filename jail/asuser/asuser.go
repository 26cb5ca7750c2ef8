// Package asuser opens files that a caller names with the caller's own file rights, so that no user
// can make a daemon that runs as root open files that they may not (the confused deputy problem).
package asuser

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// A Caller is a user of the host with their groups.
type Caller struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Errors to compare with.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("file is too large")
)

// OpenDir opens a directory for reading. The caller must be allowed to list it.
func (c Caller) OpenDir(path string) (*os.File, error) {
	return c.open(nil, path, syscall.O_DIRECTORY|syscall.O_RDONLY)
}

// Open opens a file or directory for reading. It does not wait for the other end of a FIFO.
func (c Caller) Open(path string) (*os.File, error) {
	return c.open(nil, path, readable)
}

// Do runs f on a thread with the caller's file rights and returns its error. f must not start a
// goroutine that needs them.
func (c Caller) Do(f func() error) error { return sys.AsUser(c.UID, c.GID, c.Groups, f) }

// OpenIn opens the file name below dir for reading. A symbolic link as the last component is an
// error. It does not wait for the other end of a FIFO.
func (c Caller) OpenIn(dir *os.File, name string) (*os.File, error) {
	return c.open(dir, name, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW)
}

// Named opens a file as Caller.Open does, with the rights of the calling thread. It is for
// functions that Do runs.
func Named(path string) (*os.File, error) { return sys.OpenNamed(nil, path, readable) }

// CheckNamed returns the error of Named for a path that need not be readable.
func CheckNamed(path string) error { return sys.CheckNamed(path) }

const readable = syscall.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY

func (c Caller) open(dir *os.File, path string, flags int) (f *os.File, err error) {
	err = sys.AsUser(c.UID, c.GID, c.Groups, func() error {
		f, err = sys.OpenNamed(dir, path, flags)
		return err
	})
	return f, err
}

// OpenFile opens a regular file for reading. The error for another kind of file is ErrNotRegular.
func (c Caller) OpenFile(path string) (*os.File, fs.FileInfo, error) {
	f, err := c.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// ReadFile returns the content of a regular file. The error for more than limit bytes is
// ErrTooLarge.
func (c Caller) ReadFile(path string, limit int64) ([]byte, error) {
	f, _, err := c.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, limit)
}

// ReadAll reads the rest of a file. The error for more than limit bytes is ErrTooLarge.
func ReadAll(f *os.File, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, &fs.PathError{Op: "read", Path: f.Name(),
			Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)}
	}
	return text, nil
}

// unnamed is the uid that the kernel shows for owners without a mapping in the user namespace
// (proc_sys_kernel(5), overflowuid).
const unnamed = 65534

// Rules reports whether this daemon trusts configuration files of the owner uid: root, and for a
// user's daemon the user. In the user namespace of a user's daemon root is unmapped like every
// other user, so there Rules also accepts unmapped owners: profiles.CheckOwners has checked them
// before.
func Rules(uid uint32) bool {
	return uid == 0 || sys.Rootless() && (int(uid) == os.Geteuid() || uid == unnamed)
}

// A Peer is the process at the other end of a Unix socket, as it was when the connection was made.
type Peer struct {
	Caller
	PID int
}

// PeerOf returns the process that made the connection (unix(7), SO_PEERCRED and SO_PEERGROUPS).
func PeerOf(conn *net.UnixConn) (Peer, error) {
	cred, groups, err := sys.PeerCred(conn)
	if err != nil {
		return Peer{}, err
	}
	return Peer{Caller{cred.Uid, cred.Gid, groups}, int(cred.Pid)}, nil
}

// Home returns the user's home directory from /etc/passwd, or "" if it has none.
func Home(uid uint32) string {
	text, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) >= 7 && f[2] == strconv.FormatUint(uint64(uid), 10) {
			return f[5]
		}
	}
	return ""
}
