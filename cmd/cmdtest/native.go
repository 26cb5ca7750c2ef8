package cmdtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Have skips without a program of the host.
func Have(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := os.Stat(p); err != nil {
			t.Skipf("this host has no %s", p)
		}
	}
}

// Files writes files into the workspace; those whose names end with * can be executed.
func (h *Host) Files(files map[string]string) {
	h.T.Helper()
	for name, text := range files {
		mode := os.FileMode(0o644)
		name, executable := strings.CutSuffix(name, "*")
		if executable {
			mode = 0o755
		}
		path := filepath.Join(h.Work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			h.T.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			h.T.Fatal(err)
		}
	}
}

// A NativeResult is what the tests look at in the result of a program of the host.
type NativeResult struct {
	ExitCode int `json:"exit_code"`
	Signal   string
	Stdout   string
	Stderr   string
	Denied   []struct{ Layer, What string }
	Limit    *struct{ Name string }
	Changes  struct{ Added, Modified, Deleted int }
	Error    *struct{ Message string }
}
