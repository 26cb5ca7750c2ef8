package run_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// runNative runs a program of the host with a shipped profile and returns the result.
func runNative(h *cmdtest.Host, profile string, args ...string) (r cmdtest.NativeResult) {
	h.T.Helper()
	o := h.Jail(append([]string{"run", "--json", "--discard", "--profile", profile}, args...)...)
	if err := json.Unmarshal([]byte(o.Out), &r); err != nil {
		h.T.Fatalf("%v: %s%s", err, o.Out, o.Err)
	}
	if r.Error != nil {
		h.T.Errorf("%q: %s", args, r.Error.Message)
	}
	return r
}

// TestNativeTools: the profile build does the work of real projects with the host's own programs,
// in a shadow, and nothing that they need is refused.
func TestNativeTools(t *testing.T) {
	h := cmdtest.New(t)
	h.Files(map[string]string{
		"c/hello.c":  "#include <stdio.h>\nint main(void) { puts(\"hello from C\"); return 0; }\n",
		"c/Makefile": "all: hello\n\t./hello\nhello: hello.c\n\tgcc -O1 -o hello hello.c\n",
		"script*":    "#!/bin/sh\necho \"$0 $*\"\ncat\n",
		"p.py":       "print('hello from Python')\n",
		"test_p.py": `import multiprocessing, os, socket, subprocess, tempfile, unittest
def square(x): return x * x
class T(unittest.TestCase):
    def test_child(self): self.assertEqual(subprocess.check_output(["echo", "hi"]), b"hi\n")
    def test_file(self):
        with tempfile.NamedTemporaryFile() as f: f.write(b"x")
    def test_pool(self):
        with multiprocessing.Pool(2) as p: self.assertEqual(p.map(square, [2]), [4])
    def test_server(self):
        with socket.create_server(("127.0.0.1", 0)) as s, socket.create_connection(s.getsockname()): pass
    def test_fifo(self): os.mkfifo(os.path.join(tempfile.mkdtemp(), "f"))
`,
		"package.json": `{"name": "x", "version": "1.0.0", "scripts": {"test": "node --test"}}`,
		"a.test.js": `const test = require('node:test'), assert = require('node:assert'), http = require('http')
test('child', () => assert.strictEqual(require('child_process').execFileSync('echo', ['hi']).toString(), 'hi\n'))
test('server', async () => {
  const s = http.createServer((q, r) => r.end('ok')).listen(0, '127.0.0.1')
  await new Promise(done => s.on('listening', done))
  http.get({ port: s.address().port, host: '127.0.0.1' }, r => { assert.strictEqual(r.statusCode, 200); s.close() })
})
`,
	})
	const user = "git -c user.name=t -c user.email=t@example.com "
	for _, c := range []struct {
		name, needs string
		args        []string
		shows       string
		changed     bool
	}{
		{"ls", "", []string{"ls", "-l", "p.py"}, "tool tool", false},
		{"make", "", []string{"make", "-s", "-C", "c"}, "hello from C", true},
		{"script", "", []string{"./script", "a b", "c"}, h.Work + "/script a b c", false},
		{"bash", "", []string{"bash", "-c",
			"diff <(echo a) <(echo a) && sort <<< $'b\na' | head -1 && cd $HOME && pwd"},
			"a\n/home/tool\n", false},
		{"git", "", []string{"bash", "-ec", "git init -q; git add .; " + user +
			"commit -qm one; git gc -q; git clone -q . /tmp/clone; git -C /tmp/clone log --oneline | wc -l"}, "1\n", true},
		{"tar", "", []string{"bash", "-ec",
			"tar czf /tmp/a.tgz p.py; mkdir /tmp/x; tar xzf /tmp/a.tgz -C /tmp/x; cp -a p.py q; install -m 755 p.py r; stat -c %a r; ls /tmp/x"}, "755\np.py\n", true},
		{"python", "/usr/bin/python3", []string{"python3", "p.py"}, "hello from Python", false},
		{"unittest", "/usr/bin/python3",
			[]string{"sh", "-c", "python3 -W ignore -B -m unittest 2>&1"}, "OK", false},
		{"npm", "/usr/bin/npm", []string{"npm", "test"}, "# fail 0", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != "" {
				cmdtest.Have(t, c.needs)
			}
			h.T = t
			r := runNative(h, "build", append([]string{"--"}, c.args...)...)
			if r.ExitCode != 0 || !strings.Contains(r.Stdout, c.shows) {
				t.Errorf("%+v", r)
			}
			for _, d := range r.Denied {
				// Node and C libraries ask what addresses there are, and do without
				if d.What != "socket(AF_NETLINK, SOCK_RAW)" {
					t.Errorf("refused %+v", d)
				}
			}
			if changed := r.Changes.Added+r.Changes.Modified > 0; changed != c.changed {
				t.Errorf("changed: %+v", r.Changes)
			}
		})
	}
	h.T = t
	if out, err := os.ReadDir(filepath.Join(h.Work, "c")); err != nil || len(out) != 2 {
		t.Errorf("the real directory has %v, %v", out, err)
	}
}

// TestNativeGo reads a module and compiles a package of it; the long form builds a program and runs
// its tests. Nothing is cached in a fresh jail, so that compiles the standard library anew.
func TestNativeGo(t *testing.T) {
	goBin := filepath.Join(strings.TrimSpace(goEnv(t, "GOROOT")), "bin", "go")
	if !strings.HasPrefix(goBin, "/usr/") {
		t.Skipf("the profile build shows /usr, and Go is %s", goBin)
	}
	h := cmdtest.New(t)
	h.Files(map[string]string{
		"go.mod":       "module example.com/x\n\ngo 1.20\n",
		"main.go":      "package main\n\nfunc main() { println(Add(1, 2)) }\n\nfunc Add(a, b int) int { return a + b }\n",
		"main_test.go": "package main\n\nimport (\n\t\"net/http/httptest\"\n\t\"testing\"\n)\n\nfunc TestAdd(t *testing.T) {\n\thttptest.NewServer(nil).Close()\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n",
	})
	o := h.Jail("run", "--profile", "build", "--discard", "--", "bash", "-c",
		`"$0" list -f '{{.Name}} {{.GoFiles}}' ./... && "$0" tool compile -p main -o /tmp/main.o main.go && "$0" tool nm /tmp/main.o`, goBin)
	h.Wants(o, 0, "")
	if !strings.Contains(o.Out, "main [main.go]") || !strings.Contains(o.Out, "T main.Add") {
		t.Errorf("list and compile say %q", o.Out)
	}
	if os.Getenv("JAIL_TEST_LONG") == "" {
		return
	}
	cmd := h.Command("run", "--profile", "build", "--discard", "--", goBin, "test", "./...")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok  \texample.com/x") ||
		strings.Contains(string(out), "denied") {
		t.Errorf("%v\n%s", err, out)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	// Of the Go that the host has, and not of one that it would fetch for these sources.
	cmd := exec.Command("go", "env", name)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "GOTOOLCHAIN=local")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestNativeEnds: how a program ended is told apart from how a limit or jail ended it.
func TestNativeEnds(t *testing.T) {
	h := cmdtest.New(t)
	for _, c := range []struct {
		name   string
		flags  []string
		script string
		code   int
		signal string
		limit  string
	}{
		{"code", nil, "exit 7", 7, "", ""},
		{"signal", nil, "kill -SEGV $$", 139, "SIGSEGV", ""},
		{"orphan", nil, "(setsid sleep 1000 &); exit 3", 3, "", ""},
		{"wall", []string{"--limit", "wall=1s"},
			"trap '' TERM INT HUP; setsid sleep 1000 & while :; do sleep 1; done", 124, "", "wall"},
		{"memory", []string{"--limit", "memory=64MiB"},
			"x=$(head -c 200000000 /dev/zero | tr '\\0' x)", 137, "SIGKILL", "memory"},
		{"memory of a child", []string{"--limit", "memory=64MiB"},
			"(x=$(head -c 200000000 /dev/zero | tr '\\0' x)); echo child $?; exit 0", 0, "",
			"memory"},
		{"memory of a child, another code", []string{"--limit", "memory=64MiB"},
			"(x=$(head -c 200000000 /dev/zero | tr '\\0' x)); exit 5", 5, "", "memory"},
		{"pids", []string{"--limit", "pids=40"},
			"for i in $(seq 100); do sleep 5 & done 2>/dev/null; exit 4", -1, "", "pids"},
		{"output", []string{"--limit", "output=10KiB"}, "yes", 137, "", "output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.T = t
			r := runNative(h, "build", append(append([]string{"--no-workspace"}, c.flags...), "--",
				"bash", "-c", c.script)...)
			limit := ""
			if r.Limit != nil {
				limit = r.Limit.Name
			}
			if r.ExitCode != c.code && c.code >= 0 || c.signal != "" && r.Signal != c.signal ||
				limit != c.limit {
				t.Errorf("code %d signal %q limit %q, want %+v\n%s", r.ExitCode, r.Signal, limit, c,
					r.Stderr)
			}
		})
	}
	h.T = t
}

// TestNativeSignals: a signal that ends jail run ends the run at once and whole, whatever the
// program does with it; its number is the exit code.
func TestNativeSignals(t *testing.T) {
	h := cmdtest.New(t)
	for _, c := range []struct {
		name, script string
		signal       syscall.Signal
		code         int
		rest         string
	}{
		{"caught", "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.1; done",
			syscall.SIGTERM, 128 + int(syscall.SIGTERM), ""},
		{"interrupt", "trap '' INT; echo ready; while :; do sleep 0.1; done", syscall.SIGINT,
			128 + int(syscall.SIGINT), ""},
		{"not caught", "echo ready; exec sleep 1000", syscall.SIGTERM, 128 + int(syscall.SIGTERM),
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.T = t
			cmd := h.Command("run", "--profile", "build", "--no-workspace", "--limit", "wall=2m",
				"--", "bash", "-c", c.script)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(out)
			if line, err := said.ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(said)
			ended := cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); err != nil || string(rest) != c.rest ||
				code != c.code {
				t.Errorf("code %d, %q, %v, %v; want %d and %q", code, rest, err, ended, c.code,
					c.rest)
			}
		})
	}
	h.T = t
}

// TestNativeRefused: each way in which a program cannot start is one sentence, and an exit code
// that says whose fault it is.
func TestNativeRefused(t *testing.T) {
	h := cmdtest.New(t)
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	foreign, unloadable := []byte(string(program)), strings.Replace(string(program),
		"/lib64/ld-linux", "/libX4/ld-linux", 1)
	foreign[18] = 183 // EM_AARCH64
	h.Files(map[string]string{
		"plain": "#!/bin/sh\n", "gone*": "#!/usr/bin/nosuch\n", "relative*": "#!nosuch\n",
		"windows*": "#!/bin/sh\r\n", "text*": "echo hi\n", "empty*": "", "cut*": "\x7fELF\x02\x01",
		"foreign*": string(foreign), "unloadable*": unloadable, "setid*": "#!/bin/sh\n",
		"python*": "#!/usr/bin/python3\n", "perl*": "#!/usr/bin/perl\n",
	})
	if err := os.Chmod(filepath.Join(h.Work, "setid"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		profile, tool string
		code          int
		says          string
	}{
		{"build", "nosuch", 127, `no tool is called "nosuch"`},
		{"build", "./nosuch", 127, h.Work + "/nosuch: there is no such file"},
		{"build", "./plain", 126, "is not executable"},
		{"build", "./gone", 127, "needs /usr/bin/nosuch, which is not in the jail"},
		{"build", "./relative", 126, "is not an absolute path"},
		{"build", "./windows", 126, "carriage return"},
		{"build", "./text", 126, "neither an ELF program .* nor a script"},
		{"build", "./empty", 126, "neither an ELF program .* nor a script"},
		{"build", "./cut", 126, "cut off"},
		{"build", "./foreign", 126, "another processor"},
		{"build", "./unloadable", 127, "needs /libX4/ld-linux"},
		{"build", "./setid", 126, "set-user-id"},
		{"build", "/etc/passwd", 126, `tools.native = .* does not hold /etc/passwd`},
		{"build", "/root/x", 126, `tools.native = .* does not hold /root/x`},
		{"build", ".", 127, "no tool is called"},
		{"python-native", "ls", 126, "/usr/bin/ls is not allowed: tools.native"},
		{"python-native", "./python", 126, "/workspace/python is not allowed: tools.native"},
		{"default", "/usr/bin/true", 126, "not a WebAssembly module"},
	} {
		t.Run(c.profile+" "+strings.ReplaceAll(c.tool, "/", "_"), func(t *testing.T) {
			h.T = t
			h.Wants(h.Jail("run", "--discard", "--profile", c.profile, "--", c.tool), c.code,
				c.says)
		})
	}
	h.T = t
}

// TestNativePrograms: of what a mount holds only what tools.native names is executed, also by a
// program that runs already; and nothing of the workspace, started or mapped. T-060, T-087, T-088.
func TestNativePrograms(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/python3")
	h := cmdtest.New(t)
	h.Files(map[string]string{"lib.c": "int x;\n", "run.py": `import ctypes, subprocess
def tries(what, f):
    try: f(); print(what, "yes")
    except OSError as e: print(what, e.errno or "no")
tries("read", lambda: open("/usr/bin/true", "rb").read(1))
tries("python", lambda: subprocess.run(["/usr/bin/python3", "-c", ""], check=True))
tries("true", lambda: subprocess.run(["/usr/bin/true"], check=True))
tries("through /proc", lambda: subprocess.run(["/proc/self/root/usr/bin/true"], check=True))
tries("workspace", lambda: subprocess.run(["./true"], check=True))
tries("library", lambda: ctypes.CDLL("./lib.so"))
`})
	for _, args := range [][]string{{"cp", "/bin/true", filepath.Join(h.Work, "true")},
		{"gcc", "-shared", "-o", filepath.Join(h.Work, "lib.so"), filepath.Join(h.Work, "lib.c")}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	want := "read yes\npython yes\ntrue 13\nthrough /proc 13\nworkspace 13\nlibrary no\n"
	if r := runNative(h, "python-native", "--", "python3", "run.py"); r.Stdout != want ||
		r.ExitCode != 0 {
		t.Errorf("%+v\nwant %s", r, want)
	}
	want = "read yes\npython yes\ntrue yes\nthrough /proc yes\nworkspace yes\nlibrary yes\n"
	if r := runNative(h, "build", "--", "python3", "run.py"); r.Stdout != want || r.ExitCode != 0 {
		t.Errorf("control: %+v\nwant %s", r, want)
	}
}

// TestNativeRecord: the program that was started is on record with its digest and its arguments,
// and the plan shows the same.
func TestNativeRecord(t *testing.T) {
	h := cmdtest.New(t)
	h.Wants(h.Jail("run", "--id", "r1", "--no-workspace", "--profile", "build", "--", "sh", "-c",
		"exit 0", "an argument"), 0, "")
	o := h.Jail("audit", "show", "--log", filepath.Join(h.State, "audit"), "--json")
	sum, err := exec.Command("sha256sum", "/usr/bin/sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	digest, _, _ := strings.Cut(string(sum), " ")
	found := false
	for line := range strings.Lines(o.Out) {
		var r struct {
			Type, Program, Digest string
			Argv                  []string
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Type == "exec" {
			found = r.Program == "/usr/bin/sh" && r.Digest == "sha256:"+digest &&
				fmt.Sprint(r.Argv) == "[sh -c exit 0 an argument]"
		}
	}
	if !found {
		t.Errorf("no such record of sh with sha256:%s: %s", digest, o.Out)
	}
	plan := h.Jail("plan", "--profile", "build", "--", "sh")
	for _, want := range []string{"/usr/bin/sh (native, sha256:" + digest + ")",
		"/usr  bind, read, execute", "any port of its own loopback"} {
		if !strings.Contains(plan.Out, want) {
			t.Errorf("the plan does not say %q: %s%s", want, plan.Out, plan.Err)
		}
	}
}

// TestNativeTerminal: with -t a shell has a terminal of the jail's own, with jobs, keys and sizes;
// the caller's is its screen alone, and afterwards what it was. T-021, T-022.
func TestNativeTerminal(t *testing.T) {
	h, x := cmdtest.New(t), cmdtest.NewTerminal(t)
	resize := func(rows, columns uint16) {
		if err := unix.IoctlSetWinsize(int(x.Master.Fd()), unix.TIOCSWINSZ,
			&unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	resize(31, 101)
	cmd := h.Command("run", "--no-workspace", "--profile", "build", "--env", "PS1=ready> ", "-t",
		"--", "bash", "--norc", "--noediting", "-i")
	x.Start(cmd)
	x.Shows("ready> ")
	// For as long as no other test of this host sleeps.
	seconds := fmt.Sprint(1000 + os.Getpid())
	for _, step := range []struct{ types, shows string }{
		{"stty size; tty\n", "31 101\r\n/dev/pts/0"},
		{"echo $((40+2))\n", "\n42"},
		{"sleep " + seconds + "; echo ended with $?\n", "\n"},
		{cmdtest.CtrlC, "ready> "},
		{"echo then $?\n", "then 130"},
		{"sleep " + seconds + "\n", "\n"},
		{cmdtest.CtrlZ, "Stopped"},
		{"kill -KILL %1; while kill -0 %1 2>/dev/null; do :; done; echo gone\n", "\ngone"},
		{"(: < /dev/tty) && echo own\n", "\nown"},
	} {
		// Once the sleep is in front.
		if step.types == cmdtest.CtrlC || step.types == cmdtest.CtrlZ {
			cmdtest.Eventually(t, "a job is in front", func() bool {
				return inFront(t, "sleep\x00"+seconds+"\x00")
			})
		}
		x.Types(step.types)
		x.Shows(step.shows)
		// What is typed before the prompt stands before it, and its output behind it on one line.
		if step.types != cmdtest.CtrlC && !strings.HasPrefix(step.types, "sleep") {
			x.Shows("ready> ")
		}
	}
	resize(42, 142)
	x.Types("until [ \"$(stty size)\" = '42 142' ]; do sleep 0.01; done; echo resized\n")
	x.Shows("\nresized")
	x.Types("exit 9\n")
	if code := h.ExitCode(cmd, cmd.Wait()); code != 9 {
		t.Errorf("exit code %d", code)
	}
	x.WantAsBefore()

	// However it ends.
	cmd = h.Command("run", "--no-workspace", "--profile", "build", "--env", "PS1=ready> ", "-t",
		"--", "bash", "--norc", "--noediting", "-i")
	x.Start(cmd)
	x.Shows("ready> ")
	x.Types("stty raw -echo; kill -9 $$\n")
	if code := h.ExitCode(cmd, cmd.Wait()); code != 137 {
		t.Errorf("exit code %d", code)
	}
	x.WantAsBefore()
	h.Wants(h.Jail("run", "--no-workspace", "--profile", "build", "-t", "--", "true"), 2,
		"needs a terminal")
}

// inFront reports whether a process with these arguments runs.
func inFront(t *testing.T, cmdline string) bool {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if text, err := os.ReadFile(p); err == nil && string(text) == cmdline {
			return true
		}
	}
	return false
}

// A commit that git makes in a jail is a commit in the real repository once it is taken, and a
// repository that was not there is held whole.
func TestGitCommitInAJail(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	h := cmdtest.New(t)
	const user = "git -c user.name=x -c user.email=x@example.com "
	git := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = h.Work
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	git("git init -q; git add -A; " + user + "commit --allow-empty -qm one")
	h.Jail("run", "--profile", "build", "--id", "x", "--", "sh", "-ec",
		user+"commit --allow-empty -qm two; git init -q new")
	if o := h.Jail("commit", "x", ".git/refs"); o.Code != 126 || !strings.Contains(o.Err,
		"taken together") {
		t.Errorf("refs alone: %d %s", o.Code, o.Err)
	}
	if o := h.Jail("commit", "x"); o.Code != 0 || strings.Count(o.Out, "held back:") != 1 ||
		!strings.Contains(o.Out, "new/.git is a new git repository") {
		t.Errorf("commit: %d %s%s", o.Code, o.Out, o.Err)
	}
	if got := git("git fsck --strict; git log --format=%s"); !strings.HasSuffix(got, "two\none\n") {
		t.Errorf("the repository has %q", got)
	}
	if o := h.Jail("commit", "--include-protected", "x", "new/.git"); o.Code != 0 {
		t.Errorf("the new repository: %d %s", o.Code, o.Err)
	}
	git("git -C new fsck --strict")
	// What it keeps for a revert.
	h.Jail("discard", "x")
}

// TestNativeTooLong: arguments and variables that execve(2) does not take are the caller's mistake,
// and said to be.
func TestNativeTooLong(t *testing.T) {
	h := cmdtest.New(t)
	policy := filepath.Join(h.Work, "long.toml")
	text := "policy = 1\ninclude = [\"build\"]\n[env]\nset = { LONG = \"" + strings.Repeat("x", 128<<10) + "\" }\n"
	if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("run", "--no-workspace", "--policy", policy, "--", "/bin/true"), 2,
		`program /bin/true: its arguments and its environment are too long(.|\n)*hint: .*128 KiB`)
}

// A program of the host makes terminals of the jail's own without -t, each run from the first
// number on, and finds none of the host.
func TestNativeOwnTerminals(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for _, c := range []struct{ program, script, want string }{
		{"script", `script -qec 'tty; exit 3' /dev/null </dev/null || echo $?`, "/dev/pts/0\r\n3\n"},
		{"python3", `python3 -c 'import os, pty; print(os.waitstatus_to_exitcode(pty.spawn(["sh", "-c", "tty; exit 4"])))'`,
			"/dev/pts/0\r\n4\n"},
		{"sh", "ls /dev/pts; (: </dev/tty) 2>/dev/null || echo none", "ptmx\nnone\n"},
	} {
		if c.program != "sh" && !shown(c.program) {
			t.Logf("the host has no %s that the profile shows", c.program)
			continue
		}
		r := runNative(h, "build", "--", "sh", "-c", c.script)
		if r.ExitCode != 0 || len(r.Denied) > 0 || r.Stdout != c.want {
			t.Errorf("%s: %+v, want %q", c.script, r, c.want)
		}
	}
}
