package cmd_test

import (
	"strings"
	"testing"
)

// An invocation in the background goes on without its command, works on the session's shadow, has
// its output in jail logs, and ends by jail kill, or with the session.
func TestSessionBackground(t *testing.T) {
	h := newHost(t)
	h.daemon()
	id := h.session("--profile", "build", "--id", "day")
	background := func(name, script string) {
		t.Helper()
		o := h.exec(id, "--background", "--id", name, "--", "sh", "-c", script)
		if o.code != 0 || o.out != name+"\n" || o.err != "" {
			t.Fatalf("%s: %+v", name, o)
		}
	}
	background("short", "echo one; echo two >&2; echo x > made; exit 3")
	if o := h.jail("wait", "short"); o.code != 3 {
		t.Errorf("wait: %+v", o)
	}
	if o := h.jail("logs", "short"); o.out != "one\n" || !strings.Contains(o.err, "two\n") {
		t.Errorf("logs: %+v", o)
	}
	if o := h.exec(id, "--", "cat", "made"); o.out != "x\n" {
		t.Errorf("its shadow is another one: %+v", o)
	}
	const forever = "echo up; exec sleep 1000"
	background("killed", forever)
	background("left", forever)
	if o := h.jail("ps"); !strings.Contains(o.out, "killed") || !strings.Contains(o.out, "left") {
		t.Errorf("ps: %+v", o)
	}
	if o := h.jail("kill", "killed"); o.code != 0 {
		t.Errorf("kill: %+v", o)
	}
	if o := h.jail("wait", "killed"); o.code != 128+15 && o.code != 128+9 {
		t.Errorf("the killed one: %+v", o)
	}
	eventually(t, "it has written", func() bool { return h.jail("logs", "left").out == "up\n" })
	if o := h.jail("session", "stop", "--discard", id); o.code != 0 {
		t.Errorf("stop: %+v", o)
	}
	if o := h.jail("wait", "left"); o.code == 0 {
		t.Errorf("it outlived the session: %+v", o)
	}
	if o := h.jail("logs", "left"); o.out != "up\n" {
		t.Errorf("logs after the session: %+v", o)
	}
	h.wants(h.exec("gone", "--background", "--", "true"), 127, `no session "gone" is open`)
	h.wants(h.exec("gone", "--background", "-t", "--", "true"), 2, "contradict each other")
}
