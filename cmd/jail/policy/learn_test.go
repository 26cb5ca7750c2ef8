package policy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

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
	h := cmdtest.New(t)
	cmdtest.CompiledBundles(h, "python")
	h.Files(map[string]string{
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
	git := h.Program("/bin/sh", "-ec",
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
			cmdtest.Have(t, c.needs...)
			h.T = t
			learnAndTry(h, c)
		})
	}
	h.T = t
}

func learnAndTry(h *cmdtest.Host, c lesson) {
	h.T.Helper()
	file := filepath.Join(h.Root, "learnt.toml")
	args := append([]string{"--"}, c.args...)
	l := cmdtest.Learn(h, file, append(append([]string{"--force"}, c.flags...), args...)...)
	if !l.Least || l.Observed.Lost != 0 {
		h.T.Errorf("least %t, lost %d", l.Least, l.Observed.Lost)
	}
	for _, f := range l.Observed.Files {
		if strings.HasSuffix(f.Path, "/.env") {
			h.T.Errorf("the run saw a secret: %+v", f)
		}
	}
	want := cmdtest.Doing(h, l, l.Policy, args)
	if !strings.Contains(want, "exit 0 ") || !strings.Contains(want, c.shows) {
		h.T.Fatalf("under what was learnt:\n%s\n%s", want, l.Policy)
	}
	less := cmdtest.WithoutEach(l.Policy)
	for what, policy := range less {
		if got := cmdtest.Doing(h, l, policy, args); got == want {
			h.T.Errorf("without %s the tool does the same", what)
		}
	}
	if len(less) < 2 {
		h.T.Errorf("it grants %d things\n%s", len(less), l.Policy)
	}
	count := map[string]int{}
	for _, i := range l.Draft.Items {
		count[i.Kind]++
	}
	h.T.Logf("| %s | %d | %d | %d | %d | %d | %d | %d |", c.name, l.Runs+l.Trials,
		len(l.Observed.Files), count["mount"], count["tools.native"]+count["tools.allow"],
		count["env.set"],
		count["syscalls.groups"], len(less))
}
