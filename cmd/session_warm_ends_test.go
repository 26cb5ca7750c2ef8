package cmd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// What waits ends with its session and with its daemon, however they end, and nothing of it is
// left. One that was killed is no failure of a call.
func TestSessionWarmEnds(t *testing.T) {
	h := newHost(t)
	h.pool(2)
	d := h.daemon()
	warmed := func(flags ...string) (string, []int) {
		t.Helper()
		id := h.session(flags...)
		h.wants(h.exec(id, "--", "touch", "made"), 0, "")
		h.stands(1)
		pids := h.waiting()
		if len(pids) < 2 || len(callsOf(t, id)) != 1 {
			t.Fatalf("waiting: %v, %v", pids, callsOf(t, id))
		}
		return id, pids
	}
	wantGone := func(id string, pids []int) {
		t.Helper()
		if slices.ContainsFunc(pids, func(p int) bool { return !gone(p) }) ||
			len(groupOf(id)) != 0 {
			t.Errorf("left: %v, %q", pids, groupOf(id))
		}
	}
	id, pids := warmed("--discard")
	for _, pid := range pids {
		kill9(t, pid)
	}
	h.wants(h.exec(id, "--id", "after", "--", "touch", "more"), 0, "")
	h.stands(1)
	h.wants(h.exec(id, "--id", "then", "--", "touch", "most"), 0, "")
	if got := h.startOf("after") + " " + h.startOf("then"); got != "cold warm" {
		t.Error(got)
	}
	h.stands(1)
	pids = h.waiting()
	h.stopSession(id, 3)
	// By the time that it has stopped.
	wantGone(id, pids)
	h.wantNoneWaiting()

	// A shadow that another jail still has mounted could not be committed.
	id, pids = warmed()
	h.stopSession(id, 1, "--commit")
	wantGone(id, pids)
	made := filepath.Join(h.work, "made")
	if err := os.Remove(made); err != nil {
		t.Errorf("what was committed: %v", err)
	}
	h.discard(id)

	id, pids = warmed()
	d.stop()
	wantGone(id, pids)
	h.wantNoneWaiting()
	h.discard(id)

	d = h.daemon()
	id, pids = warmed()
	d.kill()
	eventually(t, "the jail and its shim are gone", func() bool {
		return !slices.ContainsFunc(pids, func(p int) bool { return !gone(p) })
	})
	d = h.daemon()
	// By then it has cleared up.
	h.wants(h.jail("ps"), 0, "")
	wantGone(id, pids)
	h.wantNoneWaiting()
	h.discard(id)

	// Daemon, shim and jail at once: their control groups stay for the next daemon.
	id, pids = warmed()
	d.killWith(pids)
	h.daemon().stop()
	wantGone(id, pids)
	h.wantNoneWaiting()
	h.discard(id)
}

// Many callers, of two modules and of a program of the host, and the end of the session in the
// middle: each call that began has its own answer, and nothing is left.
func TestSessionWarmStorm(t *testing.T) {
	h := newHost(t)
	h.pool(4)
	d := h.daemon()
	for round := range 2 {
		id, program := h.mixed()
		var callers sync.WaitGroup
		for n, args := range [][]string{{"echo", "mine"}, {"awk", `BEGIN { print "mine" }`},
			{program, "args", "mine"}} {
			callers.Go(func() {
				for i := range 12 {
					o := h.exec(id, append([]string{"--"}, args...)...)
					over := o.code == 127 && strings.Contains(o.err, "is open") || o.code == 137
					if (o.code != 0 || strings.Trim(o.out, "\"\n") != "mine") && !over {
						t.Errorf("%d, %d: %+v", n, i, o)
					}
					if over {
						return
					}
				}
			})
		}
		if round > 0 {
			eventually(t, "the session is used",
				func() bool { all := h.sessions(); return len(all) == 1 && all[0].Invocations > 8 })
			h.stopSession(id, 0)
		}
		callers.Wait()
		if round == 0 {
			h.stopSession(id, 0)
		}
		if len(groupOf(id)) != 0 {
			t.Errorf("left: %q", groupOf(id))
		}
	}
	d.stop()
	h.wantNoneWaiting()
}

// What waits for a session's calls ends when a policy changes. The session has the policy that it
// began with, and so has what waits from then on.
func TestSessionWarmIsDrained(t *testing.T) {
	h := newPolicyHost(t,
		map[string]string{"ceiling": "policy = 1\n[limits]\nmemory = \"200MiB\"\n"})
	h.close()
	h.warm = 2
	h.open()
	ctx := context.Background()
	req := message.SessionRequest{Request: request("default", "")}
	req.ID, req.Dir, req.Fate = "kept", h.work, message.FateDiscard
	if _, err := h.s.Sessions().Start(ctx, h.caller(0), req); err != nil {
		t.Fatal(err)
	}
	call := func(id, want string) {
		t.Helper()
		var out strings.Builder
		r := h.s.Sessions().Exec(ctx, h.caller(0), "kept", message.ExecRequest{ID: id, Tool: "echo",
			Args: []string{"said"}, Dir: h.work}, stdio.Streams{Out: &out, Err: &out})
		if r.Error != nil || r.ExitCode != 0 || out.String() != "said\n" || want != "" &&
			h.startOf(id) != want {
			t.Errorf("%s: %+v, %q, %s", id, r, out.String(), h.startOf(id))
		}
	}
	call("first", startCold)
	eventually(t, "a jail waits", func() bool { return h.waits() == "1" })
	call("second", startWarm)
	eventually(t, "a jail waits", func() bool { return h.waits() == "1" })
	pids := h.waiting()
	h.write("ceiling", "policy = 1\n[limits]\nmemory = \"100MiB\"\n")
	if err := h.s.Policies().Reload(); err != nil || len(pids) == 0 {
		t.Fatal(err, pids)
	}
	eventually(t, "what waited is gone", func() bool {
		return !slices.ContainsFunc(pids, func(p int) bool { return !gone(p) })
	})
	call("third", startCold)
	// What tells of the changed file may come after the one who asked for it to be read.
	for n := 0; ; n++ {
		eventually(t, "a jail waits", func() bool { return h.waits() == "1" })
		if id := fmt.Sprint("fourth", n); n == 9 {
			t.Error("no call is warm any more")
		} else if call(id, ""); h.startOf(id) == startCold {
			continue
		}
		break
	}
	if r, err := h.s.Sessions().Stop(ctx, h.caller(0), "kept", message.StopRequest{}); err != nil ||
		r.Error != nil {
		t.Errorf("%+v, %v", r, err)
	}
	h.close()
	h.wantNoneWaiting()
}
