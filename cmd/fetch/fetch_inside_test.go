package fetch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// TestFetchInside is what a hostile tool can do with each way in, and what it can learn, on an
// internet of the test's own.
func TestFetchInside(t *testing.T) {
	if !onTestInternet(t, "9m") {
		return
	}
	w := newInsideWorld(t)
	t.Run("vectors", func(t *testing.T) { vectors(t, w) })
	t.Run("canary", func(t *testing.T) { canary(t, w) })
	w.h.T = t
}

// insideWorld is a host on such an internet, with testdata/rawfetch as a guest and as a program.
type insideWorld struct {
	h     *cmdtest.Host
	guest string
	names *fetchtest.Names
	ca    *fetchtest.Authority
}

func newInsideWorld(t *testing.T) *insideWorld {
	w := &insideWorld{h: cmdtest.New(t), names: fetchtest.StartNames(t), ca: fetchtest.NewAuthority(t)}
	w.guest = cmdtest.Must(cmdtest.Build("rawfetch.wasm", "./testdata/rawfetch", "GOOS=wasip1", "GOARCH=wasm")())(t)
	if err := cmdtest.Compiled(w.h.State, w.guest); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(cmdtest.Must(cmdtest.Build("rawfetch", "./testdata/rawfetch")())(t))
	if err != nil {
		t.Fatal(err)
	}
	w.h.Files(map[string]string{"rawfetch*": string(program)})
	settings := fmt.Sprintf("resolvers = [%q]\nroots = %q\n", w.names.Server,
		filepath.Join(w.h.State, "roots.pem"))
	for _, kind := range canaryKinds {
		settings += fmt.Sprintf("[[credential]]\nname = %q\nkind = %q\nfile = %q\n%sscrub = true\n",
			kind, kind, filepath.Join(w.h.State, "secret"),
			map[string]string{"basic": "user = \"me\"\n", "header": "header = \"X-Key\"\n",
				"query": "parameter = \"key\"\n"}[kind])
	}
	for name, text := range map[string]string{"roots.pem": string(w.ca.PEM), "secret": fetchCanary +
		"\n", "fetch.toml": settings} {
		if err := os.WriteFile(filepath.Join(w.h.State, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.h.Foreign[name] = true
	}
	return w
}

// write writes a policy.
func (w *insideWorld) write(name, text string) {
	w.h.T.Helper()
	if err := os.WriteFile(filepath.Join(w.h.Root, name), []byte(text), 0o600); err != nil {
		w.h.T.Fatal(err)
	}
}
