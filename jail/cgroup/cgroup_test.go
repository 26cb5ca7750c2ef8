package cgroup_test

import (
	"errors"
	"fmt"
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
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

func TestMain(m *testing.M) { os.Exit(jailtest.Main(m)) }

// slice is a control group of this test's own.
func slice(t *testing.T, c cgroup.Ceiling) string {
	t.Helper()
	jailtest.Require(t)
	path := fmt.Sprintf("%s-%s", jailtest.Slice(), strings.ToLower(t.Name()))
	if err := cgroup.MakeSlice(path, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := jailtest.RemoveSlice(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

// places are the directories of a control group, one in each hierarchy.
func places(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{cgroup.Root + path, cgroup.Root + "/*" + path} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}

// TestForkBomb kills processes that fork as fast as they can, from inside, in a leaf that holds
// few.
func TestForkBomb(t *testing.T) {
	path := slice(t, cgroup.Ceiling{}) + "/bomb"
	// Made like a slice, used as a leaf.
	if err := cgroup.MakeSlice(path, cgroup.Ceiling{PIDs: 30, Memory: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	// The shell waits until it is in the leaf; what it starts is born there.
	cmd := exec.Command("/bin/sh", "-c", "read go; while :; do ( while :; do (:) & done ) & done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	start, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it was killed
	defer func() { _ = cmd.Process.Kill() }()
	for _, dir := range places(t, path) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"),
			[]byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := start.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	leaf, err := cgroup.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	// Until it is as large as it may be.
	for deadline := time.Now().Add(jailtest.Bound(time.Minute)); ; {
		u, err := leaf.Usage()
		if err != nil {
			t.Fatal(err)
		}
		if u.PIDsDenied > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not grow: %+v", u)
		}
	}
	if err := leaf.Kill(jailtest.Bound(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if pids, err := leaf.PIDs(); err != nil || len(pids) != 0 {
		t.Errorf("processes %v are left, %v", pids, err)
	}
	_ = cmd.Wait()
	if err := leaf.Kill(0); err != nil {
		t.Errorf("of an empty leaf: %v", err)
	}
	// What has ended is in the leaf until the kernel has put it away.
	for _, remove := range []func(string) error{cleared, cgroup.Remove} {
		if err := remove(path); err != nil {
			t.Errorf("removing it: %v", err)
		}
	}
	if left := places(t, path); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := leaf.Kill(0); err != nil {
		t.Errorf("of a leaf that is gone: %v", err)
	}
}

func cleared(path string) error { return cgroup.Clear(path, jailtest.Bound(time.Minute)) }

// TestRemove takes away what it is told to and nothing beside, above or below.
func TestRemove(t *testing.T) {
	path := slice(t, cgroup.Ceiling{})
	for _, name := range []string{"/a", "/ab", "/a/below"} {
		if err := cgroup.MakeSlice(path+name, cgroup.Ceiling{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cgroup.Remove(path + "/a"); err == nil {
		t.Error("one that has another below it was removed")
	}
	for _, name := range []string{"/a/below", "/a"} {
		if err := cgroup.Remove(path + name); err != nil {
			t.Error(err)
		}
	}
	if len(places(t, path+"/a")) != 0 || len(places(t, path+"/ab")) == 0 {
		t.Errorf("left of a: %v, of ab: %v", places(t, path+"/a"), places(t, path+"/ab"))
	}
	for _, name := range []string{"/ab", "/ab", "/never"} {
		if err := cgroup.Remove(path + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRemovePattern: a path is a name, whatever is in it.
func TestRemovePattern(t *testing.T) {
	path := slice(t, cgroup.Ceiling{})
	if err := cgroup.MakeSlice(path+"/kept", cgroup.Ceiling{}); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"/*", "/k?pt", "/[k]ept"} {
		if err := cgroup.Remove(path + pattern); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	if len(places(t, path+"/kept")) == 0 {
		t.Error("a pattern removed a control group that it is not the name of")
	}
	if err := cgroup.Remove(path + "/kept"); err != nil {
		t.Error(err)
	}
}

// TestCeiling: the kernel holds what a slice was given, again and again.
func TestCeiling(t *testing.T) {
	ceiling := cgroup.Ceiling{Memory: 128 << 20, PIDs: 77, Weight: 25}
	path := slice(t, ceiling)
	if err := cgroup.MakeSlice(path, ceiling); err != nil {
		t.Fatalf("the second time: %v", err)
	}
	layout, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"memory" + path + "/memory.limit_in_bytes": "134217728",
		"pids" + path + "/pids.max":  "77",
		"cpu" + path + "/cpu.shares": "256"}
	if layout == cgroup.V2 {
		files = map[string]string{path + "/memory.max": "134217728", path + "/pids.max": "77",
			path + "/cpu.weight": "25"}
	}
	for file, want := range files {
		got, err := os.ReadFile(filepath.Join(cgroup.Root, file))
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %q, %v; want %s", file, got, err, want)
		}
	}
}

// TestUsage: what a jail used is there to be read until it is released, also after it has ended.
func TestUsage(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	leaf, err := cgroup.Open(s.Plan.Cgroup.Path)
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := leaf.PIDs(); err != nil || len(pids) != 1 || pids[0] != j.PID {
		t.Errorf("processes %v, %v; want %d", pids, err, j.PID)
	}
	if r := j.One("=touch", victim.Int(16<<20)); r.Errno != "" {
		t.Fatal(r)
	}
	_, _ = j.Try(victim.Do("=touch", victim.Int(128<<20))) // more than there is
	if status, err := j.Wait(); err != nil || status.Signal != int(syscall.SIGKILL) {
		t.Fatalf("%+v, %v", status, err)
	}
	u, err := leaf.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if u.OOMKills != 1 || u.MemoryPeak < 48<<20 || u.MemoryPeak > s.Plan.Cgroup.Memory+1<<20 ||
		u.CPU <= 0 {
		t.Errorf("usage %+v of at most %d", u, s.Plan.Cgroup.Memory)
	}
	j.End()
	if u, err := leaf.Usage(); err == nil && u.MemoryPeak != 0 {
		t.Errorf("after its release: %+v", u)
	}
}

// TestUsageKeepsItsFiles: the second reading opens nothing, and a leaf that is closed has no
// descriptors.
func TestUsageKeepsItsFiles(t *testing.T) {
	path := slice(t, cgroup.Ceiling{}) + "/leaf"
	if err := cgroup.MakeSlice(path, cgroup.Ceiling{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cgroup.Remove(path); err != nil {
			t.Error(err)
		}
	}()
	open := func() (all []string) {
		links, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && strings.Contains(to, path+"/") {
				all = append(all, l+" "+to)
			}
		}
		return all
	}
	leaf, err := cgroup.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Usage(); err != nil {
		t.Fatal(err)
	}
	first := open()
	if _, err := leaf.Usage(); err != nil {
		t.Fatal(err)
	}
	if second := open(); len(first) == 0 || !slices.Equal(first, second) {
		t.Errorf("open after the first reading: %v; after the second: %v", first, second)
	}
	leaf.Close()
	if left := open(); len(left) != 0 {
		t.Errorf("still open: %v", left)
	}
}

func TestFreeze(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	leaf, err := cgroup.Open(s.Plan.Cgroup.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(leaf.Freeze(), j.Invoke([]victim.Call{victim.Do("getpid")})); err != nil {
		t.Fatal(err)
	}
	if err := leaf.Thaw(); err != nil {
		t.Fatal(err)
	}
	var r []victim.Result
	if err := j.Report(&r); err != nil || len(r) != 1 || r[0].Ret != 1 {
		t.Errorf("after the thaw: %v, %v", r, err)
	}
	if err := errors.Join(leaf.Freeze(), leaf.Kill(jailtest.Bound(time.Minute))); err != nil {
		t.Errorf("killing a frozen leaf: %v", err)
	}
}
