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

// own is the child of a service's cgroup that holds the daemon itself. A cgroup v2 group with
// enabled controllers cannot hold processes (cgroups(7), "no internal processes"), so the daemon
// and its jails are siblings.
const own = "daemon"

// Delegated returns the slice for the jails of a service with a delegated cgroup
// (systemd.resource-control(5), Delegate=): a sibling of the calling process's group. If the
// service manager does not know DelegateSubgroup=, Delegated first moves the calling process into a
// group of its own.
func Delegated() (slice string, err error) {
	at, layout, err := current()
	if err != nil {
		return "", err
	}
	if path.Base(at) == own {
		return path.Join(path.Dir(at), "jails"), nil
	}
	if layout == V2 {
		dir := filepath.Join(Root, at, own)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
		}
		if err == nil {
			err = handsOn(filepath.Join(Root, at))
		}
		if err != nil {
			return "", named(at, err)
		}
	}
	return path.Join(at, "jails"), nil
}

// current returns the group of this process.
func current() (string, Layout, error) {
	layout, err := Detect()
	if err != nil {
		return "", "", err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	at, err := groupOf(string(text), layout)
	return at, layout, err
}

// handsOn returns an error if a cgroup v2 group cannot enable the controllers of Needed because it
// holds processes.
func handsOn(dir string) error {
	given, err := wordsOf(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(Needed, func(c string) bool { return !slices.Contains(given, c) }) {
		// The controllers were enabled before the processes came.
		return nil
	}
	pids, err := wordsOf(filepath.Join(dir, "cgroup.procs"))
	if len(pids) > 0 {
		return fmt.Errorf("%w: %s", ErrShared, strings.Join(pids[:min(len(pids), 5)], " "))
	}
	return err
}

// ErrShared is returned for a delegated group that holds other processes than the daemon.
var ErrShared = errors.New(
	"other processes are in it, and a group of cgroup v2 that holds processes hands no " +
		"controllers on")

// groupOf returns the group of a process from the text of its /proc/PID/cgroup. It refuses the root
// group, which nobody delegates.
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

// Owned returns an error unless the current user owns the group of this process and can make
// children in it.
func Owned() error {
	at, layout, err := current()
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

// Rouse prepares the kernel for moves of processes between cgroups, and returns when it is
// prepared. It changes nothing.
//
// All such moves on a host share one lock. A writer that takes it after a time without writers
// waits for an RCU grace period, some ten milliseconds on a kernel with a tick of 250 Hz; a writer
// within the next grace period does not wait (percpu_down_write and rcu_sync_enter in
// kernel/locking and kernel/rcu). The start of a jail ends with such a move. Rouse moves this
// process into the group that it is in, so that the wait passes during the start.
func Rouse() error {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	own, err := ownGroup(string(text))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(own, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(strconv.Itoa(os.Getpid()))
	return err
}

// ownGroup returns the directory of a group of this process in a hierarchy that jails are in, too.
// text is the content of /proc/self/cgroup.
func ownGroup(text string) (string, error) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "/..") {
			// The group is outside of the cgroup namespace of this process.
			continue
		}
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case controllers == "pids":
			return filepath.Join(Root, controllers, path), nil
		case controllers == "" && strings.HasPrefix(path, "/") && !strings.Contains(text, ":pids:"):
			return filepath.Join(Root, path), nil
		}
	}
	return "", fmt.Errorf("%w: /proc/self/cgroup names no group of ours", errUnsupported)
}
