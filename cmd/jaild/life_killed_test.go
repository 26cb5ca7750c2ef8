package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// T-412: each process of a run is killed in turn. The run ends, in a class of its own, and nothing
// stays.
func TestKilledProcess(t *testing.T) {
	for name, c := range map[string]struct {
		kill    func(r *cmdtest.LiveRun, d *cmdtest.SharedDaemon) int
		code    int // of the client
		pattern string
		record  cmdtest.Record
	}{
		"client": {
			kill: func(r *cmdtest.LiveRun, _ *cmdtest.SharedDaemon) int { return r.Cmd.Process.Pid },
			code: -9, record: cmdtest.Record{Type: "run.finished", ExitCode: 137, Signal: "SIGKILL",
				Workspace: "discarded"},
		},
		"shim": {
			kill: func(r *cmdtest.LiveRun, _ *cmdtest.SharedDaemon) int { return shimPID(r) },
			code: 125, pattern: "end of the jail: jail-shim was killed",
			record: cmdtest.Record{Type: "run.finished", ExitCode: 125,
				Error: "end of the jail: jail-shim was killed"},
		},
		"init": {
			kill: func(r *cmdtest.LiveRun, _ *cmdtest.SharedDaemon) int { return r.InitPID() },
			code: 137, record: cmdtest.Record{Type: "run.finished", ExitCode: 137, Signal: "SIGKILL",
				Workspace: "discarded"},
		},
		"daemon": {
			kill: func(r *cmdtest.LiveRun, d *cmdtest.SharedDaemon) int {
				if d != nil {
					return d.Cmd.Process.Pid
				}
				return cmdtest.ParentOf(t, shimPID(r))
			},
			code: 125, pattern: "the daemon went away before the run ended|jaild did not answer",
			record: cmdtest.Record{Type: "run.finished", ExitCode: 125,
				Error: "the daemon was killed while the tool ran", Workspace: "kept"},
		},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shared daemon %v", name, shared), func(t *testing.T) {
				h := cmdtest.New(t)
				var d *cmdtest.SharedDaemon
				if shared {
					d = h.Daemon()
				}
				r := h.Live("victim")
				jail, shim := r.InitPID(), shimPID(r)
				cmdtest.Kill9(t, c.kill(r, d))
				h.Wants(r.Wait(), c.code, c.pattern)
				// However it ended, the tool is dead, without anybody's help.
				cmdtest.Eventually(t, "jail-init and its shim are gone", func() bool {
					return cmdtest.Gone(jail) && cmdtest.Gone(shim)
				})
				if name == "daemon" {
					if shared {
						d.Kill() // it is dead
						d = h.Daemon()
					}
					h.Wants(h.Jail("workspaces"), 0, "")
				}
				cmdtest.Eventually(t, "the end is on record", func() bool {
					return len(h.Records("victim", "run.finished")) > 0
				})
				got := h.Finished("victim")
				got.Run, got.RunID, got.Actor.UID = "", "", 0
				if got != c.record {
					t.Errorf("record %+v, want %+v", got, c.record)
				}
				if name == "daemon" {
					h.WantNothingLeft("victim")
					h.Discard("victim")
				}
				h.WantNothingLeft()
				// And the next run is as any other.
				h.Wants(h.Jail("run", "--id", "victim", "--", "true"), 0, "")
				if shared {
					cmdtest.Eventually(t, "the daemon holds no range of ids",
						func() bool { return idRanges(d.Cmd.Process.Pid) == 0 })
					d.Stop()
				}
			})
		}
	}
}

// The daemon and its shim die together: nobody is left who would kill the jail but the kernel.
func TestKilledDaemonAndShim(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	r := h.Live("victim", "--discard")
	jail, shim := r.InitPID(), shimPID(r)
	// It must not see the daemon go.
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	cmdtest.Kill9(t, shim)
	cmdtest.Eventually(t, "jail-init is gone", func() bool { return cmdtest.Gone(jail) })
	h.Wants(r.Wait(), 125, "went away|did not answer")
	h.Daemon().Stop()
	h.WantNothingLeft("victim")
	h.Discard("victim")
}

// T-411, T-413: many live runs, and what looks like ours and is not.
func TestRestart(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	var runs []*cmdtest.LiveRun
	var ids []string
	for i := range 8 {
		ids = append(ids, fmt.Sprintf("live%d", i))
		runs = append(runs, h.Live(ids[i]))
	}
	pids := map[int]bool{}
	for _, r := range runs {
		pids[r.InitPID()], pids[shimPID(r)] = true, true
	}
	foreign := plantForeign(h)
	d.Kill()
	for pid := range pids {
		cmdtest.Eventually(t, "all jails are dead", func() bool { return cmdtest.Gone(pid) })
	}
	for _, r := range runs {
		h.Wants(r.Wait(), 125, "went away|did not answer")
	}
	// What a run's file says of its control group does not count: it is the group of the run's name
	// that is cleared.
	early := filepath.Join(h.State, "state", "runs", "early")
	if err := errors.Join(os.Mkdir(early, 0o711),
		os.WriteFile(filepath.Join(early, "run.json"), foreign.runFile, 0o600)); err != nil {
		t.Fatal(err)
	}
	// The second finds nothing to do.
	for range 2 {
		h.Daemon().Stop()
		for _, id := range append([]string{"early"}, ids...) {
			if r := h.Finished(id); r.ExitCode != 125 ||
				r.Error != "the daemon was killed while the tool ran" ||
				(r.Workspace == "kept") != (id != "early") {
				t.Errorf("%s: %+v", id, r)
			}
		}
		h.WantNothingLeft(ids...)
	}
	foreign.wantUntouched(t)
	foreign.remove(t)
	h.Discard(ids...)
}

// A daemon takes over a state directory in which a run's file was lost. What it ends by that name
// must be nothing but the run's: an empty path of a control group is the group of all processes of
// the host. Only here, where the daemon sees none but its own processes, may a test try that.
func TestRestartWithoutRunFile(t *testing.T) {
	h := cmdtest.New(t)
	dir := filepath.Join(h.State, "state", "runs", "lost")
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	without := cmdtest.Must(cmdtest.WithoutProgram())(t)
	for _, content := range []string{"", "{", `{"cgroup":""}`, `{"cgroup":"/"}`} {
		if err := errors.Join(os.MkdirAll(dir, 0o711),
			os.WriteFile(filepath.Join(dir, "run.json"), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		cmd := h.Program(without, "-pids", "sh", "-c",
			`mount -t proc proc /proc && jail ps && echo alive`)
		if o := h.Run(cmd); o.Code != 0 || !strings.HasSuffix(o.Out, "\nalive\n") {
			t.Errorf("%q: %+v", content, o)
		}
	}
}

// A foreigner is somebody else's thing that looks much like one of jail's.
type foreigner struct {
	groups, dirs []string
	content      map[string]string
	// Names one of the groups.
	runFile []byte
}

func plantForeign(h *cmdtest.Host) *foreigner {
	h.T.Helper()
	name := filepath.Base(h.Root) + "-foreign"
	f := &foreigner{content: map[string]string{},
		runFile: fmt.Appendf(nil, `{"id":"foreign","cgroup":"/jailed-%s"}`, name)}
	for _, g := range []string{"jail/" + name, "jailed-" + name} {
		for _, hierarchy := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory",
			"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.procs")); err == nil {
				f.groups = append(f.groups, filepath.Join(hierarchy, g))
			}
		}
	}
	for _, g := range f.groups {
		if err := os.Mkdir(g, 0o755); err != nil {
			h.T.Fatal(err)
		}
	}
	// For a test that failed.
	h.T.Cleanup(func() {
		for _, g := range f.groups {
			os.Remove(g)
		}
	})
	state := filepath.Join(h.State, "state")
	for _, dir := range []string{"runs/.hidden", "runs/not an id", "workspaces/not an id"} {
		h.Foreign[dir] = true
		dir = filepath.Join(state, dir)
		f.dirs = append(f.dirs, dir)
		f.content[filepath.Join(dir, "run.json")] = string(f.runFile)
	}
	f.content[filepath.Join(state, "runs", "file")] = "a file"
	h.Foreign["runs/file"] = true
	for _, dir := range f.dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			h.T.Fatal(err)
		}
	}
	for path, text := range f.content {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			h.T.Fatal(err)
		}
	}
	return f
}

func (f *foreigner) wantUntouched(t *testing.T) {
	t.Helper()
	for _, g := range f.groups {
		if _, err := os.Stat(g); err != nil {
			t.Errorf("somebody else's control group: %v", err)
		}
	}
	for path, want := range f.content {
		if text, err := os.ReadFile(path); string(text) != want {
			t.Errorf("somebody else's file: %q, %v", text, err)
		}
	}
}

func (f *foreigner) remove(t *testing.T) {
	t.Helper()
	var err error
	for path := range f.content {
		err = errors.Join(err, os.Remove(path))
	}
	for _, path := range slices.Concat(f.dirs, f.groups) {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		t.Error(err)
	}
}

// Signals to the client end the run and are its end on record; a second one ends the client too.
func TestSignals(t *testing.T) {
	for s, name := range map[syscall.Signal]string{syscall.SIGINT: "SIGINT",
		syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP", syscall.SIGQUIT: "SIGQUIT"} {
		t.Run(name, func(t *testing.T) {
			h := cmdtest.New(t)
			r := h.Live("victim")
			if err := r.Cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			o := r.Wait()
			if o.Code != 128+int(s) || o.Err != "" || o.Out != "" {
				t.Errorf("%+v, want exit code %d", o, 128+int(s))
			}
			if rec := h.Finished("victim"); rec.Signal != name || rec.ExitCode != 128+int(s) {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A signal that comes while everything is only being set up leaves nothing either, whenever it
// comes.
func TestSignalsEarly(t *testing.T) {
	h := cmdtest.New(t)
	for i := range 12 {
		cmd := h.Command("run", "--id", fmt.Sprintf("early%d", i), "--", h.Probe, "lines")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errText strings.Builder
		cmd.Stderr = &errText
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Each time a little later than the last, in things that happen and not in time.
		for range i * 400 {
			os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		}
		s := []syscall.Signal{syscall.SIGINT, syscall.SIGKILL}[i%2]
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		code := h.ExitCode(cmd, cmd.Wait())
		in.Close()
		// Before the program has its handlers it ends as any.
		if want := []int{130, -9}[i%2]; code != want && code != -int(s) {
			t.Errorf("after %d looks: exit code %d, want %d: %s", i*400, code, want,
				errText.String())
		}
		if text := errText.String(); text != "" &&
			!regexp.MustCompile(`^jail: `).MatchString(text) {
			t.Errorf("stderr: %s", text)
		}
	}
	h.WantNothingLeft()
	// What a daemon that was killed early left is cleared by the next.
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	h.WantNothingLeft()
}

// dyingShim makes what a jail-shim has made when it puts the first process into the jail's control
// groups, and dies of SIGKILL.
const dyingShim = `#!/bin/sh
group=$(grep -oh '"cgroup":"[^"]*"' "${0%/*}/../jail/state/runs/"*/run.json | cut -d '"' -f 4)
[ -n "$group" ] || exit 1
sleep 1000 <&- >&- 2>&- 3<&- 4<&- 5<&- &
roots=/sys/fs/cgroup
[ -e $roots/cgroup.procs ] || roots=$(echo /sys/fs/cgroup/*)
for root in $roots; do
	mkdir -p "$root$group" 2>/dev/null && echo $! >"$root$group/cgroup.procs" 2>/dev/null
	[ -d "$root$group" ] && echo "$root$group" >>"$0.groups"
done
kill -9 $$
`

// TestKilledMakingAJail: a shim that is killed while its jail is made leaves no control group, in
// no hierarchy.
func TestKilledMakingAJail(t *testing.T) {
	h := cmdtest.New(t)
	whole := h.Bin
	h.Bin = filepath.Join(h.Root, "bin")
	if err := os.Mkdir(h.Bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"jail", "jail-full", "jaild", "jail-init"} {
		if out, err := exec.Command("cp", filepath.Join(whole, name),
			h.Bin).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(h.Bin, "jail-shim"), []byte(dyingShim),
		0o700); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("run", "--id", "victim", "--no-workspace", "--", h.Probe), 125,
		"jail-shim ended before the jail stood")
	made, err := os.ReadFile(filepath.Join(h.Bin, "jail-shim.groups"))
	if err != nil {
		t.Fatalf("the shim has made no group: %v", err)
	}
	for group := range strings.Lines(string(made)) {
		if _, err := os.Stat(strings.TrimSpace(group)); err == nil {
			t.Errorf("left behind: %s", group)
		}
	}
	h.WantNothingLeft()
	if got := h.Finished("victim"); got.ExitCode != 125 {
		t.Errorf("record %+v", got)
	}
}
