package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

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
