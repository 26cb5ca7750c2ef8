package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/landlock"
	"github.com/jail-sandbox/jail/jail/oci"
)

// ContainerArg is the argument that marks the start of a container's process. The number of the
// descriptor of its ContainerOrder follows.
const ContainerArg = "container"

// A ContainerOrder says how a process of a container is restricted, and what it then executes.
type ContainerOrder struct {
	Rlimits []oci.Rlimit `json:"rlimits"`
	// Ceiling is the outer domain; absent where the host has no ceiling.
	Ceiling  *jail.Landlock `json:"ceiling,omitempty"`
	Landlock jail.Landlock  `json:"landlock"`
	// Filters are compiled seccomp filters, the ceiling's before the plan's.
	Filters [][]byte `json:"filters"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	// Root is the root directory of the container's first process, absent for that one itself.
	Root *RootID `json:"root,omitempty"`
}

// A RootID tells the root directory of a container from others.
type RootID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// RootIDOf returns the identity of a directory, which may be open with O_PATH.
func RootIDOf(info fs.FileInfo) RootID {
	st := info.Sys().(*syscall.Stat_t)
	return RootID{st.Dev, st.Ino}
}

// Exit codes of a process of a container that was not executed, as of a shell.
const (
	exitUnrestricted = 125
	exitNoExec       = 126
	exitNotFound     = 127
)

// EnterContainer restricts the calling process, which libcontainer has started in a container without
// capabilities, and executes the container's own program in its place: the program is the process
// that the engine waits for. It returns only on error, with the exit code.
func EnterContainer(fd string, own []string) (int, error) {
	// The domain belongs to a thread, and this is the one that executes.
	runtime.LockOSThread()
	order, err := readContainerOrder(fd)
	if err == nil {
		err = restrictContainer(order)
	}
	if err != nil {
		return exitUnrestricted, err
	}
	env := withHome(order.Env, own)
	path, err := lookPath(order.Args[0], env)
	if err == nil {
		for _, f := range order.Filters {
			if err := sys.LoadFilter(f); err != nil {
				return exitUnrestricted, layer("seccomp", err)
			}
		}
		err = sys.Exec(path, order.Args, env)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return exitNotFound, err
	}
	return exitNoExec, err
}

func readContainerOrder(fd string) (order ContainerOrder, err error) {
	n, err := strconv.Atoi(fd)
	if err != nil || n < 4 {
		return order, fmt.Errorf("descriptor %q of the order", fd)
	}
	f := os.NewFile(uintptr(n), "order")
	defer f.Close()
	// jail-init's own program. libcontainer leaves nothing else open but what the engine preserves.
	// close_range(2) would do, and older filters of engines refuse it.
	defer os.NewFile(uintptr(n-1), "jail-init").Close()
	// Its writer shares the offset.
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<24))
	if err == nil {
		err = json.Unmarshal(text, &order)
	}
	if err != nil {
		return order, fmt.Errorf("read the order: %w", err)
	}
	if len(order.Args) == 0 || len(order.Filters) == 0 {
		return order, errors.New("read the order: it has no program or no filter")
	}
	return order, nil
}

func restrictContainer(order ContainerOrder) error {
	// Until the program is executed other processes of the container must not look into this one,
	// whose descriptors lead to the host (CVE-2016-9962).
	if err := sys.SetDumpable(false); err != nil {
		return err
	}
	// A working directory outside the root is a way back to the host (CVE-2024-21626).
	if wd, err := os.Getwd(); err != nil || !strings.HasPrefix(wd, "/") {
		return fmt.Errorf("working directory %q is not inside the container", wd)
	}
	// A process that joins the namespaces gets the root of the mount namespace, which is the host's
	// where the engine itself runs in a chroot.
	if order.Root != nil {
		info, err := os.Stat("/")
		if err != nil {
			return err
		}
		if RootIDOf(info) != *order.Root {
			return errors.New("the root directory is not the container's: is the container engine in a " +
				"chroot?")
		}
	}
	for _, r := range order.Rlimits {
		resource, ok := sys.Rlimits[r.Name]
		if !ok {
			return layer("limits", fmt.Errorf("rlimit %q: unknown name", r.Name))
		}
		if err := sys.SetRlimits(resource, r.Soft, r.Hard); err != nil {
			return layer("limits", fmt.Errorf("rlimit %s: %w", r.Name, err))
		}
	}
	if order.Ceiling != nil {
		if err := landlock.RestrictThread(*order.Ceiling); err != nil {
			return layer("landlock", fmt.Errorf("the host's ceiling: %w", err))
		}
	}
	return layer("landlock", landlock.RestrictThread(order.Landlock))
}

// withHome returns the environment of the program. What config.json leaves out of HOME,
// libcontainer has looked up in the image, and given to this process.
func withHome(env, own []string) []string {
	has := func(all []string) (string, bool) {
		for _, v := range all {
			if strings.HasPrefix(v, "HOME=") {
				return v, true
			}
		}
		return "", false
	}
	if _, ok := has(env); ok {
		return env
	}
	if home, ok := has(own); ok {
		return append(env[:len(env):len(env)], home)
	}
	return env
}

// lookPath finds a program as execvp(3) does, by the PATH of the program's environment.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	dirs := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			dirs = path
		}
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		if dir == "" {
			dir = "."
		}
		path := dir + "/" + name
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() &&
			info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("exec %q: %w", name, exec.ErrNotFound)
}
