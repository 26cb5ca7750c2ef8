package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// runsInARow is how many runs the tests of leaks make; JAIL_TEST_RUNS=1000 makes more.
func runsInARow(t *testing.T) int {
	t.Helper()
	text := os.Getenv("JAIL_TEST_RUNS")
	if text == "" {
		return 200
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("JAIL_TEST_RUNS=%s", text)
	}
	return n
}

// T-415: after many runs nothing is left of any, and the daemon is as small as after the first few.
func TestManyRuns(t *testing.T) {
	h := cmdtest.New(t)
	few := h.Daemon()
	for range 10 {
		h.Wants(h.Jail("run", "--", "true"), 0, "")
	}
	before := goroutines(few)

	d := h.Daemon()
	var fds, rss int
	total := runsInARow(t)
	for i := range total {
		var o cmdtest.Outcome
		switch i % 4 {
		case 0:
			o = h.Jail("run", "--discard", "--", "touch", "x")
		case 1:
			o = h.Jail("run", "--no-workspace", "--", "nosuch")
			o.Code -= 127
		case 2:
			o = h.Jail("run", "--", "cat", "nosuch")
			o.Code--
		default:
			o = h.Jail("run", "--", "true")
		}
		if o.Code != 0 {
			t.Fatalf("run %d: %+v", i, o)
		}
		if i == total/10 {
			fds, rss = settledDescriptors(d), cmdtest.ResidentKiB(t, d.Cmd.Process.Pid)
		}
	}
	end := cmdtest.ResidentKiB(t, d.Cmd.Process.Pid)
	// The last connections may still be closing.
	cmdtest.Eventually(t,
		fmt.Sprintf("the daemon has the %d descriptors that it had after a tenth of %d runs", fds,
			total), func() bool { return openDescriptors(d) <= fds })
	cmdtest.Eventually(t, "no range of host ids is held",
		func() bool { return idRanges(d.Cmd.Process.Pid) == 0 })
	h.WantNothingLeft()
	after := goroutines(d)
	if after > before {
		t.Errorf("%d goroutines after %d runs, %d after 10", after, total, before)
	}
	t.Logf("%d runs: %d descriptors, %d goroutines, resident %d KiB after a tenth, %d KiB at the end", total, fds, after, rss, end)
}

// settledDescriptors counts what the daemon has open when the last client's connection is closed on
// both sides.
func settledDescriptors(d *cmdtest.SharedDaemon) int {
	last := openDescriptors(d)
	cmdtest.Eventually(d.H.T, "the daemon's descriptors settle", func() bool {
		n := openDescriptors(d)
		same := n == last
		last = n
		return same && asleep(d.Cmd.Process.Pid) && idRanges(d.Cmd.Process.Pid) == 0
	})
	return last
}

// asleep reports whether no thread of a process runs or waits for a processor (proc_pid_stat(5)).
// One that waits for a processor changes nothing, however long anybody looks.
func asleep(pid int) bool {
	for _, id := range cmdtest.NamesIn(fmt.Sprintf("/proc/%d/task", pid)) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, id))
		if err != nil || !bytes.Contains(text, []byte(") S ")) {
			return false
		}
	}
	return true
}

// goroutines ends the daemon with the signal at which the Go runtime lists them, and counts those that
// the daemon has started. The list also has the runtime's own, and the stack of the thread that got the
// signal where that had nothing to do.
func goroutines(d *cmdtest.SharedDaemon) (n int) {
	d.H.T.Helper()
	settledDescriptors(d)
	delete(d.H.Daemons, d.Cmd.Process.Pid)
	err := d.Cmd.Process.Signal(syscall.SIGQUIT)
	waitErr := d.Cmd.Wait()
	for _, starter := range strings.Split(d.Err.String(), "\ncreated by ")[1:] {
		if !strings.HasPrefix(starter, "runtime.") {
			n++
		}
	}
	if err != nil || n == 0 {
		d.H.T.Errorf("no list of goroutines: %v, %v: %.500s", err, waitErr, d.Err.String())
	}
	return n
}

// The same without a daemon: each run has one of its own.
func TestManyPrivateRuns(t *testing.T) {
	h := cmdtest.New(t)
	fds := len(cmdtest.NamesIn("/proc/self/fd"))
	for i := range runsInARow(t) / 4 {
		h.Wants(h.Jail("run", "--", "true"), 0, "")
		if t.Failed() {
			t.Fatalf("run %d", i)
		}
	}
	if n := len(cmdtest.NamesIn("/proc/self/fd")); n > fds {
		t.Errorf("%d descriptors of our own, %d before", n, fds)
	}
	h.WantNothingLeft()
}

// T-416, T-532: fifty runs at once, each with a daemon of its own, on one state and one log.
func TestManyAtOnce(t *testing.T) {
	h := cmdtest.New(t)
	// As many as have their wall time on such a processor.
	runs := 50 / min(cmdtest.Slower(), 7)
	patient := cmdtest.Patient(h)
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	var all sync.WaitGroup
	outcomes := make([]cmdtest.Outcome, runs)
	for i := range runs {
		all.Go(func() {
			// All shadows must fit on the disk beside one another.
			cmd := h.Command("run", "--json", "--policy", patient, "--limit",
				"workspace=64MiB", "--", h.Probe, "exit", strconv.Itoa(i))
			var out, errOut bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errOut
			err := cmd.Run()
			outcomes[i] = cmdtest.Outcome{Code: cmd.ProcessState.ExitCode(), Out: out.String(), Err: errOut.String()}
			if cmd.ProcessState == nil {
				outcomes[i].Err = err.Error()
			}
		})
	}
	all.Wait()
	ids := map[string]bool{}
	for i, o := range outcomes {
		if o.Code != i || o.Err != "" {
			t.Errorf("run %d: %+v", i, o)
		}
		id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(o.Out)
		if id == nil || ids[id[1]] {
			t.Errorf("run %d has no id of its own: %v", i, id)
			continue
		}
		ids[id[1]] = true
		if r := h.Finished(id[1]); r.ExitCode != i {
			t.Errorf("run %d: %+v", i, r)
		}
	}
	h.Wants(h.Jail("audit", "verify"), 0, "")
}

// Several clients of one daemon at once get each their own streams and codes.
func TestManyClients(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	var live []*cmdtest.LiveRun
	for i := range 10 {
		live = append(live, h.Live(fmt.Sprintf("client%d", i)))
	}
	for round := range 3 {
		for i, r := range live {
			r.Says(fmt.Sprintf("round %d of %d", round, i))
		}
	}
	for i, r := range live {
		if i%2 == 0 {
			r.In.Close()
			if o := r.Wait(); o.Code != 0 || o.Err != "" {
				t.Errorf("%s: %+v", r.ID, o)
			}
		} else if o := h.Jail("kill", "--signal", "TERM", r.ID); o.Code != 0 {
			t.Errorf("kill: %+v", o)
		} else if o := r.Wait(); o.Code != 143 {
			t.Errorf("%s: %+v", r.ID, o)
		}
	}
	h.WantNothingLeft()
	d.Stop()
}

// liveWriter starts a run that writes a file when it is told to, and returns when it waits for
// that.
func liveWriter(h *cmdtest.Host, id, size string, flags ...string) *cmdtest.LiveRun {
	h.T.Helper()
	cmd := h.Command(append(append([]string{"run", "--id", id, "--policy",
		cmdtest.Patient(h)}, flags...), "--", h.Probe, "fillwhen", size)...)
	r := &cmdtest.LiveRun{H: h, ID: id, Cmd: cmd, Err: &bytes.Buffer{}}
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = r.Err
	if err := errors.Join(err, err2, cmd.Start()); err != nil {
		h.T.Fatal(err)
	}
	r.In, r.Out = in, bufio.NewReader(out)
	if line, err := r.Out.ReadString('\n'); line != "ready\n" {
		h.T.Fatalf("run %s: %q, %v", id, line, err)
	}
	return r
}

func writes(r *cmdtest.LiveRun) cmdtest.Outcome {
	r.H.T.Helper()
	if _, err := fmt.Fprintln(r.In, "go"); err != nil {
		r.H.T.Fatal(err)
	}
	r.In.Close()
	return r.Wait()
}

// Two runs at once in one workspace do not see each other; what one commits is a conflict for the
// other, whose work is kept.
func TestTwoRunsOneWorkspace(t *testing.T) {
	h := cmdtest.New(t)
	a, b, c := liveWriter(h, "a", "1"), liveWriter(h, "b", "2"), liveWriter(h, "c", "3", "--commit")
	for _, r := range []*cmdtest.LiveRun{a, b} {
		if o := writes(r); o.Code != 0 || !strings.Contains(o.Err,
			"changed 1 file (+1 ~0 -0): jail diff "+r.ID) {
			t.Errorf("%s: %+v", r.ID, o)
		}
	}
	filled := filepath.Join(h.Work, "filled")
	if _, err := os.Stat(filled); err == nil {
		t.Fatal("a shadow is no shadow")
	}
	h.Wants(h.Jail("commit", "a"), 0, "")
	real, err := os.Stat(filled)
	if err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("commit", "b"), 126,
		"b: .*the real directory has changed since the run began.*filled")
	// A commit at the end of the run meets the same, and loses nothing.
	o := writes(c)
	if o.Code != 126 || !regexp.MustCompile(`(?m)^jail: error: .*filled`).MatchString(o.Err) {
		t.Errorf("c: %+v", o)
	}
	if r := h.Finished("c"); r.ExitCode != 126 || r.Error == "" {
		t.Errorf("%+v", r)
	}
	for _, id := range []string{"b", "c"} {
		if o := h.Jail("diff", "--name-only", id); o.Code != 0 || !strings.Contains(o.Out,
			"filled") {
			t.Errorf("diff %s: %+v", id, o)
		}
	}
	if now, err := os.Stat(filled); err != nil || !os.SameFile(now, real) ||
		!now.ModTime().Equal(real.ModTime()) {
		t.Errorf("the real file changed: %v", err)
	}
	h.WantNothingLeft("a", "b", "c")
	h.Wants(h.Jail("run", "--id", "b", "--", "true"), 2,
		"run id b is in use: the shadow of that run is kept")
	h.Discard("a", "b", "c")
}
