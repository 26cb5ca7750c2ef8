package cgroup_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest"
)

// firstFile reads the one file of that name that a control group has, in whichever hierarchy.
func firstFile(t *testing.T, path string, names ...string) string {
	t.Helper()
	for _, dir := range places(t, path) {
		for _, name := range names {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimSpace(string(text))
			}
		}
	}
	t.Fatalf("control group %s has none of %v", path, names)
	return ""
}

// inGroup returns the processes of a group, sorted.
func inGroup(t *testing.T, g *cgroup.Leaf) []int {
	t.Helper()
	all, err := g.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// The bound of a session is the kernel's for all of its jails together: two leaves with room for
// many share room for few.
func TestMakeBounded(t *testing.T) {
	top := slice(t, cgroup.Ceiling{})
	path := top + "/s1.7.session"
	const memory, pids = 48 << 20, 12
	if err := cgroup.MakeBounded(path, cgroup.Ceiling{Memory: memory, PIDs: pids,
		CPUQuota: 50_000, CPUPeriod: 100_000}); err != nil {
		t.Fatal(err)
	}
	if got := firstFile(t, path, "pids.max"); got != strconv.Itoa(pids) {
		t.Errorf("pids %s", got)
	}
	if got := firstFile(t, path, "memory.max", "memory.limit_in_bytes"); got != strconv.Itoa(
		memory) {
		t.Errorf("memory %s", got)
	}
	if got := firstFile(t, path, "cpu.max", "cpu.cfs_quota_us"); got != "50000 100000" &&
		got != "50000" {
		t.Errorf("cpu %s", got)
	}

	var groups []*cgroup.Leaf
	var starts []io.Writer
	t.Cleanup(func() {
		if err := cgroup.Remove(path); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"/a", "/b"} {
		// Made like a slice, used as a leaf.
		if err := cgroup.MakeSlice(path+name, cgroup.Ceiling{PIDs: 100}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c",
			"read go; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 60 & done 2>/dev/null; wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		g, err := cgroup.Open(path + name)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
		t.Cleanup(func() {
			if err := g.Kill(jailtest.Bound(time.Minute)); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait()
			if err := cleared(path + name); err != nil {
				t.Error(err)
			}
		})
		for _, dir := range places(t, path+name) {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"),
				[]byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
				t.Fatal(err)
			}
		}
		starts = append(starts, in)
	}
	// The kernel refuses forks beyond the bound, but lets a task be moved in, so both shells are in
	// before either of them forks.
	for _, in := range starts {
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	// Each shell would have 13 tasks. A shell whose fork is refused ends, and leaves what it has
	// started.
	for deadline := time.Now().Add(jailtest.Bound(time.Minute)); ; time.Sleep(time.Millisecond) {
		// Those that are there: pids.current counts for a moment what it is about to refuse. What
		// has ended in the first group before the second was read made room there.
		before, second, after := inGroup(t, groups[0]), inGroup(t, groups[1]), inGroup(t, groups[0])
		if !slices.Equal(before, after) {
			continue
		}
		tasks := len(before) + len(second)
		if tasks > pids || time.Now().After(deadline) {
			t.Fatalf("%d tasks", tasks)
		}
		if tasks >= pids-2 {
			break
		}
	}
	if err := cgroup.Remove(path); err == nil {
		t.Error("a group with jails in it was removed")
	}

	// A second time it changes nothing that stands; without a quota there is none.
	free := top + "/s2.8.session"
	for range 2 {
		if err := cgroup.MakeBounded(free, cgroup.Ceiling{PIDs: 5}); err != nil {
			t.Error(err)
		}
	}
	if got := firstFile(t, free, "cpu.max", "cpu.cfs_quota_us"); !strings.HasPrefix(got, "max") &&
		got != "-1" {
		t.Errorf("cpu %s", got)
	}
	if err := cgroup.Remove(free); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "/", "jail", "/jail/../x", "/jail//x"} {
		if err := cgroup.MakeBounded(bad, cgroup.Ceiling{}); err == nil {
			t.Errorf("%q was made", bad)
		}
	}
}
