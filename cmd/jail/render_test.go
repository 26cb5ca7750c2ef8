package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor"
	"github.com/jail-sandbox/jail/supervisor/api"
)

func equal(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestTell(t *testing.T) {
	var many []runners.Denial
	for range 12 {
		many = append(many, runners.Denial{Layer: "wasi", What: "read /x", Rule: "no grant", Count: 1})
	}
	cases := map[string]struct {
		res  supervisor.Result
		want string
	}{
		"nothing": {supervisor.Result{Workspace: "discarded"}, ""},
		"three files": {supervisor.Result{ID: "r1", Changes: supervisor.Changes{Added: 2, Modified: 1}, Workspace: "kept"},
			"jail: run r1 changed 3 files (+2 ~1 -0): jail diff r1\n"},
		"one, committed": {supervisor.Result{ID: "r1", Changes: supervisor.Changes{Deleted: 1}, Workspace: "committed"},
			"jail: run r1 changed 1 file (+0 ~0 -1): committed\n"},
		"kept for nothing": {supervisor.Result{ID: "r1", Workspace: "kept"},
			"jail: run r1 changed nothing; its shadow is kept: jail discard r1\n"},
		"a limit": {supervisor.Result{Limit: &supervisor.LimitHit{Name: "memory", Limit: 256 << 20, Peak: 256 << 20}},
			"jail: limit: memory: 256 MiB reached (peak 256 MiB)\n"},
		"a denial": {supervisor.Result{Denied: []runners.Denial{{Layer: "wasi", What: "read /etc/shadow", Rule: "no grant", Count: 3}}},
			"jail: denied: read /etc/shadow (no grant), 3 times\n"},
		"hostile": {supervisor.Result{Denied: []runners.Denial{{What: "read \x1b[2J\nx", Rule: "no grant", Count: 1}}},
			"jail: denied: read \\x1b[2J\njail: denied: x (no grant)\n"},
		"many": {supervisor.Result{ID: "r1", Denied: many},
			strings.Repeat("jail: denied: read /x (no grant)\n", 10) + "jail: denied: and 2 more: jail audit show --run r1\n"},
		"a warning":     {supervisor.Result{Warnings: []string{"report"}, Denied: []runners.Denial{{What: "x", Rule: "y", Count: 1}}}, "jail: warning: report\njail: denied: x (y)\n"},
		"refused whole": {supervisor.Result{Denied: many, Error: &supervisor.Error{Code: supervisor.CodeRefused}}, ""},
		"a trap":        {supervisor.Result{Trap: &runners.Trap{Class: "memory", Sentence: "out of bounds"}}, "jail: trap: out of bounds\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			(&app{stderr: &out}).tell(c.res)
			equal(t, out.String(), c.want)
		})
	}
}

func file(mode uint32, size int64) *workspace.Node {
	return &workspace.Node{Type: workspace.File, Mode: mode, Size: size}
}

func TestWriteChanges(t *testing.T) {
	all := []api.Change{
		{Change: workspace.Change{Path: "a", Kind: workspace.Added, After: file(0o644, 5)}},
		{Change: workspace.Change{Path: ".git/hooks/pre-commit", Kind: workspace.Added, After: file(0o755, 9)}, Protected: "git runs it"},
		{Change: workspace.Change{Path: "b", Kind: workspace.Modified, Before: file(0o644, 5), After: file(0o755, 2048), Conflict: "it changed"}},
		{Change: workspace.Change{Path: "c\n# M d", Kind: workspace.Deleted, Before: file(0o644, 5)}},
		{Change: workspace.Change{Path: "pipe", Kind: workspace.Added, After: &workspace.Node{Type: workspace.Fifo}, Refused: "a fifo"}},
		{Change: workspace.Change{Path: "up", Kind: workspace.Added, Outside: true, After: &workspace.Node{Type: workspace.Link, Target: "../\x1b[2J"}}},
		{Change: workspace.Change{Path: "", Kind: workspace.Mode, Before: &workspace.Node{Type: workspace.Dir, Mode: 0o755}, After: &workspace.Node{Type: workspace.Dir, Mode: 0o700}}},
	}
	var out bytes.Buffer
	d := &diffWriter{w: &out}
	for _, c := range all {
		if err := d.line(api.ReviewLine{Change: &c}, diffFlags{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.end(diffFlags{}); err != nil {
		t.Fatal(err)
	}
	equal(t, out.String(), `# A pipe  (fifo)  ! refused: a fifo
# M b  (5 B to 2 KiB, mode 0644 to 0755)  ! conflict: it changed
# A .git/hooks/pre-commit  (executable, 9 B)  ! protected: git runs it
# A up  (link to ../\x1b[2J)  ! the link leads out of the workspace
# A a  (5 B)
# D c\n# M d
# m .  (mode 0755 to 0700)
`)
}

// Differences come in parts that end anywhere; each line is coloured whole, and without colours each byte stays as it is.
func TestPatchPainter(t *testing.T) {
	const patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-a\n+b\n c\n+last"
	want := "\x1b[1mdiff --git a/x b/x\x1b[0m\n\x1b[1m--- a/x\x1b[0m\n\x1b[1m+++ b/x\x1b[0m\n\x1b[36m@@ -1,1 +1,1 @@\x1b[0m\n" +
		"\x1b[31m-a\x1b[0m\n\x1b[32m+b\x1b[0m\n c\n\x1b[32m+last\x1b[0m\n"
	for step := 1; step <= len(patch); step++ {
		for colour, want := range map[bool]string{true: want, false: patch} {
			var p patchPainter
			var out bytes.Buffer
			for rest := patch; rest != ""; {
				n := min(step, len(rest))
				if err := p.write(&out, []byte(rest[:n]), colour); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := p.flush(&out, colour); err != nil {
				t.Fatal(err)
			}
			equal(t, out.String(), want)
		}
	}
}

func TestDiffWriter(t *testing.T) {
	lines := []api.ReviewLine{
		{Info: &supervisor.WorkspaceInfo{Info: workspace.Info{ID: "r1", Path: "/home/me"}, Tool: "core-utils/sed", Commit: "ask"}},
		{Change: &api.Change{Change: workspace.Change{Path: "a b", Kind: workspace.Deleted, Before: file(0o644, 1)}}},
		{Patch: []byte("diff --git a/a b/a\n")},
		{Summary: &api.ReviewSummary{Shown: workspace.Shown{Summary: workspace.Summary{Deleted: 1}, Digest: "sha256:00"}}},
	}
	for want, f := range map[string]diffFlags{
		"# run r1 of core-utils/sed over /home/me, commit: ask\n# D a b\ndiff --git a/a b/a\n# 1 change (+0 ~0 -1), 0 B, digest sha256:00\n": {},
		"a b\n": {nameOnly: true},
	} {
		var out bytes.Buffer
		d := &diffWriter{w: &out}
		for _, l := range lines {
			if err := d.line(l, f); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.end(f); err != nil {
			t.Fatal(err)
		}
		equal(t, out.String(), want)
	}
}

func TestWritePlan(t *testing.T) {
	p := jail.Plan{ID: "r1", Policy: "sha256:00", Cgroup: jail.Cgroup{Path: "/jail/r1", Memory: 256 << 20, CPUQuota: 150, CPUPeriod: 100, PIDs: 32},
		Namespaces: []jail.Namespace{"user", "net"}, IDs: jail.IDs{Base: 100, Size: 50, UID: 1, GID: 2}, NoNewPrivileges: true,
		Mounts:    []jail.Mount{{Kind: jail.MountTmpfs, Target: "/tmp", Write: true, Size: 1 << 20, Files: 10}, {Kind: jail.MountBind, Source: "/usr", Target: "/usr", Exec: true}},
		Workspace: &jail.Workspace{Source: "/home/\x1b", Target: "/workspace", Shadow: true, Bytes: 1 << 20, Files: 3},
		Landlock:  jail.Landlock{MinABI: 1, Rules: []jail.LandlockRule{{Path: "/tmp", Write: true}}},
		Rlimits:   []jail.Rlimit{{Name: "core"}}, Command: jail.Command{Tool: "core-utils/true", Args: []string{"true"}}}
	var out bytes.Buffer
	if err := writePlan(&out, p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"memory 256 MiB, cpu 1.5, tasks 32", "100 to 149 on the host", "mounts        /tmp  tmpfs, read, write, at most 1 MiB and 10 files\n",
		"\n              /usr  bind, read, execute, from /usr\n", `a shadow of /home/\x1b, at most 1 MiB and 3 files`, "capabilities  none\n", "variables     none\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
