package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// session opens a session and returns its id.
func (h *host) session(flags ...string) string {
	h.t.Helper()
	o := h.jail(append([]string{"session", "start"}, flags...)...)
	id := strings.TrimSpace(o.out)
	if o.code != 0 || id == "" {
		h.t.Fatalf("session start %q: %+v", flags, o)
	}
	return id
}

// exec executes a tool in a session.
func (h *host) exec(id string, args ...string) outcome {
	h.t.Helper()
	return h.jail(append([]string{"session", "exec", id}, args...)...)
}

// objectOf runs a command with --json.
func (h *host) objectOf(args ...string) message.Result {
	h.t.Helper()
	o := h.jail(args...)
	var r message.Result
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		h.t.Fatalf("%q: %v: %+v", args, err, o)
	}
	return r
}

// liveExec starts an invocation that answers each line of its input.
func (h *host) liveExec(session, id string) *liveRun {
	h.t.Helper()
	return h.liveWith(h.command("session", "exec", session, "--id", id, "--", h.probe, "lines"), id)
}

// stopSession ends it and wants the given number of changed files.
func (h *host) stopSession(id string, changed int64, flags ...string) message.Result {
	h.t.Helper()
	r := h.objectOf(append([]string{"session", "stop", "--json", id}, flags...)...)
	if c := r.Changes; r.Error != nil || r.ExitCode != 0 ||
		c.Added+c.Modified+c.Deleted != changed {
		h.t.Errorf("stop of the session: %+v, %v", r, r.Error)
	}
	return r
}

// sessions returns those that live.
func (h *host) sessions() (all []message.SessionInfo) {
	h.t.Helper()
	o := h.jail("session", "list", "--json")
	if err := json.Unmarshal([]byte(o.out), &all); err != nil || o.code != 0 {
		h.t.Fatalf("session list: %v: %+v", err, o)
	}
	return all
}

// Several invocations, modules and programs of the host, work on one shadow and one /tmp, one after
// the other and at one time; what they changed is reviewed once, when the session has ended.
func TestSession(t *testing.T) {
	h := newHost(t)
	h.daemon()
	h.files(map[string]string{"a.txt": "one\n"})
	id := h.session("--id", "s1", "--profile", "build")
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
		if o := h.exec(id, step.args...); o.code != step.code || o.out != step.out {
			t.Errorf("%q: %+v, want exit code %d and %q", step.args, o, step.code, step.out)
		}
	}
	if text, err := os.ReadFile(filepath.Join(h.work, "a.txt")); err != nil ||
		string(text) != "one\n" {
		t.Errorf("the real file: %q, %v", text, err)
	}
	r := h.objectOf("session", "exec", id, "--id", "e1", "--json", "--", "echo", "said")
	if r.ID != "e1" || r.Session != id || string(r.Stdout) != "said\n" || r.Audit.First == 0 {
		t.Errorf("result %+v", r)
	}
	// Again in the same words it is the same session; in others it is none.
	if again := h.session("--id", "s1", "--profile", "build"); again != id ||
		len(h.sessions()) != 1 {
		t.Errorf("the same session: %q, %+v", again, h.sessions())
	}
	h.wants(h.jail("session", "start", "--id", "s1", "--profile", "readonly"), 2,
		"session id s1 is in use, by another request")
	h.wants(h.exec(id, "--id", "s1", "--", "true"), 2, "run id s1 is in use")
	h.wants(h.exec(id, "--", "no-such-tool"), 127, "no-such-tool")
	h.wants(h.exec(id, "--limit", "wall=1s", "--limit", "nonsense=1", "--", "true"), 2, "nonsense")
	if s := h.sessions()[0]; s.Invocations < 7 || s.Running != 0 || s.Workspace != h.work {
		t.Errorf("%+v", s)
	}
	// What is kept for a revert.
	defer h.discard(id)
	h.stopSession(id, 1)
	if o := h.jail("diff", id); o.code != 0 || !strings.Contains(o.out, "+two") {
		t.Errorf("diff: %+v", o)
	}
	h.wants(h.exec(id, "--", "true"), 127, `no session "s1" is open`)
	h.wants(h.jail("session", "stop", id), 127, `no session "s1" is open`)
	h.wants(h.exec("never-was", "--", "true"), 127, `no session "never-was" is open`)
	h.wants(h.jail("session", "exec", id), 2, "TOOL is missing")
	if o := h.jail("commit", id); o.code != 0 {
		t.Errorf("commit: %+v", o)
	}
	if text, err := os.ReadFile(filepath.Join(h.work, "a.txt")); err != nil ||
		string(text) != "two\n" {
		t.Errorf("the committed file: %q, %v", text, err)
	}
	if o := h.jail("audit", "query", "--session", id, "--json"); strings.Count(o.out,
		`"run.started"`) < 8 || !strings.Contains(o.out, `"run":"e1"`) {
		t.Errorf("records of the session: %+v", o)
	}
}

// What a session allows is settled when it starts, and an invocation cannot get beyond it.
func TestSessionPolicy(t *testing.T) {
	h := newHost(t)
	h.daemon()
	h.files(map[string]string{
		"p.toml": "policy = 1\nname = \"p\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\n[tools]\nallow = [\"core-utils/cat\"]\nmodules = []\n"})
	id := h.session("--policy", "p.toml", "--discard", "--limit", "wall=5s")
	h.files(map[string]string{"p.toml": "nonsense"})
	if o := h.exec(id, "--", "cat", "p.toml"); o.code != 0 || o.out != "nonsense" {
		t.Errorf("cat: %+v", o)
	}
	h.wants(h.exec(id, "--", "ls"), 126, "ls is not allowed")
	h.wants(h.exec(id, "--", h.probe), 126, "is not allowed")
	h.wants(h.exec(id, "--", "/bin/sh", "-c", "true"), 126, "is not allowed")
	if r := h.objectOf("session", "exec", id, "--json", "--limit", "wall=2h", "--", "cat",
		"p.toml"); r.Error != nil || r.ExitCode != 0 {
		t.Errorf("a limit above the session's has no effect: %+v", r)
	}
	h.stopSession(id, 0)
}

// Of two invocations at one time, neither ends with the other, and neither with the client that
// started another. With the session they all do.
func TestSessionAtOneTime(t *testing.T) {
	h := newHost(t)
	h.daemon()
	h.files(map[string]string{
		"room.toml": "policy = 1\nname = \"room\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\n[tools]\nmodules = [\"**\"]\n[limits]\npids = 100\nwall = \"10m\"\n"})
	id := h.session("--discard", "--policy", "room.toml")
	one, two, three := h.liveExec(id, "one"), h.liveExec(id, "two"), h.liveExec(id, "three")
	if s := h.sessions()[0]; s.Running != 3 {
		t.Errorf("%+v", s)
	}
	h.wants(h.jail("kill", "one"), 0, "")
	if o := one.wait(); o.code != 137 {
		t.Errorf("the one that was ended: %+v", o)
	}
	two.says("alive")
	// A client that goes takes its invocation along.
	if err := three.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	three.wait()
	eventually(t, "its invocation ends", func() bool { return h.sessions()[0].Running == 1 })
	two.says("still alive")
	r := h.stopSession(id, 0)
	if r.Session != id || r.Usage.CPUMS == 0 {
		t.Errorf("%+v", r)
	}
	if o := two.wait(); o.code != 137 {
		t.Errorf("an invocation at the end of its session: %+v", o)
	}
}

// planOf reads the plan of a live run's jail.
func (h *host) planOf(id string) (p jail.Plan) {
	h.t.Helper()
	var j struct{ Plan jail.Plan }
	text, err := os.ReadFile(filepath.Join(h.state, "state", "runs", h.globalID(id), "jail.json"))
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return j.Plan
}

// The walls of an invocation are those of a run: the plan says the same in every layer, the kernel
// agrees with it, no namespace is another jail's, and what a tool sees from inside is the same.
func TestSessionWalls(t *testing.T) {
	h := newHost(t)
	h.daemon()
	id := h.session("--discard")
	first, second, run := h.liveExec(id, "first"), h.liveExec(id, "second"),
		h.live("run", "--discard")
	for _, live := range []string{id, "first", "second", "run"} {
		// That it shares no namespace with any of the others is among it.
		v := h.verification(live, 0)
		if !v.OK || len(v.Findings) < 40 {
			t.Errorf("%s: %+v", live, v)
		}
	}
	want, got := h.planOf("run"), h.planOf("first")
	for _, p := range []*jail.Plan{&want, &got} {
		p.ID, p.Cgroup.Path, p.IDs.Base, p.IDs.Owner, p.Policy, p.Layers = "", "", 0, 0, "", nil
	}
	if a, b := must(json.Marshal(want))(t), must(json.Marshal(got))(t); string(a) != string(b) {
		t.Errorf("an invocation's plan is\n%s\nand a run's\n%s", b, a)
	}
	first.in.Close()
	second.in.Close()
	run.in.Close()
	for _, live := range []*liveRun{first, second, run} {
		if o := live.wait(); o.code != 0 {
			t.Errorf("%s: %+v", live.id, o)
		}
	}
	h.stopSession(id, 0)

	// The same from inside: what a program of the host may see and do. Each jail has ids of its
	// own.
	look := `grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status; for fd in /proc/self/fd/*; do echo $fd; done; ulimit -a; cat /proc/mounts | cut -d' ' -f2-4 | grep -v overlay | sed 's/,[ug]id=[0-9]*//g'; ` +
		`cat /proc/net/dev /proc/self/cgroup; mount -t tmpfs x /mnt; unshare -U true; echo x > /usr/x; cat /etc/shadow; ls /home /root; chroot / true; kill -9 1; echo $?`
	id = h.session("--discard", "--profile", "build")
	inside := h.objectOf("session", "exec", id, "--json", "--", "sh", "-c", look)
	alone := h.objectOf("run", "--discard", "--json", "--profile", "build", "--", "sh", "-c", look)
	if string(inside.Stdout) != string(alone.Stdout) ||
		string(inside.Stderr) != string(alone.Stderr) || len(alone.Stdout) < 500 {
		t.Errorf("in a session:\n%s%s\nin a run:\n%s%s", inside.Stdout, inside.Stderr, alone.Stdout,
			alone.Stderr)
	}
	if fmt.Sprint(inside.Denied) != fmt.Sprint(alone.Denied) || len(alone.Denied) == 0 {
		t.Errorf("refused in a session %+v, in a run %+v", inside.Denied, alone.Denied)
	}
	h.stopSession(id, 0)
}

// Invocations see each other's files in the workspace and in /tmp, and nothing else of each other.
func TestSessionApart(t *testing.T) {
	h := newHost(t)
	h.daemon()
	id := h.session("--discard", "--profile", "build")
	cmd := h.command("session", "exec", id, "--id", "secret", "--", "sh", "-c",
		`echo lock > /dev/shm/mine; exec 9>/tmp/both; TOKEN=only-mine; while read line; do echo got $line; done`)
	cmd.Env = append(cmd.Env, "TOKEN=only-mine")
	live := h.liveWith(cmd, "secret")
	// Everything that is there to be seen of processes, and of memory that is shared by name; then
	// all that there is to be ended.
	o := h.exec(id, "--", "sh", "-c",
		`cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\0' ' '; ls /dev/shm; ls -l /proc/[0-9]*/fd; kill -9 -1; ls /tmp`)
	for _, trace := range []string{"only-mine", "mine", "/tmp/both", "read line"} {
		if strings.Contains(o.out, trace) {
			t.Errorf("one invocation sees %q of the other: %+v", trace, o)
		}
	}
	live.says("alive")
	if o := h.exec(id, "--", "ls", "/tmp"); !strings.HasPrefix(o.out, "both\n") {
		t.Errorf("/tmp: %+v", o)
	}
	live.in.Close()
	if o := live.wait(); o.code != 0 {
		t.Errorf("%+v", o)
	}
	// What an invocation leaves running does not outlive it.
	if o := h.exec(id, "--", "sh", "-c",
		`(while :; do date > /tmp/beat; sleep 0.1; done) >/dev/null 2>&1 & echo started`); o.out != "started\n" {
		t.Errorf("%+v", o)
	}
	if o := h.exec(id, "--", "sh", "-c",
		`rm -f /tmp/beat; sleep 0.5; test -e /tmp/beat`); o.code != 1 {
		t.Errorf("something goes on: %+v", o)
	}
	h.stopSession(id, 0)
}

// Each invocation has limits of its own, and memory is the session's.
func TestSessionLimits(t *testing.T) {
	h := newHost(t)
	h.daemon()
	id := h.session("--discard")
	if r := h.objectOf("session", "exec", id, "--json", "--limit", "wall=300ms", "--", h.probe,
		"sleep", "1h"); r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "wall" {
		t.Errorf("wall: %+v", r)
	}
	if r := h.objectOf("session", "exec", id, "--json", "--limit", "cpu_time=200ms", "--", h.probe,
		"spin"); r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "cpu_time" {
		t.Errorf("cpu_time: %+v", r)
	}
	if r := h.objectOf("session", "exec", id, "--json", "--limit", "output=64KiB", "--", h.probe,
		"flood", "1"); !r.Truncated || r.Limit == nil || r.Limit.Name != "output" {
		t.Errorf("output: %+v", r.Limit)
	}
	h.stopSession(id, 0)
	id = h.session("--discard", "--profile", "build", "--limit", "memory=192MiB")
	// Alone it fits; beside what another has taken it does not.
	const most = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); echo got $((${#x} / 60000000))"
	if o := h.exec(id, "--", "sh", "-c", most); o.out != "got 1\n" {
		t.Fatalf("alone: %+v", o)
	}
	live := h.liveWith(h.command("session", "exec", id, "--id", "holder", "--", "sh", "-c",
		"x=$(head -c 60000000 /dev/zero | tr '\\0' x); while read line; do echo got $line; done"),
		"holder")
	r := h.objectOf("session", "exec", id, "--json", "--", "sh", "-c",
		strings.ReplaceAll(most, "60000000", "100000000"))
	live.in.Close()
	other := live.wait()
	if hit := r.Limit != nil && r.Limit.Name == "memory"; !hit && other.code != 137 &&
		r.ExitCode == 0 {
		t.Errorf("two invocations have more memory than the session: %+v, %+v", r, other)
	}
	if o := h.exec(id, "--", "echo", "alive"); o.out != "alive\n" {
		t.Errorf("the session: %+v", o)
	}
	h.stopSession(id, 0)
}

// T-505: whose session it is not does not learn that there is one.
func TestSessionOfAnother(t *testing.T) {
	h := newHost(t)
	h.daemon().admit()
	other := func(args ...string) outcome {
		t.Helper()
		return h.run(as(h.command(args...), stranger))
	}
	id := h.session("--id", "roots", "--no-workspace")
	for _, args := range [][]string{{"exec", id, "--", "true"}, {"stop", id}} {
		h.wants(other(append([]string{"session"}, args...)...), 127, `no session "roots" is open`)
	}
	// One of that name, and their own.
	h.wants(other("session", "start", "--id", id, "--no-workspace"), 0, "")
	h.wants(other("session", "stop", id), 0, "")
	if o := other("session", "list", "--json"); strings.TrimSpace(o.out) != "[]" {
		t.Errorf("%+v", o)
	}
	theirs := strings.TrimSpace(other("session", "start", "--no-workspace").out)
	if theirs == "" || len(h.sessions()) != 2 {
		t.Fatalf("%q, %+v", theirs, h.sessions())
	}
	h.wants(h.exec(theirs, "--", "true"), 126, "only that user may run tools in it")
	if o := other("session", "exec", theirs, "--", "id", "-u"); o.code != 0 && o.code != 127 {
		t.Errorf("%+v", o)
	}
	h.stopSession(theirs, 0)
	h.stopSession(id, 0)
}
