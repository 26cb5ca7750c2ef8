package main

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// int80 makes a system call without arguments as a 32-bit program does.
func int80(nr uintptr) uintptr

// attack makes the calls in order, also after one that failed.
func attack(calls []victim.Call) []victim.Result {
	results := make([]victim.Result, 0, len(calls))
	for _, c := range calls {
		if special, ok := specials[c.Name]; ok {
			results = append(results, special(c.Args))
			continue
		}
		nr, ok := numbers[c.Name]
		if c.Name == "" {
			nr, ok = uintptr(c.Nr), true
		}
		if !ok {
			results = append(results, victim.Result{Errno: "no number for " + c.Name})
			continue
		}
		results = append(results, raw(nr, c.Args, results))
	}
	return results
}

func raw(nr uintptr, args []victim.Arg, before []victim.Result) victim.Result {
	var words [6]uintptr
	var keep []any
	var out []byte
	pointer := func(b []byte) uintptr {
		keep = append(keep, b)
		return uintptr(unsafe.Pointer(&b[0]))
	}
	for i, a := range args {
		switch {
		case a.Text != nil:
			words[i] = pointer(append([]byte(*a.Text), 0))
		case a.Buf > 0:
			out = make([]byte, a.Buf)
			words[i] = pointer(out)
		case a.Bytes != nil:
			words[i] = pointer(a.Bytes)
		case a.List != nil:
			list := make([]uintptr, len(a.List)+1)
			for j, s := range a.List {
				list[j] = pointer(append([]byte(s), 0))
			}
			keep = append(keep, list)
			words[i] = uintptr(unsafe.Pointer(&list[0]))
		case a.Ref > 0:
			words[i] = uintptr(before[a.Ref-1].Ret)
		default:
			words[i] = uintptr(a.Int)
		}
	}
	ret, _, errno := unix.Syscall6(nr, words[0], words[1], words[2], words[3], words[4], words[5])
	runtime.KeepAlive(keep)
	return result(int64(ret), errno, out)
}

func result(ret int64, errno unix.Errno, data []byte) victim.Result {
	if errno != 0 {
		return victim.Result{Ret: -1, Errno: unix.ErrnoName(errno)}
	}
	return victim.Result{Ret: ret, Data: data}
}

// specials are what an attack does besides single system calls.
var specials = map[string]func([]victim.Arg) victim.Result{
	"=read":    func(a []victim.Arg) victim.Result { return read(*a[0].Text) },
	"=readdir": func(a []victim.Arg) victim.Result { return readDir(*a[0].Text) },
	"=int80": func(a []victim.Arg) victim.Result {
		return victim.Result{Ret: int64(int32(int80(uintptr(a[0].Int))))}
	},
	"=touch": func(a []victim.Arg) victim.Result { return touch(int(a[0].Int)) },
	"=fill":  func(a []victim.Arg) victim.Result { return fill(*a[0].Text, int64(a[1].Int)) },
	"=fork":  func(a []victim.Arg) victim.Result { return forkOnce(uintptr(a[0].Int)) },
	"=forks": func(a []victim.Arg) victim.Result { return forks(int(a[0].Int)) },
	"=exit":  func(a []victim.Arg) victim.Result { os.Exit(int(a[0].Int)); return victim.Result{} },
	"=write": func(a []victim.Arg) victim.Result {
		return failed(os.WriteFile(*a[0].Text, []byte(*a[1].Text), 0))
	},
	"=pass":     func(a []victim.Arg) victim.Result { return pass(int(a[0].Int)) },
	"=stay":     func(a []victim.Arg) victim.Result { return stay(*a[0].Text, int(a[1].Int)) },
	"=hog":      func(a []victim.Arg) victim.Result { return hog(*a[0].Text, int64(a[1].Int)) },
	"=filter":   func(a []victim.Arg) victim.Result { return allowAll(uintptr(a[0].Int)) },
	"=refused":  func(a []victim.Arg) victim.Result { return refused(int(a[0].Int), int(a[1].Int)) },
	"=early":    func([]victim.Arg) victim.Result { return early() },
	"=crash":    func([]victim.Arg) victim.Result { return crash() },
	"=reopen":   func(a []victim.Arg) victim.Result { return reopen(*a[0].Text) },
	"=readlink": func(a []victim.Arg) victim.Result { return readlink(*a[0].Text) },
	"=random":   func(a []victim.Arg) victim.Result { return random(a[0].Int) },
	"=take":     func(a []victim.Arg) victim.Result { return take(*a[0].Text, int(a[1].Int)) },
	"=opens":    func(a []victim.Arg) victim.Result { return opens(int(a[0].Int)) },
}

func read(path string) victim.Result {
	f, err := os.Open(path)
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return failed(err)
	}
	return victim.Result{Ret: int64(len(text)), Data: text}
}

// readDir returns the names in a directory, each with a NUL.
func readDir(path string) victim.Result {
	entries, err := os.ReadDir(path)
	if err != nil {
		return failed(err)
	}
	var names []byte
	for _, e := range entries {
		names = append(append(names, e.Name()...), 0)
	}
	return victim.Result{Ret: int64(len(entries)), Data: names}
}

func failed(err error) victim.Result {
	if err == nil {
		return victim.Result{}
	}
	if errno, ok := unwrap(err); ok {
		return result(-1, errno, nil)
	}
	return victim.Result{Ret: -1, Errno: err.Error()}
}

func unwrap(err error) (unix.Errno, bool) {
	for err != nil {
		if errno, ok := err.(unix.Errno); ok {
			return errno, true
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return 0, false
		}
		err = u.Unwrap()
	}
	return 0, false
}

// touch writes to each page of so much new memory.
func touch(bytes int) victim.Result {
	mem, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return failed(err)
	}
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 1
	}
	return result(int64(bytes), 0, nil)
}

// fill writes so many bytes to a new file, and returns how many it could.
func fill(path string, bytes int64) victim.Result {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return failed(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	written := int64(0)
	for written < bytes {
		n, err := f.Write(block)
		written += int64(n)
		if err != nil {
			r := failed(err)
			r.Ret = written
			return r
		}
	}
	return result(written, 0, nil)
}

// opens opens one file so many times, and returns how many it could.
func opens(n int) victim.Result {
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for range n {
		fd, err := unix.Open("/data/f", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			r := failed(err)
			r.Ret = int64(len(fds))
			return r
		}
		fds = append(fds, fd)
	}
	return result(int64(n), 0, nil)
}

// forkOnce makes one process with the given flags of clone(2), which ends at once.
func forkOnce(flags uintptr) victim.Result {
	pid, errno := rawFork(flags|uintptr(unix.SIGCHLD), false)
	if errno == 0 {
		unix.Wait4(int(pid), nil, unix.WALL, nil)
	}
	return result(int64(pid), errno, nil)
}

// forks makes up to n processes that stay, and returns how many it could.
func forks(n int) victim.Result {
	for i := range n {
		if _, errno := rawFork(uintptr(unix.SIGCHLD), true); errno != 0 {
			r := result(-1, errno, nil)
			r.Ret = int64(i)
			return r
		}
	}
	return result(int64(n), 0, nil)
}

// rawFork must not be split or preempted: in the copy there is one thread and no Go runtime around it.
//
//go:norace
//go:nosplit
func rawFork(flags uintptr, stay bool) (uintptr, unix.Errno) {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	for stay {
		unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	for {
		unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
}

// refused makes so many calls that no jail allows on each of so many threads, and returns how many had another answer than EPERM.
func refused(threads, calls int) victim.Result {
	var others atomic.Int64
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for range calls {
				if _, _, errno := unix.Syscall(unix.SYS_MOUNT, 0, 0, 0); errno != unix.EPERM {
					others.Add(1)
				}
			}
		})
	}
	all.Wait()
	return result(others.Load(), 0, nil)
}

// allowAll loads a filter that allows everything.
func allowAll(flags uintptr) victim.Result {
	one := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	prog := unix.SockFprog{Len: 1, Filter: &one}
	ret, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	return result(int64(ret), errno, nil)
}
