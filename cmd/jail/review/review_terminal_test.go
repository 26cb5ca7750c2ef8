package review_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
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
func reviewed(t *testing.T) *cmdtest.Host {
	t.Helper()
	h := cmdtest.New(t)
	if err := os.WriteFile(filepath.Join(h.Work, "n"), []byte(numbers(60, nil)),
		0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("run", "--id", "r1", "--", "sed", "-i",
		"s/^5$/five/;s/^30$/thirty/;s/^55$/fifty-five/", "n"), 0, "")
	return h
}

func wantFile(h *cmdtest.Host, name, want string) {
	h.T.Helper()
	got, err := os.ReadFile(filepath.Join(h.Work, name))
	if err != nil || string(got) != want {
		h.T.Errorf("%s has %q (%v), want %q", name, got, err, want)
	}
}

// Hunks are taken and left one by one, with the answers of git add -p, and what was committed is
// undone again.
func TestCommitByHand(t *testing.T) {
	h, x := reviewed(t), cmdtest.NewTerminal(t)
	cmd := h.Command("commit", "--patch", "r1")
	x.Start(cmd)
	for i, answer := range []string{"?\n", "y\n", "n\n", "y\n"} {
		x.Shows("take this hunk of n [y,n,q,a,d,?]?")
		if i == 0 {
			x.Types(answer)
			x.Shows("take it and all that follows in this file")
			continue
		}
		x.Types(answer)
	}
	x.Shows("committed 1 change of run r1")
	if code := h.ExitCode(cmd, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d", code)
	}
	x.WantAsBefore()
	wantFile(h, "n", numbers(60, map[int]string{5: "five", 55: "fifty-five"}))
	if o := h.Jail("diff", "--patch", "r1"); strings.Count(o.Out, "@@ -") != 1 ||
		!strings.Contains(o.Out, "+thirty") {
		t.Errorf("what is left: %s", o.Out)
	}
	h.Wants(h.Jail("revert", "r1"), 0, "")
	wantFile(h, "n", numbers(60, nil))
	h.Wants(h.Jail("revert", "r1"), 126, "no commit to revert")
	h.Wants(h.Jail("discard", "r1"), 0, "")
}

// The end of the input, ^C and q leave everything as it is.
func TestCommitByHandLeft(t *testing.T) {
	for _, keys := range []string{cmdtest.CtrlD, cmdtest.CtrlC, "q\n", "n\nd\n"} {
		t.Run(fmt.Sprintf("%q", keys), func(t *testing.T) {
			h, x := reviewed(t), cmdtest.NewTerminal(t)
			cmd := h.Command("commit", "--patch", "r1")
			x.Start(cmd)
			x.Shows("take this hunk of n")
			x.Types(keys)
			cmd.Wait()
			wantFile(h, "n", numbers(60, nil))
			x.WantAsBefore()
			h.Wants(h.Jail("discard", "r1"), 0, "")
		})
	}
}

// A commit names the digest that a review showed, and is refused if there is another by now.
func TestCommitWithADigest(t *testing.T) {
	h := reviewed(t)
	o := h.Jail("diff", "--stat", "r1")
	_, digest, ok := strings.Cut(strings.TrimSpace(o.Out), "digest ")
	if !ok {
		t.Fatalf("no digest: %s", o.Out)
	}
	h.Wants(h.Jail("commit", "--digest", "sha256:00", "r1"), 126, "not the ones that were reviewed")
	wantFile(h, "n", numbers(60, nil))
	h.Wants(h.Jail("commit", "--digest", digest, "r1"), 0, "")
	wantFile(h, "n", numbers(60, map[int]string{5: "five", 30: "thirty", 55: "fifty-five"}))
	if o := h.Jail("workspaces"); !strings.Contains(o.Out, "committed") || !strings.Contains(o.Out,
		"REVERT UNTIL") {
		t.Errorf("workspaces: %s", o.Out)
	}
	h.Wants(h.Jail("revert", "r1"), 0, "")
	wantFile(h, "n", numbers(60, nil))
	h.Wants(h.Jail("workspaces", "prune"), 0, "")
	if o := h.Jail("workspaces"); strings.Contains(o.Out, "r1") {
		t.Errorf("after prune: %s", o.Out)
	}
	records := h.Jail("audit", "show", "--run", "r1", "--json").Out
	for _, want := range []string{`"begun":true`, `"commit":"`, `"files":["modified sha256:`,
		"workspace.reverted"} {
		if !strings.Contains(records, want) {
			t.Errorf("no record has %s", want)
		}
	}
}
