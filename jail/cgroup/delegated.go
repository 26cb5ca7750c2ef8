package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// own is the part of a service's control group that the daemon itself is in. On cgroup v2 a group whose controllers are handed on to the groups
// below it can have no processes of its own (cgroups(7), "no internal processes"), so the daemon and its jails are beside one another.
const own = "daemon"

// Delegated returns the slice for the jails of a service whose control group its service manager leaves to it (systemd.resource-control(5), Delegate=):
// a group beside that of the calling process, which is moved into one of its own first, where a manager that knows DelegateSubgroup= has not done that.
func Delegated() (slice string, err error) {
	layout, err := Detect()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	at, err := groupOf(string(text), layout)
	if err != nil {
		return "", err
	}
	if path.Base(at) == own {
		return path.Join(path.Dir(at), "jails"), nil
	}
	if layout == V2 {
		dir := filepath.Join(Root, at, own)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("control group %s: %w", at, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return "", fmt.Errorf("control group %s: %w", at, err)
		}
		if err := handsOn(filepath.Join(Root, at)); err != nil {
			return "", fmt.Errorf("control group %s: %w", at, err)
		}
	}
	return path.Join(at, "jails"), nil
}

// handsOn returns an error if a group of cgroup v2 cannot hand on the controllers that limits need, since it holds processes itself.
func handsOn(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	given := strings.Fields(string(text))
	if !slices.ContainsFunc(Needed, func(c string) bool { return !slices.Contains(given, c) }) {
		return nil // it did before they came
	}
	text, err = os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	if pids := strings.Fields(string(text)); len(pids) > 0 {
		return fmt.Errorf("%w: %s", ErrShared, strings.Join(pids[:min(len(pids), 5)], " "))
	}
	return nil
}

// ErrShared says that a delegated group is not the daemon's alone.
var ErrShared = errors.New("other processes are in it, and a group of cgroup v2 that holds processes hands no controllers on")

// groupOf finds the group that a service manager has put a process into, in the text of /proc/PID/cgroup. The root of all is refused: it is nobody's
// to give away.
func groupOf(text string, layout Layout) (string, error) {
	hierarchy := ":name=systemd:"
	if layout == V2 {
		hierarchy = "0::"
	}
	for line := range strings.Lines(text) {
		_, group, ok := strings.Cut(strings.TrimSuffix(line, "\n"), hierarchy)
		if !ok {
			continue
		}
		if group == "/" || !path.IsAbs(group) || strings.HasPrefix(group, "/..") {
			return "", fmt.Errorf("control group %q of this process was delegated by nobody", group)
		}
		return path.Clean(group), nil
	}
	return "", fmt.Errorf("no service manager has put this process into a control group")
}

// Owned returns an error unless the group that a service manager has put this process into is the user's, who can then make others in it.
func Owned() error {
	layout, err := Detect()
	if err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	at, err := groupOf(string(text), layout)
	if err != nil {
		return err
	}
	dir := filepath.Join(Root, at)
	if layout != V2 {
		dir = filepath.Join(Root, "memory", at)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("control group %s is not this user's", at)
	}
	return nil
}
