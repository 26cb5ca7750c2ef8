// attack tries, as a program of the host inside a jail, what must not work. Its argument says what. It exits with 0 where the attack works, and else with the
// error's number. Of several arguments it tries each in a child, and says how each went on standard error.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static int failed(void) { return errno ? errno : 255; }

static int tracer(pid_t pid) {
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0) return failed();
	return 0;
}

static int trace_init(void) { return tracer(1); }

static int trace_child(void) {
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	int r = tracer(child);
	kill(child, SIGKILL);
	waitpid(child, 0, 0);
	return r;
}

static int reads(const char *path) {
	char c;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || read(fd, &c, 1) < 0) return failed();
	return 0;
}

static int init_memory(void) { return reads("/proc/1/mem"); }
static int init_environ(void) { return reads("/proc/1/environ"); }
static int own_environ(void) { return reads("/proc/self/environ"); }
static int init_root(void) {
	struct stat st;
	return stat("/proc/1/root/etc", &st) < 0 ? failed() : 0;
}
static int own_root(void) {
	struct stat st;
	return stat("/proc/self/root/etc", &st) < 0 ? failed() : 0;
}

// A process that sends itself what it sends to all would not see the end.
static int kill_all(void) {
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	usleep(20000);
	kill(1, SIGKILL);
	kill(1, SIGTERM);
	kill(-1, SIGKILL);
	int status;
	waitpid(child, &status, 0);
	usleep(100000);
	return WIFSIGNALED(status) ? 200 : 201; // it goes on: process 1 has not ended, and the child has
}

static int memory_file(void) {
	int fd = syscall(SYS_memfd_create, "x", 0);
	if (fd < 0) return failed();
	int from = open("/prog/attack", O_RDONLY);
	char buf[65536];
	for (ssize_t n; (n = read(from, buf, sizeof buf)) > 0;)
		if (write(fd, buf, n) != n) return failed();
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	char *argv[] = {"attack", "yes", 0};
	execv(path, argv);
	return failed();
}

static int yes(void) { return 0; }

static int copied(const char *to) {
	int from = open("/prog/attack", O_RDONLY), fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	char buf[65536];
	if (from < 0 || fd < 0) return failed();
	for (ssize_t n; (n = read(from, buf, sizeof buf)) > 0;)
		if (write(fd, buf, n) != n) return failed();
	close(fd);
	char *argv[] = {"attack", "yes", 0};
	execv(to, argv);
	return failed();
}

static int copy_tmp(void) { return copied("/tmp/attack"); }
static int copy_store(void) { return copied("/store/attack"); }

static int map_store(void) {
	int fd = open("/store/map", O_RDWR | O_CREAT, 0755);
	if (fd < 0 || write(fd, "\xc3", 1) != 1) return failed();
	return mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED ? failed() : 0;
}

static int set_id(void) {
	char *argv[] = {"setid", "euid", 0};
	execv("/prog/setid", argv);
	return failed();
}

static int euid(void) { return geteuid() == getuid() ? 202 : 0; }

static int push_terminal(void) { return ioctl(0, TIOCSTI, "x") < 0 ? failed() : 0; }
static int push_terminal_wide(void) { return syscall(SYS_ioctl, 0, TIOCSTI | 1L << 32, "x") < 0 ? failed() : 0; }
static int console_terminal(void) {
	char arg[2] = {3, 0};
	return ioctl(0, TIOCLINUX, arg) < 0 ? failed() : 0;
}

// A terminal of the jail's own, which is made without -t, becomes that of the process; 0 where it is.
static int own_terminal(void) {
	int ends = posix_openpt(O_RDWR | O_NOCTTY);
	if (ends < 0 || grantpt(ends) < 0 || unlockpt(ends) < 0) return failed();
	setsid();
	int fd = open(ptsname(ends), O_RDWR);
	return fd < 0 || ioctl(fd, TIOCSCTTY, 0) < 0 || dup2(fd, 0) < 0 ? failed() : 0;
}
static int push_own_terminal(void) { return own_terminal() ? 254 : push_terminal(); }
static int push_own_terminal_wide(void) { return own_terminal() ? 254 : push_terminal_wide(); }
static int console_own_terminal(void) { return own_terminal() ? 254 : console_terminal(); }
static int discipline_own_terminal(void) {
	int discipline = N_SLIP;
	return own_terminal() ? 254 : ioctl(0, TIOCSETD, &discipline) < 0 ? failed() : 0;
}
// The first terminal of the host would be here.
static int host_terminal(void) { return reads("/dev/pts/0"); }
static int no_terminal(void) { return open("/dev/tty", O_RDWR) < 0 ? failed() : 0; }
static int many_terminals(void) {
	for (int i = 0; i < 65; i++)
		if (posix_openpt(O_RDWR | O_NOCTTY) < 0) return failed();
	return 0;
}

// A process without capabilities takes one; it may take what it has.
static int take_capability(void) {
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct sets[2] = {{1 << CAP_CHOWN, 1 << CAP_CHOWN, 1 << CAP_CHOWN}, {0, 0, 0}};
	return syscall(SYS_capset, &head, sets) < 0 ? failed() : 0;
}
static int keep_capability(void) {
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct sets[2] = {{0, 0, 1 << CAP_CHOWN}, {0, 0, 0}};
	return syscall(SYS_capset, &head, sets) < 0 ? failed() : 0;
}

static int become_root(void) { return setuid(0) < 0 ? failed() : 0; }
static int become_root_group(void) { return setgid(0) < 0 ? failed() : 0; }

// Each moves one page, or a part of one, from or to a pipe without a copy.
static int splice_program(void) {
	int p[2], fd = open("/prog/attack", O_RDONLY);
	return fd < 0 || pipe(p) < 0 || splice(fd, 0, p[1], 0, 1, 0) < 0 ? failed() : 0;
}
static int splice_pipes(void) {
	int p[2], q[2];
	return pipe(p) < 0 || pipe(q) < 0 || write(p[1], "x", 1) < 0 || splice(p[0], 0, q[1], 0, 1, 0) < 0 ? failed() : 0;
}
static int tee_pipes(void) {
	int p[2], q[2];
	return pipe(p) < 0 || pipe(q) < 0 || write(p[1], "x", 1) < 0 || tee(p[0], q[1], 1, 0) < 0 ? failed() : 0;
}
static int gift_page(void) {
	int p[2];
	struct iovec v = {"x", 1};
	return pipe(p) < 0 || vmsplice(p[1], &v, 1, SPLICE_F_GIFT) < 0 ? failed() : 0;
}

static int new_user(void) { return unshare(CLONE_NEWUSER) < 0 ? failed() : 0; }
static int new_user_clone(void) {
	pid_t pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) _exit(0);
	if (pid < 0) return failed();
	waitpid(pid, 0, 0);
	return 0;
}

static int sockets(int family, int type, int protocol) { return socket(family, type, protocol) < 0 ? failed() : 0; }
static int netlink(void) { return sockets(AF_NETLINK, SOCK_RAW, 0); }
static int datagram(void) { return sockets(AF_INET, SOCK_DGRAM, 0); }
static int vsock(void) { return sockets(AF_VSOCK, SOCK_STREAM, 0); }

static int netlink_datagram(void) { return sockets(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE); }
static int netlink_diag(void) { return sockets(AF_NETLINK, SOCK_RAW, 4); }
static int netlink_xfrm(void) { return sockets(AF_NETLINK, SOCK_RAW, 6); }
static int netlink_audit(void) { return sockets(AF_NETLINK, SOCK_RAW, 9); }
static int netlink_filter(void) { return sockets(AF_NETLINK, SOCK_RAW, 12); }
static int netlink_uevent(void) { return sockets(AF_NETLINK, SOCK_RAW, 15); }
static int netlink_generic(void) { return sockets(AF_NETLINK, SOCK_RAW, 16); }
static int packet(void) { return sockets(AF_PACKET, SOCK_DGRAM, 0); }
static int raw(void) { return sockets(AF_INET, SOCK_RAW, IPPROTO_UDP); }
static int ping(void) { return sockets(AF_INET, SOCK_DGRAM, IPPROTO_ICMP); }
static int udplite(void) { return sockets(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE); }
static int unix_datagram(void) { return sockets(AF_UNIX, SOCK_DGRAM, 0); }

// asks sends a request about the interface lo, with one attribute, and returns what the kernel says of it.
static int asks(int type, int flags, const void *body, int size, int attribute, const void *value, int length) {
	struct { struct nlmsghdr h; char rest[128]; } q = {.h = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags}};
	memcpy(q.rest, body, size);
	q.h.nlmsg_len = NLMSG_LENGTH(size);
	if (length) {
		struct rtattr *a = (void *)((char *)&q + NLMSG_ALIGN(q.h.nlmsg_len));
		a->rta_type = attribute;
		a->rta_len = RTA_LENGTH(length);
		memcpy(RTA_DATA(a), value, length);
		q.h.nlmsg_len = NLMSG_ALIGN(q.h.nlmsg_len) + a->rta_len;
	}
	char answer[1 << 14];
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (fd < 0 || send(fd, &q, q.h.nlmsg_len, 0) < 0) return failed();
	int n = recv(fd, answer, sizeof answer, 0);
	struct nlmsghdr *h = (void *)answer;
	if (n < (int)sizeof *h) return failed();
	return h->nlmsg_type == NLMSG_ERROR ? -((struct nlmsgerr *)NLMSG_DATA(h))->error : 0;
}
static const unsigned char address[4] = {10, 1, 2, 3};
static int list_links(void) {
	struct ifinfomsg m = {.ifi_family = AF_UNSPEC};
	return asks(RTM_GETLINK, NLM_F_DUMP, &m, sizeof m, 0, 0, 0);
}
static int add_address(void) {
	struct ifaddrmsg m = {.ifa_family = AF_INET, .ifa_prefixlen = 8, .ifa_index = 1};
	return asks(RTM_NEWADDR, NLM_F_CREATE | NLM_F_ACK, &m, sizeof m, IFA_LOCAL, address, 4);
}
static int add_route(void) {
	struct rtmsg m = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_STATIC, .rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST};
	int lo = 1;
	return asks(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_ACK, &m, sizeof m, RTA_OIF, &lo, sizeof lo);
}
static int change_link(void) {
	struct ifinfomsg m = {.ifi_index = 1, .ifi_change = 1, .ifi_flags = 0};
	return asks(RTM_NEWLINK, NLM_F_ACK, &m, sizeof m, 0, 0, 0);
}
static int new_link(void) {
	struct ifinfomsg m = {.ifi_family = AF_UNSPEC};
	return asks(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &m, sizeof m, IFLA_IFNAME, "eth9", 5);
}

static int argument;

// sends sends a datagram and waits for the first answer, which is an error where nobody listens.
static int sends(unsigned address, int port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char answer;
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0 || send(fd, "x", 1, 0) < 0) return failed();
	return recv(fd, &answer, 1, 0) < 0 ? failed() : 0;
}
static int datagram_host(void) { return sends(INADDR_LOOPBACK, argument); }
static int datagram_out(void) { return sends(0xc0000201, 53); } // 192.0.2.1
static int datagram_everybody(void) { return sends(0xe0000001, 53); } // 224.0.0.1
static int datagram_own(void) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	char text;
	int to = socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP), from = socket(AF_INET, SOCK_DGRAM, 0);
	if (to < 0 || from < 0 || bind(to, (struct sockaddr *)&a, n) < 0 || getsockname(to, (struct sockaddr *)&a, &n) < 0) return failed();
	if (sendto(from, "x", 1, 0, (struct sockaddr *)&a, n) < 0) return failed();
	return recv(to, &text, 1, 0) == 1 && text == 'x' ? 0 : failed();
}

static int connects(const char *path, int abstract) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	strcpy(a.sun_path + abstract, path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (fd < 0) return failed();
	return connect(fd, (struct sockaddr *)&a, sizeof(sa_family_t) + abstract + strlen(path)) < 0 ? failed() : 0;
}

static int connect_abstract(void) { return connects("jail-attack-test", 1); }
static int connect_store(void) { return connects("/store/socket", 0); }
static int connect_own(void) {
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/tmp/own"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 1) < 0) return failed();
	return connects("/tmp/own", 0);
}
static int bind_store(void) {
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/store/own"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	return bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ? failed() : 0;
}

static int device_node(void) { return mknod("/tmp/null", S_IFCHR | 0666, 1 << 8 | 3) < 0 ? failed() : 0; }
static int fifo(void) { return mknod("/tmp/fifo", S_IFIFO | 0666, 0) < 0 ? failed() : 0; }
static int shadow_file(void) { return reads("/etc/shadow"); }

// lock_much locks twice what a program may, and lock_some what it may.
static int locks(size_t size) {
	void *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return mlock(p, size) < 0 ? failed() : 0;
}
static int lock_much(void) { return locks(128 << 10); }
static int lock_some(void) { return locks(64 << 10); }

static int segment_of(key_t key, size_t size, int flags) {
	int id = shmget(key, size, flags);
	if (id < 0) return failed();
	char *p = shmat(id, 0, 0);
	if (p == (void *)-1) return failed();
	if (flags) memset(p, 1, size);
	return 0;
}
static int own_segment(void) { return segment_of(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600); }
static int host_segment(void) { return segment_of(argument, 0, 0); }
static int fill_segments(void) {
	for (int n = 0; n < 8; n++) {
		int err = segment_of(IPC_PRIVATE, 64 << 20, IPC_CREAT | 0600);
		if (err) return err;
	}
	return 0;
}
static int lock_segment(void) {
	int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	return id < 0 || shmctl(id, SHM_LOCK, 0) < 0 ? failed() : 0;
}

// A pair of datagrams, of which one end is connected to a socket of the host's.
static int pair_store(void) {
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/store/datagrams"};
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) < 0) return failed();
	return connect(fds[0], (struct sockaddr *)&a, sizeof a) < 0 ? failed() : 0;
}
static int pair_abstract(void) {
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const char *name = "jail-attack-datagrams";
	int fds[2];
	strcpy(a.sun_path + 1, name);
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) < 0) return failed();
	return connect(fds[0], (struct sockaddr *)&a, sizeof(sa_family_t) + 1 + strlen(name)) < 0 ? failed() : 0;
}
static int pair_own(void) {
	int fds[2];
	char c;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) < 0 || write(fds[0], "x", 1) != 1) return failed();
	return read(fds[1], &c, 1) == 1 ? 0 : failed();
}

static int forks(void) {
	for (int n = 0; n < 500; n++) {
		pid_t pid = fork();
		if (pid < 0) return failed();
		if (pid == 0) {
			pause();
			_exit(0);
		}
	}
	return 0;
}

// The child outlives the program, and goes on writing for as long as it can.
static int outlive(void) {
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		if (fork() > 0) _exit(0);
		for (;;) {
			int fd = open("/store/alive", O_WRONLY | O_CREAT | O_APPEND, 0644);
			if (write(fd, "x", 1) != 1) _exit(1);
			close(fd);
			usleep(1000);
		}
	}
	waitpid(pid, 0, 0);
	usleep(100000);
	return 0;
}

static const struct {
	const char *name;
	int (*f)(void);
} all[] = {
#define A(f) {#f, f}
	A(trace_init), A(trace_child), A(init_memory), A(init_environ), A(own_environ), A(init_root), A(own_root), A(kill_all), A(memory_file), A(yes), A(copy_tmp),
	A(copy_store), A(map_store), A(set_id), A(euid), A(push_terminal), A(push_terminal_wide), A(console_terminal), A(own_terminal), A(push_own_terminal), A(push_own_terminal_wide), A(console_own_terminal), A(discipline_own_terminal), A(host_terminal), A(no_terminal), A(many_terminals), A(take_capability), A(keep_capability), A(become_root), A(become_root_group),
	A(splice_program), A(splice_pipes), A(tee_pipes), A(gift_page), A(new_user), A(new_user_clone), A(netlink),
	A(lock_much), A(lock_some), A(own_segment), A(host_segment), A(fill_segments), A(lock_segment), A(pair_store), A(pair_abstract), A(pair_own),
	A(datagram), A(vsock), A(connect_abstract), A(connect_store), A(connect_own), A(bind_store), A(device_node), A(fifo), A(shadow_file), A(forks), A(outlive),
	A(netlink_datagram), A(netlink_diag), A(netlink_xfrm), A(netlink_audit), A(netlink_filter), A(netlink_uevent), A(netlink_generic), A(packet), A(raw), A(ping), A(udplite),
	A(unix_datagram), A(list_links), A(add_address), A(add_route), A(change_link), A(new_link), A(datagram_host), A(datagram_out), A(datagram_everybody), A(datagram_own),
};

static int attack(char *name) {
	char *number = strchr(name, ':'); // of a port
	if (number) argument = atoi(number + 1), *number = 0;
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(name, all[i].name) == 0) return all[i].f();
	fprintf(stderr, "attack: %s is unknown\n", name);
	return 254;
}

int main(int argc, char **argv) {
	if (argc == 2) return attack(argv[1]);
	for (int i = 1; i < argc; i++) {
		int status;
		pid_t pid = fork();
		if (pid == 0) exit(attack(argv[i]));
		if (pid < 0 || waitpid(pid, &status, 0) < 0) return 253;
		fprintf(stderr, "%s %d\n", argv[i], WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	}
	return 0;
}
