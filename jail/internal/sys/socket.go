package sys

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxFiles is the maximum number of descriptors in one message.
const MaxFiles = 48

// SocketPair returns two connected stream sockets, close-on-exec and non-blocking, so that
// Go's poller waits for them (unix(7)).
func SocketPair(name string) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		0)
	if err != nil {
		return nil, nil, callError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), name+"-host"), os.NewFile(uintptr(fds[1]), name+"-jail"), nil
}

// NewSocket wraps an inherited socket descriptor. It sets close-on-exec and non-blocking mode.
func NewSocket(fd int, name string) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, callError("fcntl FD_CLOEXEC", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, callError("fcntl O_NONBLOCK", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Inherited wraps an inherited descriptor of any kind. It sets close-on-exec, and non-blocking mode
// on a socket.
func Inherited(fd int, name string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, callError("fstat", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return NewSocket(fd, name)
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
	return os.NewFile(uintptr(fd), name), callError("fcntl FD_CLOEXEC", err)
}

// ShutdownRead shuts down the receiving side of a socket: queued data can still be read, then end
// of file follows.
func ShutdownRead(f *os.File) error { return shutdown(f, unix.SHUT_RD) }

// ShutdownWrite shuts down the sending side of a socket.
func ShutdownWrite(f *os.File) error { return shutdown(f, unix.SHUT_WR) }

func shutdown(f *os.File, how int) error {
	return control(f, func(fd int) error { return callError("shutdown", unix.Shutdown(fd, how)) })
}

// SendWithFiles writes p, or its first bytes, with the descriptors of files (SCM_RIGHTS). It
// returns the number of bytes written.
func SendWithFiles(f *os.File, p []byte, files []*os.File) (int, error) {
	fds := make([]int, len(files))
	for i, file := range files {
		fds[i] = int(file.Fd())
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, serr := 0, error(nil)
	err = raw.Write(func(fd uintptr) bool {
		n, serr = retried(func() (int, error) {
			return unix.SendmsgN(int(fd), p, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		})
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err == nil {
		err = callError("sendmsg", serr)
	}
	return n, err
}

// ReceiveWithFiles reads up to len(p) bytes and any descriptors that came with them. The
// descriptors are close-on-exec.
func ReceiveWithFiles(f *os.File, p []byte) (int, []*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	var n, oobn, flags int
	var serr error
	err = raw.Read(func(fd uintptr) bool {
		serr = retryEINTR(func() error {
			var e error
			n, oobn, flags, _, e = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
			return e
		})
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err == nil {
		err = callError("recvmsg", serr)
	}
	if err != nil {
		return 0, nil, err
	}
	files, err := parseRights(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		CloseAll(files)
		return 0, nil, errors.New("recvmsg: more descriptors than one message may carry")
	}
	return n, files, err
}

func parseRights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, callError("parse control message", err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			CloseAll(files)
			return nil, callError("parse SCM_RIGHTS", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// PeerCred returns the credentials and the groups of the process that made a connection, mapped to
// the host's ids (unix(7)).
func PeerCred(conn syscall.Conn) (cred *unix.Ucred, groups []uint32, err error) {
	err = control(conn, func(fd int) error {
		if cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return callError("getsockopt SO_PEERCRED", err)
		}
		groups, err = peerGroups(fd)
		return err
	})
	return cred, groups, err
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
