package cmd_test

import (
	"strings"
	"testing"
)

// TestRevertPart: paths of a commit are taken back, in an open session and after its end. The rest
// stays committed, and both are on record with what was named.
func TestRevertPart(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	h.files(map[string]string{"a": "0\n", "b": "0\n", "c": "0\n"})
	id := h.session("--id", "s", "--profile", "build")
	h.wants(h.exec(id, "--", "sh", "-c", "echo 1 >a; echo 1 >b; mkdir dir; echo 1 >dir/f"), 0, "")
	h.wants(h.jail("commit", id), 0, "")
	h.wants(h.exec(id, "--", "sh", "-c", "echo 1 >c"), 0, "")
	h.wants(h.jail("commit", id), 0, "")
	o := h.jail("revert", id, "./a", "dir/")
	h.wants(o, 0, "")
	if !strings.Contains(o.out, "reverted 3 changes of run s; 1 path of the commit stay committed") {
		t.Errorf("%+v", o)
	}
	h.realFile("a", "0\n")
	h.realFile("b", "1\n")
	h.realFile("c", "1\n")
	h.wants(h.exec(id, "--", "cat", "a", "dir/f"), 0, "")
	if o := h.jail("diff", "--stat", id); !strings.Contains(o.out, "3 changes (+2 ~1 -0)") {
		t.Errorf("what was taken back is a change again: %+v", o)
	}
	h.files(map[string]string{"b": "person\n"})
	h.wants(h.jail("revert", id, "b"), 126, "b: the file was changed since the commit")
	h.realFile("b", "person\n")
	h.wants(h.jail("revert", id, "nothing"), 127, "nothing: no change has that path")
	h.wants(h.jail("session", "stop", id), 0, "")
	h.wants(h.jail("revert", id, "*[c]"), 0, "")
	h.realFile("c", "0\n")
	o = h.jail("audit", "query", "--type", "workspace.reverted", "--json")
	for _, want := range []string{`"paths":["a","dir"]`, `"paths":["*[c]"]`} {
		// At the beginning and at the end.
		if n := strings.Count(o.out, want); n != 2 {
			t.Errorf("%d records with %s: %+v", n, want, o)
		}
	}
	h.discard(id)
	d.stop()
}
