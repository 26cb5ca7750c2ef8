package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A daemon that has too few descriptors, however many too few, says so of itself, and nothing that
// is untrue of the program that was to run.
func TestShortOfDescriptors(t *testing.T) {
	h := cmdtest.New(t)
	if err := os.WriteFile(filepath.Join(h.State, "jaild.toml"), []byte("[pool]\nsize = 0\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	d := h.Daemon()
	h.Wants(h.Jail("run", "--no-workspace", "--profile", "build", "--", "true"), 0, "")
	ran := false
	// A connection that has ended is closed a moment later. With its descriptor in the count, the
	// first limit would leave one for accept(2).
	fewest := settledDescriptors(d)
	for more := 0; !ran && more < 100; more++ {
		few := fmt.Sprintf("--nofile=%d:", fewest+more)
		if out, err := exec.Command("prlimit", few, "--pid",
			strconv.Itoa(d.Cmd.Process.Pid)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		o := h.Jail("run", "--no-workspace", "--profile", "build", "--", "true")
		if ran = o.Code == 0; !ran {
			h.Wants(o, 125,
				"jaild is busy: it has as many files open as it may|has more connections than it takes")
		}
	}
	if !ran {
		t.Error("it never ran")
	}
	d.Stop()
	// Removes what could not be removed without a descriptor.
	h.Daemon()
}

// The same of processes and threads, of which the daemon's control group has none left.
func TestShortOfProcesses(t *testing.T) {
	h := cmdtest.New(t)
	if err := os.WriteFile(filepath.Join(h.State, "jaild.toml"), []byte("[pool]\nsize = 0\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	group := pidsGroup(t)
	d := h.Daemon()
	in := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(group, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in("cgroup.procs", strconv.Itoa(d.Cmd.Process.Pid))
	h.Wants(h.Jail("run", "--no-workspace", "--profile", "build", "--", "true"), 0, "")
	said := 0
	// On a busy machine it may be for threads of the daemon's and the shim's own in all of the first.
	for more, until := 0, time.Now().Add(cmdtest.Bound); more < 8 || said == 0 &&
		time.Now().Before(until); more++ {
		in("pids.max", strconv.Itoa(current(t, group)+more%8))
		o := h.Jail("run", "--no-workspace", "--profile", "build", "--", "true")
		in("pids.max", "max")
		switch {
		case o.Code == 0:
		case strings.Contains(o.Err, "went away"):
			// It was for a thread of the daemon's own.
			d.Kill()
			d = h.Daemon()
			in("cgroup.procs", strconv.Itoa(d.Cmd.Process.Pid))
			h.Wants(h.Jail("run", "--no-workspace", "--profile", "build", "--", "true"), 0, "")
		case strings.Contains(o.Err, "jail-shim was killed"):
			// It was for a thread of the shim's own, whose runtime ends it then.
			h.Wants(o, 125, "end of the jail: jail-shim was killed")
		default:
			said++
			h.Wants(o, 125, "jaild is busy: there are as many processes as there may be")
		}
	}
	if said == 0 {
		t.Error("none was refused for want of processes: this test saw nothing")
	}
}

// pidsGroup makes a control group that can bound processes, and removes it when what is in it has
// ended.
func pidsGroup(t *testing.T) string {
	t.Helper()
	above := "/sys/fs/cgroup/pids"
	if _, err := os.Stat(above); err != nil {
		above = "/sys/fs/cgroup"
	}
	group, err := os.MkdirTemp(above, "jail-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmdtest.Eventually(t, group+" is empty", func() bool { return os.Remove(group) == nil })
	})
	if _, err := os.Stat(filepath.Join(group, "pids.max")); err != nil {
		t.Skipf("no control group here bounds processes: %v", err)
	}
	return group
}

func current(t *testing.T, group string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(group, "pids.current"))
	n, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, convErr); err != nil {
		t.Fatal(err)
	}
	return n
}
