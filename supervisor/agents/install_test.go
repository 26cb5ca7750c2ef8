package agents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/agents/store"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// An agent is not added if jaild does not find what it runs. Where jaild cannot say, it is added, and
// the first event tells.
func TestAddOfWhatIsMissing(t *testing.T) {
	w := newWorld(t).start()
	dir := t.TempDir()
	for name, text := range map[string]string{"main.py": "print(1)\n", "agent.toml": "agent = 1\n" +
		"type = \"agent\"\nname = \"new\"\nmodule = \"perl/perl\"\nargs = [\"main.py\"]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.jails.missing = problem.New(problem.NotFound, "command \"perl/perl\": not installed").
		WithHint("jail tool list shows what is installed")
	_, err := w.Add(t.Context(), dir)
	refused, ok := errors.AsType[*problem.Error](err)
	if !ok || refused.Code != problem.NotFound ||
		refused.Message != `agent "new": command "perl/perl": not installed` ||
		refused.Hint != "jail tool list shows what is installed; jail tool pull installs the "+
			"bundle perl from a registry" {
		t.Errorf("%#v", err)
	}
	if _, err := w.Store.Agent(t.Context(), "new"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it is registered: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(w.o.Folder, "new")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files are in the folder: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(w.o.State, loadPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	w.jails.missing = fmt.Errorf("%w: nobody answers", ErrNoJail)
	if _, err := w.Add(t.Context(), dir); err != nil {
		t.Error(err)
	}
}
