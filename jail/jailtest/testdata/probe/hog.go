package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// ready is where a hog that never returns says that it has begun.
const ready = "/store/ready"

func begun() { _ = os.WriteFile(ready, nil, 0o600) } // who waits for it says so if it is missing

// stay does what a tool may do to outlive its deadline. It never returns.
func stay(kind string, n int) victim.Result {
	switch kind {
	case "spin":
		// Before the others take its processor time.
		begun()
		for range n {
			go func() {
				for {
				}
			}()
		}
	case "fifo":
		begun()
		_, _ = unix.Open("/store/fifo", unix.O_RDONLY, 0) // nobody ever opens the other end
	case "read":
		begun()
		_, _ = unix.Read(0, make([]byte, 1))
	case "bomb":
		begun()
		bomb()
	case "threads":
		debug.SetMaxThreads(2 * n)
		for range n {
			go func() {
				runtime.LockOSThread()
				select {}
			}()
		}
	case "stopped":
		for range n {
			if pid, errno := rawFork(uintptr(unix.SIGCHLD), true); errno == 0 {
				_ = unix.Kill(int(pid), unix.SIGSTOP)
			}
		}
	case "daemons":
		daemons(n)
	}
	begun()
	for {
		time.Sleep(time.Hour)
	}
}

// bomb makes processes that make processes.
//
//go:norace
//go:nosplit
func bomb() {
	for {
		unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	}
}

// daemons makes a chain of n processes, each in a session of its own, of which all but the last end: the last is nobody's child any more.
//
//go:norace
//go:nosplit
func daemons(n int) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return
	}
	for range n {
		unix.RawSyscall6(unix.SYS_SETSID, 0, 0, 0, 0, 0, 0)
		if pid, _, _ := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); pid != 0 {
			for {
				unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
			}
		}
	}
	for {
		unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// hog takes memory of one kind until it has so many bytes, and returns how many it could.
func hog(kind string, bytes int64) victim.Result {
	const block = 64 << 10
	data := make([]byte, block)
	for i := range data {
		data[i] = 1
	}
	taken := int64(0)
	take := func(fd int) error {
		n, err := unix.Write(fd, data)
		taken += int64(max(n, 0))
		return err
	}
	var err error
	switch kind {
	case "memfd":
		var fd int
		fd, err = unix.MemfdCreate("hog", 0)
		for err == nil && taken < bytes {
			err = take(fd)
		}
	case "pipes":
		for err == nil && taken < bytes {
			var p [2]int
			if err = unix.Pipe2(p[:], unix.O_NONBLOCK); err == nil {
				for take(p[1]) == nil {
				}
			}
		}
	case "sockets":
		for err == nil && taken < bytes {
			var p [2]int
			if p, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0); err == nil {
				for take(p[0]) == nil {
				}
			}
		}
	case "names": // the kernel remembers each, also those that are not there
		var st unix.Stat_t
		const each = 192 // bytes of a name in the kernel's memory, at least
		for i := 0; taken < bytes; i++ {
			_ = unix.Stat("/store/"+strconv.Itoa(i)+"-a-name-that-is-not-there", &st)
			taken += each
		}
	default:
		err = fmt.Errorf("no memory of the kind %q", kind)
	}
	if err != nil {
		r := failed(err)
		r.Ret = taken
		return r
	}
	return result(taken, 0, nil)
}

// pass sends messages that carry descriptors, as many as fit, into a socket that nobody reads, and returns how many descriptors it could.
func pass(n int) victim.Result {
	const most = 253 // of one message (SCM_MAX_FD)
	fds := make([]int, most)
	rights := unix.UnixRights(fds...) // standard input, again and again
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return failed(err)
	}
	sent := 0
	for ; sent < n; sent += most {
		if err := unix.Sendmsg(pair[0], []byte{0}, rights, nil, 0); err != nil {
			r := failed(err)
			r.Ret = int64(sent)
			return r
		}
	}
	return result(int64(sent), 0, nil)
}
