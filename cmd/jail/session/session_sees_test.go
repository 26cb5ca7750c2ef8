package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestSessionSeesDirectory: an invocation sees what changed in the real directory since those before
// it, whatever they looked up there. The kernel itself does not see to that: a file that is in use
// stays as it was.
func TestSessionSeesDirectory(t *testing.T) {
	seesDirectory(cmdtest.NewNative(t), map[string][]string{"native": {"--profile", "build"}})
}

func TestSessionOfModulesSeesDirectory(t *testing.T) {
	seesDirectory(cmdtest.New(t), map[string][]string{"wasi": {}, "engine": {"--shared-engine"}})
}

// seesDirectory tries each kind of session in turn.
func seesDirectory(h *cmdtest.Host, kinds map[string][]string) {
	t := h.T
	t.Helper()
	d := h.Daemon()
	replace := func(name, content string) {
		t.Helper()
		h.Files(map[string]string{"next": content})
		if err := os.Rename(filepath.Join(h.Work, "next"), filepath.Join(h.Work, name)); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(id, want string, command ...string) {
		t.Helper()
		if o := h.Exec(id, append([]string{"--"}, command...)...); o.Out != want || o.Code != 0 {
			t.Errorf("%s %v: %+v, want %q", id, command, o, want)
		}
	}
	for name, args := range kinds {
		h.Files(map[string]string{"mod": "old\n", "dir/mod": "old\n", "dir/gone": "old\n"})
		id := h.Session(append([]string{"--id", name}, args...)...)
		shows(id, "old\nold\nold\n", "cat", "mod", "dir/mod", "dir/gone")
		shows(id, "gone\nmod\n", "ls", "dir")
		replace("mod", "new\n")
		replace("dir/mod", "new\n")
		h.Files(map[string]string{"dir/more": "new\n"})
		if err := os.Remove(filepath.Join(h.Work, "dir/gone")); err != nil {
			t.Fatal(err)
		}
		shows(id, "new\nnew\nnew\n", "cat", "mod", "dir/mod", "dir/more")
		shows(id, "mod\nmore\n", "ls", "dir")

		// The control: the same file while an invocation has it open.
		if name == "native" {
			r := h.LiveWith(h.Command("session", "exec", id, "--id", "holds", "--", "sh", "-c",
				"exec 3<mod; while read l; do echo got $l; done"), "holds")
			replace("mod", "newer\n")
			shows(id, "new\n", "cat", "mod")
			r.In.Close()
			h.Wants(r.Wait(), 0, "")
			shows(id, "newer\n", "cat", "mod")
		}
		h.Wants(h.Jail("session", "stop", "--discard", id), 0, "")
		if err := os.RemoveAll(filepath.Join(h.Work, "dir")); err != nil {
			t.Fatal(err)
		}
	}
	d.Stop()
}
