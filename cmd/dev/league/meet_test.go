//go:build league

package league

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
)

// patience is how long one attack may take.
const patience = 60 * time.Second

// starts is how often a start is measured.
const starts = 20

// meet lets every attack meet a sandbox, each a fresh one.
func (w *world) meet(t *testing.T, s sandbox, o *outcome) {
	binary := s.binary()
	if binary == "" {
		o.Refused = "not installed"
		return
	}
	out, err := exec.Command(binary, "--version").CombinedOutput()
	if err != nil {
		o.Refused = fmt.Sprintf("%v: %s", err, firstLine(string(out)))
		return
	}
	o.Version = firstLine(string(out))
	w.runsAs = idBase + toolUID
	if s.asUser || s.name == control {
		w.runsAs = uid
	}
	w.owner = w.runsAs
	w.furnish(t)
	if s.prepare != nil {
		s.prepare(t, w, o)
	}
	argv := s.argv(w)
	argv[0] = filepath.Base(argv[0])
	o.Command = strings.ReplaceAll(strings.Join(argv, " "), w.dir, "DIR")
	// A start that goes wrong is no wall.
	if r := w.once(s, "hello"); r.code != 42 {
		o.Refused = fmt.Sprintf("it does not start here: %s", r)
		return
	}
	for _, a := range attacks {
		stop := w.newVictim(t)
		calls, err := json.Marshal(a.calls(w, s.paths(w)))
		if err != nil {
			t.Fatal(err)
		}
		r := w.once(s, "unconfined", calls...)
		stop()
		o.Answers[a.name] = a.judgeRun(t, w, s, r)
		for _, made := range []string{"fifo", "null", "link", "fill"} {
			_ = os.Remove(filepath.Join(w.store, made)) // most attacks make none
		}
	}
	o.Startup = median(func() time.Duration { return w.once(s, "hello").took })
}

// judgeRun says how an attack went that the sandbox's own program reports.
func (a attack) judgeRun(t *testing.T, w *world, s sandbox, r run) answer {
	t.Helper()
	var results []victim.Result
	err := json.NewDecoder(bytes.NewReader(r.out)).Decode(&results)
	switch {
	case err == nil:
		return a.judge(w, results)
	case r.code == 42:
		// The probe was executed anew.
		return answer{Text: "ok"}
	case r.code == 128+int(syscall.SIGSYS), r.signal == syscall.SIGSYS:
		return answer{true, "SIGSYS"}
	case r.code == 128+int(syscall.SIGKILL), r.signal == syscall.SIGKILL:
		return answer{true, "killed"}
	case a.group == limits && s.name == "gVisor":
		// Its kernel is a process under the same limits.
		return answer{true, "the sandbox ends"}
	}
	t.Errorf("%s: nothing can be said of it: %s", a.name, r)
	return answer{}
}

// A run is what came of starting a sandbox.
type run struct {
	out, err []byte
	code     int
	signal   syscall.Signal
	took     time.Duration
}

func (r run) String() string {
	return fmt.Sprintf("exit code %d, signal %d: %s%s", r.code, r.signal, r.out, r.err)
}

func (w *world) once(s sandbox, program string, input ...byte) run {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	argv := s.argv(w, program)
	cmd := exec.CommandContext(ctx, s.binary(), argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + filepath.Join(w.dir, "home"),
		"USER=league"}
	cmd.Stdin = bytes.NewReader(input)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	// What an attack left running may hold the streams.
	cmd.WaitDelay = 2 * time.Second
	if s.asUser {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	begun := time.Now()
	err := cmd.Run()
	r := run{out.Bytes(), errOut.Bytes(), 0, 0, time.Since(begun)}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status := exit.Sys().(syscall.WaitStatus)
		r.code = status.ExitStatus()
		if status.Signaled() {
			r.signal = status.Signal()
		}
	} else if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		r.code, r.err = -1, append(r.err, err.Error()...)
	}
	return r
}

// meetJail does the same with jails.
func (w *world) meetJail(t *testing.T, o *outcome) {
	for _, a := range attacks {
		t.Run(strings.ReplaceAll(a.name, "/", "_"), func(t *testing.T) {
			s := jailtest.New(t)
			s.Plan.Cgroup.Memory = memoryLimit
			// Its binds are id-mapped.
			w.runsAs, w.owner, w.data, w.store = int(s.HostUID()), jailtest.UID, s.Data, s.Store
			w.furnish(t)
			stop := w.newVictim(t)
			defer stop()
			j := s.Start(t)
			results, err := j.Try(a.calls(w, paths{"/data", "/store"})...)
			if err == nil {
				o.Answers[a.name] = a.judge(w, results)
				return
			}
			status, err := j.Wait()
			switch {
			case err != nil:
				t.Fatal(err)
			case status.Signal == int(syscall.SIGSYS):
				o.Answers[a.name] = answer{true, "SIGSYS"}
			case status.Signal != 0:
				o.Answers[a.name] = answer{true, "killed"}
			case status.Code == 42:
				o.Answers[a.name] = answer{Text: "ok"}
			default:
				t.Fatalf("the jail ended with %+v", status)
			}
		})
	}
	w.timeJail(t, o)
}

// timeJail measures whole runs, as a user sees them: a daemon of its own, an engine, a module and a
// record.
func (w *world) timeJail(t *testing.T, o *outcome) {
	bin, err := filepath.Abs("../../../bin/jail")
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	start := func() time.Duration {
		cmd := exec.Command(bin, "run", "--no-workspace", "--", "true")
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "JAIL_STATE=" + state}
		begun := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("jail run: %v\n%s", err, out)
		}
		return time.Since(begun)
	}
	// Compiles the module, once and for all.
	start()
	o.Startup = median(start)
	out, err := exec.Command(bin, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	o.Version, o.Command = firstLine(string(out)),
		"jail run --no-workspace -- true (for the start; the attacks are made by package jailtest)"
	o.Notes = append(o.Notes,
		fmt.Sprintf("Its limits are 32 tasks, %d MiB of memory and files of 4 MiB.",
			memoryLimit>>20))
}

func median(f func() time.Duration) float64 {
	var all []time.Duration
	for range starts {
		all = append(all, f())
	}
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000
}
