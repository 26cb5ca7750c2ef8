package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A session ends by its times and with its daemon, however that ends; what it changed is kept, and
// nothing else is left.
func TestSessionEnds(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	tryTouch := func(flags ...string) (string, cmdtest.Outcome) {
		t.Helper()
		id := h.Session(flags...)
		return id, h.Exec(id, "--", "touch", "made")
	}
	touched := func(flags ...string) string {
		t.Helper()
		id, o := tryTouch(flags...)
		if o.Code != 0 {
			t.Fatalf("touch: %+v", o)
		}
		return id
	}
	endsBy := func(limit, id string) {
		t.Helper()
		cmdtest.Eventually(t, "it ends by "+limit,
			func() bool { return len(h.Records(id, "run.finished")) == 1 })
		if r := h.Finished(id); r.ExitCode != 124 || r.Workspace != "kept" ||
			len(h.Records(id, "limit")) != 1 {
			t.Errorf("end by %s: %+v, %+v", limit, r, h.Records(id, ""))
		}
		h.Discard(id)
	}
	// The time begins anew with the invocation, however long its module takes to be compiled.
	for wait := 5 * time.Second * time.Duration(min(cmdtest.Slower(), 5)); ; wait *= 2 {
		id := touched("--idle", wait.String())
		woken := func(r sleepRecord) bool { return r.Event == "woken" }
		if !slices.ContainsFunc(sleepRecords(h, id), woken) {
			endsBy("idle", id)
			break
		}
		// It slept before its invocation, which woke it: this machine began later than that.
		h.StopSession(id, 1, "--discard")
	}
	for wait := 2 * time.Second; ; wait *= 2 {
		id, o := tryTouch("--time", wait.String())
		if o.Code == 0 {
			endsBy("time", id)
			break
		}
		// It ended sooner than this machine began, or in the middle of it.
		cmdtest.Eventually(t, "it ends", func() bool { return len(h.Records(id, "run.finished")) == 1 })
		h.Jail("discard", id)
	}
	told := touched()
	busy := liveExec(h, told, "told-busy")
	d.Stop()
	busy.Wait()
	if r := h.Finished(told); r.Signal != "SIGTERM" || r.Workspace != "kept" {
		t.Errorf("end with the daemon: %+v", r)
	}
	d = h.Daemon()
	killed := touched()
	busy = liveExec(h, killed, "killed-busy")
	d.Kill()
	busy.Wait()
	h.Daemon()
	// It answers when it has cleared up.
	h.Sessions()
	if r := h.Finished(killed); r.ExitCode != 125 || r.Workspace != "kept" {
		t.Errorf("the daemon was killed: %+v", r)
	}
	h.WantNothingLeft(told, killed)
	h.Discard(told, killed)
}

// If no daemon answers, a session starts one, which serves later clients, too, and ends when it is
// idle.
func TestSessionStartsDaemon(t *testing.T) {
	h := cmdtest.New(t)
	h.Wants(h.Exec("any", "--", "true"), 127, `no session "any" is open`)
	h.Wants(h.Jail("session", "start", "--idle", "1ms"), 2, "--idle 1ms: want at least 1s")
	if o := h.Jail("session", "list", "--json"); strings.TrimSpace(o.Out) != "[]" {
		t.Errorf("%+v", o)
	}
	if o := h.Jail("session", "start", "--id", "lasting"); o.Code != 0 || o.Out != "lasting\n" ||
		!strings.Contains(o.Err, "so one was started") {
		t.Errorf("%+v", o)
	}
	h.Wants(h.Exec("lasting", "--", "touch", "x"), 0, "")
	if o := h.Jail("session", "start", "--id", "second"); o.Code != 0 || o.Err != "" {
		t.Errorf("the daemon that was started does not serve the next: %+v", o)
	}
	for _, id := range []string{"lasting", "second"} {
		h.Wants(h.Jail("session", "stop", id), 0, "")
	}
	cmdtest.Eventually(t, "the daemon has ended", func() bool {
		_, err := os.Stat(filepath.Join(h.State, "jail.sock"))
		return errors.Is(err, os.ErrNotExist) && len(h.Records("", "daemon.stopped")) > 0
	})
	h.WantNothingLeft("lasting")
	h.Discard("lasting")
}
