//go:build amd64

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The roles of jail's programs.
const (
	roleDaemon = "jaild"
	roleShim   = "shim"
	roleStage  = "shim-init" // libcontainer's stages, inside the new namespaces
	roleInit1  = "init"
	roleInit2  = "init2" // restricted
	roleMkfs   = "mkfs"
	roleClient = "client"
)

// role says which of jail's programs a thread belongs to, "" for none. What is forked has its parent's role until it executes.
func (t *tracer) role(tid int) string {
	if r, ok := t.roles[tid]; ok {
		return r
	}
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", tid))
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", tid))
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	role := ""
	switch base := strings.TrimSuffix(filepath.Base(exe), " (deleted)"); {
	case base == "jail", base == "jail-full":
		role = roleClient
	case base == "jaild":
		role = roleDaemon
	case strings.HasPrefix(base, "mkfs"), base == "mke2fs":
		role = roleMkfs
	case strings.HasSuffix(exe, "/run/jail/init"), base == "jail-init":
		role = roleInit1
		if len(args) == 2 && args[1] == "restricted" {
			role = roleInit2
		}
	case len(args) == 2 && args[1] == "init":
		role = roleStage
	case base == "jail-shim":
		role = roleShim
	}
	t.roles[tid] = role
	return role
}

// A call is one that makes a point, with what tells one use of it from another. ok is false for a use that is of no interest.
type call struct {
	name   string
	detail func(tid int, r *unix.PtraceRegs) (text string, ok bool)
}

func plain(int, *unix.PtraceRegs) (string, bool) { return "", true }

// number shows the first argument.
func number(_ int, r *unix.PtraceRegs) (string, bool) { return fmt.Sprintf("%#x", r.Rdi), true }

// path0 and the like show a path; which argument it is says the number.
func path0(tid int, r *unix.PtraceRegs) (string, bool) { return tidy(text(tid, r.Rdi)), true }
func path1(tid int, r *unix.PtraceRegs) (string, bool) { return tidy(at(tid, r.Rdi, r.Rsi)), true }
func path3(tid int, r *unix.PtraceRegs) (string, bool) { return tidy(at(tid, r.Rdx, r.R10)), true }

// fd0 shows what a descriptor is of.
func fd0(tid int, r *unix.PtraceRegs) (string, bool) { return tidy(file(tid, r.Rdi)), true }

// at is a path below a directory's descriptor; an empty one is the descriptor's own.
func at(tid int, dir, addr uint64) string {
	path := text(tid, addr)
	if path == "" || !filepath.IsAbs(path) && int32(dir) != unix.AT_FDCWD {
		return filepath.Join(file(tid, dir), path)
	}
	return path
}

// opened leaves out what is only read and found nowhere but on every system: what matters is what is written, and the kernel's files.
func opened(tid int, path string, flags uint64) (string, bool) {
	kind := "r "
	switch {
	case flags&unix.O_ACCMODE != 0 || flags&unix.O_CREAT != 0:
		kind = "w "
	case flags&unix.O_PATH != 0:
		kind = "p "
	}
	return kind + tidy(path), true
}

// written leaves out pipes and the runtime's own wake-ups.
func written(tid int, r *unix.PtraceRegs) (string, bool) {
	f := file(tid, r.Rdi)
	return tidy(f), !strings.HasPrefix(f, "pipe:") && !strings.HasPrefix(f, "anon_inode:") && !strings.HasPrefix(f, "/dev/null")
}

var calls = map[uint64]call{
	unix.SYS_UNSHARE: {"unshare", number}, unix.SYS_CLONE: {"clone", cloned}, unix.SYS_CLONE3: {"clone3", cloned3},
	unix.SYS_FORK: {"fork", plain}, unix.SYS_VFORK: {"vfork", plain},
	unix.SYS_SETNS: {"setns", func(_ int, r *unix.PtraceRegs) (string, bool) { return fmt.Sprintf("%#x", r.Rsi), true }},
	unix.SYS_MOUNT: {"mount", func(tid int, r *unix.PtraceRegs) (string, bool) {
		return fmt.Sprintf("%s %s %#x", tidy(text(tid, r.Rsi)), text(tid, r.Rdx), r.R10), true
	}},
	unix.SYS_UMOUNT2: {"umount2", path0}, unix.SYS_PIVOT_ROOT: {"pivot_root", path0}, unix.SYS_CHROOT: {"chroot", path0},
	unix.SYS_CHDIR: {"chdir", path0}, unix.SYS_FCHDIR: {"fchdir", fd0},
	unix.SYS_MOVE_MOUNT: {"move_mount", path3}, unix.SYS_OPEN_TREE: {"open_tree", path1}, unix.SYS_MOUNT_SETATTR: {"mount_setattr", path1},
	unix.SYS_FSOPEN: {"fsopen", path0}, unix.SYS_FSMOUNT: {"fsmount", plain}, unix.SYS_FSPICK: {"fspick", path1},
	unix.SYS_FSCONFIG: {"fsconfig", func(tid int, r *unix.PtraceRegs) (string, bool) {
		return fmt.Sprintf("%d %s", r.Rsi, text(tid, r.Rdx)), true
	}},
	unix.SYS_SETHOSTNAME: {"sethostname", plain}, unix.SYS_SETSID: {"setsid", plain}, unix.SYS_SETPGID: {"setpgid", plain},
	unix.SYS_SETRESUID: {"setresuid", number}, unix.SYS_SETRESGID: {"setresgid", number}, unix.SYS_SETUID: {"setuid", number},
	unix.SYS_SETGID: {"setgid", number}, unix.SYS_SETGROUPS: {"setgroups", number}, unix.SYS_SETFSUID: {"setfsuid", identity}, unix.SYS_SETFSGID: {"setfsgid", identity},
	unix.SYS_CAPSET: {"capset", plain}, unix.SYS_CAPGET: {"capget", plain}, unix.SYS_SETPRIORITY: {"setpriority", plain},
	unix.SYS_PRCTL: {"prctl", func(_ int, r *unix.PtraceRegs) (string, bool) {
		return fmt.Sprintf("%#x %#x", r.Rdi, low(r.Rsi)), r.Rdi != unix.PR_SET_VMA
	}},
	unix.SYS_SECCOMP:                 {"seccomp", func(_ int, r *unix.PtraceRegs) (string, bool) { return fmt.Sprintf("%d %#x", r.Rdi, r.Rsi), true }},
	unix.SYS_LANDLOCK_CREATE_RULESET: {"landlock_create_ruleset", func(_ int, r *unix.PtraceRegs) (string, bool) { return fmt.Sprintf("%#x", r.Rdx), true }},
	unix.SYS_LANDLOCK_ADD_RULE:       {"landlock_add_rule", plain}, unix.SYS_LANDLOCK_RESTRICT_SELF: {"landlock_restrict_self", plain},
	unix.SYS_OPEN:   {"open", func(tid int, r *unix.PtraceRegs) (string, bool) { return opened(tid, text(tid, r.Rdi), r.Rsi) }},
	unix.SYS_OPENAT: {"openat", func(tid int, r *unix.PtraceRegs) (string, bool) { return opened(tid, at(tid, r.Rdi, r.Rsi), r.Rdx) }},
	unix.SYS_OPENAT2: {"openat2", func(tid int, r *unix.PtraceRegs) (string, bool) {
		how := memory(tid, r.Rdx, 8)
		if len(how) < 8 {
			return "", false
		}
		return opened(tid, at(tid, r.Rdi, r.Rsi), binary.LittleEndian.Uint64(how))
	}},
	unix.SYS_WRITE: {"write", written}, unix.SYS_PWRITE64: {"pwrite64", written}, unix.SYS_WRITEV: {"writev", written},
	unix.SYS_SENDMSG: {"sendmsg", fd0}, unix.SYS_RECVMSG: {"recvmsg", fd0}, unix.SYS_SENDTO: {"sendto", fd0}, unix.SYS_RECVFROM: {"recvfrom", fd0},
	unix.SYS_SOCKETPAIR: {"socketpair", number}, unix.SYS_SOCKET: {"socket", number}, unix.SYS_BIND: {"bind", plain},
	unix.SYS_MKDIR: {"mkdir", path0}, unix.SYS_MKDIRAT: {"mkdirat", path1}, unix.SYS_RMDIR: {"rmdir", path0}, unix.SYS_UNLINK: {"unlink", path0},
	unix.SYS_UNLINKAT: {"unlinkat", path1}, unix.SYS_RENAME: {"rename", path0}, unix.SYS_RENAMEAT: {"renameat", path1}, unix.SYS_RENAMEAT2: {"renameat2", path1},
	unix.SYS_LINKAT: {"linkat", path1}, unix.SYS_SYMLINKAT: {"symlinkat", plain}, unix.SYS_MKNODAT: {"mknodat", path1},
	unix.SYS_CHMOD: {"chmod", path0}, unix.SYS_FCHMODAT: {"fchmodat", path1}, unix.SYS_FCHMOD: {"fchmod", fd0},
	unix.SYS_CHOWN: {"chown", path0}, unix.SYS_FCHOWN: {"fchown", fd0}, unix.SYS_FCHOWNAT: {"fchownat", path1}, unix.SYS_UTIMENSAT: {"utimensat", path1},
	unix.SYS_FSYNC: {"fsync", fd0}, unix.SYS_FDATASYNC: {"fdatasync", fd0}, unix.SYS_SYNCFS: {"syncfs", fd0}, unix.SYS_FTRUNCATE: {"ftruncate", fd0},
	unix.SYS_FALLOCATE: {"fallocate", fd0}, unix.SYS_FLOCK: {"flock", fd0}, unix.SYS_COPY_FILE_RANGE: {"copy_file_range", fd0}, unix.SYS_FSTATFS: {"fstatfs", fd0},
	unix.SYS_MEMFD_CREATE: {"memfd_create", path0}, unix.SYS_PIPE2: {"pipe2", plain}, unix.SYS_CLOSE_RANGE: {"close_range", number},
	unix.SYS_DUP3: {"dup3", plain}, unix.SYS_EXECVE: {"execve", path0}, unix.SYS_EXECVEAT: {"execveat", plain},
	unix.SYS_FCNTL: {"fcntl", func(_ int, r *unix.PtraceRegs) (string, bool) {
		return fmt.Sprintf("%#x %#x", r.Rsi, low(r.Rdx)), r.Rsi != unix.F_GETFL && r.Rsi != unix.F_SETFL && r.Rsi != unix.F_GETFD
	}},
	unix.SYS_IOCTL: {"ioctl", func(tid int, r *unix.PtraceRegs) (string, bool) {
		return fmt.Sprintf("%#x %s", r.Rsi, tidy(file(tid, r.Rdi))), true
	}},
	unix.SYS_PRLIMIT64: {"prlimit64", limited},
	unix.SYS_KILL:      {"kill", plain}, unix.SYS_PIDFD_OPEN: {"pidfd_open", plain}, unix.SYS_PIDFD_SEND_SIGNAL: {"pidfd_send_signal", plain},
	unix.SYS_WAIT4: {"wait4", plain}, unix.SYS_WAITID: {"waitid", plain}, unix.SYS_GETSOCKOPT: {"getsockopt", plain}, unix.SYS_GETGROUPS: {"getgroups", plain},
}

// cloned leaves out threads of the Go runtime, which ends the program where it cannot make one.
func cloned(_ int, r *unix.PtraceRegs) (string, bool) {
	return fmt.Sprintf("%#x", r.Rdi), r.Rdi&unix.CLONE_THREAD == 0
}

// cloned3 is cloned for the call that has its flags in memory (struct clone_args).
func cloned3(tid int, r *unix.PtraceRegs) (string, bool) {
	b := memory(tid, r.Rdi, 8)
	if len(b) < 8 {
		return "", false
	}
	flags := binary.LittleEndian.Uint64(b)
	return fmt.Sprintf("%#x", flags), flags&unix.CLONE_THREAD == 0
}

// limited is which limit is set, and whether the soft one alone, or no limit at all.
func limited(tid int, r *unix.PtraceRegs) (string, bool) {
	const size = 8
	what := fmt.Sprint(r.Rsi)
	switch now := memory(tid, r.Rdx, 2*size); {
	case len(now) < 2*size:
		return what, false
	case binary.LittleEndian.Uint64(now) == math.MaxUint64:
		what += " unlimited"
	case binary.LittleEndian.Uint64(now) < binary.LittleEndian.Uint64(now[size:]):
		what += " soft"
	}
	return what, true
}

// identity leaves out the question for the present id.
func identity(_ int, r *unix.PtraceRegs) (string, bool) {
	return tidy(fmt.Sprint(uint32(r.Rdi))), uint32(r.Rdi) != ^uint32(0)
}

// low leaves addresses out, which are others in each run.
func low(v uint64) uint64 {
	if v > 1<<31 {
		return 0
	}
	return v
}

func stopAtCalls(every bool) error {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	traced := slices.Collect(maps.Keys(calls))
	if every {
		traced = slices.DeleteFunc(slices.AppendSeq(traced, maps.Keys(more)), func(nr uint64) bool { _, ok := everyCall(nr); return !ok })
	}
	for _, nr := range traced {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_TRACE})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}

var (
	hexes  = regexp.MustCompile(`[0-9a-f]{12,}`)
	digits = regexp.MustCompile(`[0-9]+`)
)

// tidy makes what differs between two runs of the same the same: numbers of processes, descriptors and inodes, random names.
func tidy(s string) string {
	return digits.ReplaceAllString(hexes.ReplaceAllString(s, "H"), "N")
}

func file(tid int, fd uint64) string {
	if int32(fd) == unix.AT_FDCWD {
		return "cwd"
	}
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
	if err != nil {
		return "?"
	}
	return target
}

// memory reads from a thread's memory, less where there is less.
func memory(tid int, addr uint64, size int) []byte {
	buf := make([]byte, size)
	n, err := unix.ProcessVMReadv(tid, []unix.Iovec{{Base: &buf[0], Len: uint64(size)}}, []unix.RemoteIovec{{Base: uintptr(addr), Len: size}}, 0)
	if err != nil {
		return nil
	}
	return buf[:n]
}

func text(tid int, addr uint64) string {
	var all []byte
	for addr != 0 && len(all) < 4096 {
		part := memory(tid, addr, int(256-addr%256)) // never across a page
		if len(part) == 0 {
			break
		}
		if i := bytes.IndexByte(part, 0); i >= 0 {
			return string(append(all, part[:i]...))
		}
		all = append(all, part...)
		addr += uint64(len(part))
	}
	return string(all)
}

// carriesFiles reports whether a message that is about to be sent has descriptors with it (struct msghdr).
func carriesFiles(tid int, addr uint64) bool {
	const controlLen = 40
	b := memory(tid, addr+controlLen, 8)
	return len(b) == 8 && binary.LittleEndian.Uint64(b) > 0
}
