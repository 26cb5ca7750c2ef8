// Package probe asks a host what of the stack it can enforce, by trying it wherever that leaves nothing behind: a version number or a
// file in /proc says what a kernel was built with, and not what this process may do with it.
package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// An Answer is one of three: what cannot be told is neither a yes nor a no, and nobody may rely on it.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// A Finding is what is known of one thing.
type Finding struct {
	Name   string `json:"name"`
	Answer Answer `json:"answer"`
	Detail string `json:"detail,omitempty"` // what was found
	Fix    string `json:"fix,omitempty"`    // what to do about it, unless it is a yes
}

func yes(name, format string, args ...any) Finding {
	return Finding{Name: name, Answer: Yes, Detail: fmt.Sprintf(format, args...)}
}

func no(name, fix, format string, args ...any) Finding {
	return Finding{Name: name, Answer: No, Detail: fmt.Sprintf(format, args...), Fix: fix}
}

func unknown(name, format string, args ...any) Finding {
	fix := "look into it: what cannot be tried cannot be relied on"
	if os.Geteuid() != 0 {
		fix = "run jail doctor as root"
	}
	return Finding{Name: name, Answer: Unknown, Detail: fmt.Sprintf(format, args...), Fix: fix}
}

// onlyRoot is the answer to what only root can try.
func onlyRoot(name string) (Finding, bool) {
	return unknown(name, "only root can try"), os.Geteuid() != 0 && !sys.Rootless()
}

// short is what went wrong, without the names of what was made only to try: two attempts at the same say the same.
func short(err error) string {
	var path *fs.PathError
	var call *os.SyscallError
	switch {
	case errors.As(err, &path):
		return fmt.Sprintf("%s: %v", path.Op, path.Err)
	case errors.As(err, &call):
		return call.Error()
	}
	return err.Error()
}

// All asks everything that a run needs of the host. scratch is a directory on the file system that holds the state.
func All(scratch string) []Finding {
	if forUser() {
		return allForUser(scratch)
	}
	return []Finding{
		Kernel(), UserNamespace(), Cgroups(), Seccomp(), Landlock(), Overlay(), LoopDevices(), Mkfs(), Room(scratch), Shadow(scratch),
	}
}
