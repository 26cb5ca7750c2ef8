package cmd_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Where /proc is not mounted, as in some chroots, jail says so, and what to do.
func TestNoProc(t *testing.T) {
	h := newHost(t)
	root := filepath.Join(h.root, "bare")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(h.bin, "jail"), filepath.Join(root, "jail")); err != nil {
		t.Fatal(err)
	}
	cmd := h.program("/jail", "run", "--", "true")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
	h.wants(h.run(cmd), 126,
		"^jail: error: layer proc cannot be set up here: .*\njail: hint: mount -t proc proc /proc")
}
