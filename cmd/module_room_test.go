package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// variant is the probe as another module: it has one more custom section, which says which.
func (h *host) variant(n byte) string {
	h.t.Helper()
	module, err := os.ReadFile(h.probe)
	if err != nil {
		h.t.Fatal(err)
	}
	path := filepath.Join(h.root, fmt.Sprintf("variant%d.wasm", n))
	if err := os.WriteFile(path, append(module, 0, 2, 1, 'a'+n), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// compiledModules returns the entries of the cache of compiled modules.
func (h *host) compiledModules() map[string]bool {
	h.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.state, "state", "modules", "*", "wazero-*", "*"))
	if err != nil {
		h.t.Fatal(err)
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
	h := newHost(t)
	settings := fmt.Sprintf("[pool]\nsize = 0\n[compile]\ntimes = %d\ncache = \"1MiB\"\n", slower())
	if err := os.WriteFile(filepath.Join(h.state, "jaild.toml"), []byte(settings),
		0o600); err != nil {
		t.Fatal(err)
	}
	d := h.daemon()
	live := h.live("under-way", "--policy", h.patient())
	begun := h.compiledModules()
	for n := range byte(3) {
		h.wants(h.jail("run", "--", h.variant(n)), 0, "")
		now := h.compiledModules()
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
	live.says("on")
	live.in.Close()
	h.wants(live.wait(), 0, "")
	h.wants(h.jail("run", "--", h.variant(3)), 0, "")
	if now := h.compiledModules(); len(now) != 1 {
		t.Errorf("there are %d compiled modules, want the one that was last used", len(now))
	}
	h.wants(h.jail("run", "--", h.probe), 0, "")
	d.stop()
}
