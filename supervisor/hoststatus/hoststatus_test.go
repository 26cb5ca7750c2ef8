package hoststatus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/config"
)

// What is missing or altered of an installation is found, and each finding says what to do.
func TestInstalled(t *testing.T) {
	dir := t.TempDir()
	for _, f := range Installed(config.Default(filepath.Join(dir, "jail"),
		func(string) string { return "" }).Below(dir)) {
		wrong := f.Name == "state directory" || f.Name == "audit log"
		if (f.Answer == probe.Yes) != wrong || f.Detail == "" || f.Answer != probe.Yes &&
			f.Fix == "" {
			t.Errorf("%+v", f)
		}
	}
	module := filepath.Join(dir, "bundles", "words", "count.wasm")
	if err := os.MkdirAll(filepath.Dir(module), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(module), "bundle.toml"), []byte("nonsense"),
		0o644); err != nil {
		t.Fatal(err)
	}
	f := findBundles(bundle.Places{Dirs: []string{filepath.Join(dir, "bundles")}})
	if f.Answer != probe.No || !strings.Contains(f.Detail, "words") {
		t.Errorf("%+v", f)
	}
}
