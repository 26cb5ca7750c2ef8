package jailtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/launch"
)

// hang is the time after which a jail counts as hanging and the test ends. patience is the time for
// each step of its start. Both are long, for busy machines.
var hang, patience = Bound(5 * time.Minute), Bound(2 * time.Minute)

// Emulated reports whether the processor is emulated, by the environment of cmd/dev/vmtest's
// machines.
func Emulated() bool { return os.Getenv("JAIL_VM_BUILT") != "" }

// Bound returns a timeout for tests: d, or six times d on an emulated processor.
func Bound(d time.Duration) time.Duration {
	if Emulated() {
		return 6 * d
	}
	return d
}

// A Jail is a live jail with the probe in it.
type Jail struct {
	*launch.Process
	t       testing.TB
	stderr  bytes.Buffer
	copied  sync.WaitGroup
	release sync.Once
	stdin   *os.File
}

// Start starts the jail, or ends the test. The jail ends with the test.
func (s *Setup) Start(t testing.TB) *Jail {
	t.Helper()
	j, err := s.TryStart(t)
	if err != nil {
		t.Fatalf("start: %v\nstderr: %s", err, j.stderr.Bytes())
	}
	return j
}

// TryStart starts the jail. The error is the launcher's.
func (s *Setup) TryStart(t testing.TB) (*Jail, error) {
	t.Helper()
	files := s.Files
	order := control.Order{Plan: s.Plan, RunDir: s.RunDir, Later: s.Later}
	if w := s.Plan.Workspace; s.Holder != nil && w != nil {
		shared, err := s.Holder.Share(w.Target)
		if err != nil {
			t.Fatal(err)
		}
		defer shared.Close()
		files.Lower, order.Shared = shared, append(order.Shared, w.Target)
	}
	for _, m := range s.Plan.Mounts {
		if m.Kind == jail.MountState {
			tree, err := cloneOf(m.Source)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			files.Lower = tree
		}
		take := func() (*os.File, error) { return cloneOf(m.Source) }
		switch {
		case m.Kind == jail.MountTmpfs && s.Holder != nil:
			take = func() (*os.File, error) { return s.Holder.Share(m.Target) }
			order.Shared = append(order.Shared, m.Target)
		case m.Kind != jail.MountBind:
			continue
		}
		tree, err := take()
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		files.Binds = append(files.Binds, tree)
	}
	j := &Jail{t: t}
	stdio, err := j.streams(s.Terminal)
	if err != nil {
		t.Fatal(err)
	}
	if err := cgroup.MakeCeiling(s.Plan); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cgroup.RemoveCeiling(s.Plan); err != nil {
			t.Error(err)
		}
	})
	if s.Later {
		files.Lower, files.Upper = nil, nil
	}
	ctx := s.Context
	if ctx == nil {
		ctx = context.Background()
	}
	j.Process, err = s.Launcher.Start(ctx, order, stdio, files)
	if err == nil && s.Later {
		if s.BeforeAttach != nil {
			s.BeforeAttach(j.Process)
		}
		if err = j.Attach(s.Files.Lower, s.Files.Upper); err != nil {
			j.Release()
		}
	}
	err = errors.Join(err, stdio.In.Close(), stdio.Out.Close(), stdio.Err.Close())
	if err != nil {
		j.endStdin()
		j.copied.Wait()
		return j, err
	}
	watchdog := time.AfterFunc(hang, func() { j.Kill() })
	t.Cleanup(func() { watchdog.Stop(); j.End() })
	return j, nil
}

func cloneOf(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return launch.Clone(f)
}

func (j *Jail) streams(terminal *os.File) (launch.Stdio, error) {
	if terminal == nil {
		return j.pipes()
	}
	var all [3]*os.File
	for n := range all {
		fd, err := syscall.Dup(int(terminal.Fd()))
		if err != nil {
			return launch.Stdio{}, err
		}
		all[n] = os.NewFile(uintptr(fd), terminal.Name())
	}
	return launch.Stdio{In: all[0], Out: all[1], Err: all[2]}, nil
}

// pipes makes the jail's streams as the daemon does: pipes, and no descriptor of a host file.
func (j *Jail) pipes() (launch.Stdio, error) {
	in, stdin, err := os.Pipe()
	if err != nil {
		return launch.Stdio{}, err
	}
	j.stdin = stdin
	outR, out, err := os.Pipe()
	if err != nil {
		return launch.Stdio{}, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return launch.Stdio{}, err
	}
	for _, p := range []struct {
		to   io.Writer
		from *os.File
	}{{io.Discard, outR}, {&j.stderr, errR}} {
		j.copied.Go(func() {
			defer p.from.Close()
			// It ends with the jail.
			_, _ = io.Copy(p.to, p.from)
		})
	}
	return launch.Stdio{In: in, Out: out, Err: errW}, nil
}

// End ends the jail and waits until nothing is left of it.
func (j *Jail) End() {
	j.release.Do(func() {
		j.Release()
		j.endStdin()
		j.copied.Wait()
	})
}

// Input returns the writer of the jail's standard input, if that is a pipe.
func (j *Jail) Input() io.Writer { return j.stdin }

func (j *Jail) endStdin() {
	if j.stdin != nil {
		j.stdin.Close()
	}
}

// Stderr returns the jail's standard error. Call it after End.
func (j *Jail) Stderr() string { return j.stderr.String() }

// Try makes the calls inside. It returns an error if the jail ends meanwhile.
func (j *Jail) Try(calls ...victim.Call) ([]victim.Result, error) {
	if err := j.Invoke(calls); err != nil {
		return nil, err
	}
	var results []victim.Result
	err := j.Report(&results)
	return results, err
}

// Do makes the calls inside. The test fails if the jail ends meanwhile.
func (j *Jail) Do(calls ...victim.Call) []victim.Result {
	j.t.Helper()
	results, err := j.Try(calls...)
	if err != nil {
		j.End()
		j.t.Fatalf("%d calls from %s: %v\nstderr: %s", len(calls), calls[0].Name, err, j.Stderr())
	}
	return results
}

// One makes one call inside.
func (j *Jail) One(name string, args ...victim.Arg) victim.Result {
	j.t.Helper()
	return j.Do(victim.Do(name, args...))[0]
}
