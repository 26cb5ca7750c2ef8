package cmd_test

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
	h := newHost(t)
	few := h.daemon()
	for range 10 {
		h.wants(h.jail("run", "--", "true"), 0, "")
	}
	before := few.goroutines()

	d := h.daemon()
	var fds, rss int
	total := runsInARow(t)
	for i := range total {
		var o outcome
		switch i % 4 {
		case 0:
			o = h.jail("run", "--discard", "--", "touch", "x")
		case 1:
			o = h.jail("run", "--no-workspace", "--", "nosuch")
			o.code -= 127
		case 2:
			o = h.jail("run", "--", "cat", "nosuch")
			o.code--
		default:
			o = h.jail("run", "--", "true")
		}
		if o.code != 0 {
			t.Fatalf("run %d: %+v", i, o)
		}
		if i == total/10 {
			fds, rss = d.settledDescriptors(), residentKiB(t, d.cmd.Process.Pid)
		}
	}
	end := residentKiB(t, d.cmd.Process.Pid)
	// The last connections may still be closing.
	eventually(t,
		fmt.Sprintf("the daemon has the %d descriptors that it had after a tenth of %d runs", fds,
			total), func() bool { return d.descriptors() <= fds })
	eventually(t, "no range of host ids is held",
		func() bool { return idRanges(d.cmd.Process.Pid) == 0 })
	h.wantNothingLeft()
	after := d.goroutines()
	if after > before {
		t.Errorf("%d goroutines after %d runs, %d after 10", after, total, before)
	}
	t.Logf("%d runs: %d descriptors, %d goroutines, resident %d KiB after a tenth, %d KiB at the end", total, fds, after, rss, end)
}

// settledDescriptors counts what the daemon has open when the last client's connection is closed on
// both sides.
func (d *sharedDaemon) settledDescriptors() int {
	last := d.descriptors()
	eventually(d.h.t, "the daemon's descriptors settle", func() bool {
		n := d.descriptors()
		same := n == last
		last = n
		return same && idRanges(d.cmd.Process.Pid) == 0
	})
	return last
}

// residentKiB returns how much memory a process has.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	if f := strings.Fields(rest); err == nil && len(f) > 0 {
		if n, err := strconv.Atoi(f[0]); err == nil {
			return n
		}
	}
	t.Fatalf("resident size of process %d: %v", pid, err)
	return 0
}

// goroutines ends the daemon with the signal at which the Go runtime lists them.
func (d *sharedDaemon) goroutines() int {
	d.h.t.Helper()
	d.settledDescriptors()
	delete(d.h.daemons, d.cmd.Process.Pid)
	err := d.cmd.Process.Signal(syscall.SIGQUIT)
	waitErr := d.cmd.Wait()
	n := bytes.Count(d.err.Bytes(), []byte("\ngoroutine "))
	if err != nil || n == 0 {
		d.h.t.Errorf("no list of goroutines: %v, %v: %.500s", err, waitErr, d.err.String())
	}
	return n
}

// The same without a daemon: each run has one of its own.
func TestManyPrivateRuns(t *testing.T) {
	h := newHost(t)
	fds := len(namesIn("/proc/self/fd"))
	for i := range runsInARow(t) / 4 {
		h.wants(h.jail("run", "--", "true"), 0, "")
		if t.Failed() {
			t.Fatalf("run %d", i)
		}
	}
	if n := len(namesIn("/proc/self/fd")); n > fds {
		t.Errorf("%d descriptors of our own, %d before", n, fds)
	}
	h.wantNothingLeft()
}

// T-416, T-532: fifty runs at once, each with a daemon of its own, on one state and one log.
func TestManyAtOnce(t *testing.T) {
	h := newHost(t)
	// As many as have their wall time on such a processor.
	runs := 50 / min(slower(), 7)
	h.wants(h.jail("run", "--", "true"), 0, "")
	var all sync.WaitGroup
	outcomes := make([]outcome, runs)
	for i := range runs {
		all.Go(func() {
			cmd := h.command("run", "--json", "--", h.probe, "exit", strconv.Itoa(i))
			var out, errOut bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errOut
			err := cmd.Run()
			outcomes[i] = outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
			if cmd.ProcessState == nil {
				outcomes[i].err = err.Error()
			}
		})
	}
	all.Wait()
	ids := map[string]bool{}
	for i, o := range outcomes {
		if o.code != i || o.err != "" {
			t.Errorf("run %d: %+v", i, o)
		}
		id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(o.out)
		if id == nil || ids[id[1]] {
			t.Errorf("run %d has no id of its own: %v", i, id)
			continue
		}
		ids[id[1]] = true
		if r := h.finished(id[1]); r.ExitCode != i {
			t.Errorf("run %d: %+v", i, r)
		}
	}
	h.wants(h.jail("audit", "verify"), 0, "")
}

// Several clients of one daemon at once get each their own streams and codes.
func TestManyClients(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	var live []*liveRun
	for i := range 10 {
		live = append(live, h.live(fmt.Sprintf("client%d", i)))
	}
	for round := range 3 {
		for i, r := range live {
			r.says(fmt.Sprintf("round %d of %d", round, i))
		}
	}
	for i, r := range live {
		if i%2 == 0 {
			r.in.Close()
			if o := r.wait(); o.code != 0 || o.err != "" {
				t.Errorf("%s: %+v", r.id, o)
			}
		} else if o := h.jail("kill", "--signal", "TERM", r.id); o.code != 0 {
			t.Errorf("kill: %+v", o)
		} else if o := r.wait(); o.code != 143 {
			t.Errorf("%s: %+v", r.id, o)
		}
	}
	h.wantNothingLeft()
	d.stop()
}

// writer starts a run that writes a file when it is told to, and returns when it waits for that.
func (h *host) writer(id, size string, flags ...string) *liveRun {
	h.t.Helper()
	cmd := h.command(append(append([]string{"run", "--id", id}, flags...), "--", h.probe,
		"fillwhen", size)...)
	r := &liveRun{h: h, id: id, cmd: cmd, err: &bytes.Buffer{}}
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	cmd.Stderr = r.err
	if err := errors.Join(err, err2, cmd.Start()); err != nil {
		h.t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewReader(out)
	if line, err := r.out.ReadString('\n'); line != "ready\n" {
		h.t.Fatalf("run %s: %q, %v", id, line, err)
	}
	return r
}

func (r *liveRun) writes() outcome {
	r.h.t.Helper()
	if _, err := fmt.Fprintln(r.in, "go"); err != nil {
		r.h.t.Fatal(err)
	}
	r.in.Close()
	return r.wait()
}

// Two runs at once in one workspace do not see each other; what one commits is a conflict for the
// other, whose work is kept.
func TestTwoRunsOneWorkspace(t *testing.T) {
	h := newHost(t)
	a, b, c := h.writer("a", "1"), h.writer("b", "2"), h.writer("c", "3", "--commit")
	for _, r := range []*liveRun{a, b} {
		if o := r.writes(); o.code != 0 || !strings.Contains(o.err,
			"changed 1 file (+1 ~0 -0): jail diff "+r.id) {
			t.Errorf("%s: %+v", r.id, o)
		}
	}
	filled := filepath.Join(h.work, "filled")
	if _, err := os.Stat(filled); err == nil {
		t.Fatal("a shadow is no shadow")
	}
	h.wants(h.jail("commit", "a"), 0, "")
	real, err := os.Stat(filled)
	if err != nil {
		t.Fatal(err)
	}
	h.wants(h.jail("commit", "b"), 126,
		"b: .*the real directory has changed since the run began.*filled")
	// A commit at the end of the run meets the same, and loses nothing.
	o := c.writes()
	if o.code != 126 || !regexp.MustCompile(`(?m)^jail: error: .*filled`).MatchString(o.err) {
		t.Errorf("c: %+v", o)
	}
	if r := h.finished("c"); r.ExitCode != 126 || r.Error == "" {
		t.Errorf("%+v", r)
	}
	for _, id := range []string{"b", "c"} {
		if o := h.jail("diff", "--name-only", id); o.code != 0 || !strings.Contains(o.out,
			"filled") {
			t.Errorf("diff %s: %+v", id, o)
		}
	}
	if now, err := os.Stat(filled); err != nil || !os.SameFile(now, real) ||
		!now.ModTime().Equal(real.ModTime()) {
		t.Errorf("the real file changed: %v", err)
	}
	h.wantNothingLeft("a", "b", "c")
	h.wants(h.jail("run", "--id", "b", "--", "true"), 2,
		"run id b is in use: the shadow of that run is kept")
	h.discard("a", "b", "c")
}
