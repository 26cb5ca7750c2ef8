package jail

// shellCalls are what the interpreter of a shell script needs beside the engine: pipes between its tools, and its variables.
var shellCalls = []call{
	{"pipe2", "pipelines, command substitution", nil},
	{"getuid", "$UID", nil}, {"geteuid", "$EUID, test -r", nil}, {"getgid", "$GID", nil}, {"getppid", "$PPID", nil},
}
