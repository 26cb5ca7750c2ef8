package cmd_test

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

	"golang.org/x/sys/unix"
)

// kill9 ends a process as nothing can refuse.
func kill9(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// gone reports whether every thread of a process has ended. /proc calls one a zombie as soon as its
// first thread is.
func gone(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// T-412: each process of a run is killed in turn. The run ends, in a class of its own, and nothing
// stays.
func TestKilledProcess(t *testing.T) {
	for name, c := range map[string]struct {
		kill    func(r *liveRun, d *sharedDaemon) int
		code    int // of the client
		pattern string
		record  record
	}{
		"client": {
			kill: func(r *liveRun, _ *sharedDaemon) int { return r.cmd.Process.Pid },
			code: -9, record: record{Type: "run.finished", ExitCode: 137, Signal: "SIGKILL",
				Workspace: "discarded"},
		},
		"shim": {
			kill: func(r *liveRun, _ *sharedDaemon) int { return r.shimPID() },
			code: 125, pattern: "end of the jail: jail-shim was killed",
			record: record{Type: "run.finished", ExitCode: 125,
				Error: "end of the jail: jail-shim was killed"},
		},
		"init": {
			kill: func(r *liveRun, _ *sharedDaemon) int { return r.initPID() },
			code: 137, record: record{Type: "run.finished", ExitCode: 137, Signal: "SIGKILL",
				Workspace: "discarded"},
		},
		"daemon": {
			kill: func(r *liveRun, d *sharedDaemon) int {
				if d != nil {
					return d.cmd.Process.Pid
				}
				return parentOf(t, r.shimPID())
			},
			code: 125, pattern: "the daemon went away before the run ended|jaild did not answer",
			record: record{Type: "run.finished", ExitCode: 125,
				Error: "the daemon was killed while the tool ran", Workspace: "kept"},
		},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shared daemon %v", name, shared), func(t *testing.T) {
				h := newHost(t)
				var d *sharedDaemon
				if shared {
					d = h.daemon()
				}
				r := h.live("victim")
				jail, shim := r.initPID(), r.shimPID()
				kill9(t, c.kill(r, d))
				h.wants(r.wait(), c.code, c.pattern)
				// However it ended, the tool is dead, without anybody's help.
				eventually(t, "jail-init and its shim are gone", func() bool {
					return gone(jail) && gone(shim)
				})
				if name == "daemon" {
					if shared {
						d.kill() // it is dead
						d = h.daemon()
					}
					h.wants(h.jail("workspaces"), 0, "")
				}
				eventually(t, "the end is on record", func() bool {
					return len(h.records("victim", "run.finished")) > 0
				})
				got := h.finished("victim")
				got.Run, got.RunID, got.Actor.UID = "", "", 0
				if got != c.record {
					t.Errorf("record %+v, want %+v", got, c.record)
				}
				if name == "daemon" {
					h.wantNothingLeft("victim")
					h.discard("victim")
				}
				h.wantNothingLeft()
				// And the next run is as any other.
				h.wants(h.jail("run", "--id", "victim", "--", "true"), 0, "")
				if shared {
					if n := idRanges(d.cmd.Process.Pid); n != 0 {
						t.Errorf("the daemon holds %d ranges of ids", n)
					}
					d.stop()
				}
			})
		}
	}
}

// The daemon and its shim die together: nobody is left who would kill the jail but the kernel.
func TestKilledDaemonAndShim(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	r := h.live("victim", "--discard")
	jail, shim := r.initPID(), r.shimPID()
	// It must not see the daemon go.
	if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.kill()
	kill9(t, shim)
	eventually(t, "jail-init is gone", func() bool { return gone(jail) })
	h.wants(r.wait(), 125, "went away|did not answer")
	h.daemon().stop()
	h.wantNothingLeft("victim")
	h.discard("victim")
}

// T-411, T-413: many live runs, and what looks like ours and is not.
func TestRestart(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	var runs []*liveRun
	var ids []string
	for i := range 8 {
		ids = append(ids, fmt.Sprintf("live%d", i))
		runs = append(runs, h.live(ids[i]))
	}
	pids := map[int]bool{}
	for _, r := range runs {
		pids[r.initPID()], pids[r.shimPID()] = true, true
	}
	foreign := h.plantForeign()
	d.kill()
	for pid := range pids {
		eventually(t, "all jails are dead", func() bool { return gone(pid) })
	}
	for _, r := range runs {
		h.wants(r.wait(), 125, "went away|did not answer")
	}
	// What a run's file says of its control group does not count: it is the group of the run's name
	// that is cleared.
	early := filepath.Join(h.state, "state", "runs", "early")
	if err := errors.Join(os.Mkdir(early, 0o711),
		os.WriteFile(filepath.Join(early, "run.json"), foreign.runFile, 0o600)); err != nil {
		t.Fatal(err)
	}
	// The second finds nothing to do.
	for range 2 {
		h.daemon().stop()
		for _, id := range append([]string{"early"}, ids...) {
			if r := h.finished(id); r.ExitCode != 125 ||
				r.Error != "the daemon was killed while the tool ran" ||
				(r.Workspace == "kept") != (id != "early") {
				t.Errorf("%s: %+v", id, r)
			}
		}
		h.wantNothingLeft(ids...)
	}
	foreign.wantUntouched(t)
	foreign.remove(t)
	h.discard(ids...)
}

// A daemon takes over a state directory in which a run's file was lost. What it ends by that name
// must be nothing but the run's: an empty path of a control group is the group of all processes of
// the host. Only here, where the daemon sees none but its own processes, may a test try that.
func TestRestartWithoutRunFile(t *testing.T) {
	h := newHost(t)
	dir := filepath.Join(h.state, "state", "runs", "lost")
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	without := must(withoutProgram())(t)
	for _, content := range []string{"", "{", `{"cgroup":""}`, `{"cgroup":"/"}`} {
		if err := errors.Join(os.MkdirAll(dir, 0o711),
			os.WriteFile(filepath.Join(dir, "run.json"), []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		cmd := h.program(without, "-pids", "sh", "-c",
			`mount -t proc proc /proc && jail ps && echo alive`)
		if o := h.run(cmd); o.code != 0 || !strings.HasSuffix(o.out, "\nalive\n") {
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

func (h *host) plantForeign() *foreigner {
	h.t.Helper()
	name := filepath.Base(h.root) + "-foreign"
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
			h.t.Fatal(err)
		}
	}
	// For a test that failed.
	h.t.Cleanup(func() {
		for _, g := range f.groups {
			os.Remove(g)
		}
	})
	state := filepath.Join(h.state, "state")
	for _, dir := range []string{"runs/.hidden", "runs/not an id", "workspaces/not an id"} {
		h.foreign[dir] = true
		dir = filepath.Join(state, dir)
		f.dirs = append(f.dirs, dir)
		f.content[filepath.Join(dir, "run.json")] = string(f.runFile)
	}
	f.content[filepath.Join(state, "runs", "file")] = "a file"
	h.foreign["runs/file"] = true
	for _, dir := range f.dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	for path, text := range f.content {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			h.t.Fatal(err)
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
			h := newHost(t)
			r := h.live("victim")
			if err := r.cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			o := r.wait()
			if o.code != 128+int(s) || o.err != "" || o.out != "" {
				t.Errorf("%+v, want exit code %d", o, 128+int(s))
			}
			if rec := h.finished("victim"); rec.Signal != name || rec.ExitCode != 128+int(s) {
				t.Errorf("%+v", rec)
			}
		})
	}
}

// A signal that comes while everything is only being set up leaves nothing either, whenever it
// comes.
func TestSignalsEarly(t *testing.T) {
	h := newHost(t)
	for i := range 12 {
		cmd := h.command("run", "--id", fmt.Sprintf("early%d", i), "--", h.probe, "lines")
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
		code := h.exitCode(cmd, cmd.Wait())
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
	h.wantNothingLeft()
	// What a daemon that was killed early left is cleared by the next.
	h.wants(h.jail("run", "--", "true"), 0, "")
	h.wantNothingLeft()
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
	h := newHost(t)
	whole := h.bin
	h.bin = filepath.Join(h.root, "bin")
	if err := os.Mkdir(h.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"jail", "jail-full", "jaild", "jail-init"} {
		if out, err := exec.Command("cp", filepath.Join(whole, name),
			h.bin).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(h.bin, "jail-shim"), []byte(dyingShim),
		0o700); err != nil {
		t.Fatal(err)
	}
	h.wants(h.jail("run", "--id", "victim", "--no-workspace", "--", h.probe), 125,
		"jail-shim ended before the jail stood")
	made, err := os.ReadFile(filepath.Join(h.bin, "jail-shim.groups"))
	if err != nil {
		t.Fatalf("the shim has made no group: %v", err)
	}
	for group := range strings.Lines(string(made)) {
		if _, err := os.Stat(strings.TrimSpace(group)); err == nil {
			t.Errorf("left behind: %s", group)
		}
	}
	h.wantNothingLeft()
	if got := h.finished("victim"); got.ExitCode != 125 {
		t.Errorf("record %+v", got)
	}
}
