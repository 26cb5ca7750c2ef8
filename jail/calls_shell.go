package jail

// shellCalls are what the interpreter of a shell script needs beside the engine: pipes between its tools, and the Go runtime's poller for them.
var shellCalls = []call{
	{"pipe2", "pipelines, command substitution", nil},
	{"epoll_create1", "poller", nil}, {"epoll_ctl", "poller", nil}, {"epoll_pwait", "poller", nil}, {"eventfd2", "poller", nil},
	{"getuid", "$UID, test -r", nil}, {"geteuid", "$EUID, test -r", nil}, {"getgid", "$GID", nil}, {"getegid", "test -r", nil},
	{"getpid", "$$", nil}, {"getppid", "$PPID", nil},
}
