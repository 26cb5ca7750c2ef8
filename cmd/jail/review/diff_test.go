package review

import (
	"bytes"
	"testing"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

func file(mode uint32, size int64) *workspace.Node {
	return &workspace.Node{Type: workspace.File, Mode: mode, Size: size}
}

func TestWriteChanges(t *testing.T) {
	all := []api.Change{
		{Change: workspace.Change{Path: "a", Kind: workspace.Added, After: file(0o644, 5)}},
		{Change: workspace.Change{Path: ".git/hooks/pre-commit", Kind: workspace.Added,
			After: file(0o755, 9)}, Protected: "git runs it"},
		{Change: workspace.Change{Path: "b", Kind: workspace.Modified, Before: file(0o644, 5),
			After: file(0o755, 2048), Conflict: "it changed"}},
		{Change: workspace.Change{Path: "c\n# M d", Kind: workspace.Deleted,
			Before: file(0o644, 5)}},
		{Change: workspace.Change{Path: "pipe", Kind: workspace.Added,
			After: &workspace.Node{Type: workspace.Fifo}, Refused: "a fifo"}},
		{Change: workspace.Change{Path: "up", Kind: workspace.Added, Outside: true,
			After: &workspace.Node{Type: workspace.Link, Target: "../\x1b[2J"}}},
		{Change: workspace.Change{Path: "", Kind: workspace.Mode,
			Before: &workspace.Node{Type: workspace.Dir, Mode: 0o755},
			After:  &workspace.Node{Type: workspace.Dir, Mode: 0o700}}},
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

// Differences come in parts that end anywhere; each line is coloured whole, and without colours
// each byte stays as it is.
func TestPatchPainter(t *testing.T) {
	const patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,1 +1,1 @@\n-a\n+b\n c\n+last"
	want := "\x1b[1mdiff --git a/x b/x\x1b[0m\n\x1b[1m--- a/x\x1b[0m\n\x1b[1m+++ b/x\x1b[0m\n" +
		"\x1b[36m@@ -1,1 +1,1 @@\x1b[0m\n" +
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
		{Info: &shadows.WorkspaceInfo{Info: workspace.Info{ID: "r1", Path: "/home/me"},
			Tool: "core-utils/sed", Commit: "ask"}},
		{Change: &api.Change{Change: workspace.Change{Path: "a b", Kind: workspace.Deleted,
			Before: file(0o644, 1)}}},
		{Patch: []byte("diff --git a/a b/a\n")},
		{Summary: &api.ReviewSummary{Shown: workspace.Shown{Summary: workspace.Summary{Deleted: 1},
			Digest: "sha256:00"}}},
	}
	for want, f := range map[string]diffFlags{
		"# run r1 of core-utils/sed over /home/me, commit: ask\n# D a b\ndiff --git a/a b/a\n" +
			"# 1 change (+0 ~0 -1), 0 B, digest sha256:00\n": {},
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

func equal(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
