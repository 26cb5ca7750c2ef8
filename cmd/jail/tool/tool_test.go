package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	"github.com/jail-sandbox/jail/supervisor/bundle"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

func install(t *testing.T, store string) {
	t.Helper()
	dir := filepath.Join(store, "words")
	module := []byte("\x00asm\x01\x00\x00\x00")
	sum := sha256.Sum256(module)
	m := bundle.Manifest{Format: bundle.Format, Name: "words", Version: "1.0.0",
		About:    "Tools for words.",
		Licences: []bundle.Licence{{SPDX: "MIT", File: "LICENSE"}},
		BuiltFrom: []bundle.Source{{Name: "words", Version: "1.0",
			SHA256: strings.Repeat("0", 64)}},
		Modules: []bundle.ModuleEntry{{File: "words.wasm", SHA256: hex.EncodeToString(sum[:]),
			Size: int64(len(module)), Layout: bundle.LayoutRooted, Imports: []string{}}},
		Commands: []bundle.CommandEntry{{Name: "count", Module: "words.wasm",
			About: "Count words."}, {Name: "spell", Module: "words.wasm", About: "Spell words."}}}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"words.wasm": module, "LICENSE": []byte("MIT"),
		bundle.ManifestFile: text} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// try runs a command with the bundles in store.
func try(t *testing.T, store string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	env := &cli.Env{Stdout: &out, Stderr: &errOut, Config: config.Config{Bundles: []string{store}}}
	root := &cobra.Command{Use: "jail", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(New(env))
	root.SetArgs(args)
	code = env.Exit(root.ExecuteContext(context.Background()))
	return code, out.String(), errOut.String()
}

func TestTools(t *testing.T) {
	store := t.TempDir()
	install(t, store)
	code, out, stderr := try(t, store, "tool", "list")
	if code != 0 || stderr != "" {
		t.Errorf("list: %d, %s", code, stderr)
	}
	if want := "TOOL         VERSION  SIGNED BY  ABOUT\n" +
		"words/count  1.0.0    nobody     Count words.\n" +
		"words/spell  1.0.0    nobody     Spell words.\n"; out != want {
		t.Errorf("list:\n%s\nwant:\n%s", out, want)
	}

	for _, c := range []struct{ name, want string }{{"count", "command     count: Count words."},
		{"words/spell", "command     spell: Spell words."},
		{"words", "commands    count: Count words."}} {
		if code, out, stderr := try(t, store, "tool", "show", c.name); code != 0 ||
			!strings.Contains(out, c.want) {
			t.Errorf("show %s: %d, %s%s", c.name, code, out, stderr)
		}
	}
	if code, _, stderr := try(t, store, "tool", "show", "cont"); code != problem.ExitNotFound ||
		!strings.Contains(stderr, "near it: count") {
		t.Errorf("show of what is not there: %d, %s", code, stderr)
	}
	var views []bundleView
	code, out, _ = try(t, store, "tool", "list", "--json")
	if err := json.Unmarshal([]byte(out), &views); code != 0 || err != nil || len(views) != 1 ||
		views[0].Dir != filepath.Join(store, "words") {
		t.Errorf("list as JSON: %d, %v, %s", code, err, out)
	}

	// A bundle that was altered is left out, and said to be.
	if err := os.WriteFile(filepath.Join(store, "words", "more"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := try(t, store, "tool", "list"); code != 0 || strings.Contains(out,
		"count") || !strings.Contains(stderr, "jail: warning: bundle left out") {
		t.Errorf("list of an altered bundle: %d, %s%s", code, out, stderr)
	}
}

// TestExpiredSignature: no command signs what has expired already.
func TestExpiredSignature(t *testing.T) {
	for _, cmd := range []*cobra.Command{NewImage(&cli.Env{}), New(&cli.Env{})} {
		args := []string{"sign", "--key", "no.key", "--expires", "-1h", t.TempDir()}
		if cmd.Name() == "image" {
			args = append(args[:5:5], "tools", "oci:"+t.TempDir())
		}
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "--expires -1h0m0s: it would have expired") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
