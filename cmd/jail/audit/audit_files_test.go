package audit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A fileRecord is what the log says of a file.
type fileRecord struct {
	Type, Run, Kind, Path, Program, Reason string
	Count                                  int
	First, Last                            time.Time
}

// fileRecords returns what the log says that a run did with files, and how often, by kind and path.
func fileRecords(h *cmdtest.Host, id string) map[string]fileRecord {
	h.T.Helper()
	all := map[string]fileRecord{}
	o := h.Jail("audit", "query", "--json", "--run", id, "--type", "file,gap")
	for line := range strings.Lines(o.Out) {
		var r fileRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			h.T.Fatal(err)
		}
		if r.Type == "gap" {
			h.T.Errorf("run %s: a gap: %s", id, r.Reason)
			continue
		}
		if r.Count < 1 || r.First.IsZero() || r.Last.Before(r.First) {
			h.T.Errorf("count or times are wrong: %s", line)
		}
		key := r.Kind + " " + r.Path
		r.Count += all[key].Count
		all[key] = r
	}
	return all
}

// watchedPolicy writes a policy like a shipped one, with that for audit.files.
func watchedPolicy(h *cmdtest.Host, base, files string) string {
	h.T.Helper()
	path := filepath.Join(h.Root, "watched.toml")
	text := "policy = 1\nname = \"watched\"\ninclude = [\"" + base + "\"]\n"
	if files != "" {
		text += "[audit]\nfiles = \"" + files + "\"\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.T.Fatal(err)
	}
	return path
}

// TestFilesOnRecord: what a program of the host and a module open, execute and write is in the log,
// as often as they did, and what they do not is not. The controls are runs with less to record.
func TestFilesOnRecord(t *testing.T) {
	h := cmdtest.New(t)
	h.Files(map[string]string{"a": "x\n", "b": "y\n", "other": "z\n"})
	native := []string{"--", "/bin/sh", "-c",
		"for i in 1 2 3; do cat a; done; echo n > new; cat < b > /tmp/copy"}
	module := []string{"--", "cat", "a", "b"}
	for _, test := range []struct {
		base, files, id string
		tool            []string
		want            map[string]int // counts; -1: any
	}{
		{"build", "opens", "native-opens", native, map[string]int{"open /workspace/a": 3,
			"open /workspace/b": 1, "open /workspace/new": 1, "write /workspace/new": 1,
			"open /tmp/copy": 1, "write /tmp/copy": 1, "exec /usr/bin/cat": -1}},
		{"default", "opens", "module-opens", module,
			map[string]int{"open /workspace/a": 1, "open /workspace/b": 1}},
		{"build", "changes", "native-changes", native,
			map[string]int{"write /workspace/new": 1, "write /tmp/copy": 1}},
		{"default", "changes", "module-changes", module, nil},
		{"build", "none", "native-none", native, nil},
		{"default", "", "module-none", module, nil},
	} {
		h.Wants(h.Jail(append([]string{"run", "--discard", "--quiet", "--id", test.id, "--policy",
			watchedPolicy(h, test.base, test.files)}, test.tool...)...), 0, "")
		got := fileRecords(h, test.id)
		for key, n := range test.want {
			if r := got[key]; n > 0 && r.Count != n || r.Count == 0 {
				t.Errorf("%s: %s: %d times on record, want %d", test.id, key, r.Count, n)
			}
		}
		for key := range got {
			_, path, _ := strings.Cut(key, " ")
			if inside := strings.HasPrefix(path, "/workspace/") || strings.HasPrefix(path,
				"/tmp/"); inside && test.want[key] == 0 || test.want == nil {
				t.Errorf("%s: %s is on record", test.id, key)
			}
		}
		if r := got["open /workspace/a"]; test.files == "opens" && !strings.HasPrefix(r.Program,
			"/") {
			t.Errorf("%s: nobody opened a: %+v", test.id, r)
		}
	}
}

// TestFloodOfFiles: of far more opens than a queue is long, with names that are made to be many,
// each is on record.
func TestFloodOfFiles(t *testing.T) {
	h := cmdtest.New(t)
	names, each := 6000, 5
	if os.Getenv("JAIL_TEST_LONG") != "" {
		each = 100
	}
	script := `import os, sys
for i in range(int(sys.argv[1])):
    p = "/tmp/f%d" % (i % 4000)
    os.close(os.open(p, os.O_CREAT | os.O_RDONLY))
for n in range(int(sys.argv[2])):
    for i in range(int(sys.argv[1])): os.close(os.open("one", os.O_RDONLY))
`
	h.Files(map[string]string{"flood.py": script, "one": "x"})
	begun := time.Now()
	h.Wants(h.Jail("run", "--discard", "--quiet", "--id", "flood", "--policy",
		watchedPolicy(h, "build", "opens"), "--limit", "wall=20m", "--", "python3", "flood.py",
		strconv.Itoa(names), strconv.Itoa(each)), 0, "")
	t.Logf("%d opens in %v", names*(each+1), time.Since(begun))
	got := fileRecords(h, "flood")
	total := 0
	for key, r := range got {
		if strings.HasPrefix(key, "open /tmp/f") {
			total += r.Count
		}
	}
	if total != names {
		t.Errorf("%d of %d opens of many files are on record", total, names)
	}
	if n := got["open /workspace/one"].Count; n != names*each {
		t.Errorf("%d of %d opens of one file are on record", n, names*each)
	}
}

// TestFilesOfHostileNames: a name that is made to look like a line of the log, or to change a
// terminal, stays one harmless text.
func TestFilesOfHostileNames(t *testing.T) {
	h := cmdtest.New(t)
	h.Wants(h.Jail("run", "--discard", "--quiet", "--id", "names", "--policy",
		watchedPolicy(h, "build", "changes"), "--", "python3", "-c",
		`open(b"/tmp/\n{\"seq\":1}", "w"); open(b"/tmp/\x1b[2J\xff\xe2\x80\xae", "w")`), 0, "")
	o := h.Jail("audit", "query", "--json", "--run", "names", "--type", "file")
	if strings.Contains(o.Out, "\x1b") || !utf8.ValidString(o.Out) || strings.Contains(o.Out,
		"\u202e") || strings.Count(o.Out, "\n") != 2 {
		t.Errorf("%q", o.Out)
	}
}

// waitsInOpen reports whether a process in the process namespace of init waits for the listener of
// a fanotify group.
func waitsInOpen(init int) bool {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", init))
	if err != nil {
		return false
	}
	// The pattern is well-formed.
	all, _ := filepath.Glob("/proc/[0-9]*")
	return slices.ContainsFunc(all, func(dir string) bool {
		// A process may have ended.
		of, _ := os.Readlink(filepath.Join(dir, "ns/pid"))
		in, _ := os.ReadFile(filepath.Join(dir, "wchan"))
		return of == namespace && strings.HasPrefix(string(in), "fanotify_")
	})
}

// TestFilesOfKilledDaemon: what a daemon had counted and not written when it was killed is lost,
// and a gap says so; what it had written stays. A tool that waits for the daemon in an open dies
// with it. The control is a run that nobody watched.
func TestFilesOfKilledDaemon(t *testing.T) {
	for _, files := range []string{"opens", "none"} {
		h := cmdtest.New(t)
		h.Files(map[string]string{"one": "", "two": "2\n"})
		d := h.Daemon()
		r := h.LiveWith(h.Command("run", "--id", "victim", "--policy", watchedPolicy(h, "build",
			files), "--", "/bin/sh", "-c",
			"cat one; while :; do cat two; sleep 0.05; done >/dev/null & read -r l; echo got $l; wait"), "victim")
		if files == "opens" {
			cmdtest.Eventually(t, "the first open is on record", func() bool {
				return strings.Contains(h.Jail("audit", "query", "--json", "--run", "victim",
					"--type", "file").Out, "/workspace/one")
			})
		}
		jail := r.InitPID()
		if err := d.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if files == "opens" {
			cmdtest.Eventually(t, "the tool waits for the daemon in an open", func() bool {
				return waitsInOpen(jail)
			})
		}
		d.Kill()
		h.Wants(r.Wait(), 125, "the daemon went away before the run ended")
		cmdtest.Eventually(t, "the jail is gone", func() bool { return cmdtest.Gone(jail) })
		d = h.Daemon()
		cmdtest.Eventually(t, "the end is on record", func() bool {
			return len(h.Records("victim", "run.finished")) > 0
		})
		gaps := 0
		for _, g := range h.Records("victim", "gap") {
			if strings.Contains(g.Reason,
				"what the run did with files in its last seconds is not on record") {
				gaps++
			}
		}
		if want := map[string]int{"opens": 1, "none": 0}[files]; gaps != want {
			t.Errorf("files = %s: %d gaps, want %d", files, gaps, want)
		}
		h.Wants(h.Jail("audit", "verify"), 0, "")
		d.Stop()
		h.Discard("victim")
		h.WantNothingLeft()
	}
}
