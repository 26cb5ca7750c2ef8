package main

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// earlyVariable takes what was found out before jail-init's work to those who ask after it.
const earlyVariable = "EARLY"

// enterLate attacks before it restricts itself in any way: only what is there from the first instruction on can stop it.
func enterLate(env []string) []string {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.Close(fd)
	}
	name := "ok"
	if errno, ok := unwrap(err); ok {
		name = unix.ErrnoName(errno)
	}
	return append(env, earlyVariable+"="+name)
}

// early says how that attack went.
func early() victim.Result {
	name := os.Getenv(earlyVariable)
	if name == "ok" {
		name = ""
	}
	return victim.Result{Errno: name}
}

// gained says whether this program has more rights than who executed it: 43, or 42 if not.
func gained() int {
	text, err := os.ReadFile("/proc/self/status")
	more := err != nil || os.Geteuid() != os.Getuid() || os.Getegid() != os.Getgid()
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok && strings.Trim(value, "\t 0\n") != "" {
			more = true
		}
	}
	if more {
		return 43
	}
	return 42
}

// reopen tries, until the process ends, to get at a program by a path that names no file of its own, and to write to it.
func reopen(path string) victim.Result {
	for range 2 {
		go func() {
			for {
				fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
				if err != nil {
					continue
				}
				again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
				if err == nil {
					_, _ = unix.Write(again, []byte("overwritten"))
					unix.Close(again)
				}
				unix.Close(fd)
			}
		}()
	}
	return victim.Result{}
}

// crash ends the process by a fault that nobody catches. It does not return.
func crash() victim.Result {
	var byDefault [4]uint64 // struct kernel_sigaction
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return failed(err)
	}
	mem[0] = 1
	return victim.Result{}
}

func readlink(path string) victim.Result {
	to, err := os.Readlink(path)
	if err != nil {
		return failed(err)
	}
	return victim.Result{Ret: int64(len(to)), Data: []byte(to)}
}

// shadowy are calls that end or stop only the probe itself, which would end the search early.
var shadowy = []uintptr{unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_PAUSE, unix.SYS_RT_SIGSUSPEND, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGTIMEDWAIT,
	unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_BRK, unix.SYS_RT_SIGPROCMASK, unix.SYS_SELECT, unix.SYS_PSELECT6, unix.SYS_POLL, unix.SYS_PPOLL,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_MADVISE, unix.SYS_MPROTECT, unix.SYS_MMAP, unix.SYS_TGKILL, unix.SYS_CLOSE, unix.SYS_CLONE,
	unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVMSG, unix.SYS_EPOLL_PWAIT, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK}

const calls = 512 // numbers of system calls that are tried

// threads make random calls at one time: one that has put itself to sleep does not stop the others.
const threads = 8

// random makes system calls with numbers and arguments that the seed decides, until one of them ends it. The number made so far lies in a file,
// for those who look after its end.
func random(seed uint64) victim.Result {
	count, err := counter("/store/count")
	if err != nil {
		return failed(err)
	}
	for n := range uint64(threads) {
		go randomCalls(rand.New(rand.NewPCG(seed, n)), (*atomic.Uint64)(unsafe.Pointer(&count[0])))
	}
	select {}
}

func randomCalls(rnd *rand.Rand, made *atomic.Uint64) {
	runtime.LockOSThread()
	scratch := make([]byte, 64<<10)
	var texts [][]byte
	for _, p := range []string{"/", "/..", "/proc/self/mem", "/proc/self/exe", "/proc/1/root", "/proc/self/fd/3", "/data/f", "/store/x", "/tmp/x", "/dev/zero",
		"/run/jail/init", "/sys", "", strings.Repeat("a/", 3000)} {
		texts = append(texts, append([]byte(p), 0))
	}
	argument := func() uintptr {
		switch rnd.IntN(8) {
		case 0:
			return uintptr(rnd.IntN(16)) // a descriptor, a small number
		case 1:
			return uintptr(unsafe.Pointer(&texts[rnd.IntN(len(texts))][0]))
		case 2, 3:
			for i := 0; i < 128; i += 8 {
				binary.LittleEndian.PutUint64(scratch[i:], rnd.Uint64()>>rnd.IntN(64))
			}
			return uintptr(unsafe.Pointer(&scratch[0]))
		case 4:
			return 1 << rnd.IntN(64)
		case 5:
			return ^uintptr(rnd.IntN(200))
		case 6:
			return uintptr(rnd.Uint64())
		}
		return 0
	}
	for {
		if nr := uintptr(rnd.IntN(calls)); !slices.Contains(shadowy, nr) {
			made.Add(1)
			unix.RawSyscall6(nr, argument(), argument(), argument(), argument(), argument(), argument())
		}
	}
}

// counter maps eight bytes of a file, shared with its readers.
func counter(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 8)); err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}
