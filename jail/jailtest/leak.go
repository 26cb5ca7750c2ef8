package jailtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/policy/paths"
)

// settle is how long goroutines and children may take to end that have nothing more to do.
const settle = 2 * time.Minute

// checkLeaks compares, after the test and all its other cleanups, what there is on the host with
// what there was: control groups of this test binary's slice, mounts, loop devices over files of
// the test's directory, children, descriptors, and goroutines.
func checkLeaks(t testing.TB, dir string) {
	before, routines := census(dir), runtime.NumGoroutine()
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(settle); ; time.Sleep(time.Millisecond) {
			left = nil
			for thing := range census(dir) {
				if !before[thing] {
					left = append(left, thing)
				}
			}
			if n := runtime.NumGoroutine(); n > routines {
				left = append(left, fmt.Sprintf("%d goroutines more", n-routines))
			}
			if len(left) == 0 || time.Now().After(deadline) {
				break
			}
		}
		slices.Sort(left)
		for _, thing := range left {
			t.Errorf("left behind: %s", thing)
		}
	})
}

// census returns everything that a jail could leave behind, by a description.
func census(dir string) map[string]bool {
	all := map[string]bool{}
	for _, list := range []func(string) []string{cgroups, mounts, loops, children, descriptors} {
		for _, thing := range list(dir) {
			all[thing] = true
		}
	}
	return all
}

func cgroups(string) []string {
	var found []string
	for _, pattern := range []string{Slice(), "/*" + Slice()} {
		roots, _ := filepath.Glob(cgroup.Root + pattern)
		for _, root := range roots {
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() && path != root {
					found = append(found, "control group "+path)
				}
				return nil
			})
		}
	}
	return found
}

// mounts returns the mount points in the test's directory, and the directories on which roots are
// built. Mounts below the latter may be somebody else's.
func mounts(dir string) []string {
	var found []string
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 4 && (paths.Within(dir, f[4]) ||
			slices.Contains([]string{"/mnt", "/media", "/srv"}, f[4])) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	return found
}

func loops(dir string) []string {
	var found []string
	devices, _ := os.ReadDir("/sys/block")
	for _, d := range devices {
		if !strings.HasPrefix(d.Name(), "loop") {
			continue
		}
		// An unused loop device has no such file.
		f := "/sys/block/" + d.Name() + "/loop/backing_file"
		if text, _ := os.ReadFile(f); strings.HasPrefix(string(text), dir) {
			found = append(found, f+" on "+strings.TrimSpace(string(text)))
		}
	}
	return found
}

// children returns the child processes of this process, including zombies.
func children(string) []string {
	// Most often there are none, which one system call says (wait(2)). To look at all processes of the
	// host took half of the processor time of the tests in jail/launch.
	// all is P_ALL.
	const all = 0
	if _, _, err := syscall.Syscall6(syscall.SYS_WAITID, all, 0, 0,
		syscall.WEXITED|syscall.WNOHANG|syscall.WNOWAIT|syscall.WALL, 0, 0); err == syscall.ECHILD {
		return nil
	}
	var found []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		text, _ := os.ReadFile(s)
		_, rest, ok := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); ok && len(f) > 1 && f[1] == fmt.Sprint(os.Getpid()) {
			found = append(found, "process "+s)
		}
	}
	return found
}

func descriptors(string) []string {
	var found []string
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err == nil && !strings.HasPrefix(to, "/proc/") && !strings.Contains(to, "anon_inode:") {
			found = append(found, fd+" → "+to)
		}
	}
	return found
}
