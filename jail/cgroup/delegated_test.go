package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A group that holds others is told from one that can be used.
func TestHandsOn(t *testing.T) {
	for _, c := range []struct {
		given, procs string
		shared       bool
	}{
		{"\n", "", false},
		{"cpu memory pids\n", "12\n", false},
		{"memory pids\n", "12\n34\n", true},
		{"", "0\n", true}, // of another PID namespace
	} {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"),
			[]byte(c.given), 0o600),
			os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(c.procs), 0o600)); err != nil {
			t.Fatal(err)
		}
		err := handsOn(dir)
		if errors.Is(err, ErrShared) != c.shared || c.shared && !strings.Contains(err.Error(),
			strings.Fields(c.procs)[0]) {
			t.Errorf("%q, with %q in it: %v", c.given, c.procs, err)
		}
	}
}

func TestGroupOf(t *testing.T) {
	const hybrid = "9:memory:/\n1:name=systemd:/system.slice/jaild.service\n0::/elsewhere\n"
	for _, c := range []struct {
		name, text string
		layout     Layout
		want       string
	}{
		{"v2", "0::/system.slice/jaild.service\n", V2, "/system.slice/jaild.service"},
		{"v2, a group of its own", "0::/system.slice/jaild.service/daemon\n", V2,
			"/system.slice/jaild.service/daemon"},
		{"hybrid", hybrid, Hybrid, "/system.slice/jaild.service"},
		{"the root", "0::/\n", V2, ""},
		{"outside of the name space", "0::/../../user.slice\n", V2, ""},
		{"not under systemd", "9:memory:/\n0::/x\n", v1, ""},
		{"nothing", "", V2, ""},
	} {
		got, err := groupOf(c.text, c.layout)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}
