package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// numbers are lines from 1 to n, but for those that are something else.
func numbers(n int, other map[int]string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		if text, ok := other[i]; ok {
			b.WriteString(text + "\n")
			continue
		}
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// reviewed is a host with a kept shadow r1 in which one file has three hunks.
func reviewed(t *testing.T) *host {
	t.Helper()
	h := newHost(t)
	if err := os.WriteFile(filepath.Join(h.work, "n"), []byte(numbers(60, nil)),
		0o644); err != nil {
		t.Fatal(err)
	}
	h.wants(h.jail("run", "--id", "r1", "--", "sed", "-i",
		"s/^5$/five/;s/^30$/thirty/;s/^55$/fifty-five/", "n"), 0, "")
	return h
}

func (h *host) has(name, want string) {
	h.t.Helper()
	got, err := os.ReadFile(filepath.Join(h.work, name))
	if err != nil || string(got) != want {
		h.t.Errorf("%s has %q (%v), want %q", name, got, err, want)
	}
}

// Hunks are taken and left one by one, with the answers of git add -p, and what was committed is
// undone again.
func TestCommitByHand(t *testing.T) {
	h, x := reviewed(t), newTerminal(t)
	cmd := h.command("commit", "--patch", "r1")
	x.start(cmd)
	for i, answer := range []string{"?\n", "y\n", "n\n", "y\n"} {
		x.shows("take this hunk of n [y,n,q,a,d,?]?")
		if i == 0 {
			x.types(answer)
			x.shows("take it and all that follows in this file")
			continue
		}
		x.types(answer)
	}
	x.shows("committed 1 change of run r1")
	if code := h.exitCode(cmd, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d", code)
	}
	x.wantAsBefore()
	h.has("n", numbers(60, map[int]string{5: "five", 55: "fifty-five"}))
	if o := h.jail("diff", "--patch", "r1"); strings.Count(o.out, "@@ -") != 1 ||
		!strings.Contains(o.out, "+thirty") {
		t.Errorf("what is left: %s", o.out)
	}
	h.wants(h.jail("revert", "r1"), 0, "")
	h.has("n", numbers(60, nil))
	h.wants(h.jail("revert", "r1"), 126, "no commit to revert")
	h.wants(h.jail("discard", "r1"), 0, "")
}

// The end of the input, ^C and q leave everything as it is.
func TestCommitByHandLeft(t *testing.T) {
	for _, keys := range []string{ctrlD, ctrlC, "q\n", "n\nd\n"} {
		t.Run(fmt.Sprintf("%q", keys), func(t *testing.T) {
			h, x := reviewed(t), newTerminal(t)
			cmd := h.command("commit", "--patch", "r1")
			x.start(cmd)
			x.shows("take this hunk of n")
			x.types(keys)
			cmd.Wait()
			h.has("n", numbers(60, nil))
			x.wantAsBefore()
			h.wants(h.jail("discard", "r1"), 0, "")
		})
	}
}

// A commit names the digest that a review showed, and is refused if there is another by now.
func TestCommitWithADigest(t *testing.T) {
	h := reviewed(t)
	o := h.jail("diff", "--stat", "r1")
	_, digest, ok := strings.Cut(strings.TrimSpace(o.out), "digest ")
	if !ok {
		t.Fatalf("no digest: %s", o.out)
	}
	h.wants(h.jail("commit", "--digest", "sha256:00", "r1"), 126, "not the ones that were reviewed")
	h.has("n", numbers(60, nil))
	h.wants(h.jail("commit", "--digest", digest, "r1"), 0, "")
	h.has("n", numbers(60, map[int]string{5: "five", 30: "thirty", 55: "fifty-five"}))
	if o := h.jail("workspaces"); !strings.Contains(o.out, "committed") || !strings.Contains(o.out,
		"REVERT UNTIL") {
		t.Errorf("workspaces: %s", o.out)
	}
	h.wants(h.jail("revert", "r1"), 0, "")
	h.has("n", numbers(60, nil))
	h.wants(h.jail("workspaces", "prune"), 0, "")
	if o := h.jail("workspaces"); strings.Contains(o.out, "r1") {
		t.Errorf("after prune: %s", o.out)
	}
	records := h.jail("audit", "show", "--run", "r1", "--json").out
	for _, want := range []string{`"begun":true`, `"commit":"`, `"files":["modified sha256:`,
		"workspace.reverted"} {
		if !strings.Contains(records, want) {
			t.Errorf("no record has %s", want)
		}
	}
}
