package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Rouse has the kernel get ready to move processes between control groups, and returns when it is. It changes nothing.
//
// All such moves of a host share one lock. Whoever takes it for writing when nobody has for a while waits for a grace period of RCU, some ten milliseconds on
// a kernel with a tick of 250 Hz, and whoever comes within the next one does not (percpu_down_write and rcu_sync_enter in the kernel's kernel/locking and
// kernel/rcu). A jail's start ends in such a move. One that is asked for first, of this process into the group that it is in, waits meanwhile.
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

// ownGroup is the directory of a group that the process is in, in a hierarchy that jails are in too. text is its /proc/self/cgroup.
func ownGroup(text string) (string, error) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "/..") {
			continue // it is outside of what this process sees
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
	return "", fmt.Errorf("%w: /proc/self/cgroup names no group of ours", ErrUnsupported)
}
