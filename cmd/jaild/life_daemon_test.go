package main_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

func jaild(h *cmdtest.Host, args ...string) *exec.Cmd {
	return h.Program(filepath.Join(h.Bin, "jaild"), args...)
}

// openDescriptors counts what the daemon has open.
func openDescriptors(d *cmdtest.SharedDaemon) int {
	return len(cmdtest.NamesIn("/proc/" + strconv.Itoa(d.Cmd.Process.Pid) + "/fd"))
}

// T-504: what is at the socket's path is taken only if it is a dead daemon's.
func TestSocket(t *testing.T) {
	const elsewhere = "jaild: hint: end what is there, or name another place with --socket\n"
	h := cmdtest.New(t)
	socket := filepath.Join(h.State, "jail.sock")
	t.Run("taken by a file", func(t *testing.T) {
		if err := os.WriteFile(socket, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := h.Run(jaild(h))
		if want := "jaild: error: socket " + socket +
			": something else is there, which is not mine to remove\n" + elsewhere; o.Code != 125 ||
			o.Err != want {
			t.Errorf("%+v, want %s", o, want)
		}
		if text, err := os.ReadFile(socket); string(text) != "mine" {
			t.Errorf("the file is %q, %v", text, err)
		}
		// A client does not need the socket.
		h.Wants(h.Jail("run", "--", "true"), 0, "")
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("stale", func(t *testing.T) {
		d := h.Daemon()
		d.Kill()
		if _, err := os.Lstat(socket); err != nil {
			t.Fatalf("a daemon that was killed leaves its socket: %v", err)
		}
		h.Wants(h.Jail("run", "--", "true"), 0, "")
		h.Daemon().Stop()
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a daemon that ended left its socket: %v", err)
		}
	})
	t.Run("another daemon", func(t *testing.T) {
		d := h.Daemon()
		o := h.Run(jaild(h))
		if want := "jaild: error: socket " + socket + ": another daemon listens there\n" +
			elsewhere; o.Code != 125 || o.Err != want {
			t.Errorf("%+v, want %s", o, want)
		}
		h.Wants(h.Jail("run", "--", "true"), 0, "")
		d.Stop()
	})
}

// Two daemons on one state directory, each with a socket of its own, see one another's runs and
// write one log.
func TestTwoDaemons(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	other := &cmdtest.SharedDaemon{H: h, Cmd: jaild(h, "--socket", filepath.Join(h.State, "other.sock")),
		Socket: filepath.Join(h.State, "other.sock")}
	if err := other.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.Daemons[other.Cmd.Process.Pid] = true
	cmdtest.Eventually(t, "the other daemon answers", func() bool {
		c, err := net.Dial("unix", other.Socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	first := h.Live("first")
	cmd := h.Command("run", "--id", "second", "--policy", cmdtest.Patient(h), "--", h.Probe, "lines")
	cmd.Env = append(cmd.Env, "JAIL_SOCKET="+other.Socket)
	second := h.LiveWith(cmd, "second")

	cmd = h.Command("run", "--id", "first", "--", "true")
	cmd.Env = append(cmd.Env, "JAIL_SOCKET="+other.Socket)
	h.Wants(h.Run(cmd), 2, "run id first is in use")
	h.Wants(h.Jail("run", "--id", "first", "--", "true"), 2, "run id first is in use")

	if o := h.Jail("kill", "second"); o.Code != 0 {
		t.Errorf("kill through the other daemon: %+v", o)
	}
	if o := second.Wait(); o.Code != 137 {
		t.Errorf("second: %+v", o)
	}
	first.Says("still here")
	if o := h.Jail("kill", "--signal", "TERM", "first"); o.Code != 0 {
		t.Errorf("kill: %+v", o)
	}
	if o := first.Wait(); o.Code != 143 {
		t.Errorf("first, after another run had tried to take its id: %+v", o)
	}
	d.Stop()
	other.Stop()
	if r := h.Finished("second"); r.Signal != "SIGKILL" {
		t.Errorf("%+v", r)
	}
}

// SIGTERM ends the runs, tells their clients and puts it all on record; no client can hold that up.
func TestDaemonToldToEnd(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	var runs []*cmdtest.LiveRun
	for _, id := range []string{"a", "b", "c"} {
		runs = append(runs, h.Live(id))
	}
	// This one does not take what its tool writes: its client is stopped with the pipes full.
	stuck := h.Command("run", "--id", "stuck", "--limit", "output=1GiB", "--", "yes")
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
	d.Stop()
	for _, r := range runs {
		if o := r.Wait(); o.Code != 143 ||
			o.Err != "jail: warning: the daemon was stopped or restarted, and ended this run (it was told to end)\n" {
			t.Errorf("run %s: %+v", r.ID, o)
		}
		if rec := h.Finished(r.ID); rec.Signal != "SIGTERM" || rec.ExitCode != 143 {
			t.Errorf("%+v", rec)
		}
	}
	if rec := h.Finished("stuck"); rec.Signal != "SIGTERM" {
		t.Errorf("%+v", rec)
	}
	if rec := h.Records("", "daemon.stopped"); len(rec) != 1 ||
		rec[0].Reason != "it was told to end" {
		t.Errorf("%+v", rec)
	}
	stuck.Process.Kill()
	stuck.Wait()
}

// A module that is still being compiled holds the end of the daemon up no more than a run does:
// what waits for it has not begun.
func TestDaemonToldToEndCompiles(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	live := h.Live("live")
	module := filepath.Join(h.Work, "long.wasm")
	if err := os.WriteFile(module, cmdtest.Bombs()["branches"].Code(60_000).Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	compiles := h.Command("run", "--id", "compiles", "--no-workspace", "--", module)
	var said bytes.Buffer
	compiles.Stderr = &said
	if err := compiles.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "the module is being compiled", func() bool {
		return slices.ContainsFunc(cmdtest.GroupsOf(h.GlobalID("compiles")+".compile"),
			func(dir string) bool {
				text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
				return len(text) > 0
			})
	})
	d.Stop()
	if o := live.Wait(); o.Code != 143 || h.Finished("live").Signal != "SIGTERM" {
		t.Errorf("the run that lives: %+v, %+v", o, h.Finished("live"))
	}
	err := compiles.Wait()
	if code := h.ExitCode(compiles, err); code != 125 || !cmdtest.Sentence.MatchString(said.String()) {
		t.Errorf("the run that waits for its module: exit code %d, %s", code, said.String())
	}
	if r := h.Finished("compiles"); r.ExitCode != 125 || !strings.HasPrefix(r.Error,
		"this jaild is being ended") {
		t.Errorf("it was compiled to an end: %+v", r)
	}
}

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
