// Package probe finds out which layers a host can enforce. It tries each one if that leaves nothing
// behind: a version number or a file in /proc says what a kernel was built with, and not what this
// process may do with it.
package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/jail-sandbox/jail/jail/internal/sys"
)

// Answer is yes, no, unknown or off. Unknown must not be taken for any other.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
	// Off is the answer for what the host does not have and no run needs.
	Off Answer = "off"
)

// Finding is the result of one probe.
type Finding struct {
	Name string `json:"name"`
	// Answer is Unknown if a probe failed, which is neither yes nor no.
	Answer Answer `json:"answer"`
	// Detail says what was found.
	Detail string `json:"detail,omitempty"`
	// Fix says what to do about a finding other than yes.
	Fix string `json:"fix,omitempty"`
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

// onlyRoot returns the finding of a probe that only root can make.
func onlyRoot(name string) (Finding, bool) {
	return unknown(name, "only root can try"), os.Geteuid() != 0 && !sys.Rootless()
}

// letIt is the fix for a call that the kernel has and this process may not make.
const letIt = "let jaild make this call: a security module or a container's filter forbids it"

// tried is the answer of a call that only tries, by its error: what was found, or how a kernel that
// lacks the call gets it.
func tried(name string, err error, fix, format string, args ...any) Finding {
	switch {
	case err == nil:
		return yes(name, format, args...)
	case sys.NotThere(err):
		return no(name, fix, "%s", short(err))
	case sys.Forbidden(err):
		return no(name, letIt, "%s", short(err))
	}
	return unknown(name, "%v", err)
}

// Refused reports whether err means that this host cannot enforce a layer: the kernel lacks a
// feature, or denies it to this process. Another try fails in the same way.
func Refused(err error) bool { return sys.NotThere(err) || sys.Forbidden(err) }

// short returns the error without the names of temporary files, so that two equal attempts give
// equal texts.
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

// All makes every probe of what a run needs of the host, and returns all findings. scratch is a
// directory on the file system of jaild's state directory, in which nothing is left behind; slice
// is the path of the cgroup above all jails, below the root of the cgroup file system.
func All(scratch, slice string) []Finding {
	if forUser() {
		return allForUser(scratch)
	}
	return []Finding{
		runningKernel(), UserNamespace(), Cgroups(slice), seccomp(), Landlock(), overlay(), loopDevices(),
		mkfs(), room(scratch), shadow(scratch), machineFiles(ProcFixed()),
	}
}
