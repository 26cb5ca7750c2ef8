package review_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

func branches(h *cmdtest.Host) (all []shadows.BranchInfo) {
	h.T.Helper()
	o := h.Jail("branch", "list", "--json")
	h.Wants(o, 0, "")
	if err := json.Unmarshal([]byte(o.Out), &all); err != nil {
		h.T.Fatalf("%v: %+v", err, o)
	}
	return all
}

// Branches of a session that is open: each is a session, a merge takes one of them into the parent,
// and a revert takes it out again.
func TestBranch(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	h.Files(map[string]string{"keep": "keep\n", "gone": "gone\n", "d/x": "x\n"})
	h.Session("--id", "s", "--profile", "build")
	h.Wants(h.Exec("s", "--", "sh", "-c", "echo s >>keep; rm gone; mkdir n; echo n >n/n"), 0, "")
	h.Says(h.Jail("branch", "fork", "s", "--id", "a"), 0, "a\n")
	h.Says(h.Jail("branch", "fork", "s", "--id", "b"), 0, "b\n")
	h.Wants(h.Jail("branch", "fork", "s", "--id", "b"), 2, "in use")
	h.Wants(h.Exec("a", "--", "sh", "-c", "echo a >>keep; rm -r n d; mkdir d; echo a >d/a; ls"), 0, "")
	h.Wants(h.Exec("b", "--", "sh", "-c", "echo b >>keep; cat n/n"), 0, "")
	// The parent is as it was, awake and asleep.
	o := h.Exec("s", "--", "sh", "-c", "cat keep n/n d/x; ls")
	if h.Wants(o, 0, ""); o.Out != "keep\ns\nn\nx\nd\nkeep\nn\n" {
		t.Errorf("the parent: %+v", o)
	}
	h.Says(h.Jail("branch", "diff", "s", "a"), 0, "M keep\nD n\n")
	h.Says(h.Jail("branch", "diff", "s", "a"), 0, "\n+a\n")
	h.Says(h.Jail("branch", "diff", "a", "a"), 0, "are alike")
	h.Says(h.Jail("diff", "b"), 0, "+s\n+b\n")
	h.Says(h.Jail("branch", "merge", "--preview", "a"), 0, "changes for s, digest sha256:")
	h.Says(h.Jail("branch", "merge", "a"), 0, "changes of a\n")
	h.Says(h.Jail("branch", "merge", "b"), 126,
		"conflict: keep: the parent changed the file since the fork")
	o = h.Exec("s", "--", "sh", "-c", "cat keep d/*; ls")
	if h.Wants(o, 0, ""); o.Out != "keep\ns\na\na\nd\nkeep\n" {
		t.Errorf("the parent after the merge: %+v", o)
	}
	if all := branches(h); len(all) != 2 || all[0].Parent != "s" || len(all[0].Merges) != 1 ||
		all[0].Merges[0].Into != "s" {
		t.Errorf("list: %+v", all)
	}
	h.Wants(h.Jail("session", "stop", "--discard", "s"), 126, "session s has branches: ")
	h.Says(h.Jail("branch", "revert", "a"), 0, "paths into s\n")
	o = h.Exec("s", "--", "sh", "-c", "cat keep n/n d/x")
	if h.Wants(o, 0, ""); o.Out != "keep\ns\nn\nx\n" {
		t.Errorf("the parent after the revert: %+v", o)
	}
	// A fork while something runs in it is refused.
	h.Wants(h.Jail("session", "exec", "--background", "s", "--", "sleep", "1000"), 0, "")
	h.Wants(h.Jail("branch", "fork", "s", "--id", "c"), 125, "an invocation runs in session s")
	h.Wants(h.Jail("branch", "merge", "a"), 125, "an invocation runs in session s")
	h.StopSession("s", 4)
	h.Wants(h.Jail("discard", "s"), 126, "it has branches: discard or merge them first: ")
	// A branch is committed as any shadow.
	h.Wants(h.Jail("commit", "b", "keep"), 0, "")
	h.Holds("keep", "keep\ns\nb\n")
	h.Wants(h.Jail("branch", "discard", "a", "b"), 0, "")
	h.Wants(h.Exec("a", "--", "true"), 127, "")
	h.Wants(h.Jail("discard", "s"), 0, "")
	for kind, n := range map[audit.Type]int{audit.TypeWorkspaceForked: 2,
		audit.TypeWorkspaceMerged: 3, audit.TypeWorkspaceReverted: 2} {
		o := h.Jail("audit", "query", "--type", string(kind), "--json")
		if got := strings.Count(o.Out, "\n"); got < n {
			t.Errorf("%d records of %s: %s", got, kind, o.Out)
		}
	}
	h.Says(h.Jail("audit", "verify"), 0, "verified")
	h.WantNothingLeft()
	if left, _ := filepath.Glob(filepath.Join(h.State, "workspaces", ".layer-*")); len(left) > 0 {
		t.Errorf("layers are left: %v", left)
	}
}

// A merge takes the paths that are named, only as they were reviewed, and ends conflicts as it is told.
// A revert takes the last merge out, and nothing if the parent was changed there since.
func TestBranchMergeInParts(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	h.Files(map[string]string{"both": "both\n", "lines": "1\n2\n3\n4\n5\n", "src/x": "x\n"})
	h.Session("--id", "s", "--profile", "build")
	h.Wants(h.Jail("branch", "fork", "s", "--id", "a"), 0, "")
	h.Wants(h.Exec("a", "--", "sh", "-c", "echo a >both; printf 'one\\n2\\n3\\n4\\n5\\n' >lines; "+
		"echo a >src/x; mkdir docs; echo a >docs/d"), 0, "")
	h.Wants(h.Exec("s", "--", "sh", "-c", "echo s >both; printf '1\\n2\\n3\\n4\\nfive\\n' >lines"), 0,
		"")
	parent := func(when, want string) {
		t.Helper()
		o := h.Exec("s", "--", "sh", "-c", "cat both lines src/x; ls")
		if h.Wants(o, 0, ""); o.Out != want {
			t.Errorf("the parent %s: %q, want %q", when, o.Out, want)
		}
	}
	const mine = "s\n1\n2\n3\n4\nfive\n"
	h.Says(h.Jail("branch", "merge", "a", "src", "docs"), 0, "merged 3 changes of a")
	parent("after a part", mine+"a\nboth\ndocs\nlines\nsrc\n")
	o := h.Jail("branch", "merge", "a")
	h.Says(o, 126, "conflict: both: the parent changed the file since the fork")
	h.Says(o, 126, "conflict: lines: the parent changed the file since the fork")
	parent("after a conflict", mine+"a\nboth\ndocs\nlines\nsrc\n")
	// What was not reviewed is not merged.
	var preview struct{ Digest string }
	o = h.Jail("branch", "merge", "--preview", "--json", "a")
	if err := json.Unmarshal([]byte(o.Out), &preview); err != nil || preview.Digest == "" {
		t.Fatalf("%v: %+v", err, o)
	}
	h.Wants(h.Exec("a", "--", "sh", "-c", "echo more >more"), 0, "")
	h.Wants(h.Jail("branch", "merge", "--theirs", "--digest", preview.Digest, "a"), 126,
		"the changes are not the ones that were reviewed")
	parent("after another digest", mine+"a\nboth\ndocs\nlines\nsrc\n")
	h.Wants(h.Jail("branch", "merge", "--theirs", "--merge", "a"), 2, "")
	h.Says(h.Jail("branch", "merge", "--merge", "a", "lines"), 0, "merged 1 change of a")
	h.Says(h.Jail("branch", "merge", "--theirs", "a", "both"), 0, "merged 1 change of a")
	const merged = "a\none\n2\n3\n4\nfive\na\nboth\ndocs\nlines\nsrc\n"
	parent("after the rest", merged)
	// The last merge goes, unless it is in the way of something.
	h.Wants(h.Exec("s", "--", "sh", "-c", "echo later >both"), 0, "")
	h.Says(h.Jail("branch", "revert", "a"), 126, "conflict: both: ")
	parent("after a revert in vain", "later"+strings.TrimPrefix(merged, "a"))
	h.Wants(h.Exec("s", "--", "sh", "-c", "echo a >both"), 0, "")
	h.Says(h.Jail("branch", "revert", "a"), 0, "reverted the merge of 1 path into s")
	parent("after one revert", "s"+strings.TrimPrefix(merged, "a"))
	for range 2 {
		h.Says(h.Jail("branch", "revert", "a"), 0, "into s")
	}
	parent("after all reverts", mine+"x\nboth\nlines\nsrc\n")
	h.Wants(h.Jail("branch", "revert", "a"), 126, "it has no merge to revert")
	h.Wants(h.Jail("branch", "discard", "a"), 0, "")
	h.StopSession("s", 2, "--discard")
	h.WantNothingLeft()
}

// The shadow of a run is forked, too; and the next daemon knows all branches.
func TestBranchOfARun(t *testing.T) {
	h := cmdtest.NewNative(t)
	d := h.Daemon()
	h.Files(map[string]string{"f": "f\n"})
	h.Wants(h.Jail("run", "--id", "r", "--profile", "build", "--", "sh", "-c", "echo r >>f"), 0, "")
	h.Wants(h.Jail("branch", "fork", "r", "--id", "a", "--profile", "build"), 0, "")
	h.Wants(h.Exec("a", "--", "sh", "-c", "echo a >>f"), 0, "")
	d.Kill()
	h.Daemon()
	cmdtest.Eventually(t, "the branch sleeps", func() bool {
		return slices.ContainsFunc(h.Sessions(), func(s message.SessionInfo) bool {
			return s.ID == "a" && s.State == message.SessionSleeping
		})
	})
	o := h.Exec("a", "--", "cat", "f")
	if h.Wants(o, 0, ""); o.Out != "f\nr\na\n" {
		t.Errorf("%+v", o)
	}
	h.Says(h.Jail("branch", "merge", "a"), 0, "merged 1 change of a")
	h.Wants(h.Jail("branch", "discard", "a"), 0, "")
	h.Wants(h.Jail("commit", "r"), 0, "")
	h.Holds("f", "f\nr\na\n")
	h.WantNothingLeft("r")
	h.Discard("r")
}

// A stranger sees nothing of another's branches, and can do nothing with them.
func TestBranchesOfAnother(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon().Admit()
	h.Files(map[string]string{"f": "f\n"})
	h.Session("--id", "s", "--profile", "build")
	h.Wants(h.Exec("s", "--", "sh", "-c", "echo secret >>f"), 0, "")
	h.Wants(h.Jail("branch", "fork", "s", "--id", "a"), 0, "")
	all := branches(h)
	id := all[0].GlobalID
	as := func(args ...string) cmdtest.Outcome {
		return h.Run(cmdtest.As(h.Command(args...), cmdtest.Stranger))
	}
	for _, name := range []string{"a", "root/a", id} {
		for _, args := range [][]string{{"branch", "fork", name}, {"branch", "merge", name},
			{"branch", "merge", "--preview", name}, {"branch", "revert", name},
			{"branch", "discard", name}, {"branch", "diff", name, name},
			{"session", "exec", name, "--", "cat", "f"}, {"diff", name}, {"discard", name}} {
			o := as(args...)
			if o.Code == 0 || strings.Contains(o.Out+o.Err, "secret") {
				t.Errorf("%v: %+v", args, o)
			}
		}
	}
	if o := as("branch", "list", "--json"); o.Code != 0 || strings.TrimSpace(o.Out) != "[]" {
		t.Errorf("list: %+v", o)
	}
	// The control: it is there.
	h.Says(h.Jail("branch", "diff", "a", "s"), 0, "are alike")
	h.Wants(h.Jail("branch", "discard", "a"), 0, "")
	h.StopSession("s", 1, "--discard")
}

// Where a tool waits for an approval, a try asks for one of all its attempts, and the command that it
// says is enough for the next try.
func TestBranchTryAsks(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	h.Files(map[string]string{"ask.toml": "policy = 1\nname = \"ask\"\ninclude = [\"build\"]\n" +
		"[[approve]]\naction = \"tool\"\nmode = \"ask\"\n"})
	const script = "echo $JAIL_ATTEMPT >number"
	try := []string{"branch", "try", "--policy", "ask.toml", "--id", "p", "3", "--", "sh", "-c", script}
	o := h.Jail(try...)
	h.Wants(o, 126, "it waits for an approval: start /usr/bin/sh")
	if waits := h.Jail("approvals", "list").Out; strings.Count(waits, " pending ") != 1 {
		t.Errorf("more waits than one action: %s", waits)
	}
	said := regexp.MustCompile(`jail (approvals approve \S+ \S+ \S+) approves`).FindStringSubmatch(o.Err)
	if said == nil {
		t.Fatalf("it says no command: %+v", o)
	}
	// An approval for the session of an attempt would not be used: it is gone.
	args := strings.Fields(said[1])
	h.Wants(h.Jail("approvals", "approve", args[len(args)-1]), 2, "--scope until=TIME or uses=N")
	h.Says(h.Jail(args...), 0, "approved")
	o = h.Jail(try...)
	if h.Wants(o, 0, ""); strings.Count(o.Out, ": exit 0, 1 change") != 3 {
		t.Errorf("after the approval: %+v", o)
	}
	h.Says(h.Jail("branch", "discard", "p-1", "p-2", "p-3"), 0, "")
	h.StopSession("p", 0, "--discard")
	// It was for these starts alone.
	h.Wants(h.Jail(try...), 126, "it waits for an approval")
}

// A try throws no session away that was there before, such as that of an earlier try into which an
// attempt was merged.
func TestBranchTryKeepsTheParent(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	try := func(tool ...string) cmdtest.Outcome {
		return h.Jail(append([]string{"branch", "try", "--profile", "build", "--id", "p", "1", "--"},
			tool...)...)
	}
	h.Wants(try("sh", "-c", "echo good >work"), 0, "")
	h.Says(h.Jail("branch", "merge", "p-1"), 0, "merged 1 change of p-1")
	h.Wants(h.Jail("branch", "discard", "p-1"), 0, "")
	h.Wants(try("no-such-tool"), 2, "session p is there already")
	h.Wants(h.Jail("branch", "try", "--from", "p", "1", "--", "no-such-tool"), 127, "not installed|no tool")
	o := h.Exec("p", "--", "cat", "work")
	if h.Wants(o, 0, ""); o.Out != "good\n" {
		t.Errorf("the session of before: %+v", o)
	}
	h.StopSession("p", 1, "--discard")
}

// A try that is interrupted ends its attempts, and leaves no branch and no session of its own.
func TestBranchTryInterrupted(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	cmd := h.Command("branch", "try", "--profile", "build", "--id", "p", "2", "--", "sh", "-c",
		"echo x >made; exec sleep 1000")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	cmdtest.Eventually(t, "both attempts run", func() bool {
		running := 0
		for _, s := range h.Sessions() {
			running += s.Running
		}
		return running == 2
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("%v: %s", err, said.String())
	}
	if all := branches(h); len(all) > 0 {
		t.Errorf("branches are left: %+v", all)
	}
	if all := h.Sessions(); len(all) > 0 {
		t.Errorf("sessions are left: %+v", all)
	}
}

// Without a daemon a fork starts one, as a session does.
func TestBranchWithoutDaemon(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Files(map[string]string{"f": "f\n"})
	h.Says(h.Jail("run", "--id", "r", "--profile", "build", "--", "sh", "-c", "echo made >made"), 0, "")
	h.Says(h.Jail("branch", "fork", "--profile", "build", "--id", "a", "r"), 0, "a\n")
	o := h.Exec("a", "--", "cat", "made")
	if h.Wants(o, 0, ""); o.Out != "made\n" {
		t.Errorf("%+v", o)
	}
	h.Wants(h.Jail("branch", "discard", "a"), 0, "")
	h.Discard("r")
}

// Attempts run at one time, each in a branch, and cost no more disk than what they wrote.
func TestBranchTry(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	h.Files(map[string]string{"big": strings.Repeat("0123456789abcdef", 1<<18), "f": "f\n"})
	const n, wrote = 4, 1 << 20
	o := h.Jail("branch", "try", "--profile", "build", "--id", "p", "--json", fmt.Sprint(n), "--", "sh",
		"-c", "head -c 1048576 /dev/urandom >made; echo same >same; rm f; echo $JAIL_ATTEMPT >number")
	h.Wants(o, 0, "")
	var tried struct {
		Attempts []struct{ ID string }
		Rows     []workspace.Row
	}
	if err := json.Unmarshal([]byte(o.Out), &tried); err != nil {
		t.Fatalf("%v: %+v", err, o)
	}
	if len(tried.Attempts) != n || len(tried.Rows) != 4 {
		t.Fatalf("%d attempts, %d rows", len(tried.Attempts), len(tried.Rows))
	}
	digests := map[string]bool{}
	for _, c := range tried.Rows[1].Cells {
		digests[c.After.SHA256] = true
	}
	if tried.Rows[1].Path != "made" || len(digests) != n {
		t.Errorf("row %s with %d contents", tried.Rows[1].Path, len(digests))
	}
	// The attempts are told apart by their numbers.
	for i := range n {
		o := h.Exec(fmt.Sprintf("p-%d", i+1), "--", "cat", "number")
		if h.Wants(o, 0, ""); o.Out != fmt.Sprintf("%d\n", i+1) {
			t.Errorf("attempt %d has the number %q", i+1, o.Out)
		}
	}
	// An image beside its content is a few tables.
	const tables = 512 << 10
	for _, b := range branches(h) {
		if b.Disk > wrote+tables || b.Disk < wrote {
			t.Errorf("branch %s takes %d bytes", b.ID, b.Disk)
		}
	}
	// One whose branch cannot be made leaves no session.
	h.Wants(h.Jail("branch", "fork", "p", "--id", "q-1"), 0, "")
	h.Wants(h.Jail("branch", "try", "--profile", "build", "--id", "q", "1", "--", "true"), 2, "in use")
	for _, s := range h.Sessions() {
		if s.ID == "q" {
			t.Errorf("the session of a try that failed is left: %+v", s)
		}
	}
	h.Wants(h.Jail("branch", "discard", "q-1"), 0, "")
	h.Says(h.Jail("branch", "merge", "p-2"), 0, "merged 4 changes")
	for i := range n {
		h.Wants(h.Jail("branch", "discard", fmt.Sprintf("p-%d", i+1)), 0, "")
	}
	h.StopSession("p", 4, "--commit")
	h.WantNothingLeft("p")
	h.Discard("p")
	if _, err := os.Stat(filepath.Join(h.Work, "f")); !os.IsNotExist(err) {
		t.Errorf("f is still there: %v", err)
	}
	h.Wants(h.Jail("branch", "try", "--profile", "build", "33", "--", "true"), 2, "want a number from 1 to 32")
	h.Wants(h.Jail("branch", "try", "2", "--profile", "build", "--", "true"), 2, "flags come before it")
	// A tool that can start in no attempt leaves nothing to discard.
	h.Wants(h.Jail("branch", "try", "2", "--", "no-such-tool"), 127, "not installed")
	h.WantNothingLeft()
}
