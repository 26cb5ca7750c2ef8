// uses makes each system call that a program of the host may make, once, as programs do that have a use for it. Its arguments are the names of
// calls, or "terminal" for what is asked of one. It runs in a directory that may be written to. What does not work is said on standard error, and its exit code is 1.
#define _GNU_SOURCE
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CALL(...) syscall(__VA_ARGS__)
#define HERE AT_FDCWD

static char buf[4096];
static struct stat st;
static struct timespec ts;
static struct itimerval it;
static int sv[2], p[2];

// Things that other calls need. Each is made anew for each use.
static int file(void) { unlink("f"); int fd = open("f", O_RDWR | O_CREAT, 0600); if (write(fd, "text", 4) != 4) return -1; lseek(fd, 0, 0); return fd; }
static int pipes(void) { if (pipe2(p, 0) < 0) return -1; return write(p[1], "x", 1) == 1 ? p[0] : -1; }
static int pair(void) { return CALL(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, sv) < 0 ? -1 : sv[0]; }
static struct sockaddr_un name(int n) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	sprintf(a.sun_path + 1, "uses-%d", n); // in the jail's own network namespace
	return a;
}
static int bound(struct sockaddr_un *a) {
	static int n;
	*a = name(++n);
	int fd = CALL(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return bind(fd, (struct sockaddr *)a, sizeof *a) < 0 ? -1 : fd;
}
static int waiting(void) { // a listener with a pending connection
	struct sockaddr_un a;
	int fd = bound(&a), c = CALL(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
	if (listen(fd, 1) < 0 || connect(c, (struct sockaddr *)&a, sizeof a) < 0) return -1;
	return fd;
}
static int epoll(void) {
	int e = epoll_create1(0);
	struct epoll_event ev = {.events = EPOLLIN};
	return epoll_ctl(e, EPOLL_CTL_ADD, pipes(), &ev) < 0 ? -1 : e;
}
static void nothing(int s) { (void)s; }
static int child(void) { return CALL(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static int end_of(int pid) { int s; return pid > 0 && CALL(SYS_wait4, pid, &s, 0, 0) == pid && s == 0 ? 0 : -1; }
static timer_t timer(void) { int id = 0; struct sigevent ev = {.sigev_notify = SIGEV_NONE}; return CALL(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id) < 0 ? (timer_t)-1 : (timer_t)(long)id; }
static struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
static void alarm_soon(void) {
	signal(SIGALRM, nothing);
	struct itimerval v = {.it_value = {.tv_usec = 20000}, .it_interval = {.tv_usec = 20000}};
	setitimer(ITIMER_REAL, &v, 0);
}
static int quiet(void) { struct itimerval v = {0}; return setitimer(ITIMER_REAL, &v, 0); }
static int block(int sig) { sigset_t s; sigemptyset(&s); sigaddset(&s, sig); return sigprocmask(SIG_BLOCK, &s, 0); }
static unsigned long mask(int sig) { return 1UL << (sig - 1); }

// Calls that take more than one line.
static long use_clone(void) { int c = CALL(SYS_clone, SIGCHLD, 0, 0, 0, 0); if (c == 0) _exit(0); return end_of(c); }
static long use_fork(void) { int c = CALL(SYS_fork); if (c == 0) _exit(0); return end_of(c); }
static long use_vfork(void) { return end_of(({ int c = vfork(); if (c == 0) _exit(0); c; })); }
static long use_execve(void) {
	int c = child();
	char *args[] = {"/prog/uses", "getpid", 0}, *env[] = {0};
	if (c == 0) _exit(CALL(SYS_execve, "/prog/uses", args, env) < 0);
	return end_of(c);
}
static long use_exit(void) { int c = child(); if (c == 0) { CALL(SYS_exit, 0); _exit(1); } return end_of(c); }
static long use_wait4(void) { int c = child(); if (c == 0) _exit(0); return CALL(SYS_wait4, c, 0, 0, 0); }
static long use_waitid(void) { int c = child(); if (c == 0) _exit(0); return CALL(SYS_waitid, P_PID, c, 0, WEXITED, 0); }
static long use_setsid(void) { int c = child(); if (c == 0) _exit(CALL(SYS_setsid) < 0); return end_of(c); }
static long use_setpgid(void) { int c = child(); if (c == 0) _exit(CALL(SYS_setpgid, 0, 0) < 0); return end_of(c); }
static long use_sigreturn(void) { signal(SIGUSR1, nothing); return CALL(SYS_tgkill, getpid(), gettid(), SIGUSR1); }
static long use_pause(void) { alarm_soon(); long r = CALL(SYS_pause); int e = errno; quiet(); return r < 0 && e == EINTR ? 0 : (errno = e, -1); }
static long use_sigsuspend(void) {
	unsigned long none = 0;
	alarm_soon();
	long r = CALL(SYS_rt_sigsuspend, &none, 8);
	int e = errno;
	quiet();
	return r < 0 && e == EINTR ? 0 : (errno = e, -1);
}
static long use_sigtimedwait(void) {
	unsigned long m = mask(SIGUSR2);
	block(SIGUSR2);
	CALL(SYS_tgkill, getpid(), gettid(), SIGUSR2);
	return CALL(SYS_rt_sigtimedwait, &m, 0, 0, 8);
}
static long use_sigaltstack(void) { stack_t s = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}; return CALL(SYS_sigaltstack, &s, 0); }
static long use_sigpending(void) { unsigned long m; return CALL(SYS_rt_sigpending, &m, 8); }
static long use_signalfd4(void) { unsigned long m = mask(SIGUSR2); return CALL(SYS_signalfd4, -1, &m, 8, 0); }
static long use_sigaction(void) { struct { void *h; unsigned long flags; void *r; unsigned long m; } old; return CALL(SYS_rt_sigaction, SIGHUP, 0, &old, 8); }
static long use_restart(void) { // a wait goes on after its process was stopped
	int c = child();
	if (c == 0) { ts = (struct timespec){.tv_nsec = 300000000}; _exit(CALL(SYS_nanosleep, &ts, 0) < 0); }
	for (int i = 0; i < 3; i++) { usleep(30000); kill(c, SIGSTOP); usleep(10000); kill(c, SIGCONT); }
	return end_of(c);
}
static long use_mremap(void) { void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); return CALL(SYS_mremap, m, 4096, 8192, MREMAP_MAYMOVE, 0) == -1 ? -1 : 0; }
static long use_msync(void) { int fd = file(); void *m = mmap(0, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); return CALL(SYS_msync, m, 4096, MS_SYNC); }
static long use_madvise(void) { void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); return CALL(SYS_madvise, m, 4096, MADV_DONTNEED); }
static long use_mprotect(void) { void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); return CALL(SYS_mprotect, m, 4096, PROT_READ | PROT_WRITE); }
static long use_munmap(void) { void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); return CALL(SYS_munmap, m, 4096); }
static long use_robust(void) { static struct { void *a; long b; void *c; } head; head.a = &head; return CALL(SYS_set_robust_list, &head, sizeof head); }
static long use_rseq(void) { // the C library's own start has used it, and a second place is refused by the kernel
	static char area[32] __attribute__((aligned(32)));
	return CALL(SYS_rseq, area, 32, 0, 0x53053053) < 0 && errno != EINVAL && errno != EBUSY ? -1 : 0;
}
static long use_prctl(void) {
	static char what[16];
	long r = CALL(SYS_prctl, PR_SET_PDEATHSIG, 0) | CALL(SYS_prctl, PR_GET_DUMPABLE) | CALL(SYS_prctl, PR_SET_NAME, "uses") | CALL(SYS_prctl, PR_GET_NAME, what) |
		CALL(SYS_prctl, PR_CAPBSET_READ, 0) | CALL(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) | CALL(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) | (CALL(SYS_prctl, PR_GET_SECCOMP) == 2 ? 0 : -1);
	void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (CALL(SYS_prctl, 0x53564d41, 0, m, 4096, "uses") < 0 && errno != EINVAL) return -1; // a kernel may be built without
	return r;
}
static long use_pairs(void) {
	static int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
	long r = 0;
	for (int i = 0; i < 3; i++) r |= CALL(SYS_socketpair, AF_UNIX, types[i], 0, sv);
	return r;
}
// A segment is made, attached, looked at and removed by each of its calls, whatever of them is refused.
static long use_segment(long nr) {
	struct shmid_ds ds;
	long id = CALL(SYS_shmget, IPC_PRIVATE, 4096, 0600);
	void *at = (void *)CALL(SYS_shmat, id, 0, 0);
	long r = CALL(SYS_shmctl, id, IPC_STAT, &ds) | CALL(SYS_shmdt, at);
	return CALL(SYS_shmctl, id, IPC_RMID, 0) | r | (id < 0 ? -1 : 0);
}
static long use_locked(long nr) {
	void *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return CALL(SYS_mlock, m, 4096) | CALL(SYS_munlock, m, 4096);
}
static long use_ioctl(void) { // the first ones ask a file whether it is a terminal, or one that can be cloned
	int fd = pipes(), one = 1, refused = 0;
	int asked[] = {TCGETS, TIOCGPGRP, TIOCGWINSZ, FICLONE};
	for (int i = 0; i < 4; i++) refused |= CALL(SYS_ioctl, fd, asked[i], i == 3 ? (void *)0L : (void *)buf) < 0 && errno == EPERM;
	return CALL(SYS_ioctl, fd, FIONREAD, &one) | CALL(SYS_ioctl, fd, FIONBIO, &one) | CALL(SYS_ioctl, fd, FIONCLEX) | CALL(SYS_ioctl, fd, FIOCLEX) | -refused;
}
enum { on = 1, both = 2 }; // of termios.h, which does not go together with termbits.h
static long use_terminal(void) { // of its own: it is in front of the caller's, and makes another
	char t2[64];
	struct winsize w;
	int v = 0, sid, master, slave, front = getpgrp();
	long r = CALL(SYS_ioctl, 0, TCGETS, buf) | CALL(SYS_ioctl, 0, TCSETS, buf) | CALL(SYS_ioctl, 0, TCSETSW, buf) | CALL(SYS_ioctl, 0, TCSETSF, buf) |
		CALL(SYS_ioctl, 0, TCSBRK, 1) | CALL(SYS_ioctl, 0, TCXONC, on) | CALL(SYS_ioctl, 0, TCFLSH, both) | CALL(SYS_ioctl, 0, TIOCGSID, &sid) |
		CALL(SYS_ioctl, 0, TIOCGWINSZ, &w) | CALL(SYS_ioctl, 0, TIOCSWINSZ, &w) | CALL(SYS_ioctl, 0, TIOCSPGRP, &front) | CALL(SYS_ioctl, 0, TIOCGPGRP, &front) |
		CALL(SYS_ioctl, 0, TIOCOUTQ, &v) | CALL(SYS_ioctl, 0, TCGETS2, t2) | CALL(SYS_ioctl, 0, TCSETS2, t2) | CALL(SYS_ioctl, 0, TCSETSW2, t2) | CALL(SYS_ioctl, 0, TCSETSF2, t2);
	if ((master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY)) < 0) return -1;
	r |= CALL(SYS_ioctl, master, TIOCGPTN, &v) | CALL(SYS_ioctl, master, TIOCSPTLCK, (int[]){0}) | CALL(SYS_ioctl, master, TIOCPKT, (int[]){1});
	slave = CALL(SYS_ioctl, master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
	signal(SIGHUP, SIG_IGN);
	signal(SIGCONT, SIG_IGN);
	return r | CALL(SYS_ioctl, 0, TIOCNOTTY) | CALL(SYS_ioctl, slave < 0 ? 0 : slave, TIOCSCTTY, 0);
}
static long use_socket(void) {
	int kinds[][2] = {{AF_UNIX, 0}, {AF_INET, 0}, {AF_INET, IPPROTO_TCP}, {AF_INET6, 0}, {AF_INET6, IPPROTO_TCP}};
	int refused = 0; // datagrams and netlink: TestNativeLinks
	for (int i = 0; i < 5; i++) refused |= CALL(SYS_socket, kinds[i][0], SOCK_STREAM | SOCK_CLOEXEC, kinds[i][1]) < 0 && errno == EPERM; // a kernel may have no IPv6
	return -refused;
}
static long use_bind(void) { struct sockaddr_un a; return bound(&a); }
static long use_listen(void) { struct sockaddr_un a; return CALL(SYS_listen, bound(&a), 1); }
static long use_names(int call) { struct sockaddr_un a; socklen_t n = sizeof a; return CALL(call, pair(), &a, &n); }
static long use_sockopt(int call) { int v = 1; socklen_t n = sizeof v; int fd = pair(); return call == SYS_setsockopt ? CALL(call, fd, SOL_SOCKET, SO_KEEPALIVE, &v, n) : CALL(call, fd, SOL_SOCKET, SO_TYPE, &v, &n); }
static long use_messages(int call) {
	struct iovec v = {buf, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	pair();
	if (write(sv[1], "x", 1) != 1) return -1;
	return CALL(call, sv[0], &m, 0);
}
static long use_received(void) { pair(); if (write(sv[1], "x", 1) != 1) return -1; return CALL(SYS_recvfrom, sv[0], buf, 1, 0, 0, 0); }
static long use_poll(int call) {
	struct pollfd f = {.fd = pipes(), .events = POLLIN};
	fd_set r;
	FD_ZERO(&r);
	FD_SET(f.fd, &r);
	ts = (struct timespec){.tv_sec = 1};
	struct timeval tv = {.tv_sec = 1};
	switch (call) {
	case SYS_poll: return CALL(call, &f, 1, 1000);
	case SYS_ppoll: return CALL(call, &f, 1, &ts, 0, 8);
	case SYS_select: return CALL(call, f.fd + 1, &r, 0, 0, &tv);
	}
	return CALL(call, f.fd + 1, &r, 0, 0, &ts, 0);
}
static long use_epoll(int call) {
	struct epoll_event ev;
	int e = epoll();
	ts = (struct timespec){.tv_sec = 1};
	if (call == SYS_epoll_pwait2) return CALL(call, e, &ev, 1, &ts, 0, 8);
	return CALL(call, e, &ev, 1, 1000, 0, 8);
}
static long use_timer(int call) {
	timer_t t = timer();
	if (t == (timer_t)-1) return -1;
	return call == SYS_timer_settime ? CALL(call, t, 0, &soon, 0) : CALL(SYS_timer_delete, t);
}
static long use_timerfd(int call) {
	int fd = CALL(SYS_timerfd_create, CLOCK_MONOTONIC, 0);
	struct itimerspec now;
	return call == SYS_timerfd_settime ? CALL(call, fd, 0, &soon, 0) : CALL(call, fd, &now);
}
static long use_inotify(int call) {
	int fd = CALL(SYS_inotify_init1, 0), w = CALL(SYS_inotify_add_watch, fd, ".", IN_CREATE);
	return call == SYS_inotify_rm_watch ? CALL(call, fd, w) : w;
}
static long use_openat2(void) { struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH}; return CALL(SYS_openat2, HERE, ".", &how, sizeof how); }
static long use_iov(int call) {
	struct iovec v = {buf, 2};
	int fd = file();
	return CALL(call, fd, &v, 1, 0, 0, 0);
}
static long use_copy(int call) {
	int from = file(), to = open("g", O_RDWR | O_CREAT | O_TRUNC, 0600);
	return call == SYS_sendfile ? CALL(call, to, from, 0, 4) : CALL(call, from, 0, to, 0, 4, 0);
}
static long use_futex(void) { int v = 0; return CALL(SYS_futex, &v, FUTEX_WAKE, 1, 0, 0, 0); }
static long use_xattr(int call) { // none is there, and there may be none
	int fd = file();
	long r = call == SYS_fgetxattr ? CALL(call, fd, "user.x", buf, 8) : call == SYS_flistxattr ? CALL(call, fd, buf, 8) :
		call == SYS_getxattr || call == SYS_lgetxattr ? CALL(call, "f", "user.x", buf, 8) : CALL(call, "f", buf, 64);
	return r < 0 && errno != ENODATA && errno != ENOTSUP && errno != ERANGE ? -1 : 0;
}
static long use_dirs(int call) { rmdir("d"); if (call == SYS_rmdir) { if (mkdir("d", 0700) < 0) return -1; return CALL(call, "d"); } return call == SYS_mkdir ? CALL(call, "d", 0700) : CALL(call, HERE, "d", 0700); }
static long use_names_of_files(int call) {
	file();
	unlink("g");
	switch (call) {
	case SYS_unlink: return CALL(call, "f");
	case SYS_unlinkat: return CALL(call, HERE, "f", 0);
	case SYS_rename: case SYS_link: case SYS_symlink: return CALL(call, "f", "g");
	case SYS_renameat: return CALL(call, HERE, "f", HERE, "g");
	case SYS_symlinkat: return CALL(call, "f", HERE, "g");
	}
	return CALL(call, HERE, "f", HERE, "g", 0); // renameat2, linkat
}
static long use_readlink(int call) { unlink("g"); if (symlink("f", "g") < 0) return -1; return call == SYS_readlink ? CALL(call, "g", buf, 64) : CALL(call, HERE, "g", buf, 64); }
static long use_close_range(void) { int fd = file(); return CALL(SYS_close_range, fd, fd, 0); }
static long use_pwrite(int call) { return CALL(call, file(), "x", 1, 0); }
static long use_pread(int call) { return CALL(call, file(), buf, 1, 0); }
static long use_dup(int call) { int fd = file(); return call == SYS_dup ? CALL(call, fd) : CALL(call, fd, 100, 0); }
static long use_old_getdents(void) { return CALL(SYS_getdents, open(".", O_RDONLY | O_DIRECTORY), buf, sizeof buf); }
static long use_getdents(void) { return CALL(SYS_getdents64, open(".", O_RDONLY | O_DIRECTORY), buf, sizeof buf); }
static long use_fchdir(void) { return CALL(SYS_fchdir, open(".", O_RDONLY | O_DIRECTORY)); }
static long use_rlimit(int call) { struct rlimit l; return CALL(SYS_getrlimit, RLIMIT_CORE, &l) | (call == SYS_setrlimit ? CALL(call, RLIMIT_CORE, &l) : 0); }
static long use_prlimit(void) { struct rlimit l; return CALL(SYS_prlimit64, 0, RLIMIT_CORE, 0, &l); }
static long use_ids(int call) { unsigned a, b, c; return CALL(call, &a, &b, &c); }
static long use_arch(void) { long v; return CALL(SYS_arch_prctl, 0x1003, &v); } // ARCH_GET_FS

struct use { const char *name; long (*f)(void); long (*g)(int); int nr; };
#define F(n, f) {#n, f, 0, 0}
#define G(n, g) {#n, 0, g, SYS_##n}
#define E(n, e) static long e_##n(void) { return e; }
E(mmap, (long)mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == -1 ? -1 : 0)
E(brk, CALL(SYS_brk, 0) > 0 ? 0 : -1)
E(membarrier, CALL(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0))
E(exit_group, 0)
E(set_tid_address, CALL(SYS_set_tid_address, buf))
E(getpid, CALL(SYS_getpid)) E(getppid, CALL(SYS_getppid)) E(gettid, CALL(SYS_gettid)) E(getuid, CALL(SYS_getuid)) E(geteuid, CALL(SYS_geteuid))
E(getgid, CALL(SYS_getgid)) E(getegid, CALL(SYS_getegid)) E(getgroups, CALL(SYS_getgroups, 0, 0)) E(getpgrp, CALL(SYS_getpgrp))
E(getpgid, CALL(SYS_getpgid, 0)) E(getsid, CALL(SYS_getsid, 0)) E(sched_yield, CALL(SYS_sched_yield))
E(sched_getaffinity, CALL(SYS_sched_getaffinity, 0, 128, buf))
E(getrusage, CALL(SYS_getrusage, RUSAGE_SELF, buf)) E(times, CALL(SYS_times, buf))
E(rt_sigprocmask, CALL(SYS_rt_sigprocmask, SIG_BLOCK, 0, buf, 8))
E(kill, CALL(SYS_kill, getpid(), 0)) E(tgkill, CALL(SYS_tgkill, getpid(), gettid(), 0))
E(alarm, CALL(SYS_alarm, 0)) E(setitimer, CALL(SYS_setitimer, ITIMER_REAL, &it, 0)) E(getitimer, CALL(SYS_getitimer, ITIMER_REAL, &it))
E(clock_gettime, CALL(SYS_clock_gettime, CLOCK_MONOTONIC, &ts)) E(clock_getres, CALL(SYS_clock_getres, CLOCK_MONOTONIC, &ts))
E(clock_nanosleep, (ts = (struct timespec){.tv_nsec = 1}, CALL(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, 0)))
E(nanosleep, (ts = (struct timespec){.tv_nsec = 1}, CALL(SYS_nanosleep, &ts, 0)))
E(gettimeofday, CALL(SYS_gettimeofday, buf, 0)) E(time, CALL(SYS_time, 0))
E(timer_create, (long)timer() == -1 ? -1 : 0) E(timerfd_create, CALL(SYS_timerfd_create, CLOCK_MONOTONIC, 0))
E(open, CALL(SYS_open, ".", O_RDONLY)) E(openat, CALL(SYS_openat, HERE, ".", O_RDONLY)) E(close, CALL(SYS_close, file()))
E(stat, CALL(SYS_stat, ".", &st)) E(fstat, CALL(SYS_fstat, 0, &st)) E(lstat, CALL(SYS_lstat, ".", &st)) E(newfstatat, CALL(SYS_newfstatat, HERE, ".", &st, 0))
E(statx, CALL(SYS_statx, HERE, ".", 0, 0x7ff, buf)) E(statfs, CALL(SYS_statfs, ".", buf)) E(fstatfs, CALL(SYS_fstatfs, file(), buf))
E(access, CALL(SYS_access, ".", R_OK)) E(faccessat, CALL(SYS_faccessat, HERE, ".", R_OK)) E(faccessat2, CALL(SYS_faccessat2, HERE, ".", R_OK, 0))
E(chmod, (file(), CALL(SYS_chmod, "f", 0600))) E(fchmod, CALL(SYS_fchmod, file(), 0600)) E(fchmodat, (file(), CALL(SYS_fchmodat, HERE, "f", 0600)))
E(utimes, (file(), CALL(SYS_utimes, "f", 0))) E(utimensat, (file(), CALL(SYS_utimensat, HERE, "f", 0, 0)))
E(truncate, (file(), CALL(SYS_truncate, "f", 1))) E(ftruncate, CALL(SYS_ftruncate, file(), 1)) E(fallocate, CALL(SYS_fallocate, file(), 0, 0, 4096))
E(fsync, CALL(SYS_fsync, file())) E(fdatasync, CALL(SYS_fdatasync, file())) E(sync_file_range, CALL(SYS_sync_file_range, file(), 0, 0, 0))
E(fadvise64, CALL(SYS_fadvise64, file(), 0, 0, 0)) E(flock, CALL(SYS_flock, file(), 2)) E(getcwd, CALL(SYS_getcwd, buf, sizeof buf))
E(chdir, CALL(SYS_chdir, ".")) E(umask, CALL(SYS_umask, 022)) E(inotify_init1, CALL(SYS_inotify_init1, 0))
E(read, CALL(SYS_read, file(), buf, 1)) E(write, CALL(SYS_write, file(), "x", 1)) E(lseek, CALL(SYS_lseek, file(), 0, 0))
E(fcntl, CALL(SYS_fcntl, 0, F_GETFL)) E(pipe, CALL(SYS_pipe, p)) E(pipe2, CALL(SYS_pipe2, p, 0)) E(eventfd2, CALL(SYS_eventfd2, 0, 0))
E(epoll_create, CALL(SYS_epoll_create, 1)) E(epoll_create1, CALL(SYS_epoll_create1, 0)) E(epoll_ctl, epoll())
E(connect, waiting()) E(accept, CALL(SYS_accept, waiting(), 0, 0)) E(accept4, CALL(SYS_accept4, waiting(), 0, 0, 0))
E(shutdown, CALL(SYS_shutdown, pair(), SHUT_WR)) E(sendto, CALL(SYS_sendto, pair(), "x", 1, 0, 0, 0))
static long use_node(int call) { unlink("fifo"); return call == SYS_mknod ? CALL(call, "fifo", S_IFIFO | 0600, 0) : CALL(call, HERE, "fifo", S_IFIFO | 0600, 0); }
E(setresuid, CALL(SYS_setresuid, getuid(), getuid(), getuid())) E(setresgid, CALL(SYS_setresgid, getgid(), getgid(), getgid()))
E(chown, (file(), CALL(SYS_chown, "f", getuid(), getgid()))) E(fchown, CALL(SYS_fchown, file(), getuid(), getgid()))
E(lchown, (file(), CALL(SYS_lchown, "f", getuid(), getgid()))) E(fchownat, (file(), CALL(SYS_fchownat, HERE, "f", getuid(), getgid(), 0)))
E(creat, CALL(SYS_creat, "f", 0600)) E(getpriority, CALL(SYS_getpriority, PRIO_PROCESS, 0)) E(setpriority, CALL(SYS_setpriority, PRIO_PROCESS, 0, 19))
E(uname, CALL(SYS_uname, buf)) E(sysinfo, CALL(SYS_sysinfo, buf)) E(getrandom, CALL(SYS_getrandom, buf, 8, 0)) E(capget, (memcpy(buf, (int[]){0x20080522, 0}, 8), CALL(SYS_capget, buf, buf + 8))) E(getcpu, CALL(SYS_getcpu, 0, 0, 0))
E(setuid, CALL(SYS_setuid, getuid())) E(setgid, CALL(SYS_setgid, getgid()))
E(capset, (memset(buf, 0, 64), memcpy(buf, (int[]){0x20080522, 0}, 8), CALL(SYS_capset, buf, buf + 8)))
#define S(n) {#n, e_##n, 0, 0}

static struct use uses[] = {
	S(mmap), F(munmap, use_munmap), F(mprotect, use_mprotect), F(mremap, use_mremap), F(madvise, use_madvise), S(brk), F(msync, use_msync), S(membarrier),
	F(clone, use_clone), F(fork, use_fork), F(vfork, use_vfork), F(execve, use_execve), F(exit, use_exit), S(exit_group), F(wait4, use_wait4), F(waitid, use_waitid),
	F(futex, use_futex), F(set_robust_list, use_robust), F(rseq, use_rseq), S(set_tid_address), F(arch_prctl, use_arch), F(prctl, use_prctl), S(getpid), S(getppid), S(gettid),
	S(getuid), S(geteuid), S(getgid), S(getegid), S(getgroups), G(getresuid, use_ids), G(getresgid, use_ids), S(getpgrp), S(getpgid), F(setpgid, use_setpgid), S(getsid),
	F(setsid, use_setsid), S(sched_yield), S(sched_getaffinity), G(getrlimit, use_rlimit), G(setrlimit, use_rlimit), F(prlimit64, use_prlimit), S(getrusage), S(times),
	F(rt_sigaction, use_sigaction), S(rt_sigprocmask), F(rt_sigreturn, use_sigreturn), F(rt_sigsuspend, use_sigsuspend), F(rt_sigpending, use_sigpending),
	F(rt_sigtimedwait, use_sigtimedwait), F(sigaltstack, use_sigaltstack), F(signalfd4, use_signalfd4), S(kill), S(tgkill), F(pause, use_pause), S(alarm), S(setitimer),
	S(getitimer), F(restart_syscall, use_restart), S(clock_gettime), S(clock_getres), S(clock_nanosleep), S(nanosleep), S(gettimeofday), S(time), S(timer_create),
	G(timer_settime, use_timer), G(timer_delete, use_timer), S(timerfd_create), G(timerfd_settime, use_timerfd), G(timerfd_gettime, use_timerfd), S(open), S(openat),
	F(openat2, use_openat2), S(close), F(close_range, use_close_range), S(stat), S(fstat), S(lstat), S(newfstatat), S(statx), S(statfs), S(fstatfs), S(access), S(faccessat),
	S(faccessat2), G(readlink, use_readlink), G(readlinkat, use_readlink), G(mkdir, use_dirs), G(mkdirat, use_dirs), G(rmdir, use_dirs), G(unlink, use_names_of_files),
	G(unlinkat, use_names_of_files), G(rename, use_names_of_files), G(renameat, use_names_of_files), G(renameat2, use_names_of_files), G(link, use_names_of_files),
	G(linkat, use_names_of_files), G(symlink, use_names_of_files), G(symlinkat, use_names_of_files), S(chmod), S(fchmod), S(fchmodat), S(utimes), S(utimensat), S(truncate),
	S(ftruncate), S(fallocate), S(fsync), S(fdatasync), S(sync_file_range), S(fadvise64), S(flock), F(getdents64, use_getdents), F(getdents, use_old_getdents), S(getcwd), S(chdir), F(fchdir, use_fchdir),
	S(umask), G(getxattr, use_xattr), G(lgetxattr, use_xattr), G(fgetxattr, use_xattr), G(listxattr, use_xattr), G(llistxattr, use_xattr), G(flistxattr, use_xattr),
	S(inotify_init1), G(inotify_add_watch, use_inotify), G(inotify_rm_watch, use_inotify), S(read), S(write), G(readv, use_iov), G(writev, use_iov), G(pread64, use_pread),
	G(pwrite64, use_pwrite), G(preadv, use_iov), G(pwritev, use_iov), G(preadv2, use_iov), G(pwritev2, use_iov), S(lseek), S(fcntl), F(ioctl, use_ioctl), G(dup, use_dup),
	G(dup2, use_dup), G(dup3, use_dup), S(pipe), S(pipe2), G(sendfile, use_copy), G(copy_file_range, use_copy), G(poll, use_poll), G(ppoll, use_poll), G(select, use_poll),
	G(pselect6, use_poll), S(eventfd2), S(epoll_create), S(epoll_create1), S(epoll_ctl), G(epoll_wait, use_epoll), G(epoll_pwait, use_epoll), G(epoll_pwait2, use_epoll), F(socket, use_socket),
	F(socketpair, use_pairs), G(shmget, use_segment), G(shmat, use_segment), G(shmdt, use_segment), G(shmctl, use_segment), G(mlock, use_locked), G(munlock, use_locked), S(connect), F(bind, use_bind), F(listen, use_listen), S(accept), S(accept4), S(shutdown), G(getsockname, use_names), G(getpeername, use_names),
	G(getsockopt, use_sockopt), G(setsockopt, use_sockopt), S(sendto), F(recvfrom, use_received), G(sendmsg, use_messages), G(recvmsg, use_messages), S(uname), S(sysinfo),
	S(getrandom), S(getcpu), S(capget), S(capset), S(creat), S(getpriority), S(setpriority), S(setuid), S(setgid), S(setresuid), S(setresgid), S(chown), S(fchown), S(lchown), S(fchownat), G(mknod, use_node), G(mknodat, use_node),
};

static int use(struct use *u) {
	errno = 0;
	if ((u->f ? u->f() : u->g(u->nr)) >= 0) return 0;
	dprintf(2, "%s: %s\n", u->name, strerror(errno));
	return 1;
}

int main(int argc, char **argv) {
	if (argc == 2 && !strcmp(argv[1], "terminal")) _exit(use(&(struct use)F(terminal, use_terminal)));
	int failed = 0, n = sizeof uses / sizeof uses[0];
	for (int a = 1; a < argc; a++) {
		int i = 0;
		while (i < n && strcmp(argv[a], uses[i].name)) i++;
		if (i == n) dprintf(2, "%s: nothing here uses it\n", argv[a]);
		failed |= i == n || use(&uses[i]);
		closefrom(3); // what a use has left open
	}
	_exit(failed);
}
