package run_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// Where /proc is not mounted, as in some chroots, jail says so, and what to do.
func TestNoProc(t *testing.T) {
	h := cmdtest.New(t)
	root := filepath.Join(h.Root, "bare")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(h.Bin, "jail"), filepath.Join(root, "jail")); err != nil {
		t.Fatal(err)
	}
	cmd := h.Program("/jail", "run", "--", "true")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
	h.Wants(h.Run(cmd), 126,
		"^jail: error: layer proc cannot be set up here: .*\njail: hint: mount -t proc proc /proc")
}
