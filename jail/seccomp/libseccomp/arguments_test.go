package libseccomp_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/seccomp"
)

const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND |
	unix.CLONE_SYSVSEM | unix.CLONE_THREAD

// An argued call is one whose arguments decide, and in which filters it is allowed.
type argued struct {
	call string
	args []uint64
	// "w" for wasi, "i" for init, "n" for native
	in string
}

var arguedCalls = []argued{
	{"clone", []uint64{thread}, "win"},
	{"clone", []uint64{uint64(unix.SIGCHLD)}, "n"},
	{"clone", []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, "n"},
	{"clone", []uint64{thread | unix.CLONE_NEWUSER}, ""},
	{"clone", []uint64{thread | unix.CLONE_NEWNS}, ""},
	{"clone", []uint64{thread | unix.CLONE_NEWPID}, ""},
	{"clone", []uint64{thread | unix.CLONE_NEWNET}, ""},
	{"clone", []uint64{thread | unix.CLONE_NEWIPC}, ""},
	{"clone", []uint64{thread | unix.CLONE_NEWUTS}, ""},
	{"clone", []uint64{thread | unix.CLONE_NEWCGROUP}, ""},
	{"clone", []uint64{thread | unix.CLONE_NEWTIME}, ""},
	{"clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, ""},
	{"prctl", []uint64{unix.PR_SET_VMA}, "win"},
	{"prctl", []uint64{unix.PR_SET_DUMPABLE}, "i"}, {"prctl", []uint64{unix.PR_SET_PDEATHSIG},
		"in"}, {"prctl", []uint64{unix.PR_SET_NO_NEW_PRIVS}, "in"},
	{"prctl", []uint64{unix.PR_SET_NAME}, "n"}, {"prctl", []uint64{unix.PR_GET_NAME}, "n"},
	{"prctl", []uint64{unix.PR_GET_DUMPABLE}, "n"},
	{"prctl", []uint64{unix.PR_CAPBSET_READ}, "n"},
	{"prctl", []uint64{unix.PR_GET_NO_NEW_PRIVS}, "n"},
	{"prctl", []uint64{unix.PR_GET_SECCOMP}, "n"},
	{"prctl", []uint64{unix.PR_SET_SECCOMP}, ""}, {"prctl", []uint64{unix.PR_SET_SPECULATION_CTRL},
		""}, {"prctl", []uint64{unix.PR_SET_PTRACER}, ""},
	{"prctl", []uint64{unix.PR_SET_MM}, ""}, {"prctl", []uint64{unix.PR_CAP_AMBIENT}, ""},
	{"prctl", []uint64{unix.PR_SET_CHILD_SUBREAPER}, ""},
	{"recvmsg", []uint64{3}, "win"}, {"recvmsg", []uint64{4}, "in"}, {"recvmsg", []uint64{0}, "in"},
	{"sendmsg", []uint64{4}, "win"}, {"sendmsg", []uint64{3}, "in"}, {"sendmsg", []uint64{5}, "in"},
	{"ioctl", []uint64{0, unix.TCGETS}, "n"}, {"ioctl", []uint64{0, unix.TIOCGWINSZ}, "n"},
	{"ioctl", []uint64{0, unix.TIOCGPGRP}, "n"}, {"ioctl", []uint64{0, 0x541b}, "n"},
	{"ioctl", []uint64{0, 0x5421}, "n"}, {"ioctl", []uint64{0, 0x5451}, "n"},
	{"ioctl", []uint64{0, 0x5450}, "n"},
	{"ioctl", []uint64{0, 0x40049409}, "n"}, // FICLONE
	// Of a terminal of the jail's own.
	{"ioctl", []uint64{0, unix.TCSETS}, "n"}, {"ioctl", []uint64{0, unix.TCSETSW}, "n"},
	{"ioctl", []uint64{0, unix.TCSETSF}, "n"}, {"ioctl", []uint64{0, unix.TCSBRK}, "n"},
	{"ioctl", []uint64{0, unix.TCXONC}, "n"}, {"ioctl", []uint64{0, unix.TCFLSH}, "n"},
	{"ioctl", []uint64{0, unix.TIOCSCTTY}, "n"}, {"ioctl", []uint64{0, unix.TIOCNOTTY}, "n"},
	{"ioctl", []uint64{0, 0x5429}, "n"}, // TIOCGSID
	{"ioctl", []uint64{0, unix.TIOCSPGRP}, "n"}, {"ioctl", []uint64{0, unix.TIOCSWINSZ}, "n"},
	{"ioctl", []uint64{0, unix.TIOCOUTQ}, "n"}, {"ioctl", []uint64{0, unix.TIOCPKT}, "n"},
	{"ioctl", []uint64{0, unix.TIOCGPTN}, "n"}, {"ioctl", []uint64{0, unix.TIOCSPTLCK}, "n"},
	{"ioctl", []uint64{0, unix.TIOCGPTPEER}, "n"}, {"ioctl", []uint64{0, unix.TCGETS2}, "n"},
	{"ioctl", []uint64{0, unix.TCSETS2}, "n"}, {"ioctl", []uint64{0, unix.TCSETSW2}, "n"},
	{"ioctl", []uint64{0, unix.TCSETSF2}, "n"},
	{"mknod", []uint64{0, unix.S_IFIFO | 0o600, 0}, "n"},
	{"mknod", []uint64{0, unix.S_IFCHR | 0o600, 0}, ""},
	{"mknod", []uint64{0, unix.S_IFBLK | 0o600, 0}, ""}, {"mknod", []uint64{0, 0o600, 0}, ""},
	{"mknodat", []uint64{0, 0, unix.S_IFIFO | 0o600, 0}, "n"},
	{"mknodat", []uint64{0, 0, unix.S_IFCHR | 0o600, 0}, ""},
	{"mknodat", []uint64{0, 0, unix.S_IFSOCK | 0o600, 0}, ""},
	{"ioctl", []uint64{0, unix.TIOCSTI}, ""}, {"ioctl", []uint64{0, 0x541c}, ""},
	{"ioctl", []uint64{0, unix.TIOCSETD}, ""},
	{"ioctl", []uint64{0, unix.FS_IOC_SETFLAGS}, ""},
	{"fcntl", []uint64{0, unix.F_GETFD}, "win"}, {"fcntl", []uint64{0, unix.F_SETFD}, "win"},
	{"fcntl", []uint64{0, unix.F_GETFL}, "win"}, {"fcntl", []uint64{0, unix.F_SETFL}, "win"},
	{"fcntl", []uint64{0, unix.F_DUPFD_CLOEXEC}, "win"}, {"fcntl", []uint64{0, unix.F_SETLK}, "n"},
	{"fcntl", []uint64{0, unix.F_OFD_SETLK}, "n"},
	{"fcntl", []uint64{0, unix.F_SETLEASE}, "n"}, {"fcntl", []uint64{0, unix.F_SETOWN}, "n"},
	{"fcntl", []uint64{0, unix.F_NOTIFY}, "n"},
	{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, "n"},
	{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, "n"},
	{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_DGRAM, 0}, "n"},
	{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC, 0}, "n"},
	{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_RAW, 0}, ""},
	{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_DGRAM, 1}, ""},
	{"socketpair", []uint64{unix.AF_INET, unix.SOCK_DGRAM, 0}, ""},
	{"socketpair", []uint64{unix.AF_TIPC, unix.SOCK_STREAM, 0}, ""},
	{"shmget", []uint64{0, 4096, unix.IPC_CREAT | unix.IPC_EXCL | 0o600}, "n"},
	{"shmget", []uint64{0, 4096, unix.IPC_CREAT | 0o4000 | 0o600}, ""}, // SHM_HUGETLB
	{"shmctl", []uint64{0, unix.IPC_RMID}, "n"}, {"shmctl", []uint64{0, unix.IPC_STAT}, "n"},
	{"shmctl", []uint64{0, unix.IPC_SET}, ""},
	{"shmctl", []uint64{0, 11}, ""}, // SHM_LOCK
	{"shmctl", []uint64{0, 13}, ""}, // SHM_STAT
}

// TestArguments: upper bits that the kernel does not read change nothing (T-030, T-052).
func TestArguments(t *testing.T) {
	for name, f := range filters() {
		program := compile(t, f)
		for _, c := range append(arguedCalls, sockets()...) {
			want := false
			for _, in := range c.in {
				want = want || byte(in) == name[0]
			}
			number := number(t, c.call)
			for _, garbage := range []uint64{0, 1 << 32, 1 << 40, 0xffffffff << 32} {
				args := append([]uint64{}, c.args...)
				for i := range args {
					args[i] |= garbage
				}
				if got := run(t, program, data(x64, number, args...)) == retAllow; got != want {
					t.Errorf("filter %s: %s(%#x) is allowed: %v", name, c.call, args, got)
				}
			}
		}
	}
}

// sockets are all families, with all types and the protocols that matter: the native filter has
// streams of three of them (T-062, T-071 to T-074, T-251).
func sockets() []argued {
	const families, types = 64, 16
	var all []argued
	for family := range uint64(families) {
		for kind := range uint64(types) {
			for _, protocol := range []uint64{0, 1, unix.IPPROTO_TCP, unix.IPPROTO_UDP,
				unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, unix.IPPROTO_RAW, 256,
				unix.IPPROTO_MPTCP} {
				for _, flags := range []uint64{0, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK} {
					in := ""
					inet := (family == unix.AF_INET || family == unix.AF_INET6) && (protocol == 0 ||
						protocol == unix.IPPROTO_TCP)
					if kind == unix.SOCK_STREAM && (inet || family == unix.AF_UNIX &&
						protocol == 0) {
						in = "n"
					}
					all = append(all,
						argued{"socket", []uint64{family, kind | flags, protocol}, in})
				}
			}
		}
	}
	return all
}

// TestConditionsAreTried: no condition of a filter is there for nothing that a test asks about.
func TestConditionsAreTried(t *testing.T) {
	for name, f := range filters() {
		for _, c := range f.Only {
			program := compile(t, seccomp.Filter{Allow: []string{c.Call},
				Only: []seccomp.Condition{c}, Errno: "EPERM"})
			tried := false
			for _, a := range append(arguedCalls, sockets()...) {
				tried = tried || a.call == c.Call && run(t, program,
					data(x64, number(t, c.Call), a.args...)) == retAllow
			}
			if !tried {
				t.Errorf("filter %s: no test asks for %v", name, c)
			}
		}
	}
}
