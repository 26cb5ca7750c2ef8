package outer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jail-sandbox/jail/jail"
)

// BwrapFiles are the numbers of the descriptors that bubblewrap inherits for itself, bwrap(1).
type BwrapFiles struct {
	// UserNS is the user namespace that was made for the jail.
	UserNS int
	// Filter holds the compiled outer filter.
	Filter int
	// Info is where bubblewrap writes the number of the first process.
	Info int
	// Ready is a pipe with one byte in it, which bubblewrap reads when the jail is made.
	Ready int
}

// Bwrap returns the arguments with which bubblewrap starts jail-init. The root holds every mount of
// the plan but proc: bubblewrap cannot hide the processes of others in a proc, so jail-shim mounts
// one of the same process namespace. The first process becomes a child of jail-shim, and nothing of
// bubblewrap is left beside it.
func Bwrap(p jail.Plan, at Place, fds BwrapFiles) ([]string, error) {
	if p.NetworkOf != "" {
		return nil, errors.New("bubblewrap joins no network namespace of another jail")
	}
	fd := strconv.Itoa
	args := []string{"--userns", fd(fds.UserNS)}
	for _, name := range p.Namespaces {
		switch name {
		case "user", "mount":
			// The one is given, and bubblewrap always makes the other.
		case "pid", "net", "ipc", "uts", "cgroup":
			args = append(args, "--unshare-"+string(name))
		default:
			return nil, fmt.Errorf("namespace %q: unknown kind", name)
		}
	}
	if slices.Contains(p.Namespaces, "pid") {
		args = append(args, "--as-pid-1")
	}
	args = append(args, "--new-session",
		"--uid", strconv.FormatUint(uint64(p.IDs.UID), 10),
		"--gid", strconv.FormatUint(uint64(p.IDs.GID), 10),
		"--hostname", p.Hostname, "--cap-drop", "ALL")
	for _, name := range p.Capabilities {
		args = append(args, "--cap-add", name)
	}
	// Its mounts have their rights already, which are locked, and the nodes in it are the plan's.
	args = append(args, "--dev-bind", at.Root, "/", "--remount-ro", "/", "--chdir", "/",
		"--clearenv")
	for _, entry := range at.Env {
		name, value, _ := strings.Cut(entry, "=")
		args = append(args, "--setenv", name, value)
	}
	args = append(args, "--seccomp", fd(fds.Filter), "--info-fd", fd(fds.Info),
		"--block-fd", fd(fds.Ready), "--")
	return append(args, at.Args...), nil
}

// tryBwrap returns the arguments that start the program /init of a root with the argument try.
func tryBwrap(root, init string) []string {
	return []string{"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
		"--as-pid-1", "--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
		"--ro-bind", root, "/", "--ro-bind", init, "/init", "--proc", "/proc", "--chdir", "/",
		"--", "/init", "try"}
}
