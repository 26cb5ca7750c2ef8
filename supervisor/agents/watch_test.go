package agents

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// What changes in the folder of agents is taken up while it is watched: agents that come, change,
// are wrong, go and come back, also where a directory replaces another at once.
func TestWatch(t *testing.T) {
	w := newWorld(t).start()
	folder := filepath.Join(w.dir, "agents")
	write := func(name, file, text string) {
		t.Helper()
		dir, beside := filepath.Join(folder, name), filepath.Join(w.dir, "beside")
		// In one step: half a file would be another change that is taken up.
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(beside, []byte(text), 0o644),
			os.Rename(beside, filepath.Join(dir, file))); err != nil {
			t.Fatal(err)
		}
	}
	whole := func(name, more string) {
		t.Helper()
		write(name, "main.py", "print(1)\n")
		write(name, "agent.toml", "agent = 1\ntype = \"agent\"\nname = \""+name+
			"\"\nmodule = \"python/python3\"\nargs = [\"main.py\"]\n"+more)
	}
	known := func(name string) store.Agent {
		a, err := w.Store.Agent(t.Context(), name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return a
	}
	whole("before", "")
	if err := w.Watch(); err != nil {
		t.Fatal(err)
	}
	w.until("an agent that was there is registered", func() bool { return known("before").Name != "" })
	whole("later", "")
	w.until("an agent that comes is registered", func() bool { return known("later").Name != "" })

	first := known("later").Digest
	write("later", "main.py", "print(2)\n")
	w.until("a change of a file is taken up", func() bool { return known("later").Digest != first })
	second := known("later").Digest
	write("later", "agent.toml", "agent = 1\nnonsense = 2\n")
	w.until("what is wrong is reported", func() bool {
		return strings.Contains(w.Problems()["later"], "nonsense")
	})
	if known("later").Digest != second {
		t.Error("a manifest that is wrong is registered")
	}
	whole("later", "channels = [\"a\", \"b\"]\n")
	w.until("what is right again is taken up", func() bool {
		return len(w.Problems()) == 0 && known("later").Digest != second &&
			len(w.instances("later")) == 3
	})

	// A directory in the place of another, as `jail agent add` has it.
	moved := filepath.Join(w.dir, "moved")
	if err := os.Rename(filepath.Join(folder, "later"), moved); err != nil {
		t.Fatal(err)
	}
	w.until("an agent without files has failed", func() bool {
		i := w.instances("later")[1]
		return i.State == store.Failed && strings.Contains(i.Error, "its files are gone")
	})
	third := known("later").Digest
	if err := os.WriteFile(filepath.Join(moved, "main.py"), []byte("print(3)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(moved, filepath.Join(folder, "later")); err != nil {
		t.Fatal(err)
	}
	w.until("an agent whose files come back can run again", func() bool {
		return known("later").Digest != third && w.instances("later")[1].State == store.Dormant
	})
	fourth := known("later").Digest
	write("later", "main.py", "print(4)\n")
	w.until("the directory that came back is watched", func() bool {
		return known("later").Digest != fourth
	})

	// A name that no agent can have, what is hidden, and the name of a built-in agent.
	write("No Name", "agent.toml", "x")
	write(".adding-1", "agent.toml", "x")
	whole("codex-responder", "")
	w.until("an agent with a reserved name is reported", func() bool {
		return strings.Contains(w.Problems()["codex-responder"], "built-in agent")
	})
	if all := w.Problems(); len(all) > 2 || all[".adding-1"] != "" || known("codex-responder").Name != "" {
		t.Errorf("%v", all)
	}
	if err := os.RemoveAll(filepath.Join(folder, "codex-responder")); err != nil {
		t.Fatal(err)
	}
	w.until("it is forgotten with its directory", func() bool {
		return w.Problems()["codex-responder"] == ""
	})
}

// What is above the folder of agents is not closed to others.
func TestMakeFolder(t *testing.T) {
	above := filepath.Join(t.TempDir(), "jail")
	if err := makeFolder(filepath.Join(above, "agents")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]os.FileMode{above: 0o755, filepath.Join(above, "agents"): 0o700} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", dir, info.Mode(), err, want)
		}
	}
}
