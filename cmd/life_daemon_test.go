package cmd_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/supervisor/api"
)

// stranger is a user that the host does not know.
const stranger = 12345

// as makes a command that user's.
func as(cmd *exec.Cmd, uid uint32) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// A daemon is a shared jaild on a socket.
type sharedDaemon struct {
	h      *host
	cmd    *exec.Cmd
	socket string
	err    bytes.Buffer
	// logs is a part of the log that the test expects; without one the daemon logs nothing.
	logs string
}

func (h *host) jaild(args ...string) *exec.Cmd {
	return h.program(filepath.Join(h.bin, "jaild"), args...)
}

// daemon starts a shared jaild and returns when it answers. Commands of the host find it.
func (h *host) daemon() *sharedDaemon {
	h.t.Helper()
	return h.daemonWith(nil)
}

// daemonWith is daemon, with what it says going to log.
func (h *host) daemonWith(log io.Writer) *sharedDaemon {
	h.t.Helper()
	// It may live as long as the test.
	return h.daemonOf(exec.Command(filepath.Join(h.bin, "jaild")), log)
}

// daemonOf is daemonWith of a command that becomes jaild.
func (h *host) daemonOf(cmd *exec.Cmd, log io.Writer) *sharedDaemon {
	h.t.Helper()
	d := &sharedDaemon{h: h, cmd: cmd, socket: filepath.Join(h.state, "jail.sock")}
	d.cmd.Dir, d.cmd.Env, d.cmd.Stderr = h.work, h.env, &d.err
	if log != nil {
		d.cmd.Stderr = log
	}
	if err := d.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.daemons[d.cmd.Process.Pid] = true
	h.t.Cleanup(func() {
		switch {
		case d.cmd.ProcessState != nil:
		case h.t.Failed():
			d.kill()
			h.t.Logf("a daemon ended with %v and said: %s", d.cmd.ProcessState, d.err.String())
		default:
			d.stop()
		}
	})
	eventually(h.t, "the daemon answers", func() bool {
		c, err := net.Dial("unix", d.socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return d
}

// admit lets every user connect.
func (d *sharedDaemon) admit() {
	d.h.t.Helper()
	c, err := api.Dial(d.h.t.Context(), d.socket)
	if err != nil {
		d.h.t.Fatal(err)
	}
	defer c.Close()
	// From here on it leaves the socket's mode alone.
	if _, err := c.Version(d.h.t.Context()); err != nil {
		d.h.t.Fatal(err)
	}
	if err := os.Chmod(d.socket, 0o666); err != nil {
		d.h.t.Fatal(err)
	}
}

// stop ends the daemon as a service manager does.
func (d *sharedDaemon) stop() {
	d.h.t.Helper()
	delete(d.h.daemons, d.cmd.Process.Pid)
	err := errors.Join(d.cmd.Process.Signal(syscall.SIGTERM), d.cmd.Wait())
	asExpected := d.err.Len() == 0
	if d.logs != "" {
		asExpected = strings.Contains(d.err.String(), d.logs)
	}
	if err != nil || !asExpected {
		d.h.t.Errorf("end of jaild: %v: %s", err, d.err.String())
	}
}

// kill ends it as nobody should.
func (d *sharedDaemon) kill() {
	delete(d.h.daemons, d.cmd.Process.Pid)
	d.cmd.Process.Kill()
	d.cmd.Wait()
}

// killWith kills the daemon and others as if at once: the others are stopped first, so that none of
// them sees it end.
func (d *sharedDaemon) killWith(pids []int) {
	t := d.h.t
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	d.kill()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
}

// descriptors counts what the daemon has open.
func (d *sharedDaemon) descriptors() int {
	return len(namesIn("/proc/" + strconv.Itoa(d.cmd.Process.Pid) + "/fd"))
}

// T-504: what is at the socket's path is taken only if it is a dead daemon's.
func TestSocket(t *testing.T) {
	const elsewhere = "jaild: hint: end what is there, or name another place with --socket\n"
	h := newHost(t)
	socket := filepath.Join(h.state, "jail.sock")
	t.Run("taken by a file", func(t *testing.T) {
		if err := os.WriteFile(socket, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := h.run(h.jaild())
		if want := "jaild: error: socket " + socket +
			": something else is there, which is not mine to remove\n" + elsewhere; o.code != 125 ||
			o.err != want {
			t.Errorf("%+v, want %s", o, want)
		}
		if text, err := os.ReadFile(socket); string(text) != "mine" {
			t.Errorf("the file is %q, %v", text, err)
		}
		// A client does not need the socket.
		h.wants(h.jail("run", "--", "true"), 0, "")
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("stale", func(t *testing.T) {
		d := h.daemon()
		d.kill()
		if _, err := os.Lstat(socket); err != nil {
			t.Fatalf("a daemon that was killed leaves its socket: %v", err)
		}
		h.wants(h.jail("run", "--", "true"), 0, "")
		h.daemon().stop()
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a daemon that ended left its socket: %v", err)
		}
	})
	t.Run("another daemon", func(t *testing.T) {
		d := h.daemon()
		o := h.run(h.jaild())
		if want := "jaild: error: socket " + socket + ": another daemon listens there\n" +
			elsewhere; o.code != 125 || o.err != want {
			t.Errorf("%+v, want %s", o, want)
		}
		h.wants(h.jail("run", "--", "true"), 0, "")
		d.stop()
	})
}

// Two daemons on one state directory, each with a socket of its own, see one another's runs and
// write one log.
func TestTwoDaemons(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	other := &sharedDaemon{h: h, cmd: h.jaild("--socket", filepath.Join(h.state, "other.sock")),
		socket: filepath.Join(h.state, "other.sock")}
	if err := other.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.daemons[other.cmd.Process.Pid] = true
	eventually(t, "the other daemon answers", func() bool {
		c, err := net.Dial("unix", other.socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	first := h.live("first")
	cmd := h.command("run", "--id", "second", "--", h.probe, "lines")
	cmd.Env = append(cmd.Env, "JAIL_SOCKET="+other.socket)
	second := h.liveWith(cmd, "second")

	cmd = h.command("run", "--id", "first", "--", "true")
	cmd.Env = append(cmd.Env, "JAIL_SOCKET="+other.socket)
	h.wants(h.run(cmd), 2, "run id first is in use")
	h.wants(h.jail("run", "--id", "first", "--", "true"), 2, "run id first is in use")

	if o := h.jail("kill", "second"); o.code != 0 {
		t.Errorf("kill through the other daemon: %+v", o)
	}
	if o := second.wait(); o.code != 137 {
		t.Errorf("second: %+v", o)
	}
	first.says("still here")
	if o := h.jail("kill", "--signal", "TERM", "first"); o.code != 0 {
		t.Errorf("kill: %+v", o)
	}
	if o := first.wait(); o.code != 143 {
		t.Errorf("first, after another run had tried to take its id: %+v", o)
	}
	d.stop()
	other.stop()
	if r := h.finished("second"); r.Signal != "SIGKILL" {
		t.Errorf("%+v", r)
	}
}

// SIGTERM ends the runs, tells their clients and puts it all on record; no client can hold that up.
func TestDaemonToldToEnd(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	var runs []*liveRun
	for _, id := range []string{"a", "b", "c"} {
		runs = append(runs, h.live(id))
	}
	// This one does not take what its tool writes: its client is stopped with the pipes full.
	stuck := h.command("run", "--id", "stuck", "--limit", "output=1GiB", "--", "yes")
	out, err := stuck.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stuck.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := stuck.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	d.stop()
	for _, r := range runs {
		if o := r.wait(); o.code != 143 ||
			o.err != "jail: warning: the daemon was stopped or restarted, and ended this run (it was told to end)\n" {
			t.Errorf("run %s: %+v", r.id, o)
		}
		if rec := h.finished(r.id); rec.Signal != "SIGTERM" || rec.ExitCode != 143 {
			t.Errorf("%+v", rec)
		}
	}
	if rec := h.finished("stuck"); rec.Signal != "SIGTERM" {
		t.Errorf("%+v", rec)
	}
	if rec := h.records("", "daemon.stopped"); len(rec) != 1 ||
		rec[0].Reason != "it was told to end" {
		t.Errorf("%+v", rec)
	}
	stuck.Process.Kill()
	stuck.Wait()
}

// A module that is still being compiled holds the end of the daemon up no more than a run does:
// what waits for it has not begun.
func TestDaemonToldToEndCompiles(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	live := h.live("live")
	module := filepath.Join(h.work, "long.wasm")
	if err := os.WriteFile(module, bombs()["branches"].code(60_000).Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	compiles := h.command("run", "--id", "compiles", "--no-workspace", "--", module)
	var said bytes.Buffer
	compiles.Stderr = &said
	if err := compiles.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the module is being compiled", func() bool {
		return slices.ContainsFunc(groupsOf(h.globalID("compiles")+".compile"),
			func(dir string) bool {
				text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
				return len(text) > 0
			})
	})
	d.stop()
	if o := live.wait(); o.code != 143 || h.finished("live").Signal != "SIGTERM" {
		t.Errorf("the run that lives: %+v, %+v", o, h.finished("live"))
	}
	err := compiles.Wait()
	if code := h.exitCode(compiles, err); code != 125 || !sentence.MatchString(said.String()) {
		t.Errorf("the run that waits for its module: exit code %d, %s", code, said.String())
	}
	if r := h.finished("compiles"); r.ExitCode != 125 || !strings.HasPrefix(r.Error,
		"this jaild is being ended") {
		t.Errorf("it was compiled to an end: %+v", r)
	}
}

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
