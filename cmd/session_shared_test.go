package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// engineOf returns the shared engine that the record of a run's start names, or "".
func (h *host) engineOf(id string) string {
	h.t.Helper()
	o := h.jail("audit", "query", "--json", "--run", id, "--type", "run.started")
	var r struct{ Start, Engine string }
	if err := json.Unmarshal([]byte(strings.SplitN(o.out, "\n", 2)[0]), &r); err != nil {
		h.t.Fatalf("%s: %v: %+v", id, err, o)
	}
	if (r.Engine != "") != (r.Start == "shared") {
		h.t.Errorf("run %s: start %q, engine %q", id, r.Start, r.Engine)
	}
	return r.Engine
}

// profileWith writes a profile like the default one, and returns its file.
func (h *host) profileWith(name, text string) string {
	h.t.Helper()
	path := filepath.Join(h.root, name+".toml")
	text = fmt.Sprintf("policy = 1\nname = %q\ninclude = [\"default\"]\n%s\n", name, text)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// execOf starts an invocation of the probe that answers lines, with flags before the tool.
func (h *host) execOf(session, id string, flags ...string) *liveRun {
	h.t.Helper()
	args := append([]string{"session", "exec", session, "--id", id}, flags...)
	return h.liveWith(h.command(append(args, "--", h.probe, "lines")...), id)
}

// The modules of a session with a shared engine run in one process, each with an instance,
// descriptors, arguments and variables of its own, and the record of each says so. A program of the
// host has a jail of its own, as in any session.
func TestSharedEngine(t *testing.T) {
	h := newHost(t)
	h.daemon()
	h.files(map[string]string{"a.txt": "one\n"})
	both := filepath.Join(h.root, "both.toml")
	if err := os.WriteFile(both, []byte("policy = 1\nname = \"both\"\ninclude = [\"build\"]\n"+
		"[tools]\nmodules = [\"**\"]\n[env]\nallow = [\"*\"]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	id := h.session("--policy", both, "--shared-engine")
	if all := h.sessions(); len(all) != 1 || !all[0].SharedEngine {
		t.Errorf("sessions %+v", all)
	}
	first := h.execOf(id, "first", "--env", "SECRET=1")
	second := h.execOf(id, "second")
	if a, b := first.initPID(), second.initPID(); a != b {
		t.Errorf("processes %d and %d", a, b)
	}
	engine := h.engineOf("first")
	if engine == "" || h.engineOf("second") != engine {
		t.Errorf("engines %q and %q", engine, h.engineOf("second"))
	}
	for _, step := range []struct {
		args []string
		out  string
	}{
		{[]string{h.probe, "args", "x"}, "args"},
		{[]string{h.probe, "env"}, ""},
		{[]string{h.probe, "open", "10"}, ""},
	} {
		o := h.exec(id, append([]string{"--id", "third", "--"}, step.args...)...)
		if o.code != 0 || strings.Contains(o.out, "SECRET") || strings.Contains(o.out, "lines") {
			t.Errorf("%q: %+v", step.args, o)
		}
		if h.engineOf("third") != engine {
			t.Errorf("%q had engine %q, not %q", step.args, h.engineOf("third"), engine)
		}
	}
	// What one opens is no descriptor of another, nor does it take what another may open.
	h.wants(h.exec(id, "--", h.probe, "open", "100000"), 1, "")
	first.says("still")
	second.says("here")
	// The end of one's input is no other's.
	first.in.Close()
	if o := first.wait(); o.code != 0 {
		t.Errorf("the first ended with %+v", o)
	}
	second.says("alone")
	// Files belong to the session: programs of the host see what a module wrote.
	h.wants(h.exec(id, "--", "sed", "-i", "s/one/two/", "a.txt"), 0, "")
	if o := h.exec(id, "--id", "native", "--", "/bin/cat", "a.txt"); o.out != "two\n" {
		t.Errorf("a program of the host: %+v", o)
	}
	if h.engineOf("native") != "" {
		t.Error("a program of the host ran in a shared engine")
	}
	second.in.Close()
	second.wait()
	if r := h.objectOf("session", "exec", id, "--json", "--", h.probe, "exit", "7"); r.ExitCode != 7 ||
		r.Session != id || r.Audit.First == 0 {
		t.Errorf("result %+v", r)
	}
	h.stopSession(id, 1, "--discard")
	// Without being asked for there is none.
	id = h.session()
	h.wants(h.exec(id, "--id", "control", "--", h.probe, "args"), 0, "")
	if h.engineOf("control") != "" || h.sessions()[0].SharedEngine {
		t.Error("a session shared an engine that nobody asked for")
	}
	h.stopSession(id, 0)
}

// The API has it as well, and its invocations run at one time.
func TestSharedEngineAPI(t *testing.T) {
	h := newHost(t)
	h.daemon()
	c, err := api.Dial(t.Context(), filepath.Join(h.state, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.StartSession(t.Context(), message.SessionRequest{SharedEngine: true,
		Request: message.Request{ID: "shared-api", Profile: "default", Dir: h.work}})
	if err != nil || !s.SharedEngine {
		t.Fatalf("%+v, %v", s, err)
	}
	const n = 8
	said := make(chan error, n)
	for i := range n {
		go func() {
			var out bytes.Buffer
			word := fmt.Sprintf("word-%d", i)
			res, err := c.Exec(t.Context(), s.ID, message.ExecRequest{Tool: h.probe,
				Args: []string{"lines"}, Dir: h.work}, strings.NewReader(word+"\n"), &out, &out, nil)
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
	h.stopSession(s.ID, 0)
	engines := map[string]bool{}
	all := h.records("", "run.finished")
	for _, r := range all {
		if r.Run != s.ID {
			engines[h.engineOf(r.Run)] = true
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
	h := newHost(t)
	h.daemon()
	id := h.session("--shared-engine")
	first, second := h.execOf(id, "first"), h.execOf(id, "second")
	if err := syscall.Kill(first.initPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*liveRun{first, second} {
		h.wants(r.wait(), 125, "the shared engine of session .* ended while the tool ran in it: it was ended by SIGKILL")
	}
	h.wants(h.exec(id, "--id", "next", "--", h.probe, "exit", "3"), 3, "")
	if a, b := h.engineOf("first"), h.engineOf("next"); a == "" || b == "" || a == b {
		t.Errorf("engines %q and %q", a, b)
	}
	h.stopSession(id, 0)
	for _, name := range []string{"first", "second", "next"} {
		if f := h.finished(name); (f.Error == "") != (name == "next") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Each invocation is held to its limits, and ended alone.
func TestSharedEngineLimits(t *testing.T) {
	h := newHost(t)
	h.daemon()
	id := h.session("--policy", h.profileWith("limited",
		"[limits]\nwall = \"10m\"\ncpu_time = \"2s\"\nmemory = \"256MiB\"\noutput = \"1MiB\""),
		"--shared-engine")
	beside := h.execOf(id, "beside")
	spin := h.command("session", "exec", id, "--id", "spin", "--", h.probe, "spin")
	if o := h.run(spin); o.code != 124 || !strings.Contains(o.err, "cpu_time") {
		t.Errorf("an endless loop: %+v", o)
	}
	beside.says("after the loop")
	for _, c := range []struct {
		limit string
		code  int
		args  []string
	}{
		{"memory", 2, []string{"memory", "1000"}},
		{"output", 137, []string{"flood", "64"}},
	} {
		r := h.objectOf(append([]string{"session", "exec", id, "--json", "--", h.probe},
			c.args...)...)
		if r.ExitCode != c.code || r.Limit == nil || r.Limit.Name != c.limit {
			t.Errorf("%s: exit code %d, limit %+v, %v", c.limit, r.ExitCode, r.Limit, r.Error)
		}
		beside.says("after " + c.limit)
	}
	// One that waits for nothing, one that waits for input, and one that computes.
	for i, args := range [][]string{{"sleep", "1h"}, {"lines"}, {"spin"}} {
		name := fmt.Sprintf("cancelled%d", i)
		cmd := h.command(append([]string{"session", "exec", id, "--id", name, "--", h.probe},
			args...)...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan outcome, 1)
		go func() { ended <- h.run(cmd) }()
		eventually(t, name+" runs", func() bool {
			return strings.Contains(h.jail("ps").out, name)
		})
		h.wants(h.jail("kill", name), 0, "")
		if o := <-ended; o.code != 137 {
			t.Errorf("%q: %+v", args, o)
		}
		in.Close()
		beside.says("after " + name)
	}
	engine := h.engineOf("beside")
	for _, name := range []string{"spin", "cancelled0", "cancelled1", "cancelled2"} {
		if h.engineOf(name) != engine {
			t.Errorf("%s ran in engine %q, not %q", name, h.engineOf(name), engine)
		}
	}
	beside.in.Close()
	if o := beside.wait(); o.code != 0 {
		t.Errorf("beside: %+v", o)
	}
	r := h.objectOf("session", "exec", id, "--json", "--limit", "wall=300ms", "--", h.probe,
		"spin")
	if r.ExitCode != 124 || r.Limit == nil || r.Limit.Name != "wall" {
		t.Errorf("wall: %+v", r)
	}
	h.stopSession(id, 0)
}

// If the memory of all invocations in an engine runs out, the kernel kills the process, and the
// result of each invocation names that limit.
func TestSharedEngineMemory(t *testing.T) {
	h := newHost(t)
	h.daemon()
	id := h.session("--policy", h.profileWith("small", "[limits]\nmemory = \"256MiB\"\nwall = \"10m\""),
		"--shared-engine")
	keep := func(name string) *liveRun {
		cmd := h.command("session", "exec", id, "--id", name, "--", h.probe, "keep", "140")
		return h.liveWith(cmd, name)
	}
	first := keep("first")
	last := h.objectOf("session", "exec", id, "--json", "--id", "last", "--", h.probe, "keep", "140")
	if last.ExitCode != 137 || last.Limit == nil || last.Limit.Name != "memory" {
		t.Errorf("the last: %+v, %v", last, last.Error)
	}
	if o := first.wait(); o.code != 137 || !strings.Contains(o.err, "memory") {
		t.Errorf("the first: %+v", o)
	}
	h.wants(h.exec(id, "--", h.probe, "exit", "0"), 0, "")
	h.stopSession(id, 0)
}

// A policy whose engine is "own" forbids a shared one; a policy may have every session share one.
func TestSharedEnginePolicy(t *testing.T) {
	h := newHost(t)
	h.daemon()
	own := h.profileWith("own", "[session]\nengine = \"own\"")
	h.wants(h.jail("session", "start", "--policy", own, "--shared-engine"), 126,
		`a shared engine is not permitted: .* says session.engine = "own"`)
	id := h.session("--policy", own)
	h.wants(h.exec(id, "--id", "apart", "--", h.probe, "exit", "0"), 0, "")
	if h.engineOf("apart") != "" {
		t.Error("a shared engine where the profile forbids it")
	}
	h.stopSession(id, 0)
	shared := h.profileWith("shared", "[session]\nengine = \"shared\"")
	id = h.session("--policy", shared)
	h.wants(h.exec(id, "--id", "together", "--", h.probe, "exit", "0"), 0, "")
	if h.engineOf("together") == "" {
		t.Error("no shared engine where the profile has one")
	}
	h.stopSession(id, 0)
}

// What a daemon that was killed had begun in a shared engine gets its end on record.
func TestSharedEngineKilledDaemon(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	id := h.session("--shared-engine")
	live := h.execOf(id, "live")
	engine := live.initPID()
	d.kill()
	live.in.Close()
	live.wait()
	h.daemon()
	// It answers when it has cleared up.
	h.sessions()
	if f := h.finished("live"); f.Error == "" {
		t.Errorf("the end: %+v", f)
	}
	eventually(t, "the engine has ended", func() bool {
		return syscall.Kill(engine, 0) != nil
	})
	h.discard(id)
}
