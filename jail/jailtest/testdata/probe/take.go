package main

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// takers each take one more of a thing that the kernel counts for a user or a user namespace, and
// keep it until the process ends. n is how many the process has taken already.
var takers = map[string]func(n int) error{
	"signals":     takeTimer,
	"inotify":     func(int) error { return called(unix.SYS_INOTIFY_INIT1, unix.IN_CLOEXEC, 0, 0) },
	"fanotify":    takeFanotify,
	"queues":      takeQueue,
	"keys":        takeKey,
	"pipes":       takePipe,
	"locked":      takeLocked,
	"epoll":       takeEpoll,
	"io_uring":    takeRing,
	"leases":      takeLease,
	"descriptors": takeInFlight,
	"pids":        takeProcess,
}

// take takes up to n of a thing and returns how many it could.
func take(kind string, n int) victim.Result {
	taker, ok := takers[kind]
	if !ok {
		return victim.Result{Ret: -1, Errno: "nothing is called " + kind}
	}
	for i := range n {
		if err := taker(i); err != nil {
			r := failed(err)
			r.Ret = int64(i)
			return r
		}
	}
	return result(int64(n), 0, nil)
}

func called(nr, a, b, c uintptr) error {
	_, _, errno := unix.Syscall(nr, a, b, c)
	return asError(errno)
}

func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// takeTimer makes a timer, which holds room for its signal.
func takeTimer(int) error {
	const none = 1 // SIGEV_NONE
	var event [64]byte
	*(*int32)(unsafe.Pointer(&event[8])), *(*int32)(unsafe.Pointer(&event[12])) = int32(unix.SIGUSR1), none
	var id int32
	_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id)))
	return asError(errno)
}

func takeFanotify(int) error {
	return called(unix.SYS_FANOTIFY_INIT, unix.FAN_CLOEXEC|unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, unix.O_RDONLY, 0)
}

func takeQueue(n int) error {
	name := append([]byte("jail-probe-"+strconv.Itoa(unix.Getpid())+"-"+strconv.Itoa(n)), 0)
	most := [8]int64{1: 10, 2: 8192} // struct mq_attr: messages, and bytes of each
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o600,
		uintptr(unsafe.Pointer(&most)), 0, 0)
	if errno == 0 { // it lives as long as it is open
		_, _, errno = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0)
	}
	return asError(errno)
}

func takeKey(n int) error {
	_, err := unix.AddKey("user", "jail-probe-"+strconv.Itoa(n), []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	return err
}

func takePipe(int) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	_, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20)
	return err
}

// takeLocked locks a segment of one megabyte, which counts for its user and not for the process.
func takeLocked(int) error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 1<<20, unix.IPC_CREAT|0o600)
	if err != nil {
		return err
	}
	const lock = 11 // SHM_LOCK
	if _, err = unix.SysvShmCtl(id, lock, nil); err != nil {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) // the first error is the one that counts
		return err
	}
	held = append(held, id)
	return nil
}

// held and children are the segments and processes that would outlive this one, where it is the host's.
var held, children []int

func giveBack() {
	for _, id := range held {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	for _, pid := range children {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// ring is an epoll instance and what is waited for.
var ring struct{ epoll, event int }

func takeEpoll(n int) error {
	var err error
	if n == 0 {
		if ring.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return err
		}
		if ring.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
			return err
		}
	}
	fd, err := unix.FcntlInt(uintptr(ring.event), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.EpollCtl(ring.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
}

func takeRing(int) error {
	var params [120]byte
	return called(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&params)), 0)
}

// takeLease takes one that lets others read. The kernel gives it where nobody has the file open to write.
func takeLease(n int) error {
	name := "/tmp/jail-probe-" + strconv.Itoa(unix.Getpid()) + "-" + strconv.Itoa(n)
	written, err := unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	unix.Close(written)
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Unlink(name)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	}
	return err
}

func takeInFlight(int) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(pair[1]), nil, 0)
}

func takeProcess(int) error {
	pid, errno := rawFork(uintptr(unix.SIGCHLD), true)
	if errno == 0 {
		children = append(children, int(pid))
	}
	return asError(errno)
}
