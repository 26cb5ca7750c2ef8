package recovery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/rundir"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// A run that has ended has one end on record, at whatever moment its daemon was killed, and
// whatever the log did not take.
func TestRecoverEnds(t *testing.T) {
	started, finished := audit.RunStarted{Tool: "x"}, audit.RunFinished{ExitCode: 3}
	for _, c := range []struct {
		name   string
		before []audit.Event
		state  rundir.File
		want   []string // ends and gaps
	}{
		{"killed while it ran", []audit.Event{started}, rundir.File{},
			[]string{"run.finished 125 the daemon was killed while the tool ran"}},
		{"killed while its files were watched", []audit.Event{started},
			rundir.File{State: rundir.State{Files: true}},
			[]string{"gap", "run.finished 125 the daemon was killed while the tool ran"}},
		{"killed before its start was on record", nil, rundir.File{},
			[]string{"run.finished 125 the daemon was killed while the tool ran"}},
		{"killed after its end was on record", []audit.Event{started, finished},
			rundir.File{State: rundir.State{Files: true}}, []string{"run.finished 3"}},
		{"under an id that was used before", []audit.Event{started, finished, started},
			rundir.File{},
			[]string{"run.finished 3",
				"run.finished 125 the daemon was killed while the tool ran"}},
		{"the log was full", []audit.Event{started}, rundir.File{State: rundir.State{Files: true},
			End: &audit.RunFinished{ExitCode: 125, Error: "audit log: full"}},
			[]string{"run.finished 125 audit log: full"}},
		{"the log had taken it all the same", []audit.Event{started, finished},
			rundir.File{End: &audit.RunFinished{ExitCode: 125, Error: "flush"}},
			[]string{"run.finished 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := recoverable(t)
			for _, e := range c.before {
				if _, err := s.Log.Append(t.Context(), audit.Entry{Run: "r",
					Event: e}); err != nil {
					t.Fatal(err)
				}
			}
			c.state.ID, c.state.Tool = "r", "x"
			r, err := s.Runs.Add(c.state.State)
			if err != nil {
				t.Fatal(err)
			}
			if c.state.End == nil {
				// as the kernel does when the daemon is killed
				err = r.Lock.Close()
			} else {
				err = r.Leave(*c.state.End)
			}
			// the second finds nothing to do
			for range 2 {
				err = errors.Join(err, s.clearDead(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := endsOf(t, s); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("on record %q, want %q", got, c.want)
			}
		})
	}
}

// What cannot be put on record now is not forgotten: the directory stays, unlocked, for the next
// try.
func TestRecoverWithoutLog(t *testing.T) {
	s := recoverable(t)
	r, err := s.Runs.Add(rundir.State{ID: "r", Tool: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Lock.Close(), s.Log.(*audit.Log).Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.clearDead(t.Context()); !errors.Is(err, audit.ErrClosed) {
			t.Errorf("with no log: %v", err)
		}
	}
}

// recoverable makes a supervisor that has what recovery needs.
func recoverable(t *testing.T) *Recovery {
	t.Helper()
	dir := t.TempDir()
	logDir := filepath.Join(dir, "log")
	log, err := audit.Open(audit.Options{Dir: logDir, KeyDir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	kept, err := workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Recovery{Slice: "/jail", LogDir: logDir, Log: log, Runs: openRuns(t),
		Workspaces: &shadows.Store{Kept: kept}}
	return s
}

// endsOf returns the ends and gaps of the log, a line each.
func endsOf(t *testing.T, s *Recovery) (all []string) {
	t.Helper()
	for r, err := range audit.Scan(s.LogDir, audit.Filter{Run: "r"}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case r.Type == audit.TypeGap:
			all = append(all, "gap")
		case r.Type == audit.TypeRunFinished && r.Text("error") == "":
			all = append(all, fmt.Sprintf("run.finished %d", r.Int("exit_code")))
		case r.Type == audit.TypeRunFinished:
			all = append(all, fmt.Sprintf("run.finished %d %s", r.Int("exit_code"),
				r.Text("error")))
		}
	}
	return all
}

// TestSweptByATimer: a daemon that stays sweeps what others leave meanwhile.
func TestSweptByATimer(t *testing.T) {
	work, err := workspace.Open(filepath.Join(t.TempDir(), "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	defer work.Close()
	swept := 0
	s := &Recovery{Runs: openRuns(t), Prewarmed: openRuns(t),
		Workspaces: &shadows.Store{Kept: work}, Sweep: func() error { swept++; return nil }}
	ticks, done, ended := make(chan time.Time), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.Again(ticks, done, nil)
	}()
	half := filepath.Join(s.Runs.Dir, ".new-half")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	ticks <- time.Now()
	// taken when the first has been done
	ticks <- time.Now()
	if _, err := os.Stat(half); err == nil {
		t.Error("it is still there")
	}
	close(done)
	<-ended
	if swept != 2 {
		t.Errorf("sessions were swept %d times at two ticks", swept)
	}
}

func openRuns(t *testing.T) *rundir.Store {
	t.Helper()
	s, err := rundir.Open(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
