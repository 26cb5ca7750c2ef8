package cmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// learnt is what `jail policy learn --json` prints.
type learnt struct {
	Policy   string
	Draft    struct{ Items []struct{ Kind, Name string } }
	Runs     int
	Trials   int
	Least    bool
	Compared map[string]bool
	ExitCode int `json:"exit_code"`
	File     string
	Observed struct {
		Files []struct {
			Path    string
			Written bool
		}
		Lost int64
	}
}

// learn learns a tool into a file and returns what was learnt.
func (h *host) learn(file string, args ...string) (l learnt) {
	h.t.Helper()
	// Tens of runs, one after the other.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(h.bin, "jail"),
		append([]string{"policy", "learn", "--json", "-o", file}, args...)...)
	cmd.Dir, cmd.Env = h.work, h.env
	o := h.run(cmd)
	if o.code != 0 {
		h.t.Fatalf("learn %q: exit code %d: %s", args, o.code, o.err)
	}
	if err := json.Unmarshal([]byte(o.out), &l); err != nil {
		h.t.Fatalf("%v: %.300s", err, o.out)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != l.Policy {
		h.t.Fatalf("%s is not what was learnt: %v", file, err)
	}
	return l
}

// doing is what a tool did under a policy, as far as it is always the same.
func (h *host) doing(l learnt, policy string, args []string) string {
	h.t.Helper()
	file := filepath.Join(h.root, "try.toml")
	if err := os.WriteFile(file, []byte(policy), 0o644); err != nil {
		h.t.Fatal(err)
	}
	o := h.jail(append([]string{"run", "--json", "--discard", "--policy", file}, args...)...)
	var r nativeResult
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		return fmt.Sprintf("no result: exit code %d: %.300s", o.code, o.err)
	}
	if r.Error != nil {
		return "error: " + r.Error.Message
	}
	text := fmt.Sprintf("exit %d limit %v\n", r.ExitCode, r.Limit)
	for what, value := range map[string]any{"stdout": r.Stdout, "stderr": r.Stderr,
		"changes": r.Changes} {
		if l.Compared[what] {
			text += fmt.Sprintf("%s %v\n", what, value)
		}
	}
	denied := map[string]bool{}
	for _, d := range r.Denied {
		denied[d.Layer+" "+d.What] = true
	}
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + strings.Join(slices.Sorted(maps.Keys(denied)), "\n")
}

// withoutEach takes each thing that a learnt policy grants out of its text: a line of a list or of
// env.set, or a table of a mount or a rule.
func withoutEach(text string) map[string]string {
	out := map[string]string{}
	section, lines := "", strings.SplitAfter(text, "\n")
	drop := func(what string, from, to int) {
		out[what] = strings.Join(slices.Concat(lines[:from], lines[to:]), "")
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "[") {
			section = strings.TrimSpace(line)
		}
		switch {
		case section == "[[mount]]" && strings.HasPrefix(line, "target") ||
			section == "[[fetch.allow]]" && strings.HasPrefix(line, "host"):
			from, to := i, i
			for !strings.HasPrefix(lines[from], "[[") {
				from--
			}
			for strings.TrimSpace(lines[to]) != "" {
				to++
			}
			drop(strings.TrimSpace(line), from, to)
		case strings.HasPrefix(line, "    \"") && section != "[env]", section == "[env.set]" &&
			strings.Contains(line, " = "):
			drop(section+" "+strings.TrimSpace(line), i, i+1)
		}
	}
	return out
}

// A lesson is a tool to learn.
type lesson struct {
	name  string
	needs []string
	flags []string
	args  []string
	// In its output; empty: nothing is asked.
	shows string
}

var shortLessons = []lesson{
	{"grep (WASI)", nil, nil, []string{"grep", "-rn", "two", "."}, "a.txt:2:two"},
	{"sort", []string{"/usr/bin/sort"}, []string{"--native"},
		[]string{"/usr/bin/sort", "-r", "a.txt"}, "two"},
	{"python (WASI)", nil, nil, []string{"python3", "p.py"}, "[[1]]"},
}

var longLessons = []lesson{
	{"sed (WASI)", nil, nil, []string{"sed", "-i", "s/two/2/", "a.txt"}, ""},
	{"python", []string{"/usr/bin/python3"}, nil, []string{"/usr/bin/python3", "p.py"}, "[[1]]"},
	{"git log", []string{"/usr/bin/git"}, nil, []string{"git", "log", "--oneline"}, "first"},
	{"awk (WASI)", nil, nil, []string{"awk", "{print $1}", "a.txt"}, "one"},
	{"find (WASI)", nil, nil, []string{"find", ".", "-name", "*.txt"}, "a.txt"},
	{"wc (WASI)", nil, nil, []string{"wc", "-l", "a.txt"}, "2"},
	{"tar (WASI)", nil, nil, []string{"tar", "-cf", "x.tar", "a.txt"}, ""},
	{"grep", []string{"/usr/bin/grep"}, nil, []string{"/usr/bin/grep", "-rn", "two", "."}, "two"},
	{"sed", []string{"/usr/bin/sed"}, nil, []string{"/usr/bin/sed", "-i", "s/two/2/", "a.txt"}, ""},
	{"awk", []string{"/usr/bin/awk"}, nil, []string{"/usr/bin/awk", "{print $1}", "a.txt"}, "one"},
	{"find", []string{"/usr/bin/find"}, nil, []string{"/usr/bin/find", ".", "-name", "*.txt"},
		"a.txt"},
	{"tar", []string{"/usr/bin/tar", "/usr/bin/gzip"}, nil,
		[]string{"/usr/bin/tar", "czf", "x.tgz", "a.txt"}, ""},
	{"jq", []string{"/usr/bin/jq"}, nil, []string{"/usr/bin/jq", ".name", "package.json"}, "x"},
	{"sqlite", []string{"/usr/bin/sqlite3"}, nil, []string{"/usr/bin/sqlite3", "x.db",
		"create table t(a); insert into t values(7); select * from t"}, "7"},
	{"perl", []string{"/usr/bin/perl"}, nil,
		[]string{"/usr/bin/perl", "-MPOSIX", "-e", "print floor(3.7)"}, "3"},
	{"sh", nil, nil, []string{"/bin/sh", "-c", "cat a.txt | sort -r | head -n 1"}, "two"},
	{"bash", []string{"/bin/bash"}, nil, []string{"/bin/bash", "./s.sh"}, "script"},
	{"git commit", []string{"/usr/bin/git"}, nil, []string{"git", "-c", "user.name=t", "-c",
		"user.email=t@example.com", "commit", "-qam", "x", "--allow-empty"}, ""},
	{"gcc", []string{"/usr/bin/gcc"}, nil, []string{"gcc", "-o", "h", "h.c"}, ""},
	{"make", []string{"/usr/bin/make", "/usr/bin/gcc"}, nil, []string{"make", "-s"},
		"hello from C"},
	{"python server", []string{"/usr/bin/python3"}, nil, []string{"/usr/bin/python3", "server.py"},
		"served"},
	{"node", []string{"/usr/bin/node"}, nil, []string{"node", "-p", "require('os').EOL.length"},
		"1"},
	{"npm", []string{"/usr/bin/npm"}, nil, []string{"npm", "run", "--silent", "hello"},
		"hello from npm"},
	{"go build", []string{"/usr/local/go/bin/go"}, nil,
		[]string{"go", "build", "-o", "prog", "./prog.go"}, ""},
}

// TestLearn: under what was learnt of a tool, the tool does the same; and without any one of the
// things that it grants, it does not. JAIL_TEST_LONG=1 learns them all.
func TestLearn(t *testing.T) {
	h := newHost(t)
	h.files(map[string]string{
		"a.txt":        "one\ntwo\n",
		"p.py":         "import json, sqlite3\nprint(json.dumps(sqlite3.connect(':memory:').execute('select 1').fetchall()))\n",
		"h.c":          "#include <stdio.h>\nint main(void) { puts(\"hello from C\"); return 0; }\n",
		"Makefile":     "all: h\n\t./h\nh: h.c\n\tgcc -o h h.c\n",
		"package.json": `{"name": "x", "version": "1.0.0", "scripts": {"hello": "echo hello from npm"}}`,
		"prog.go":      "package main\n\nfunc main() { println(1) }\n",
		"s.sh*":        "#!/bin/bash\nmapfile -t l < a.txt; echo script ${#l[@]}\n",
		"server.py":    "import socket\nwith socket.create_server(('127.0.0.1', 0)) as s, socket.create_connection(s.getsockname()): print('served')\n",
		".env":         "TOKEN=secret\n",
	})
	git := h.program("/bin/sh", "-ec",
		"git init -q; git add a.txt; git -c user.name=t -c user.email=t@example.com commit -qm first")
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("git: %v: %s", err, out)
	}
	all := shortLessons
	if os.Getenv("JAIL_TEST_LONG") != "" {
		all = slices.Concat(shortLessons, longLessons)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			have(t, c.needs...)
			h.t = t
			h.learnAndTry(c)
		})
	}
	h.t = t
}

func (h *host) learnAndTry(c lesson) {
	h.t.Helper()
	file := filepath.Join(h.root, "learnt.toml")
	args := append([]string{"--"}, c.args...)
	l := h.learn(file, append(append([]string{"--force"}, c.flags...), args...)...)
	if !l.Least || l.Observed.Lost != 0 {
		h.t.Errorf("least %t, lost %d", l.Least, l.Observed.Lost)
	}
	for _, f := range l.Observed.Files {
		if strings.HasSuffix(f.Path, "/.env") {
			h.t.Errorf("the run saw a secret: %+v", f)
		}
	}
	want := h.doing(l, l.Policy, args)
	if !strings.Contains(want, "exit 0 ") || !strings.Contains(want, c.shows) {
		h.t.Fatalf("under what was learnt:\n%s\n%s", want, l.Policy)
	}
	less := withoutEach(l.Policy)
	for what, policy := range less {
		if got := h.doing(l, policy, args); got == want {
			h.t.Errorf("without %s the tool does the same", what)
		}
	}
	if len(less) < 2 {
		h.t.Errorf("it grants %d things\n%s", len(less), l.Policy)
	}
	count := map[string]int{}
	for _, i := range l.Draft.Items {
		count[i.Kind]++
	}
	h.t.Logf("| %s | %d | %d | %d | %d | %d | %d | %d |", c.name, l.Runs+l.Trials,
		len(l.Observed.Files), count["mount"], count["tools.native"]+count["tools.allow"],
		count["env.set"],
		count["syscalls.groups"], len(less))
}
