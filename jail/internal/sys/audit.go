package sys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// AuditReader reads the kernel's audit records as one of any number of multicast readers
// (AUDIT_NLGRP_READLOG). It does not change which records are made or who else gets them. It needs
// CAP_AUDIT_READ on the host.
type AuditReader struct {
	f   *os.File
	buf []byte
	// mu is held from before a record is received until f has returned.
	mu sync.Mutex

	closed atomic.Bool
}

// AuditLost is the type that f gets if this reader lost an unknown number of records because its
// buffer was full.
const AuditLost = unix.NLMSG_OVERRUN

// maxAudit is larger than any record, in bytes (MAX_AUDIT_MESSAGE_LENGTH).
const maxAudit = 16 << 10

// auditRoom is the size of the receive buffer in bytes.
const auditRoom = 4 << 20

// NewAuditReader returns a reader for the audit records of the given types. The kernel drops
// records of other types before they reach the reader. Without CAP_AUDIT_READ the error is EPERM.
func NewAuditReader(types ...uint16) (*AuditReader, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_AUDIT)
	if err != nil {
		return nil, callError("socket NETLINK_AUDIT", err)
	}
	filter := onlyTypes(types)
	err = callError("setsockopt SO_ATTACH_FILTER", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET,
		unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}))
	if err == nil && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE,
		auditRoom) != nil {
		// A smaller buffer, if the host does not allow this size.
		err = callError("setsockopt SO_RCVBUF",
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, auditRoom))
	}
	if err == nil {
		err = callError("bind AUDIT_NLGRP_READLOG",
			unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
				Groups: 1 << (unix.AUDIT_NLGRP_READLOG - 1)}))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &AuditReader{f: os.NewFile(uintptr(fd), "audit"), buf: make([]byte, maxAudit)}, nil
}

// onlyTypes returns a classic BPF socket filter for a NETLINK_AUDIT socket. The filter passes
// netlink messages whose nlmsg_type is in types, at most 255 of them. The kernel silently drops all
// other messages.
func onlyTypes(types []uint16) []unix.SockFilter {
	// typeOffset is where struct nlmsghdr has its type.
	const typeOffset = 4
	n := uint8(len(types))
	f := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: typeOffset}}
	for i, t := range types {
		var b [2]byte
		binary.NativeEndian.PutUint16(b[:], t)
		// A filter loads in network byte order.
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
			Jt: n - uint8(i), K: uint32(binary.BigEndian.Uint16(b[:]))})
	}
	return append(f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: maxAudit})
}

// Next waits for a record and calls f with its type and text. text is valid until f returns. If
// records were lost, it first calls f with AuditLost. After Close the error is os.ErrClosed.
func (r *AuditReader) Next(f func(kind uint16, text []byte)) error {
	raw, err := r.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		failed = r.one(int(fd), r.buf, f)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if r.closed.Load() {
		// The poller's error for a closed file is not exported.
		return os.ErrClosed
	}
	return errors.Join(err, failed)
}

// Rest calls f for all queued records, without waiting. Another goroutine may be in Next meanwhile.
// When Rest returns, f has returned for every record that was written before, in either goroutine.
func (r *AuditReader) Rest(f func(kind uint16, text []byte)) error {
	raw, err := r.f.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, maxAudit)
	controlErr := raw.Control(func(fd uintptr) {
		for err == nil {
			err = r.one(int(fd), buf, f)
		}
	})
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return errors.Join(controlErr, err)
}

func (r *AuditReader) one(fd int, buf []byte, f func(kind uint16, text []byte)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int
	var from unix.Sockaddr
	err := retryEINTR(func() (err error) {
		n, from, err = unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		return err
	})
	if errors.Is(err, unix.ENOBUFS) {
		f(AuditLost, nil)
		return nil
	}
	if err != nil {
		return callError("recvfrom audit", err)
	}
	// The length in the header is not reliable: some kernels give only the length of the text.
	if kernel, ok := from.(*unix.SockaddrNetlink); ok && kernel.Pid == 0 &&
		n >= unix.SizeofNlMsghdr {
		f(binary.NativeEndian.Uint16(buf[4:]), buf[unix.SizeofNlMsghdr:n])
	}
	return nil
}

// Close closes the socket, which makes Next return.
func (r *AuditReader) Close() error {
	r.closed.Store(true)
	return r.f.Close()
}

// AuditOn reports whether the kernel makes audit records now (AUDIT_GET). It changes nothing, and
// needs CAP_AUDIT_CONTROL of the host.
func AuditOn() (bool, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err != nil {
		return false, callError("socket NETLINK_AUDIT", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: 5}); err != nil {
		return false, callError("setsockopt SO_RCVTIMEO", err)
	}
	ask := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], unix.AUDIT_GET)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, callError("sendto audit", err)
	}
	answer := make([]byte, maxAudit)
	var n int
	if err := retryEINTR(func() (err error) {
		n, _, err = unix.Recvfrom(fd, answer, 0)
		return err
	}); err != nil {
		return false, callError("recvfrom audit", err)
	}
	body := answer[min(n, unix.SizeofNlMsghdr):n]
	switch kind := binary.NativeEndian.Uint16(answer[4:]); {
	case kind == unix.NLMSG_ERROR && len(body) >= 4:
		if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
			return false, callError("AUDIT_GET", unix.Errno(errno))
		}
	case kind == unix.AUDIT_GET && len(body) >= 8:
		// The body is a struct audit_status, which begins with mask and enabled.
		return binary.NativeEndian.Uint32(body[4:]) != 0, nil
	}
	return false, fmt.Errorf("audit: the kernel answered %d bytes that are no status", n)
}
