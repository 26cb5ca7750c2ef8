package cmd_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDiscardOpen: the shadow of an open session or a live run is not thrown away behind its back;
// --force ends it first. Of one that has ended a part can be thrown away.
func TestDiscardOpen(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	h.wants(h.jail("session", "start", "--profile", "build", "--id", "s", "--keep"), 0, "")
	h.wants(h.jail("session", "exec", "s", "--", "sh", "-c",
		"echo 1 >a; echo 2 >b; mkdir d; echo 3 >d/c"), 0, "")
	h.wants(h.jail("discard", "s"), 126, "session s is open.*(.|\n)*jail discard --force s")
	// A part is discarded, and the session goes on with its own files.
	if o := h.jail("discard", "s", "d"); o.code != 0 ||
		o.out != "discarded 2 changes of run s (+2 ~0 -0), and left 2\n" {
		t.Errorf("%+v", o)
	}
	h.wants(h.jail("session", "exec", "s", "--", "sh", "-c", "cat d/c; echo 4 >d/c"), 0, "")
	h.wants(h.jail("discard", "--all", "--yes"), 0, "")
	h.wants(h.jail("session", "exec", "s", "--", "cat", "a"), 0, "")
	h.wants(h.jail("session", "stop", "s"), 0, "")
	h.wants(h.jail("discard", "s", "moon"), 127, "moon: no change has that path")
	h.wants(h.jail("discard", "--force", "s", "a"), 2, "takes no PATH")
	if o := h.jail("discard", "s", "a", "d"); o.code != 0 ||
		o.out != "discarded 3 changes of run s (+3 ~0 -0), and left 1\n" {
		t.Errorf("%+v", o)
	}
	h.wants(h.jail("commit", "s"), 0, "")
	h.holds("b", "2\n")
	for _, name := range []string{"a", "d"} {
		if _, err := os.Lstat(filepath.Join(h.work, name)); err == nil {
			t.Errorf("%s was discarded, and committed", name)
		}
	}
	h.discard("s")
	h.wants(h.jail("session", "start", "--profile", "build", "--id", "s", "--keep"), 0, "")
	h.wants(h.jail("session", "exec", "s", "--", "sh", "-c", "echo 1 >e"), 0, "")
	h.wants(h.jail("discard", "--force", "s"), 0, "")
	h.wants(h.jail("session", "exec", "s", "--", "true"), 127, "no session")
	h.wants(h.jail("diff", "s"), 127, "no shadow")
	r := h.live("live")
	h.wants(h.jail("discard", "live"), 126, "run live is alive")
	h.wants(h.jail("discard", "live", "a"), 127, "a: no change has that path")
	h.wants(h.jail("discard", "--force", "live"), 0, "")
	h.wants(r.wait(), 137, "")
	d.stop()
}
