package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/stdio"
)

// What waits ends with its session and with its daemon, however they end, and nothing of it is
// left. One that was killed is no failure of a call.
func TestSessionWarmEnds(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(2)
	d := h.Daemon()
	warmed := func(flags ...string) (string, []int) {
		t.Helper()
		id := h.Session(flags...)
		h.Wants(h.Exec(id, "--", "touch", "made"), 0, "")
		h.Stands(1)
		pids := cmdtest.Waiting(h)
		if len(pids) < 2 || len(callsOf(t, id)) != 1 {
			t.Fatalf("waiting: %v, %v", pids, callsOf(t, id))
		}
		return id, pids
	}
	wantGone := func(id string, pids []int) {
		t.Helper()
		if slices.ContainsFunc(pids, func(p int) bool { return !cmdtest.Gone(p) }) ||
			len(cmdtest.GroupOf(id)) != 0 {
			t.Errorf("left: %v, %q", pids, cmdtest.GroupOf(id))
		}
	}
	id, pids := warmed("--discard")
	cmdtest.KillAll(t, pids)
	// It comes to a jail of its own, or has one that the pool has made in the meantime.
	h.Wants(h.Exec(id, "--id", "after", "--", "touch", "more"), 0, "")
	h.Stands(1)
	h.Wants(h.Exec(id, "--id", "then", "--", "touch", "most"), 0, "")
	if got := h.StartOf("then"); got != cmdtest.StartWarm {
		t.Error(got)
	}
	h.Stands(1)
	pids = cmdtest.Waiting(h)
	h.StopSession(id, 3)
	// By the time that it has stopped.
	wantGone(id, pids)
	cmdtest.WantNoneWaiting(h)

	// A shadow that another jail still has mounted could not be committed.
	id, pids = warmed()
	h.StopSession(id, 1, "--commit")
	wantGone(id, pids)
	made := filepath.Join(h.Work, "made")
	if err := os.Remove(made); err != nil {
		t.Errorf("what was committed: %v", err)
	}
	h.Discard(id)

	id, pids = warmed()
	d.Stop()
	wantGone(id, pids)
	cmdtest.WantNoneWaiting(h)
	h.Discard(id)

	d = h.Daemon()
	id, pids = warmed()
	d.Kill()
	cmdtest.Eventually(t, "the jail and its shim are gone", func() bool {
		return !slices.ContainsFunc(pids, func(p int) bool { return !cmdtest.Gone(p) })
	})
	d = h.Daemon()
	// By then it has cleared up.
	h.Wants(h.Jail("ps"), 0, "")
	wantGone(id, pids)
	cmdtest.WantNoneWaiting(h)
	h.Discard(id)

	// Daemon, shim and jail at once: their control groups stay for the next daemon.
	id, pids = warmed()
	d.KillWith(pids)
	h.Daemon().Stop()
	wantGone(id, pids)
	cmdtest.WantNoneWaiting(h)
	h.Discard(id)
}

// Many callers, of two modules and of a program of the host, and the end of the session in the
// middle: each call that began has its own answer, and nothing is left.
func TestSessionWarmStorm(t *testing.T) {
	h := cmdtest.New(t)
	h.Pool(4)
	d := h.Daemon()
	for round := range 2 {
		id, program := mixed(h)
		var callers sync.WaitGroup
		for n, args := range [][]string{{"echo", "mine"}, {"awk", `BEGIN { print "mine" }`},
			{program, "args", "mine"}} {
			callers.Go(func() {
				for i := range 12 {
					o := h.Exec(id, append([]string{"--"}, args...)...)
					over := o.Code == 127 && strings.Contains(o.Err, "is open") || o.Code == 137
					if (o.Code != 0 || strings.Trim(o.Out, "\"\n") != "mine") && !over {
						t.Errorf("%d, %d: %+v", n, i, o)
					}
					if over {
						return
					}
				}
			})
		}
		if round > 0 {
			cmdtest.Eventually(t, "the session is used",
				func() bool { all := h.Sessions(); return len(all) == 1 && all[0].Invocations > 8 })
			h.StopSession(id, 0)
		}
		callers.Wait()
		if round == 0 {
			h.StopSession(id, 0)
		}
		if len(cmdtest.GroupOf(id)) != 0 {
			t.Errorf("left: %q", cmdtest.GroupOf(id))
		}
	}
	d.Stop()
	cmdtest.WantNoneWaiting(h)
}

// What waits for a session's calls ends when a policy changes. The session has the policy that it
// began with, and so has what waits from then on.
func TestSessionWarmIsDrained(t *testing.T) {
	h := cmdtest.NewPolicyHost(t,
		map[string]string{"ceiling": "policy = 1\n[limits]\nmemory = \"200MiB\"\n"})
	h.Close()
	h.Warm = 2
	h.Open()
	ctx := context.Background()
	req := message.SessionRequest{Request: cmdtest.Request("default", "")}
	req.ID, req.Dir, req.Fate = "kept", h.Work, message.FateDiscard
	if _, err := h.S.Sessions().Start(ctx, h.Caller(0), req); err != nil {
		t.Fatal(err)
	}
	call := func(id, want string) {
		t.Helper()
		var out strings.Builder
		r := h.S.Sessions().Exec(ctx, h.Caller(0), "kept", message.ExecRequest{ID: id, Tool: "echo",
			Args: []string{"said"}, Dir: h.Work}, stdio.Streams{Out: &out, Err: &out})
		if r.Error != nil || r.ExitCode != 0 || out.String() != "said\n" || want != "" &&
			h.StartOf(id) != want {
			t.Errorf("%s: %+v, %q, %s", id, r, out.String(), h.StartOf(id))
		}
	}
	call("first", cmdtest.StartCold)
	cmdtest.Eventually(t, "a jail waits", func() bool { return h.Waits() == "1" })
	call("second", cmdtest.StartWarm)
	cmdtest.Eventually(t, "a jail waits", func() bool { return h.Waits() == "1" })
	pids := cmdtest.Waiting(h.Host)
	h.Write("ceiling", "policy = 1\n[limits]\nmemory = \"100MiB\"\n")
	if err := h.S.Policies().Reload(); err != nil || len(pids) == 0 {
		t.Fatal(err, pids)
	}
	cmdtest.Eventually(t, "what waited is gone", func() bool {
		return !slices.ContainsFunc(pids, func(p int) bool { return !cmdtest.Gone(p) })
	})
	call("third", cmdtest.StartCold)
	// What tells of the changed file may come after the one who asked for it to be read.
	for n := 0; ; n++ {
		cmdtest.Eventually(t, "a jail waits", func() bool { return h.Waits() == "1" })
		if id := fmt.Sprint("fourth", n); n == 9 {
			t.Error("no call is warm any more")
		} else if call(id, ""); h.StartOf(id) == cmdtest.StartCold {
			continue
		}
		break
	}
	if r, err := h.S.Sessions().Stop(ctx, h.Caller(0), "kept", message.StopRequest{}); err != nil ||
		r.Error != nil {
		t.Errorf("%+v, %v", r, err)
	}
	h.Close()
	cmdtest.WantNoneWaiting(h.Host)
}
