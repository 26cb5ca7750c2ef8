package review_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestRevertPart: paths of a commit are taken back, in an open session and after its end. The rest
// stays committed, and both are on record with what was named.
func TestRevertPart(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	h.Files(map[string]string{"a": "0\n", "b": "0\n", "c": "0\n"})
	id := h.Session("--id", "s", "--profile", "build")
	h.Wants(h.Exec(id, "--", "sh", "-c", "echo 1 >a; echo 1 >b; mkdir dir; echo 1 >dir/f"), 0, "")
	h.Wants(h.Jail("commit", id), 0, "")
	h.Wants(h.Exec(id, "--", "sh", "-c", "echo 1 >c"), 0, "")
	h.Wants(h.Jail("commit", id), 0, "")
	o := h.Jail("revert", id, "./a", "dir/")
	h.Wants(o, 0, "")
	if !strings.Contains(o.Out, "reverted 3 changes of run s; still committed: 1 path") {
		t.Errorf("%+v", o)
	}
	realFile(h, "a", "0\n")
	realFile(h, "b", "1\n")
	realFile(h, "c", "1\n")
	h.Wants(h.Exec(id, "--", "cat", "a", "dir/f"), 0, "")
	if o := h.Jail("diff", "--stat", id); !strings.Contains(o.Out, "3 changes (+2 ~1 -0)") {
		t.Errorf("what was taken back is a change again: %+v", o)
	}
	h.Files(map[string]string{"b": "person\n"})
	h.Wants(h.Jail("revert", id, "b"), 126, "b: the file was changed since the commit")
	realFile(h, "b", "person\n")
	h.Wants(h.Jail("revert", id, "nothing"), 127, "nothing: no change has that path")
	h.Wants(h.Jail("session", "stop", id), 0, "")
	h.Wants(h.Jail("revert", id, "*[c]"), 0, "")
	realFile(h, "c", "0\n")
	o = h.Jail("audit", "query", "--type", "workspace.reverted", "--json")
	for _, want := range []string{`"paths":["a","dir"]`, `"paths":["*[c]"]`} {
		// At the beginning and at the end.
		if n := strings.Count(o.Out, want); n != 2 {
			t.Errorf("%d records with %s: %+v", n, want, o)
		}
	}
	h.Discard(id)
	d.Stop()
}
