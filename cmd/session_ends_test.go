package cmd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A session ends by its times and with its daemon, however that ends; what it changed is kept, and
// nothing else is left.
func TestSessionEnds(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	tryTouch := func(flags ...string) (string, outcome) {
		t.Helper()
		id := h.session(flags...)
		return id, h.exec(id, "--", "touch", "made")
	}
	touched := func(flags ...string) string {
		t.Helper()
		id, o := tryTouch(flags...)
		if o.code != 0 {
			t.Fatalf("touch: %+v", o)
		}
		return id
	}
	endsBy := func(limit, id string) {
		t.Helper()
		eventually(t, "it ends by "+limit,
			func() bool { return len(h.records(id, "run.finished")) == 1 })
		if r := h.finished(id); r.ExitCode != 124 || r.Workspace != "kept" ||
			len(h.records(id, "limit")) != 1 {
			t.Errorf("end by %s: %+v, %+v", limit, r, h.records(id, ""))
		}
		h.discard(id)
	}
	// The time begins anew with the invocation, however long its module takes to be compiled.
	endsBy("idle", touched("--idle", (5*time.Second*time.Duration(min(slower(), 5))).String()))
	for wait := 2 * time.Second; ; wait *= 2 {
		id, o := tryTouch("--time", wait.String())
		if o.code == 0 {
			endsBy("time", id)
			break
		}
		// It ended sooner than this machine began, or in the middle of it.
		eventually(t, "it ends", func() bool { return len(h.records(id, "run.finished")) == 1 })
		h.jail("discard", id)
	}
	told := touched()
	busy := h.liveExec(told, "told-busy")
	d.stop()
	busy.wait()
	if r := h.finished(told); r.Signal != "SIGTERM" || r.Workspace != "kept" {
		t.Errorf("end with the daemon: %+v", r)
	}
	d = h.daemon()
	killed := touched()
	busy = h.liveExec(killed, "killed-busy")
	d.kill()
	busy.wait()
	h.daemon()
	// It answers when it has cleared up.
	h.sessions()
	if r := h.finished(killed); r.ExitCode != 125 || r.Workspace != "kept" {
		t.Errorf("the daemon was killed: %+v", r)
	}
	h.wantNothingLeft(told, killed)
	h.discard(told, killed)
}

// If no daemon answers, a session starts one, which serves later clients, too, and ends when it is
// idle.
func TestSessionStartsDaemon(t *testing.T) {
	h := newHost(t)
	h.wants(h.exec("any", "--", "true"), 127, `no session "any" is open`)
	h.wants(h.jail("session", "start", "--idle", "1ms"), 2, "--idle 1ms: want at least 1s")
	if o := h.jail("session", "list", "--json"); strings.TrimSpace(o.out) != "[]" {
		t.Errorf("%+v", o)
	}
	if o := h.jail("session", "start", "--id", "lasting"); o.code != 0 || o.out != "lasting\n" ||
		!strings.Contains(o.err, "so one was started") {
		t.Errorf("%+v", o)
	}
	h.wants(h.exec("lasting", "--", "touch", "x"), 0, "")
	if o := h.jail("session", "start", "--id", "second"); o.code != 0 || o.err != "" {
		t.Errorf("the daemon that was started does not serve the next: %+v", o)
	}
	for _, id := range []string{"lasting", "second"} {
		h.wants(h.jail("session", "stop", id), 0, "")
	}
	eventually(t, "the daemon has ended", func() bool {
		_, err := os.Stat(filepath.Join(h.state, "jail.sock"))
		return errors.Is(err, os.ErrNotExist) && len(h.records("", "daemon.stopped")) > 0
	})
	h.wantNothingLeft("lasting")
	h.discard("lasting")
}
