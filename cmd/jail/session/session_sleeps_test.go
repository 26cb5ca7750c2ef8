package session_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// sleepsNow waits until a session sleeps.
func sleepsNow(h *cmdtest.Host, id string) {
	h.T.Helper()
	cmdtest.Eventually(h.T, "session "+id+" sleeps", func() bool { return sessionState(h, id) == "sleeping" })
}

// sessionState is open, sleeping, or "" for a session that is not listed.
func sessionState(h *cmdtest.Host, id string) string {
	h.T.Helper()
	for _, s := range h.Sessions() {
		if s.ID == id {
			return s.State
		}
	}
	return ""
}

// realFile checks a file of the real directory.
func realFile(h *cmdtest.Host, name, want string) {
	h.T.Helper()
	if text, err := os.ReadFile(filepath.Join(h.Work, name)); err != nil || string(text) != want {
		h.T.Errorf("%s: %q, %v, want %q", name, text, err, want)
	}
}

// A sleepRecord is a record of the type session.
type sleepRecord struct{ Event, Was string }

func sleepRecords(h *cmdtest.Host, id string) (all []sleepRecord) {
	h.T.Helper()
	o := h.Jail("audit", "query", "--session", id, "--type", "session", "--json")
	for in := json.NewDecoder(strings.NewReader(o.Out)); in.More(); {
		var r sleepRecord
		if err := in.Decode(&r); err != nil {
			h.T.Fatalf("%v: %+v", err, o)
		}
		all = append(all, r)
	}
	return all
}

// A session that is not used goes to sleep: its jail, its mounts and its groups are gone, its id and
// its shadow stay. What is committed and discarded meanwhile is no difference any more, and the
// next invocation wakes it.
func TestSessionSleeps(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	id := h.Session("--id", "s1", "--profile", "build", "--idle", "2s")
	h.Wants(h.Exec(id, "--", "sh", "-c", "echo one >one; echo two >two; echo t >/tmp/t"), 0, "")
	sleepsNow(h, id)
	// On a busy machine it may have slept before, with nothing in its shadow.
	ends := h.Records(id, "run.finished")
	if r := ends[len(ends)-1]; r.ExitCode != 124 || r.Workspace != "kept" {
		t.Errorf("end of the jail: %+v", r)
	}
	h.WantNothingLeft(id)
	if o := h.Jail("session", "list"); !strings.Contains(o.Out, " sleeping ") {
		t.Errorf("%+v", o)
	}
	h.Wants(h.Jail("commit", id, "one"), 0, "")
	realFile(h, "one", "one\n")

	// The same request is the same session; another one is refused as for an open session.
	h.Wants(h.Jail("session", "start", "--id", id, "--profile", "readonly"), 2,
		"session id s1 is in use, by another request")
	o := h.Exec(id, "--", "sh", "-c", "cat one two; test ! -e /tmp/t; echo three >three")
	h.Wants(o, 0, "")
	if o.Out != "one\ntwo\n" {
		t.Errorf("after the sleep: %+v", o)
	}
	if got := sleepRecords(h, id); len(got) < 2 || got[0].Event != "slept" ||
		got[1].Event != "woken" {
		t.Errorf("on record: %+v", got)
	}
	if s := h.Session("--id", id, "--profile", "build", "--idle", "2s"); s != id {
		t.Errorf("the same session: %s", s)
	}
	// One that sleeps can be ended, and is then a shadow as any.
	sleepsNow(h, id)
	h.StopSession(id, 2)
	h.Wants(h.Exec(id, "--", "true"), 127, `no session "s1" is open`)
	if got := sessionState(h, id); got != "" {
		t.Errorf("it is %s", got)
	}
	h.Wants(h.Jail("session", "start", "--id", id), 2, "the shadow of that run is kept")

	// When all is committed, the id is that of a session again, with its earlier commits.
	h.Wants(h.Jail("commit", id), 0, "")
	h.Session("--id", id, "--profile", "build")
	o = h.Exec(id, "--", "sh", "-c", "cat three; echo four >four")
	if h.Wants(o, 0, ""); o.Out != "three\n" {
		t.Errorf("in the session that was opened again: %+v", o)
	}
	h.StopSession(id, 1, "--commit")
	realFile(h, "four", "four\n")
	h.WantNothingLeft(id)
	h.Discard(id)
}

// A session sleeps over the end of its daemon, however that ends. Its discarded shadow is its end,
// and one in which nothing was changed needs none.
func TestSessionSleepsWithoutDaemon(t *testing.T) {
	h := cmdtest.New(t)
	for _, end := range []string{"stopped", "killed"} {
		d := h.Daemon()
		id := h.Session("--id", end, "--profile", "build")
		h.Wants(h.Exec(id, "--", "sh", "-c", "echo "+end+" >"+end), 0, "")
		if end == "stopped" {
			d.Stop()
		} else {
			d.Kill()
		}
		d = h.Daemon()
		if got := sessionState(h, id); got != "sleeping" {
			t.Errorf("its daemon was %s: it is %q", end, got)
		}
		if o := h.Exec(id, "--", "cat", end); o.Code != 0 || o.Out != end+"\n" {
			t.Errorf("its daemon was %s: %+v", end, o)
		}
		d.Stop()
	}
	d := h.Daemon()
	h.Discard("stopped")
	h.Wants(h.Exec("stopped", "--", "true"), 127, `no session "stopped" is open`)
	h.StopSession("killed", 1, "--discard")
	empty := h.Session("--id", "empty")
	d.Stop()
	// Without any daemon, one is started that lasts as long as the session.
	if got := sessionState(h, empty); got != "sleeping" {
		t.Errorf("it is %q", got)
	}
	if o := h.Exec(empty, "--", "touch", "x"); o.Code != 0 ||
		!strings.Contains(o.Err, "so one was started") {
		t.Errorf("without a daemon: %+v", o)
	}
	h.StopSession(empty, 1, "--discard")
	h.WantNothingLeft()
}

// A session that is woken has the policy of now, and says so where that is another. What the policy
// no longer allows, and a shadow that does not fit it, is refused and stays as it is.
func TestSessionWakesUnderThePolicyOfNow(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	id := h.Session("--id", "s1")
	h.Wants(h.Exec(id, "--", "touch", "made"), 0, "")
	restarted := func(policy string) {
		t.Helper()
		d.Stop()
		if policy != "" {
			h.Write(map[string]string{".jail.toml": policy})
		} else if err := os.Remove(filepath.Join(h.Work, ".jail.toml")); err != nil {
			t.Fatal(err)
		}
		d = h.Daemon()
	}
	ls := func() message.Result {
		t.Helper()
		return h.ObjectOf("session", "exec", id, "--json", "--", "ls", "made")
	}
	restarted("policy = 1\n[limits]\nwall = \"29s\"\n")
	r := ls()
	if r.ExitCode != 0 || len(r.Warnings) != 1 ||
		!strings.Contains(r.Warnings[0], "the policy changed while the session slept") {
		t.Errorf("another policy: %+v", r)
	}
	if woken := sleepRecords(h, id); len(woken) != 2 || woken[1].Was == "" {
		t.Errorf("on record: %+v", woken)
	}
	if r = ls(); r.ExitCode != 0 || len(r.Warnings) != 0 {
		t.Errorf("said again: %+v", r)
	}
	for policy, want := range map[string]string{
		"policy = 1\n[limits]\nworkspace = \"8MiB\"\n": "made for other limits or other hidden names",
		"policy = 1\n[workspace]\nhide = [\"made\"]\n": "made for other limits or other hidden names",
		"this is no policy\n":                          "the workspace's own policy file is refused",
	} {
		restarted(policy)
		r := ls()
		if r.ExitCode == 0 || r.Error == nil || !strings.Contains(r.Error.Message, want) {
			t.Errorf("%s: %+v, %v", policy, r, r.Error)
		}
		if got := sessionState(h, id); got != "sleeping" {
			t.Errorf("it is %q", got)
		}
	}
	// The control: with the policy of before it wakes, with all that it had.
	restarted("policy = 1\n[limits]\nwall = \"29s\"\n")
	if r = ls(); r.ExitCode != 0 || len(r.Warnings) != 0 {
		t.Errorf("the same policy: %+v", r)
	}
	restarted("this is no policy\n")
	// Who cannot wake it can still end it.
	r = h.ObjectOf("session", "stop", "--json", id)
	if r.Error != nil || r.Workspace != "kept" || len(r.Warnings) != 1 {
		t.Errorf("stop: %+v, %v", r, r.Error)
	}
	h.Discard(id)
	h.WantNothingLeft()
}
