package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/internal/sys"
	"github.com/jail-sandbox/jail/jail/oci"
)

// ContainerArg is the argument that marks the start of a container's process. The number of the
// descriptor of its ContainerOrder follows.
const ContainerArg = "container"

// ModuleArg marks the second execution of jail-init for a container process whose program is a
// WebAssembly module. The same number follows.
const ModuleArg = "module"

// A ContainerOrder says how a process of a container is restricted, and what it then executes.
type ContainerOrder struct {
	Rlimits []oci.Rlimit `json:"rlimits"`
	// Ceiling is the outer domain; absent if the host has no ceiling.
	Ceiling  *jail.Landlock `json:"ceiling,omitempty"`
	Landlock jail.Landlock  `json:"landlock"`
	// Filters are compiled seccomp filters, the ceiling's before the plan's.
	Filters [][]byte `json:"filters"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	// Module says that the program is a WebAssembly module.
	Module bool `json:"module,omitempty"`
	// Memory bounds the memory of the module, in bytes; 0 is no bound.
	Memory int64 `json:"memory,omitempty"`
	// Root is the root directory of the container's first process; absent for the first process
	// itself.
	Root *RootID `json:"root,omitempty"`
}

// A RootID identifies the root directory of a container.
type RootID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// RootIDOf returns the identity of a directory, which may be open with O_PATH.
func RootIDOf(info fs.FileInfo) RootID {
	st := info.Sys().(*syscall.Stat_t)
	return RootID{st.Dev, st.Ino}
}

// Exit codes for a program that was not executed, as shells have them.
const (
	exitUnrestricted = 125
	exitNoExec       = 126
	exitNotFound     = 127
)

// EnterContainer restricts the calling process, which libcontainer has started in a container
// without capabilities, and executes the container's own program in its place: the program is the
// process that the engine waits for. jail-init itself is executed once more for a module, so that
// every thread has the domain from its first instruction on. It returns only on error, with the
// exit code.
func EnterContainer(fd string, own []string) (int, error) {
	// A Landlock domain belongs to a thread, and this thread executes.
	runtime.LockOSThread()
	order, closeOwn, err := readContainerOrder(fd)
	if err != nil {
		return exitUnrestricted, err
	}
	if order.Module {
		self := jail.LandlockRule{Path: selfOf(fd), Exec: true}
		order.Landlock.Rules = append(order.Landlock.Rules, self)
		if order.Ceiling != nil {
			order.Ceiling.Rules = append(order.Ceiling.Rules, self)
		}
		if err = restrictContainer(order); err == nil {
			err = sys.Exec(self.Path, []string{"jail-init", ModuleArg, fd}, own)
		}
		// Not earlier, also not by the garbage collector: the second execution needs both.
		closeOwn()
		return exitUnrestricted, err
	}
	closeOwn()
	if err := restrictContainer(order); err != nil {
		return exitUnrestricted, err
	}
	env := withHome(order.Env, own)
	path, err := lookPath(order.Args[0], env, 0o111)
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

// selfOf returns a path of jail-init, whose descriptor is the one before the order's, fd.
func selfOf(fd string) string {
	// readContainerOrder has checked that fd is a number.
	n, _ := strconv.Atoi(fd)
	return "/proc/self/fd/" + strconv.Itoa(n-1)
}

// readContainerOrder reads the order from descriptor fd. closeOwn closes the order and jail-init,
// the only descriptors of the host that libcontainer leaves open besides those that the engine
// preserves.
func readContainerOrder(fd string) (order ContainerOrder, closeOwn func(), err error) {
	n, err := strconv.Atoi(fd)
	if err != nil || n < 4 {
		return order, nil, fmt.Errorf("descriptor %q of the order", fd)
	}
	f, self := os.NewFile(uintptr(n), "order"), os.NewFile(uintptr(n-1), "jail-init")
	closeOwn = func() {
		// Not close_range(2), which older seccomp profiles of engines refuse.
		f.Close()
		self.Close()
	}
	defer func() {
		if err != nil {
			closeOwn()
		}
	}()
	// Not f.Read: the writer shares the offset.
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<24))
	if err == nil {
		err = json.Unmarshal(text, &order)
	}
	if err != nil {
		return order, nil, fmt.Errorf("read the order: %w", err)
	}
	if len(order.Args) == 0 || len(order.Filters) == 0 {
		return order, nil, errors.New("read the order: it has no program or no filter")
	}
	return order, closeOwn, nil
}

// A Module is a WebAssembly module that is the program of a container's process.
type Module struct {
	File      *os.File
	Args, Env []string
	Cwd       string
	// Memory bounds its memory, in bytes; 0 is no bound.
	Memory int64
}

// EnterModule opens the module, loads the filters on all threads and returns the module, which has
// not run yet.
func EnterModule(fd string, own []string) (m Module, err error) {
	// Other processes of the container must not trace or read this one.
	if err := sys.SetDumpable(false); err != nil {
		return m, err
	}
	order, closeOwn, err := readContainerOrder(fd)
	if err != nil {
		return m, err
	}
	closeOwn()
	m = Module{Args: order.Args, Env: withHome(order.Env, own), Memory: order.Memory}
	if m.Cwd, err = os.Getwd(); err != nil {
		return m, err
	}
	if m.File, err = openModule(order.Args[0], m.Env); err != nil {
		return m, err
	}
	signal.Ignore(syscall.SIGXFSZ, syscall.SIGPIPE)
	for _, f := range order.Filters {
		if err := sys.LoadFilter(f); err != nil {
			return m, layer("seccomp", err)
		}
	}
	return m, nil
}

// openModule finds the program name with lookPath and opens it. A file that is not regular is an
// error.
func openModule(name string, env []string) (*os.File, error) {
	path, err := lookPath(name, env, 0)
	if err != nil {
		return nil, err
	}
	// O_NONBLOCK, so that the open of a FIFO does not block.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is no regular file", path))
	}
	return f, nil
}

func restrictContainer(order ContainerOrder) error {
	// Until the program is executed other processes of the container must not look into this one,
	// whose descriptors lead to the host (CVE-2016-9962).
	if err := sys.SetDumpable(false); err != nil {
		return err
	}
	if err := checkInside("container"); err != nil {
		return err
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
		if err := sys.SetRlimit(r.Name, r.Soft, r.Hard); err != nil {
			return layer("limits", err)
		}
	}
	return restrictThread(order.Ceiling, order.Landlock)
}

// withHome returns env, with HOME from own if env has none. libcontainer has looked that up in the
// image.
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

// lookPath finds a program as execvp(3) does, by the PATH in env. A found file has at least one of
// the bits of mode, unless mode is 0. A name with a slash is returned as it is.
func lookPath(name string, env []string, mode fs.FileMode) (string, error) {
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
			(mode == 0 || info.Mode()&mode != 0) {
			return path, nil
		}
	}
	return "", fmt.Errorf("exec %q: %w", name, exec.ErrNotFound)
}
