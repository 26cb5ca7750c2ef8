package hosted

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
)

// TestChangedManifest: an agent whose manifest has put it into a jail meanwhile is not started
// outside of one.
func TestChangedManifest(t *testing.T) {
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	program := filepath.Join(dir, "program")
	for name, text := range map[string]string{
		program: "#!/bin/sh\ntouch " + started + "\n",
		filepath.Join(dir, manifest.File): "agent = 1\ntype = \"agent\"\nname = \"a\"\n" +
			"runtime = \"sandboxed\"\nnative = [\"python3\", \"a.py\"]\n",
		filepath.Join(dir, "a.py"): "",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	j := &Jails{Program: program}
	var out bytes.Buffer
	_, err := j.Run(t.Context(), agents.Launch{Dir: dir, State: filepath.Join(dir, "state"),
		Manifest: manifest.Manifest{Name: "a", Runtime: manifest.Host}}, agents.Orders{
		In: strings.NewReader(""), Out: &out})
	if err == nil || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("it was started")
	}
}
