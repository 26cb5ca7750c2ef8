package session_test

import (
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// An invocation in the background goes on without its command, works on the session's shadow, has
// its output in jail logs, and ends by jail kill, or with the session.
func TestSessionBackground(t *testing.T) {
	h := cmdtest.NewNative(t)
	h.Daemon()
	id := h.Session("--profile", "build", "--id", "day")
	background := func(name, script string) {
		t.Helper()
		o := h.Exec(id, "--background", "--id", name, "--", "sh", "-c", script)
		if o.Code != 0 || o.Out != name+"\n" || o.Err != "" {
			t.Fatalf("%s: %+v", name, o)
		}
	}
	background("short", "echo one; echo two >&2; echo x > made; exit 3")
	if o := h.Jail("wait", "short"); o.Code != 3 {
		t.Errorf("wait: %+v", o)
	}
	if o := h.Jail("logs", "short"); o.Out != "one\n" || !strings.Contains(o.Err, "two\n") {
		t.Errorf("logs: %+v", o)
	}
	if o := h.Exec(id, "--", "cat", "made"); o.Out != "x\n" {
		t.Errorf("its shadow is another one: %+v", o)
	}
	const forever = "echo up; exec sleep 1000"
	background("killed", forever)
	background("left", forever)
	if o := h.Jail("ps"); !strings.Contains(o.Out, "killed") || !strings.Contains(o.Out, "left") {
		t.Errorf("ps: %+v", o)
	}
	if o := h.Jail("kill", "killed"); o.Code != 0 {
		t.Errorf("kill: %+v", o)
	}
	if o := h.Jail("wait", "killed"); o.Code != 128+15 && o.Code != 128+9 {
		t.Errorf("the killed one: %+v", o)
	}
	cmdtest.Eventually(t, "it has written", func() bool { return h.Jail("logs", "left").Out == "up\n" })
	if o := h.Jail("session", "stop", "--discard", id); o.Code != 0 {
		t.Errorf("stop: %+v", o)
	}
	if o := h.Jail("wait", "left"); o.Code == 0 {
		t.Errorf("it outlived the session: %+v", o)
	}
	if o := h.Jail("logs", "left"); o.Out != "up\n" {
		t.Errorf("logs after the session: %+v", o)
	}
	h.Wants(h.Exec("gone", "--background", "--", "true"), 127, `no session "gone" is open`)
	h.Wants(h.Exec("gone", "--background", "-t", "--", "true"), 2, "contradict each other")
}
