package sys

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PeerCredentials are those of the process that made a connection, mapped to the host's ids.
type PeerCredentials struct {
	PID      int
	UID, GID uint32
	Groups   []uint32
}

// PeerCred returns the credentials of the other end of a connected Unix socket (unix(7)).
func PeerCred(fd int) (PeerCredentials, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return PeerCredentials{}, callError("getsockopt SO_PEERCRED", err)
	}
	groups, err := peerGroups(fd)
	return PeerCredentials{PID: int(c.Pid), UID: c.Uid, GID: c.Gid, Groups: groups}, err
}

const maxGroups = 65536 // NGROUPS_MAX of the kernel

func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET,
			unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errors.Is(errno, unix.ERANGE) && int(size/4) > len(groups) && size/4 <= maxGroups:
			groups = make([]uint32, size/4)
		default:
			return nil, callError("getsockopt SO_PEERGROUPS", errno)
		}
	}
}
