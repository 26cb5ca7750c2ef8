// Package runnertest is the test suite for each runner: arguments, streams, files, exit codes and
// limits are the same for the caller, whatever the kind of tool. The suite knows only what a caller
// sees of a run.
package runnertest

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/jail/jailtest/built"
)

// Run is the request of a caller.
type Run struct {
	Args   []string // after the tool's name
	Env    []string // NAME=VALUE
	Limits []string // KEY=VALUE
	Stdin  string
	Files  map[string]string // of the workspace
}

// Result is what a caller sees.
type Result struct {
	Code      int
	Signal    string // its name, or ""
	Limit     string // its name, or ""
	Truncated bool
	Stdout    string
	Stderr    string
	Added     int // files
	Modified  int
	Deleted   int
}

// A Runner runs the tool of Build in a jail of its own, over a shadow of a fresh workspace, and
// throws the shadow away. It may be called by several goroutines.
type Runner func(t testing.TB, r Run) Result

// Build builds the suite's tool for a GOOS and GOARCH, and returns its path.
func Build(t testing.TB, dir, goos, goarch string) string {
	t.Helper()
	name := "tool"
	if goos == "wasip1" {
		name = "tool.wasm"
	}
	path := filepath.Join(dir, name)
	if err := built.Program(path, []string{"GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0"},
		"-ldflags=-s -w", "github.com/jail-sandbox/jail/runners/runnertest/testdata/tool"); err != nil {
		t.Fatal(err)
	}
	return path
}

// bytes, more than any pipe holds
const many = 300_000

// suiteCase is a run with the expected result.
type suiteCase struct {
	name string
	run  Run
	want Result // but for the streams
	out  string // standard output, whole
	// in standard error, in lower case
	err string
	// told: the limit is an error of the tool's own call; a runner that does not see each call does
	// not know of it.
	told bool
}

var cases = []suiteCase{
	{name: "arguments", run: Run{Args: []string{"args", "one", "two words", "", "-n", "--flag=x",
		"*", "$HOME", "é\n\"'"}},
		out: `["one" "two words" "" "-n" "--flag=x" "*" "$HOME" "é\n\"'"]` + "\n"},
	{name: "directory", run: Run{Args: []string{"cwd"}}, out: "/workspace\n"},
	{name: "both streams", run: Run{Args: []string{"both"}}, out: "to stdout\n",
		err: "to stderr\n"},
	{name: "no input", run: Run{Args: []string{"cat"}}},
	{name: "input", run: Run{Args: []string{"cat"}, Stdin: "one\x00two\xff\n"},
		out: "one\x00two\xff\n"},
	{name: "much input and output", run: Run{Args: []string{"cat"},
		Stdin: strings.Repeat("0123456789", many/10)}, out: strings.Repeat("0123456789", many/10)},
	{name: "input that is not read", run: Run{Args: []string{"exit", "3"},
		Stdin: strings.Repeat("x", many)}, want: Result{Code: 3}},
	{name: "exit code 0", run: Run{Args: []string{"exit", "0"}}},
	{name: "exit code 1", run: Run{Args: []string{"exit", "1"}}, want: Result{Code: 1}},
	{name: "exit code 125", run: Run{Args: []string{"exit", "125"}}, want: Result{Code: 125}},
	{name: "exit code 255", run: Run{Args: []string{"exit", "255"}}, want: Result{Code: 255}},
	{name: "read a file", run: Run{Args: []string{"cat", "dir/f"},
		Files: map[string]string{"dir/f": "text\n"}}, out: "text\n"},
	{name: "read a file by its path", run: Run{Args: []string{"cat", "/workspace/f"},
		Files: map[string]string{"f": "text\n"}}, out: "text\n"},
	{name: "missing file", run: Run{Args: []string{"cat", "missing"}}, want: Result{Code: 1},
		err: "missing: no such file or directory"},
	{name: "file of the host", run: Run{Args: []string{"cat", "/etc/shadow"}},
		want: Result{Code: 1}, err: "/etc/shadow"},
	{name: "write a file", run: Run{Args: []string{"write", "new", "text"}},
		want: Result{Added: 1}},
	{name: "change a file", run: Run{Args: []string{"write", "f", "other"},
		Files: map[string]string{"f": "text\n"}}, want: Result{Modified: 1}},
	{name: "delete a file", run: Run{Args: []string{"remove", "f"},
		Files: map[string]string{"f": "text\n"}}, want: Result{Deleted: 1}},
	{name: "write to /tmp", run: Run{Args: []string{"write", "/tmp/f", "text"}}},
	{name: "write beside the workspace", run: Run{Args: []string{"write", "/f", "text"}},
		want: Result{Code: 1}, err: "/f"},
	{name: "within a limit of output", run: Run{Args: []string{"flood", fmt.Sprint(many)},
		Limits: []string{"output=300000B"}}, out: strings.Repeat("x", many)},
	{name: "limit of output", run: Run{Args: []string{"flood", fmt.Sprint(many)},
		Limits: []string{"output=1KiB"}}, want: Result{Code: 137, Signal: "SIGKILL",
		Limit: "output", Truncated: true}, out: strings.Repeat("x", 1024)},
	{name: "limit of time", run: Run{Args: []string{"sleep", "1h"}, Limits: []string{"wall=1s"}},
		want: Result{Code: 124, Limit: "wall"}},
	{name: "limit of CPU time", run: Run{Args: []string{"spin"},
		Limits: []string{"cpu_time=1100ms"}}, want: Result{Code: 124, Limit: "cpu_time"}},
	{name: "limit of memory", run: Run{Args: []string{"memory", "400"},
		Limits: []string{"memory=128MiB"}}, want: Result{Code: 137, Limit: "memory"}},
	{name: "within the limit of memory",
		run: Run{Args: []string{"memory", "8"}, Limits: []string{"memory=128MiB"}}, out: "8\n"},
	{name: "limit of a file's size", run: Run{Args: []string{"fill", "/tmp/f", "3000000"},
		Limits: []string{"file_size=1MiB"}}, want: Result{Code: 1, Limit: "file_size"}, told: true,
		err: "file too large"},
	{name: "limit of open files", run: Run{Args: []string{"open", "400"},
		Limits: []string{"open_files=64"}}, want: Result{Code: 1, Limit: "open_files"}, told: true,
		err: "open"},
}

// Suite tests a runner.
func Suite(t *testing.T, run Runner) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, c.run)
			if got.Stdout != c.out || !strings.Contains(strings.ToLower(got.Stderr), c.err) {
				t.Errorf("stdout %s, want %s; stderr %s, want %q in it", brief(got.Stdout),
					brief(c.out), brief(got.Stderr), c.err)
			}
			want := c.want
			if want.Signal == "" && want.Limit != "" {
				// That a limit ended it is said by its name.
				got.Signal = ""
			}
			if c.told && got.Limit == "" {
				want.Limit = ""
			}
			got.Stdout, got.Stderr = "", ""
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
	t.Run("environment", func(t *testing.T) {
		t.Setenv("SECRET", "of the caller")
		got := run(t, Run{Args: []string{"env"}, Env: []string{"GIVEN=a b=c", "EMPTY="}})
		for _, e := range []string{`"GIVEN=a b=c"`, `"EMPTY="`, `"PWD=/workspace"`} {
			if !strings.Contains("\n"+got.Stdout, "\n"+e+"\n") {
				t.Errorf("the environment lacks %s: %s", e, got.Stdout)
			}
		}
		if strings.Contains(got.Stdout, "SECRET") {
			t.Errorf("the environment is the caller's: %s", got.Stdout)
		}
	})
	t.Run("several at once", func(t *testing.T) {
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				text := fmt.Sprintf("%d\n", n)
				if got := run(t, Run{Args: []string{"cat", "f"},
					Files: map[string]string{"f": text}}); got.Stdout != text || got.Code != 0 {
					t.Errorf("%+v", got)
				}
			})
		}
		all.Wait()
	})
}

func brief(s string) string {
	const most = 300
	if len(s) > most {
		return fmt.Sprintf("%q… of %d bytes", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
