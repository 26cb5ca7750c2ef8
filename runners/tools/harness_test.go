package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/runners/wasi"
	"github.com/jail-sandbox/jail/runners/wasi/guest"
)

// built is what build.sh makes, with its modules loaded.
type built struct {
	module map[string]*guest.Loaded // by command
	layout map[string]runners.Layout
	all    []string // the commands
	core   []string // those of core-utils
	c      bool     // from C sources
}

var bundle = sync.OnceValues(func() (*built, error) {
	dir, err := os.MkdirTemp("", "jail-tools-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if text, err := exec.Command("sh", "build.sh", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build.sh: %w\n%s", err, text)
	}
	b := &built{module: make(map[string]*guest.Loaded), layout: make(map[string]runners.Layout)}
	if err := b.load(filepath.Join(dir, "core-utils")); err != nil {
		return nil, err
	}
	b.c = b.module["sed"] != nil
	b.core = slices.Clone(b.all)
	for _, name := range []string{"data-utils", "search", "js", "python"} {
		if err := b.load(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return b, nil
})

// has skips a test of a tool whose bundle could not be built here: build.sh said why.
func (b *built) has(t *testing.T, command string) {
	t.Helper()
	if b.module[command] == nil {
		t.Skipf("%s: its bundle cannot be built on this machine", command)
	}
}

func (b *built) load(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "bundle.json"))
	if err != nil {
		return err
	}
	var manifest struct {
		Modules []struct {
			File   string
			Layout runners.Layout
		}
		Commands []struct{ Name, Module string }
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return err
	}
	for _, m := range manifest.Modules {
		code, err := os.ReadFile(filepath.Join(dir, m.File))
		if err != nil {
			return err
		}
		loaded, err := guest.Load(withProxy(), code, wasi.Limits{}, "")
		if err != nil {
			return fmt.Errorf("%s: %w", m.File, err)
		}
		for _, c := range manifest.Commands {
			if c.Module == m.File {
				b.module[c.Name], b.layout[c.Name] = loaded, m.Layout
			}
		}
	}
	for _, c := range manifest.Commands {
		b.all = append(b.all, c.Name)
	}
	return nil
}

// tools returns the bundle. Where only the smaller set of Go tools could be built,
// the table has nothing to say.
func tools(t *testing.T) *built {
	t.Helper()
	b, err := bundle()
	if err != nil {
		t.Fatal(err)
	}
	if !b.c {
		t.Skip("no C compiler for WebAssembly: the bundle has the Go tools only")
	}
	return b
}

// outcome is all that a run of a command leaves.
type outcome struct {
	stdout, stderr string
	code           int
	tree           string // the files below the working directory
}

// inJail runs a command of the bundle in a folder, seen as /workspace.
func (b *built) inJail(t *testing.T, dir, stdin string, args ...string) outcome {
	t.Helper()
	module := b.module[args[0]]
	if module == nil {
		t.Fatalf("%s is not in the bundle", args[0])
	}
	in, out, errs := tempFile(t, stdin), tempFile(t, ""), tempFile(t, "")
	inv := runners.Invocation{
		Args: args, Cwd: "/workspace", Env: []string{"PWD=/workspace", "PATH=/bin", "LANG=C.UTF-8",
			"TZ=UTC"},
		Mounts: []runners.Mount{{Path: "/workspace", Source: dir, Write: true}, {Path: "/tmp", Source: t.TempDir(), Write: true}},
		Layout: b.layout[args[0]],
	}
	report, err := module.Run(withProxy(), inv, in, out, errs)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if report.Trap != nil {
		t.Errorf("%q: trap: %s", args, report.Trap.Sentence)
	}
	return outcome{contents(t, out), contents(t, errs), report.ExitCode, tree(t, dir)}
}

// onHost runs the command that Debian has under the same name in a folder.
func onHost(t *testing.T, dir, stdin string, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(stdin), &out, &errs
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC"}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode(), tree(t, dir)}
}

// tree describes the files below a folder: kind, path, content or target.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		content, what := []byte{}, path[len(dir)+1:]
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			lines = append(lines, fmt.Sprintf("%s -> %s", what, to))
			return err
		case e.Type().IsRegular():
			content, err = os.ReadFile(path)
		}
		lines = append(lines, fmt.Sprintf("%v %s %q", e.Type(), what, content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// fixture makes the folder that every case of the table starts with.
func fixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"fruit":           "banana 3\napple 10\ncherry 2\napple 10\nDate 7\n",
		"fruit2":          "banana 3\napple 11\ncherry 2\nelder 1\n",
		"sorted":          "apple\nbanana\ncherry\n",
		"sorted2":         "banana\ncherry\ndate\n",
		"table.csv":       "id,name,size\n1,one,10\n2,two,20\n3,three,30\n",
		"tabs":            "a\tb\tc\n1\t2\t3\n",
		"dos":             "one\r\ntwo\r\n",
		"noeol":           "no newline at the end",
		"empty":           "",
		"umlaut":          "grün\nblau\n",
		"d/deep/er/text":  "needle in a haystack\n",
		"d/deep/more.txt": "hay\nneedle\nhay\n",
		"d/script.sh":     "#!/bin/sh\necho hello\n",
		"binary":          "\x00\x01\x02text in it\x00\xff\xfe\n",
		"change.patch": "--- fruit\n+++ fruit\n@@ -1,3 +1,3 @@\n banana 3\n-apple 10\n" +
			"+avocado 10\n cherry 2\n",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("fruit", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func tempFile(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func contents(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
