package session_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// profileWith writes a profile like the default one, and returns its file.
func profileWith(h *cmdtest.Host, name, text string) string {
	h.T.Helper()
	path := filepath.Join(h.Root, name+".toml")
	text = fmt.Sprintf("policy = 1\nname = %q\ninclude = [\"default\"]\n%s\n", name, text)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.T.Fatal(err)
	}
	return path
}

// execOf starts an invocation of the probe that answers lines, with flags before the tool.
func execOf(h *cmdtest.Host, session, id string, flags ...string) *cmdtest.LiveRun {
	h.T.Helper()
	args := append([]string{"session", "exec", session, "--id", id}, flags...)
	return h.LiveWith(h.Command(append(args, "--", h.Probe, "lines")...), id)
}

// The modules of a session with a shared engine run in one process, each with an instance,
// descriptors, arguments and variables of its own, and the record of each says so. A program of the
// host has a jail of its own, as in any session.
func TestSharedEngine(t *testing.T) {
	h := cmdtest.NewForEngines(t)
	h.Daemon()
	h.Files(map[string]string{"a.txt": "one\n"})
	both := filepath.Join(h.Root, "both.toml")
	if err := os.WriteFile(both, []byte("policy = 1\nname = \"both\"\ninclude = [\"build\"]\n"+
		"[tools]\nmodules = [\"**\"]\n[env]\nallow = [\"*\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := h.Session("--policy", both, "--shared-engine")
	if all := h.Sessions(); len(all) != 1 || !all[0].SharedEngine {
		t.Errorf("sessions %+v", all)
	}
	first := execOf(h, id, "first", "--env", "SECRET=1")
	second := execOf(h, id, "second")
	if a, b := first.InitPID(), second.InitPID(); a != b {
		t.Errorf("processes %d and %d", a, b)
	}
	engine := h.EngineOf("first")
	if engine == "" || h.EngineOf("second") != engine {
		t.Errorf("engines %q and %q", engine, h.EngineOf("second"))
	}
	for _, step := range []struct {
		args []string
		out  string
	}{
		{[]string{h.Probe, "args", "x"}, "args"},
		{[]string{h.Probe, "env"}, ""},
		{[]string{h.Probe, "open", "10"}, ""},
	} {
		o := h.Exec(id, append([]string{"--id", "third", "--"}, step.args...)...)
		if o.Code != 0 || strings.Contains(o.Out, "SECRET") || strings.Contains(o.Out, "lines") {
			t.Errorf("%q: %+v", step.args, o)
		}
		if h.EngineOf("third") != engine {
			t.Errorf("%q had engine %q, not %q", step.args, h.EngineOf("third"), engine)
		}
	}
	// What one opens is no descriptor of another, nor does it take what another may open.
	h.Wants(h.Exec(id, "--", h.Probe, "open", "100000"), 1, "")
	first.Says("still")
	second.Says("here")
	// The end of one's input is no other's.
	first.In.Close()
	if o := first.Wait(); o.Code != 0 {
		t.Errorf("the first ended with %+v", o)
	}
	second.Says("alone")
	// Files belong to the session: programs of the host see what a module wrote.
	h.Wants(h.Exec(id, "--", "sed", "-i", "s/one/two/", "a.txt"), 0, "")
	if o := h.Exec(id, "--id", "native", "--", "/bin/cat", "a.txt"); o.Out != "two\n" {
		t.Errorf("a program of the host: %+v", o)
	}
	if h.EngineOf("native") != "" {
		t.Error("a program of the host ran in a shared engine")
	}
	second.In.Close()
	second.Wait()
	if r := h.ObjectOf("session", "exec", id, "--json", "--", h.Probe, "exit", "7"); r.ExitCode != 7 ||
		r.Session != id || r.Audit.First == 0 {
		t.Errorf("result %+v", r)
	}
	h.StopSession(id, 1, "--discard")
	// Without being asked for there is none.
	id = h.Session()
	h.Wants(h.Exec(id, "--id", "control", "--", h.Probe, "args"), 0, "")
	if h.EngineOf("control") != "" || h.Sessions()[0].SharedEngine {
		t.Error("a session shared an engine that nobody asked for")
	}
	h.StopSession(id, 0)
}

// The API has it as well, and its invocations run at one time.
func TestSharedEngineAPI(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	c, err := api.Dial(t.Context(), filepath.Join(h.State, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.StartSession(t.Context(), message.SessionRequest{SharedEngine: true,
		Request: message.Request{ID: "shared-api", Profile: "default", Dir: h.Work}})
	if err != nil || !s.SharedEngine {
		t.Fatalf("%+v, %v", s, err)
	}
	const n = 8
	said := make(chan error, n)
	for i := range n {
		go func() {
			var out bytes.Buffer
			word := fmt.Sprintf("word-%d", i)
			res, err := c.Exec(t.Context(), s.ID, message.ExecRequest{Tool: h.Probe,
				Args: []string{"lines"}, Dir: h.Work}, strings.NewReader(word+"\n"), &out, &out, nil)
			if err == nil && (res.ExitCode != 0 || out.String() != "got "+word+"\n") {
				err = fmt.Errorf("%s: %q, %+v", word, &out, res)
			}
			said <- err
		}()
	}
	for range n {
		if err := <-said; err != nil {
			t.Error(err)
		}
	}
	h.StopSession(s.ID, 0)
	engines := map[string]bool{}
	all := h.Records("", "run.finished")
	for _, r := range all {
		if r.Run != s.ID {
			engines[h.EngineOf(r.Run)] = true
		}
	}
	// Each has an end on record, and of the engine there was one.
	if len(all) < n+1 || len(engines) != 1 || engines[""] {
		t.Errorf("%d records, engines %v", len(all), engines)
	}
}

// When the process of an engine ends, the invocations in it are told that, and the next one gets a
// new process.
func TestSharedEngineCrash(t *testing.T) {
	h := cmdtest.NewForEngines(t)
	h.Daemon()
	id := h.Session("--shared-engine")
	first, second := execOf(h, id, "first"), execOf(h, id, "second")
	if err := syscall.Kill(first.InitPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*cmdtest.LiveRun{first, second} {
		h.Wants(r.Wait(), 125, "the shared engine of session .* ended while the tool ran in it: it was ended by SIGKILL")
	}
	h.Wants(h.Exec(id, "--id", "next", "--", h.Probe, "exit", "3"), 3, "")
	if a, b := h.EngineOf("first"), h.EngineOf("next"); a == "" || b == "" || a == b {
		t.Errorf("engines %q and %q", a, b)
	}
	h.StopSession(id, 0)
	for _, name := range []string{"first", "second", "next"} {
		if f := h.Finished(name); (f.Error == "") != (name == "next") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Each invocation is held to its limits, and ended alone.
func TestSharedEngineLimits(t *testing.T) {
	h := cmdtest.NewForEngines(t)
	h.Daemon()
	id := h.Session("--policy", profileWith(h, "limited",
		"[limits]\nwall = \"10m\"\ncpu_time = \"2s\"\nmemory = \"256MiB\"\noutput = \"1MiB\""),
		"--shared-engine")
	beside := execOf(h, id, "beside")
	spin := h.Command("session", "exec", id, "--id", "spin", "--", h.Probe, "spin")
	if o := h.Run(spin); o.Code != 124 || !strings.Contains(o.Err, "cpu_time") {
		t.Errorf("an endless loop: %+v", o)
	}
	beside.Says("after the loop")
	for _, c := range []struct {
		limit string
		code  int
		args  []string
	}{
		{"memory", 2, []string{"memory", "1000"}},
		{"output", 137, []string{"flood", "64"}},
	} {
		r := h.ObjectOf(append([]string{"session", "exec", id, "--json", "--", h.Probe},
			c.args...)...)
		if r.ExitCode != c.code || r.Limit == nil || r.Limit.Name != c.limit {
			t.Errorf("%s: exit code %d, limit %+v, %v", c.limit, r.ExitCode, r.Limit, r.Error)
		}
		beside.Says("after " + c.limit)
	}
	// One that waits for nothing, one that waits for input, and one that computes.
	for i, args := range [][]string{{"sleep", "1h"}, {"lines"}, {"spin"}} {
		name := fmt.Sprintf("cancelled%d", i)
		cmd := h.Command(append([]string{"session", "exec", id, "--id", name, "--", h.Probe},
			args...)...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan cmdtest.Outcome, 1)
		go func() { ended <- h.Run(cmd) }()
		cmdtest.Eventually(t, name+" runs", func() bool {
			return strings.Contains(h.Jail("ps").Out, name)
		})
		h.Wants(h.Jail("kill", name), 0, "")
		if o := <-ended; o.Code != 137 {
			t.Errorf("%q: %+v", args, o)
		}
		in.Close()
		beside.Says("after " + name)
	}
	engine := h.EngineOf("beside")
	for _, name := range []string{"spin", "cancelled0", "cancelled1", "cancelled2"} {
		if h.EngineOf(name) != engine {
			t.Errorf("%s ran in engine %q, not %q", name, h.EngineOf(name), engine)
		}
	}
	beside.In.Close()
	if o := beside.Wait(); o.Code != 0 {
		t.Errorf("beside: %+v", o)
	}
	r := h.ObjectOf("session", "exec", id, "--json", "--limit", "wall=300ms", "--", h.Probe,
		"spin")
	if r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "wall" {
		t.Errorf("wall: %+v", r)
	}
	h.StopSession(id, 0)
}

// If the memory of all invocations in an engine runs out, the kernel kills the process, and the
// result of each invocation names that limit.
func TestSharedEngineMemory(t *testing.T) {
	h := cmdtest.NewForEngines(t)
	h.Daemon()
	id := h.Session("--policy", profileWith(h, "small", "[limits]\nmemory = \"256MiB\"\nwall = \"10m\""),
		"--shared-engine")
	keep := func(name string) *cmdtest.LiveRun {
		cmd := h.Command("session", "exec", id, "--id", name, "--", h.Probe, "keep", "140")
		return h.LiveWith(cmd, name)
	}
	first := keep("first")
	last := h.ObjectOf("session", "exec", id, "--json", "--id", "last", "--", h.Probe, "keep", "140")
	if last.ExitCode != 137 || last.Limit == nil || last.Limit.Name != "memory" {
		t.Errorf("the last: %+v, %v", last, last.Error)
	}
	if o := first.Wait(); o.Code != 137 || !strings.Contains(o.Err, "memory") {
		t.Errorf("the first: %+v", o)
	}
	h.Wants(h.Exec(id, "--", h.Probe, "exit", "0"), 0, "")
	h.StopSession(id, 0)
}

// A policy whose engine is "own" forbids a shared one; a policy may have every session share one.
func TestSharedEnginePolicy(t *testing.T) {
	h := cmdtest.NewForEngines(t)
	h.Daemon()
	own := profileWith(h, "own", "[session]\nengine = \"own\"")
	h.Wants(h.Jail("session", "start", "--policy", own, "--shared-engine"), 126,
		`a shared engine is not permitted: .* says session.engine = "own"`)
	id := h.Session("--policy", own)
	h.Wants(h.Exec(id, "--id", "apart", "--", h.Probe, "exit", "0"), 0, "")
	if h.EngineOf("apart") != "" {
		t.Error("a shared engine where the profile forbids it")
	}
	h.StopSession(id, 0)
	shared := profileWith(h, "shared", "[session]\nengine = \"shared\"")
	id = h.Session("--policy", shared)
	h.Wants(h.Exec(id, "--id", "together", "--", h.Probe, "exit", "0"), 0, "")
	if h.EngineOf("together") == "" {
		t.Error("no shared engine where the profile has one")
	}
	h.StopSession(id, 0)
}

// What a daemon that was killed had begun in a shared engine gets its end on record.
func TestSharedEngineKilledDaemon(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	id := h.Session("--shared-engine")
	live := execOf(h, id, "live")
	engine := live.InitPID()
	d.Kill()
	live.In.Close()
	live.Wait()
	h.Daemon()
	// It answers when it has cleared up.
	h.Sessions()
	if f := h.Finished("live"); f.Error == "" {
		t.Errorf("the end: %+v", f)
	}
	cmdtest.Eventually(t, "the engine has ended", func() bool { return cmdtest.Gone(engine) })
	h.Discard(id)
}
