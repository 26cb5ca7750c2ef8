package service_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// variant is the probe as another module: it has one more custom section, which says which.
func variant(h *cmdtest.Host, n byte) string {
	h.T.Helper()
	module, err := os.ReadFile(h.Probe)
	if err != nil {
		h.T.Fatal(err)
	}
	path := filepath.Join(h.Root, fmt.Sprintf("variant%d.wasm", n))
	if err := os.WriteFile(path, append(module, 0, 2, 1, 'a'+n), 0o644); err != nil {
		h.T.Fatal(err)
	}
	return path
}

// compiledModules returns the entries of the cache of compiled modules.
func compiledModules(h *cmdtest.Host) map[string]bool {
	h.T.Helper()
	found, err := filepath.Glob(filepath.Join(h.State, "state", "modules", "*", "wazero-*", "*"))
	if err != nil {
		h.T.Fatal(err)
	}
	all := map[string]bool{}
	for _, f := range found {
		all[f] = true
	}
	return all
}

// Modules that are compiled one after the other do not fill the disk, and none of them takes from a
// run that is under way what it has mounted.
func TestCompiledModulesAreBounded(t *testing.T) {
	h := cmdtest.New(t)
	// No module is compiled that no run uses.
	if err := errors.Join(os.RemoveAll(filepath.Join(h.State, "state", "modules")),
		cmdtest.Compiled(h.State, h.Probe)); err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf("[pool]\nsize = 0\n[compile]\ntimes = %d\ncache = \"1MiB\"\n", cmdtest.Slower())
	if err := os.WriteFile(filepath.Join(h.State, "jaild.toml"), []byte(settings),
		0o600); err != nil {
		t.Fatal(err)
	}
	d := h.Daemon()
	live := h.Live("under-way", "--policy", cmdtest.Patient(h))
	begun := compiledModules(h)
	for n := range byte(3) {
		h.Wants(h.Jail("run", "--", variant(h, n)), 0, "")
		now := compiledModules(h)
		for entry := range begun {
			if !now[entry] {
				t.Errorf("after module %d the one that is in use is gone", n)
			}
		}
		if len(now) != len(begun)+1 {
			t.Errorf("after module %d there are %d compiled ones, want that and the one in use", n,
				len(now))
		}
	}
	live.Says("on")
	live.In.Close()
	h.Wants(live.Wait(), 0, "")
	h.Wants(h.Jail("run", "--", variant(h, 3)), 0, "")
	if now := compiledModules(h); len(now) != 1 {
		t.Errorf("there are %d compiled modules, want the one that was last used", len(now))
	}
	h.Wants(h.Jail("run", "--", h.Probe), 0, "")
	d.Stop()
}
