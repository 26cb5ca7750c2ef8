package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/prepare"
)

// frozen reports whether the processes of a cgroup are stopped.
func frozen(t *testing.T, group string) bool {
	t.Helper()
	if text, err := os.ReadFile(filepath.Join(cgroup.Root, "freezer", group,
		"freezer.state")); err == nil {
		return strings.TrimSpace(string(text)) != "THAWED"
	}
	text, err := os.ReadFile(filepath.Join(cgroup.Root, group, "cgroup.events"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "frozen 1")
}

// The processes of a run are stopped while its shadow is reviewed, and go on however that ends.
func TestPaused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	slice := fmt.Sprintf("/jailtest-pause-%d", os.Getpid())
	group := slice + "/run"
	if err := cgroup.MakeSlice(slice, cgroup.Ceiling{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroup.Clear(group, time.Minute); err != nil {
			t.Error(err)
		}
		hierarchies, _ := filepath.Glob(filepath.Join(cgroup.Root, "*", slice))
		for _, dir := range append(hierarchies, filepath.Join(cgroup.Root, slice)) {
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go cmd.Wait()
	if err := cgroup.Enclose(group, cgroup.Ceiling{Memory: 64 << 20, PIDs: 10},
		cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	j := &prepare.Job{}
	j.Plan.Cgroup.Path = group
	r := &Run{job: j}
	never := func(*workspace.Workspace) error {
		t.Error("a run without a shadow is reviewed")
		return nil
	}
	if ok, err := r.Paused(never); ok || err != nil {
		t.Errorf("before the shadow is there: %v, %v", ok, err)
	}
	r.paused.open(j, &workspace.Workspace{})
	failed := errors.New("failed")
	for what, end := range map[string]func() error{
		"success": func() error { return nil },
		"failure": func() error { return failed },
		"panic":   func() error { panic("in the review") },
	} {
		func() {
			defer func() {
				if p := recover(); (p != nil) != (what == "panic") {
					t.Errorf("%s: panic: %v", what, p)
				}
			}()
			ok, err := r.Paused(func(*workspace.Workspace) error {
				if !frozen(t, group) {
					t.Errorf("%s: the processes run during the review", what)
				}
				return end()
			})
			if !ok || errors.Is(err, failed) != (what == "failure") {
				t.Errorf("%s: %v, %v", what, ok, err)
			}
		}()
		if frozen(t, group) {
			t.Errorf("%s: the processes are stopped after the review", what)
		}
	}
	r.paused.close()
	if ok, err := r.Paused(never); ok || err != nil {
		t.Errorf("after the end: %v, %v", ok, err)
	}
}
