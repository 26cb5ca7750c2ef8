package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/config"
)

// A lockedBuffer can be read while a program writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// T-511: without a service manager too an upgrade ends no run, and the last daemon takes the
// socket's file away.
func TestUpgrade(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	r := h.Live("through")
	cmdtest.Detached(h, "--id", "detached", "--input", "--policy", cmdtest.Patient(h), "--",
		h.Probe, "lines")
	typed := h.LiveWith(h.Command("attach", "detached"), "detached")
	if err := d.Cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	pid := 0
	cmdtest.Eventually(t, "another daemon answers", func() bool {
		pid = daemonPID(h)
		return pid != 0 && pid != d.Cmd.Process.Pid
	})
	h.Daemons[pid] = true
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	r.Says("still here")
	r.In.Close()
	h.Wants(r.Wait(), 0, "")
	// To the new daemon the detached run is one that runs, though it has no handle of it.
	cmdtest.Detached(h, "--id", "detached", "--input", "--policy", cmdtest.Patient(h), "--",
		h.Probe, "lines")
	h.Wants(h.Jail("attach", "detached"), 125, "the daemon before this one has run detached")
	followed := h.Command("logs", "-f", "detached")
	out, err := followed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	waited := h.Command("wait", "detached")
	if err := errors.Join(followed.Start(), waited.Start()); err != nil {
		t.Fatal(err)
	}
	typed.Says("still here")
	lines := bufio.NewReader(out)
	for _, want := range []string{"got hello\n", "got still here\n"} {
		if line, err := lines.ReadString('\n'); line != want {
			t.Errorf("followed %q, %v", line, err)
		}
	}
	typed.In.Close()
	h.Wants(typed.Wait(), 0, "")
	if err := errors.Join(followed.Wait(), waited.Wait()); err != nil {
		t.Error(err)
	}
	cmdtest.Eventually(t, "the old daemon ends", func() bool { return isZombie(d.Cmd.Process.Pid) })
	delete(h.Daemons, pid)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "the socket is gone", func() bool {
		_,
			err := os.Lstat(d.Socket)
		return os.IsNotExist(err)
	})
	cmdtest.Eventually(t, "the new daemon is gone", func() bool {
		return syscall.Kill(pid, 0) != nil || isZombie(pid)
	})
	delete(h.Daemons, d.Cmd.Process.Pid)
	// The two had one standard error, to which the upgrade was said.
	took := fmt.Sprintf(
		"jaild: upgrade: jaild %s (process %d) has taken over from jaild %[1]s (process %[3]d), which still has 2 runs and sessions and carries them to their end\n",
		config.Version, pid, d.Cmd.Process.Pid)
	if err := d.Cmd.Wait(); err != nil || d.Err.String() != took {
		t.Errorf("the old daemon: %v: %s, want %s", err, d.Err.String(), took)
	}
}

// isZombie: where nothing reaps orphans, they stay so.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && strings.HasPrefix(state, "Z")
}

// daemonPID is the daemon that answers.
func daemonPID(h *cmdtest.Host) int {
	h.T.Helper()
	c, err := api.Dial(h.T.Context(), filepath.Join(h.State, "jail.sock"))
	if err != nil {
		return 0
	}
	defer c.Close()
	v, err := c.Version(h.T.Context())
	if err != nil {
		return 0
	}
	return v.PID
}

// A successor that does not come up changes nothing.
func TestUpgradeThatFails(t *testing.T) {
	h := cmdtest.New(t)
	var log lockedBuffer
	d := cmdtest.DaemonWith(h, &log)
	settings := filepath.Join(h.State, "jaild.toml")
	if err := os.WriteFile(settings, []byte("metric = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h.Wants(h.Jail("run", "--", "true"), 0, "")
		if pid := daemonPID(h); pid != d.Cmd.Process.Pid {
			t.Errorf("%d answers, want %d", pid, d.Cmd.Process.Pid)
		}
	}
	cmdtest.Eventually(t, "the daemon says so", func() bool {
		h.Wants(h.Jail("ps"), 0, "")
		return strings.Contains(log.String(), "did not come up")
	})
	if err := os.Remove(settings); err != nil {
		t.Fatal(err)
	}
	// Not killed: what runs leave is cleared away behind their answers.
	d.Stop()
	if said := log.String(); !strings.Contains(said, "upgrade: the new jaild did not come up") ||
		!strings.Contains(said, `unknown field "metric"`) {
		t.Errorf("it said %q", said)
	}
}

// Metrics are on the socket, and where the settings say so on a port, which answers nothing else.
func TestMetrics(t *testing.T) {
	h := cmdtest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if err := os.WriteFile(filepath.Join(h.State, "jaild.toml"), []byte("metrics = \""+address+
		"\"\n[admission]\nruns = 3\n[pool]\nsize = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := h.Daemon()
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	h.Wants(h.Jail("run", "--", "false"), 1, "")
	get := func(c *http.Client, url string) (int, string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	socket := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
		}}}
	port := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	_, one := get(socket, "http://jail/v1/metrics")
	_, two := get(port, "http://"+address+"/metrics")
	for _, text := range []string{one, two} {
		for _, line := range []string{`jail_runs_total{outcome="exited"} 1`,
			`jail_runs_total{outcome="failed"} 1`, `jail_start_seconds_count 2`,
			`jail_admission_running_max 3`} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("no line %s in\n%s", line, text)
			}
		}
	}
	for _, path := range []string{"/", "/v1/version", "/v1/runs"} {
		if code, text := get(port, "http://"+address+path); code != http.StatusNotFound {
			t.Errorf("the port answers %s: %d %s", path, code, text)
		}
	}
	d.Stop()
}

// Settings that say what cannot be are one sentence.
func TestSettings(t *testing.T) {
	h := cmdtest.New(t)
	file := filepath.Join(h.State, "jaild.toml")
	for text, pattern := range map[string]string{
		"metrics = \"0.0.0.0:9464\"":     "want an address of this host alone",
		"metrics = \"127.0.0.1:0\"":      `port "0" is none`,
		"[admission]\nruns = 0":          "want 1 to",
		"[admission]\nmemory = \"much\"": "admission.memory",
		"[admission]\nwait = \"2h\"":     "want a time up to 1h",
		"[admission]\nplaces = 3":        `unknown field "places"`,
		"[pool]\nsize = -1":              "pool.size = -1: want 0 to 1000",
		"[compile]\ncache = \"1KiB\"":    "want 1MiB or more",
		"[compile]\ncache = 5":           "compile.cache",
		"[denied]\nlandlock = 1":         "denied.landlock",
		"[admission":                     "jaild.toml:1:",
	} {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := h.Run(jaild(h))
		o.Err = strings.ReplaceAll(o.Err, "jaild: ", "jail: ")
		h.Wants(o, 2, pattern)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// Clients that have stopped reading what they asked for do not keep the daemon from ending, and are
// no failure of it.
func TestEndWithStalledClients(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	id := cmdtest.Detached(h, "--", "seq", "140000")
	h.Wants(h.Jail("wait", id), 0, "")
	for _, ask := range []string{
		"GET " + api.PathRuns + "/" + id + "/logs?follow=1 HTTP/1.1\r\nHost: jail\r\n\r\n",
		"POST " + api.PathRuns + "/" + id +
			"/attach HTTP/1.1\r\nHost: jail\r\nConnection: Upgrade\r\nUpgrade: " + api.Upgrade +
			"\r\nContent-Length: 2\r\n\r\n{}",
	} {
		c, err := net.Dial("unix", d.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, ask); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 100_000)); err != nil { // it is under way
			t.Fatal(err)
		}
	}
	d.Stop()
}

// A session can be held where the daemon is itself among the first to go when the host runs out of
// memory, as what a user's service manager starts is: its jail goes no later, for nobody without
// CAP_SYS_RESOURCE may lower that.
func TestSessionOfADispensableDaemon(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.DaemonOf(h, exec.Command("choom", "-n", "600", "--", "setpriv", "--bounding-set",
		"-sys_resource", "--inh-caps", "-sys_resource", "--", filepath.Join(h.Bin, "jaild")), nil)
	id := h.Session()
	defer h.StopSession(id, 0)
	h.Wants(h.Exec(id, "--", "true"), 0, "")
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	h.Wants(h.Jail("verify", id), 0, "")
	for _, s := range h.Sessions() {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj",
			s.PID)); string(text) != "600\n" {
			t.Errorf("its oom_score_adj is %q, %v", text, err)
		}
	}
}
