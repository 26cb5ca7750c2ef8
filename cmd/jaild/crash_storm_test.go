package main_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// storms says how many jails live at one time, and how often they are killed; JAIL_TEST_LONG=1 is
// the promise itself.
func storms(t *testing.T) (jails, rounds int) {
	if os.Getenv("JAIL_TEST_LONG") == "" {
		return 10, 4
	}
	return cmdtest.Number(t, "JAIL_TEST_JAILS", 100), cmdtest.Number(t, "JAIL_TEST_ROUNDS", 200)
}

// A heldRun is a run whose client is this process.
type heldRun struct {
	id    string
	in    *io.PipeWriter
	ended chan error
}

// patientPolicy is the profile default with a wall limit that the first of many starts on a busy
// machine does not meet before the last.
const patientPolicy = `policy = 1
name = "patient"
about = "Long lives."
include = ["base"]
[workspace]
access = "shadow"
commit = "ask"
[limits]
wall = "1h"
[tools]
modules = ["**"]
`

// callJail starts a run over the daemon's socket, and returns when its tool has answered.
func callJail(h *cmdtest.Host, ctx context.Context, d *cmdtest.SharedDaemon, id string) (*heldRun, error) {
	client, err := api.Dial(ctx, d.Socket)
	if err != nil {
		return nil, err
	}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	c := &heldRun{id: id, in: stdin, ended: make(chan error, 1)}
	go func() {
		res, err := client.Run(ctx, message.Request{ID: id, Tool: h.Probe,
			Args: []string{"lines"}, Dir: h.Work, Policy: patientPolicy,
			PolicyName: "patient.toml"}, in, out, io.Discard)
		if err == nil && res.Error != nil {
			err = res.Error
		}
		out.CloseWithError(errors.Join(io.EOF, err))
		in.Close()
		client.Close()
		c.ended <- err
	}()
	go fmt.Fprintln(stdin, "hello")
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); line != "got hello\n" {
		return nil, fmt.Errorf("run %s answered %q: %w", id, line, err)
	}
	go io.Copy(io.Discard, lines)
	return c, nil
}

// callMany starts runs at one time.
func callMany(h *cmdtest.Host, ctx context.Context, d *cmdtest.SharedDaemon, prefix string, n int) []*heldRun {
	h.T.Helper()
	all, errs := make([]*heldRun, n), make([]error, n)
	var started sync.WaitGroup
	for i := range n {
		started.Go(func() { all[i], errs[i] = callJail(h, ctx, d, fmt.Sprintf("%s-%d", prefix, i)) })
	}
	started.Wait()
	if err := errors.Join(errs...); err != nil {
		h.T.Fatal(err)
	}
	return all
}

// members are the processes of a run: its shim and what is in its control group.
func members(h *cmdtest.Host, id string) (shim, init int) {
	h.T.Helper()
	r := &cmdtest.LiveRun{H: h, ID: id}
	init = r.InitPID()
	return cmdtest.ParentOf(h.T, init), init
}

// T-411, T-412: with many live jails the daemon is killed, the shims, the first processes, and all
// of them together. Every jail is dead at once, the next daemon clears what was left, and only what
// is ours; what the runs had written can be reviewed; the log verifies. Again and again.
func TestKilledTogether(t *testing.T) {
	jails, rounds := storms(t)
	h := cmdtest.New(t)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Hour)
	defer cancel()
	var slowest time.Duration
	d := h.Daemon()
	// It has made its directories.
	h.Wants(h.Jail("workspaces"), 0, "")
	foreign := plantForeign(h)
	for round := range rounds {
		victims := []string{"daemon", "shims", "inits", "all", "daemon and shims",
			"shims and inits"}[round%6]
		prefix := fmt.Sprintf("r%d", round)
		runs := callMany(h, ctx, d, prefix, jails)
		var shims, inits []int
		for _, r := range runs {
			shim, init := members(h, r.id)
			shims, inits = append(shims, shim), append(inits, init)
		}
		kill := map[string][]int{"shims": shims, "inits": inits,
			"all":              slices.Concat([]int{d.Cmd.Process.Pid}, shims, inits),
			"daemon":           {d.Cmd.Process.Pid},
			"daemon and shims": slices.Concat([]int{d.Cmd.Process.Pid}, shims),
			"shims and inits":  slices.Concat(shims, inits)}[victims]
		begun := time.Now()
		for _, pid := range kill {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err,
				syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		for _, pid := range slices.Concat(shims, inits) {
			cmdtest.Eventually(t, victims+": every jail is dead", func() bool { return cmdtest.Gone(pid) })
		}
		slowest = max(slowest, time.Since(begun))
		for _, r := range runs {
			<-r.ended
		}
		if strings.Contains(victims, "daemon") || victims == "all" {
			d.Kill()
			d = h.Daemon()
		}
		var kept []string
		for _, r := range runs {
			cmdtest.Eventually(t, "the end is on record",
				func() bool { return len(h.Records(r.id, "run.finished")) > 0 })
			if rec := h.Finished(r.id); rec.ExitCode != 125 && rec.ExitCode != 137 {
				t.Errorf("%s, %s: %+v", victims, r.id, rec)
			}
			if slices.Contains(h.Kept(), r.id) {
				kept = append(kept, r.id)
			}
		}
		for _, id := range kept {
			// Nothing in it, but it is whole: it can be looked at.
			if round < 6 && id == kept[0] {
				h.Wants(h.Jail("diff", id), 0, "")
			}
			h.Discard(id)
		}
		h.WantNothingLeft()
		if t.Failed() {
			t.Fatalf("round %d, %s", round, victims)
		}
	}
	foreign.wantUntouched(t)
	foreign.remove(t)
	d.Stop()
	t.Logf("%d rounds of %d jails: all dead after at most %v", rounds, jails, slowest)
}

// What a tool had written when its daemon was killed is not lost: the next daemon shows it, says
// that the run was cut off, and commits it.
func TestCutOffRunIsReviewed(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	r := h.Live("victim")
	w := liveWriter(h, "writer", "1")
	fmt.Fprintln(w.In, "go")
	w.In.Close()
	d.Kill()
	h.Wants(r.Wait(), 125, "went away|did not answer")
	w.Wait()
	d = h.Daemon()
	o := h.Jail("workspaces")
	if o.Code != 0 || strings.Count(o.Out, "cut off") < 1 {
		t.Errorf("workspaces: %+v", o)
	}
	o = h.Jail("diff", "victim")
	if o.Code != 0 || !strings.Contains(o.Out, "\n# the run was cut off") {
		t.Errorf("diff: %+v", o)
	}
	h.Wants(h.Jail("commit", "victim"), 0, "")
	for _, id := range h.Kept() {
		h.Discard(id)
	}
	d.Stop()
	h.WantNothingLeft()
}

// T-416: two hundred parallel starts with one daemon all succeed, or are told that it is busy, and
// no two have one id.
func TestStartStorm(t *testing.T) {
	// As many as have their wall time on such a processor: two slow ones of a nested virtual machine
	// take 50 s for 200. With JAIL_TEST_LONG it is 200.
	starts := max(100/cmdtest.Slower(), 10)
	if os.Getenv("JAIL_TEST_LONG") != "" {
		starts = 200
	}
	h := cmdtest.New(t)
	d := h.Daemon()
	ids, errs := make([]string, starts), make([]error, starts)
	ctx, cancel := context.WithTimeout(context.Background(), 5*cmdtest.Bound)
	defer cancel()
	var all sync.WaitGroup
	for i := range starts {
		all.Go(func() {
			client, err := api.Dial(ctx, d.Socket)
			if err != nil {
				errs[i] = err
				return
			}
			defer client.Close()
			res, err := client.Run(ctx, message.Request{Tool: h.Probe, Dir: h.Work,
				NoWorkspace: true, Policy: patientPolicy, PolicyName: "patient.toml"}, nil,
				io.Discard, io.Discard)
			switch {
			case err != nil:
				errs[i] = err
			case res.Error != nil && res.Error.Code != problem.Busy:
				errs[i] = res.Error
			case res.Error == nil && res.ExitCode != 0:
				errs[i] = fmt.Errorf("exit code %d", res.ExitCode)
			}
			ids[i] = res.ID
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != starts {
		t.Errorf("%d ids for %d runs", n, starts)
	}
	cmdtest.Eventually(t, "no range of host ids is held",
		func() bool { return idRanges(d.Cmd.Process.Pid) == 0 })
	d.Stop()
	if names := cmdtest.NamesIn(filepath.Join(h.State, "state", "runs")); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}
