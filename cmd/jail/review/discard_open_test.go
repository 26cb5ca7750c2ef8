package review_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestDiscardOpen: the shadow of an open session or a live run is not thrown away behind its back;
// --force ends it first. Of one that has ended a part can be thrown away.
func TestDiscardOpen(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	h.Wants(h.Jail("session", "start", "--profile", "build", "--id", "s", "--keep"), 0, "")
	h.Wants(h.Jail("session", "exec", "s", "--", "sh", "-c",
		"echo 1 >a; echo 2 >b; mkdir d; echo 3 >d/c"), 0, "")
	h.Wants(h.Jail("discard", "s"), 126, "session s is open.*(.|\n)*jail discard --force s")
	// A part is discarded, and the session goes on with its own files.
	if o := h.Jail("discard", "s", "d"); o.Code != 0 ||
		o.Out != "discarded 2 changes of run s (+2 ~0 -0), and left 2\n" {
		t.Errorf("%+v", o)
	}
	h.Wants(h.Jail("session", "exec", "s", "--", "sh", "-c", "cat d/c; echo 4 >d/c"), 0, "")
	h.Wants(h.Jail("discard", "--all", "--yes"), 0, "")
	h.Wants(h.Jail("session", "exec", "s", "--", "cat", "a"), 0, "")
	h.Wants(h.Jail("session", "stop", "s"), 0, "")
	h.Wants(h.Jail("discard", "s", "moon"), 127, "moon: no change has that path")
	h.Wants(h.Jail("discard", "--force", "s", "a"), 2, "takes no PATH")
	if o := h.Jail("discard", "s", "a", "d"); o.Code != 0 ||
		o.Out != "discarded 3 changes of run s (+3 ~0 -0), and left 1\n" {
		t.Errorf("%+v", o)
	}
	h.Wants(h.Jail("commit", "s"), 0, "")
	h.Holds("b", "2\n")
	for _, name := range []string{"a", "d"} {
		if _, err := os.Lstat(filepath.Join(h.Work, name)); err == nil {
			t.Errorf("%s was discarded, and committed", name)
		}
	}
	h.Discard("s")
	h.Wants(h.Jail("session", "start", "--profile", "build", "--id", "s", "--keep"), 0, "")
	h.Wants(h.Jail("session", "exec", "s", "--", "sh", "-c", "echo 1 >e"), 0, "")
	h.Wants(h.Jail("discard", "--force", "s"), 0, "")
	h.Wants(h.Jail("session", "exec", "s", "--", "true"), 127, "no session")
	h.Wants(h.Jail("diff", "s"), 127, "no shadow")
	r := h.Live("live")
	h.Wants(h.Jail("discard", "live"), 126, "run live is alive")
	h.Wants(h.Jail("discard", "live", "a"), 127, "a: no change has that path")
	h.Wants(h.Jail("discard", "--force", "live"), 0, "")
	h.Wants(r.Wait(), 137, "")
	d.Stop()
}
