package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	wasihost "github.com/jail-sandbox/jail/runners/wasi"
	wasi "github.com/jail-sandbox/jail/runners/wasi/guest"
)

// posixShells are what the interpreter is compared with. Where they differ from each other POSIX
// leaves it open, and either is right.
var posixShells = [][]string{{"dash", "-c"}, {"bash", "--posix", "-c"}}

// cases are the scripts of testdata: posix.txt goes through the language, agents.txt has scripts of
// the kind that people and programs write.
func cases(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"posix.txt", "agents.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n-----\n")...)
	}
	return all
}

// fixture is the directory that every script starts in.
func fixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"data": "a b c\nbanana 2\n\na b c\n",
		"csv": "x,3,1\ny,4,2\nx,5,3\n", "nums": "3\n1\n2\n", "empty": "",
		"a.t": "1\n", "b.t": "1\n2\n", "sub/c.t": "1\n", ".hidden": "", "run": "#!/bin/false\n"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{os.Chmod(filepath.Join(dir, "run"), 0o755), os.Symlink("data",
		filepath.Join(dir, "link")),
		os.Symlink("nowhere", filepath.Join(dir, "dangling"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bundle is the shipped core-utils, compiled once for all tests.
var bundle = sync.OnceValues(func() (*shipped, error) {
	dir := "../../../bin/bundles/core-utils"
	text, err := os.ReadFile(filepath.Join(dir, "bundle.json"))
	if err != nil {
		return nil, fmt.Errorf("run make bundles first: %w", err)
	}
	var m struct {
		Modules  []struct{ File, Layout string }
		Commands []struct{ Name, Module string }
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	s := &shipped{commands: map[string]runners.Command{}}
	if s.cache, err = os.MkdirTemp("", "jail-test-cache"); err != nil {
		return nil, err
	}
	places := map[string]int{}
	for i, mod := range m.Modules {
		code, err := os.ReadFile(filepath.Join(dir, mod.File))
		if err != nil {
			return nil, err
		}
		cache := filepath.Join(s.cache, fmt.Sprint(i))
		if err := os.Mkdir(cache, 0o700); err != nil {
			return nil, err
		}
		if err := wasi.Compile(context.Background(), code, wasihost.Limits{}, cache); err != nil {
			return nil, err
		}
		s.modules = append(s.modules, code)
		places[mod.File] = i
	}
	for _, c := range m.Commands {
		i, ok := places[c.Module]
		if !ok {
			return nil, fmt.Errorf("command %s: no module %s", c.Name, c.Module)
		}
		s.commands[c.Name] = runners.Command{Module: i, Name: c.Name,
			Layout: runners.Layout(m.Modules[i].Layout)}
	}
	return s, nil
})

type shipped struct {
	cache    string
	modules  [][]byte
	commands map[string]runners.Command
}

func TestMain(m *testing.M) {
	code := m.Run()
	if s, err := bundle(); err == nil {
		os.RemoveAll(s.cache)
	}
	os.Exit(code)
}

type outcome struct {
	code     int
	out, err string
	tree     string
	rep      runners.Report
}

// interpret runs a script of ours in dir.
func interpret(t *testing.T, dir, script, stdin string, change func(*runners.Order)) outcome {
	t.Helper()
	s, err := bundle()
	if err != nil {
		t.Fatal(err)
	}
	order := runners.Order{Invocation: runners.Invocation{Env: runners.Texts{"PATH=/usr/bin:/bin",
		"HOME=" + dir, "LC_ALL=C"}, Cwd: dir, CacheDir: s.cache,
		Mounts: []runners.Mount{{Path: dir, Write: true}}, Devices: []string{"null"}},
		Script: &runners.Script{Name: "sh", Text: script, Commands: s.commands, Concurrent: 32}}
	if change != nil {
		change(&order)
	}
	files := [3]*os.File{}
	for i := range files {
		if files[i], err = os.CreateTemp(t.TempDir(), ""); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	if _, err := files[0].WriteString(stdin); err != nil {
		t.Fatal(err)
	}
	if _, err := files[0].Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	o := outcome{}
	if o.rep, err = Run(t.Context(), order, s.modules, files[0], files[1], files[2]); err != nil {
		t.Fatalf("%v", err)
	}
	o.code = o.rep.ExitCode
	for i, text := range []*string{&o.out, &o.err} {
		b, err := os.ReadFile(files[i+1].Name())
		if err != nil {
			t.Fatal(err)
		}
		*text = string(b)
	}
	o.tree = tree(t, dir)
	return o
}

// real runs the script in a real shell.
func real(t *testing.T, sh []string, dir, script string) outcome {
	t.Helper()
	cmd := exec.Command(sh[0], append(sh[1:], script)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C"}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // the code says it
	return outcome{code: cmd.ProcessState.ExitCode(), out: out.String(), err: errOut.String(),
		tree: tree(t, dir)}
}

// tree is the names, kinds and contents below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(p, dir) + " " + d.Type().String()
		if d.Type().IsRegular() && !strings.HasSuffix(p, ".tar") { // which holds the time
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(b))
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// TestAgainstShell runs every script here and in real POSIX shells with the host's tools: what it
// prints, how it ends, what it leaves behind, and whether something is said on stderr, must be as
// in one of them.
func TestAgainstShell(t *testing.T) {
	for _, sh := range posixShells {
		if _, err := exec.LookPath(sh[0]); err != nil {
			t.Fatalf("%s is needed to compare with: %v", sh[0], err)
		}
	}
	all := cases(t)
	if len(all) < 400 {
		t.Errorf("%d scripts, want at least 400", len(all))
	}
	for i, script := range all {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			got := interpret(t, fixture(t), script, "", nil)
			var report strings.Builder
			for _, sh := range posixShells {
				want := real(t, sh, fixture(t), script)
				if got.code == want.code && got.out == want.out && got.tree == want.tree &&
					(got.err == "") == (want.err == "") {
					return
				}
				fmt.Fprintf(&report, "--- %s: %d\n%s%s", sh[0], want.code, want.out, want.err)
				if got.tree != want.tree {
					fmt.Fprintf(&report, "tree:\n%s\n", want.tree)
				}
			}
			t.Errorf("%s\n--- here: %d\n%s%stree:\n%s\n%s", script, got.code, got.out, got.err,
				got.tree, report.String())
		})
	}
}
