package session_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail"
)

// liveExec starts an invocation that answers each line of its input.
func liveExec(h *cmdtest.Host, session, id string) *cmdtest.LiveRun {
	h.T.Helper()
	return h.LiveWith(h.Command("session", "exec", session, "--id", id, "--", h.Probe, "lines"), id)
}

// Several invocations, modules and programs of the host, work on one shadow and one /tmp, one after
// the other and at one time; what they changed is reviewed once, when the session has ended.
func TestSession(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{"a.txt": "one\n"})
	id := h.Session("--id", "s1", "--profile", "build")
	if id != "s1" {
		t.Fatalf("id %q", id)
	}
	for _, step := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"--", "sed", "-i", "s/one/two/", "a.txt"}, 0, ""},
		{[]string{"--", "cat", "a.txt"}, 0, "two\n"},
		{[]string{"--", "sh", "-c", "echo left > /tmp/left; exit 7"}, 7, ""},
		{[]string{"--", "cat", "/tmp/left"}, 0, "left\n"},
		{[]string{"--env", "GREETING=hello", "--", "sh", "-c", "echo $GREETING"}, 0, "hello\n"},
		{[]string{"--", "sh", "-c", "kill -TERM $$"}, 143, ""},
	} {
		if o := h.Exec(id, step.args...); o.Code != step.code || o.Out != step.out {
			t.Errorf("%q: %+v, want exit code %d and %q", step.args, o, step.code, step.out)
		}
	}
	if text, err := os.ReadFile(filepath.Join(h.Work, "a.txt")); err != nil ||
		string(text) != "one\n" {
		t.Errorf("the real file: %q, %v", text, err)
	}
	r := h.ObjectOf("session", "exec", id, "--id", "e1", "--json", "--", "echo", "said")
	if r.ID != "e1" || r.Session != id || string(r.Stdout) != "said\n" || r.Audit.First == 0 {
		t.Errorf("result %+v", r)
	}
	// Again in the same words it is the same session; in others it is none.
	if again := h.Session("--id", "s1", "--profile", "build"); again != id ||
		len(h.Sessions()) != 1 {
		t.Errorf("the same session: %q, %+v", again, h.Sessions())
	}
	h.Wants(h.Jail("session", "start", "--id", "s1", "--profile", "readonly"), 2,
		"session id s1 is in use, by another request")
	h.Wants(h.Exec(id, "--id", "s1", "--", "true"), 2, "run id s1 is in use")
	h.Wants(h.Exec(id, "--", "no-such-tool"), 127, "no-such-tool")
	h.Wants(h.Exec(id, "--limit", "wall=1s", "--limit", "nonsense=1", "--", "true"), 2, "nonsense")
	if s := h.Sessions()[0]; s.Invocations < 7 || s.Running != 0 || s.Workspace != h.Work {
		t.Errorf("%+v", s)
	}
	// What is kept for a revert.
	defer h.Discard(id)
	h.StopSession(id, 1)
	if o := h.Jail("diff", id); o.Code != 0 || !strings.Contains(o.Out, "+two") {
		t.Errorf("diff: %+v", o)
	}
	h.Wants(h.Exec(id, "--", "true"), 127, `no session "s1" is open`)
	h.Wants(h.Jail("session", "stop", id), 127, `no session "s1" is open`)
	h.Wants(h.Exec("never-was", "--", "true"), 127, `no session "never-was" is open`)
	h.Wants(h.Jail("session", "exec", id), 2, "TOOL is missing")
	if o := h.Jail("commit", id); o.Code != 0 {
		t.Errorf("commit: %+v", o)
	}
	if text, err := os.ReadFile(filepath.Join(h.Work, "a.txt")); err != nil ||
		string(text) != "two\n" {
		t.Errorf("the committed file: %q, %v", text, err)
	}
	if o := h.Jail("audit", "query", "--session", id, "--json"); strings.Count(o.Out,
		`"run.started"`) < 8 || !strings.Contains(o.Out, `"run":"e1"`) {
		t.Errorf("records of the session: %+v", o)
	}
}

// What a session allows is settled when it starts, and an invocation cannot get beyond it.
func TestSessionPolicy(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{
		"p.toml": "policy = 1\nname = \"p\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\n[tools]\nallow = [\"core-utils/cat\"]\nmodules = []\n"})
	id := h.Session("--policy", "p.toml", "--discard", "--limit", "wall=25s")
	h.Files(map[string]string{"p.toml": "nonsense"})
	if o := h.Exec(id, "--", "cat", "p.toml"); o.Code != 0 || o.Out != "nonsense" {
		t.Errorf("cat: %+v", o)
	}
	h.Wants(h.Exec(id, "--", "ls"), 126, "ls is not allowed")
	h.Wants(h.Exec(id, "--", h.Probe), 126, "is not allowed")
	h.Wants(h.Exec(id, "--", "/bin/sh", "-c", "true"), 126, "is not allowed")
	if r := h.ObjectOf("session", "exec", id, "--json", "--limit", "wall=2h", "--", "cat",
		"p.toml"); r.Error != nil || r.ExitCode != 0 {
		t.Errorf("a limit above the session's has no effect: %+v", r)
	}
	h.StopSession(id, 0)
}

// Of two invocations at one time, neither ends with the other, and neither with the client that
// started another. With the session they all do.
func TestSessionAtOneTime(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{
		"room.toml": "policy = 1\nname = \"room\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\n[tools]\nmodules = [\"**\"]\n[limits]\npids = 100\nwall = \"10m\"\n"})
	id := h.Session("--discard", "--policy", "room.toml")
	one, two, three := liveExec(h, id, "one"), liveExec(h, id, "two"), liveExec(h, id, "three")
	if s := h.Sessions()[0]; s.Running != 3 {
		t.Errorf("%+v", s)
	}
	h.Wants(h.Jail("kill", "one"), 0, "")
	if o := one.Wait(); o.Code != 137 {
		t.Errorf("the one that was ended: %+v", o)
	}
	two.Says("alive")
	// A client that goes takes its invocation along.
	if err := three.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	three.Wait()
	cmdtest.Eventually(t, "its invocation ends", func() bool { return h.Sessions()[0].Running == 1 })
	two.Says("still alive")
	r := h.StopSession(id, 0)
	if r.Session != id || r.Usage.CPUMS == 0 {
		t.Errorf("%+v", r)
	}
	if o := two.Wait(); o.Code != 137 {
		t.Errorf("an invocation at the end of its session: %+v", o)
	}
}

// The walls of an invocation are those of a run: the plan says the same in every layer, the kernel
// agrees with it, no namespace is another jail's, and what a tool sees from inside is the same.
func TestSessionWalls(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	id := h.Session("--discard", "--policy", cmdtest.Patient(h))
	first, second, run := liveExec(h, id, "first"), liveExec(h, id, "second"),
		h.Live("run", "--discard")
	for _, live := range []string{id, "first", "second", "run"} {
		// That it shares no namespace with any of the others is among it.
		v := cmdtest.Verification(h, live, 0)
		if !v.OK || len(v.Findings) < 40 {
			t.Errorf("%s: %+v", live, v)
		}
	}
	want, got := cmdtest.PlanOf(h, "run"), cmdtest.PlanOf(h, "first")
	for _, p := range []*jail.Plan{&want, &got} {
		p.ID, p.Cgroup.Path, p.IDs.Base, p.IDs.Owner, p.Policy, p.Layers = "", "", 0, 0, "", nil
	}
	if a, b := cmdtest.Must(json.Marshal(want))(t), cmdtest.Must(json.Marshal(got))(t); string(a) != string(b) {
		t.Errorf("an invocation's plan is\n%s\nand a run's\n%s", b, a)
	}
	first.In.Close()
	second.In.Close()
	run.In.Close()
	for _, live := range []*cmdtest.LiveRun{first, second, run} {
		if o := live.Wait(); o.Code != 0 {
			t.Errorf("%s: %+v", live.ID, o)
		}
	}
	h.StopSession(id, 0)

	// The same from inside: what a program of the host may see and do. Each jail has ids of its
	// own.
	look := `grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status; for fd in /proc/self/fd/*; do echo $fd; done; ulimit -a; cat /proc/self/mounts | cut -d' ' -f2-4 | grep -v overlay | sed 's/,[ug]id=[0-9]*//g'; ` +
		`cat /proc/net/dev /proc/self/cgroup; mount -t tmpfs x /mnt; unshare -U true; echo x > /usr/x; cat /etc/shadow; ls /home /root; chroot / true; kill -9 1; echo $?`
	id = h.Session("--discard", "--profile", "build")
	inside := h.ObjectOf("session", "exec", id, "--json", "--", "sh", "-c", look)
	alone := h.ObjectOf("run", "--discard", "--json", "--profile", "build", "--", "sh", "-c", look)
	if string(inside.Stdout) != string(alone.Stdout) ||
		string(inside.Stderr) != string(alone.Stderr) || len(alone.Stdout) < 500 {
		t.Errorf("in a session:\n%s%s\nin a run:\n%s%s", inside.Stdout, inside.Stderr, alone.Stdout,
			alone.Stderr)
	}
	if fmt.Sprint(inside.Denied) != fmt.Sprint(alone.Denied) || len(alone.Denied) == 0 {
		t.Errorf("refused in a session %+v, in a run %+v", inside.Denied, alone.Denied)
	}
	h.StopSession(id, 0)
}

// Invocations see each other's files in the workspace and in /tmp, and nothing else of each other.
func TestSessionApart(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	id := h.Session("--discard", "--profile", "build")
	cmd := h.Command("session", "exec", id, "--id", "secret", "--", "sh", "-c",
		`echo lock > /dev/shm/mine; exec 9>/tmp/both; TOKEN=only-mine; while read line; do echo got $line; done`)
	cmd.Env = append(cmd.Env, "TOKEN=only-mine")
	live := h.LiveWith(cmd, "secret")
	// Everything that is there to be seen of processes, and of memory that is shared by name; then
	// all that there is to be ended.
	o := h.Exec(id, "--", "sh", "-c",
		`cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\0' ' '; ls /dev/shm; ls -l /proc/[0-9]*/fd; kill -9 -1; ls /tmp`)
	for _, trace := range []string{"only-mine", "mine", "/tmp/both", "read line"} {
		if strings.Contains(o.Out, trace) {
			t.Errorf("one invocation sees %q of the other: %+v", trace, o)
		}
	}
	live.Says("alive")
	if o := h.Exec(id, "--", "ls", "/tmp"); !strings.HasPrefix(o.Out, "both\n") {
		t.Errorf("/tmp: %+v", o)
	}
	live.In.Close()
	if o := live.Wait(); o.Code != 0 {
		t.Errorf("%+v", o)
	}
	// What an invocation leaves running does not outlive it.
	if o := h.Exec(id, "--", "sh", "-c",
		`(while :; do date > /tmp/beat; sleep 0.1; done) >/dev/null 2>&1 & echo started`); o.Out != "started\n" {
		t.Errorf("%+v", o)
	}
	if o := h.Exec(id, "--", "sh", "-c",
		`rm -f /tmp/beat; sleep 0.5; test -e /tmp/beat`); o.Code != 1 {
		t.Errorf("something goes on: %+v", o)
	}
	h.StopSession(id, 0)
}

// Each invocation has limits of its own, and memory is the session's.
func TestSessionLimits(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	id := h.Session("--discard")
	if r := h.ObjectOf("session", "exec", id, "--json", "--limit", "wall=300ms", "--", h.Probe,
		"sleep", "1h"); r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "wall" {
		t.Errorf("wall: %+v", r)
	}
	if r := h.ObjectOf("session", "exec", id, "--json", "--limit", "cpu_time=200ms", "--", h.Probe,
		"spin"); r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "cpu_time" {
		t.Errorf("cpu_time: %+v", r)
	}
	if r := h.ObjectOf("session", "exec", id, "--json", "--limit", "output=64KiB", "--", h.Probe,
		"flood", "1"); !r.Truncated || r.Limit == nil || r.Limit.Name != "output" {
		t.Errorf("output: %+v", r.Limit)
	}
	h.StopSession(id, 0)
	id = h.Session("--discard", "--profile", "build", "--limit", "memory=192MiB")
	// Alone it fits; beside what another has taken it does not.
	const most = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); echo got $((${#x} / 60000000))"
	if o := h.Exec(id, "--", "sh", "-c", most); o.Out != "got 1\n" {
		t.Fatalf("alone: %+v", o)
	}
	live := h.LiveWith(h.Command("session", "exec", id, "--id", "holder", "--", "sh", "-c",
		"x=$(head -c 60000000 /dev/zero | tr '\\0' x); while read line; do echo got $line; done"),
		"holder")
	r := h.ObjectOf("session", "exec", id, "--json", "--", "sh", "-c",
		strings.ReplaceAll(most, "60000000", "100000000"))
	live.In.Close()
	other := live.Wait()
	if hit := r.Limit != nil && r.Limit.Name == "memory"; !hit && other.Code != 137 &&
		r.ExitCode == 0 {
		t.Errorf("two invocations have more memory than the session: %+v, %+v", r, other)
	}
	if o := h.Exec(id, "--", "echo", "alive"); o.Out != "alive\n" {
		t.Errorf("the session: %+v", o)
	}
	h.StopSession(id, 0)
}

// T-505: whose session it is not does not learn that there is one.
func TestSessionOfAnother(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon().Admit()
	other := func(args ...string) cmdtest.Outcome {
		t.Helper()
		return h.Run(cmdtest.As(h.Command(args...), cmdtest.Stranger))
	}
	id := h.Session("--id", "roots", "--no-workspace")
	for _, args := range [][]string{{"exec", id, "--", "true"}, {"stop", id}} {
		h.Wants(other(append([]string{"session"}, args...)...), 127, `no session "roots" is open`)
	}
	// One of that name, and their own.
	h.Wants(other("session", "start", "--id", id, "--no-workspace"), 0, "")
	h.Wants(other("session", "stop", id), 0, "")
	if o := other("session", "list", "--json"); strings.TrimSpace(o.Out) != "[]" {
		t.Errorf("%+v", o)
	}
	// USER/NAME names a session, as for every other command.
	h.Wants(h.Exec("0/"+id, "--quiet", "--", "true"), 0, "")
	h.Wants(h.Exec(strconv.Itoa(cmdtest.Stranger)+"/"+id, "--", "true"), 127, "no session .* is open")
	theirs := strings.TrimSpace(other("session", "start", "--no-workspace").Out)
	if theirs == "" || len(h.Sessions()) != 2 {
		t.Fatalf("%q, %+v", theirs, h.Sessions())
	}
	h.Wants(h.Exec(theirs, "--", "true"), 126, "only that user may run tools in it")
	if o := other("session", "exec", theirs, "--", "id", "-u"); o.Code != 0 && o.Code != 127 {
		t.Errorf("%+v", o)
	}
	h.StopSession(theirs, 0)
	h.StopSession(id, 0)
}
