package policy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A profile of a directory shows the toolchains of the caller's PATH and environment, and gives the
// project's package managers caches; never keys, a home, or what another user can write to.
func TestProfileFromHere(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	// The profile build has memory of its own at /tmp.
	home, err := os.MkdirTemp("/var/tmp", "jail-here-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	below := func(name string) string { return filepath.Join(home, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(below(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(below(name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("sdk/v2/bin/compile", "#!/bin/sh\ncat \"$(dirname \"$0\")\"/../lib/version\n")
	write("sdk/v2/lib/version", "version 2\n")
	write("tools/venv/bin/lint", "#!/bin/sh\necho linted\n")
	write("tools/venv/pyvenv.cfg", "")
	write(".aws/bin/keys", "#!/bin/sh\n")
	write(".cargo/bin/cargo", "#!/bin/sh\necho cargo of the caller\n")
	write(".cargo/credentials.toml", "")
	write(".cargo/registry/index", "")
	write("mods/m", "module\n")
	write("mods/cache/download/m", "")
	write("open/bin/x", "#!/bin/sh\n")
	write("bin/own", "#!/bin/sh\necho own\n")
	write("work/go.mod", "module x\n")
	write("work/Cargo.toml", "")
	write("java/bin/java", "#!/bin/sh\necho java\n")
	write("java/.netrc", "")
	if err := os.Chmod(below("open/bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../tools/venv/bin/lint", below("bin/lint")); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{below("sdk/v2/bin"), below(".aws/bin"), below(".cargo/bin"),
		below("open/bin"), below("bin"), "relative", "/usr/bin", "/bin"}, ":")
	jail := func(dir string, args ...string) cmdtest.Outcome {
		t.Helper()
		cmd := h.Command(args...)
		cmd.Dir = below(dir)
		cmd.Env = append(cmd.Env, "HOME="+home, "PATH="+path, "GOMODCACHE="+below("mods"),
			"JAVA_HOME="+below("java"), "PYENV_ROOT=", "RUSTUP_HOME=", "CARGO_HOME=", "GOPATH=",
			"GOROOT=", "VIRTUAL_ENV=")
		return h.Run(cmd)
	}
	for _, c := range []struct{ dir, want string }{
		{"work", "standard input is no terminal"}, {"", home + " holds your home directory"}} {
		args := []string{"profile", "new", "--from-here"}
		if c.dir == "" {
			args = append(args, "--yes")
		}
		if o := jail(c.dir, args...); o.Code != 2 || !strings.Contains(o.Err, c.want) {
			t.Errorf("in %q: %+v", c.dir, o)
		}
	}
	o := jail("work", "profile", "new", "--from-here", "--yes", "--json")
	var made struct {
		Name, File string
		Here       struct {
			Mounts []struct{ Source, Target, Access string }
			Caches []struct{ Name, Variable string }
			Env    map[string]string
			Out    []string `json:"left_out"`
		}
	}
	if err := json.Unmarshal([]byte(o.Out), &made); err != nil || made.Name != "work" {
		t.Fatalf("%v: %+v", err, o)
	}
	var mounts, caches []string
	for _, m := range made.Here.Mounts {
		mounts = append(mounts, m.Access+" "+strings.TrimPrefix(m.Target, home))
	}
	for _, c := range made.Here.Caches {
		caches = append(caches, c.Name+" "+c.Variable)
	}
	if want := []string{"read+exec /sdk/v2", "read+exec /.cargo/bin", "read+exec /bin",
		"read+exec /tools/venv", "read /mods", "read /.cargo/registry"}; !slices.Equal(mounts, want) {
		t.Errorf("mounts %q, want %q", mounts, want)
	}
	if want := []string{"go-build GOCACHE"}; !slices.Equal(caches, want) {
		t.Errorf("caches %q, want %q", caches, want)
	}
	out := strings.Join(made.Here.Out, "\n")
	for _, want := range []string{below("java") + " (JAVA_HOME): it holds .netrc",
		below(".aws/bin") + " (programs on your PATH): it shows " + below(".aws"),
		"everyone can write to it"} {
		if !strings.Contains(out, want) {
			t.Errorf("left out: %s\nnot %s", out, want)
		}
	}
	if len(made.Here.Out) != 3 {
		t.Errorf("left out: %q", made.Here.Out)
	}
	const tools = `compile && cargo && own && lint && cat "$GOMODCACHE/m" && touch "$GOCACHE/x"`
	o = jail("work", "run", "--discard", "--policy", "work.toml", "--", "sh", "-c", tools)
	if o.Code != 0 || o.Out != "version 2\ncargo of the caller\nown\nlinted\nmodule\n" {
		t.Errorf("%+v", o)
	}
	o = jail("work", "run", "--discard", "--policy", "work.toml", "--", "sh", "-c",
		`cat "$1"/.cargo/credentials.toml || ls "$1"/.aws || echo keys >"$1"/.cargo/bin/cargo`,
		"sh", home)
	if o.Code == 0 {
		t.Errorf("secrets or toolchains are open: %+v", o)
	}
	if o := jail("work", "profile", "new", "--from-here", "--yes"); o.Code != 2 ||
		!strings.Contains(o.Err, "work.toml exists") {
		t.Errorf("again: %+v", o)
	}
	var kept []struct{ ID string }
	o = h.Jail("cache", "list", "--json")
	if err := json.Unmarshal([]byte(o.Out), &kept); err != nil || len(kept) != 1 {
		t.Fatalf("%v: %+v", err, o)
	}
	h.Wants(h.Jail("cache", "rm", kept[0].ID), 0, "")
}

// On a terminal the proposal is shown once, and nothing is written without a yes.
func TestProfileFromHereAsks(t *testing.T) {
	h := cmdtest.New(t)
	file := filepath.Join(h.Work, "mine.toml")
	for _, c := range []struct {
		types string
		wrote bool
	}{{"n\r", false}, {"y\r", true}} {
		x := cmdtest.NewTerminal(t)
		cmd := h.Command("profile", "new", "--from-here", "mine")
		cmd.Dir = h.Work
		x.Start(cmd)
		x.Shows("Write mine.toml? [y,n]")
		x.Types(c.types)
		err := cmd.Wait()
		if _, gone := os.Stat(file); (gone == nil) != c.wrote || (err == nil) != c.wrote {
			t.Errorf("%q: %v, %v", c.types, err, gone)
		}
	}
}
