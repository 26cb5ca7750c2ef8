package cmd_test

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
	h := newHost(t)
	d := h.daemon()
	r := h.live("through")
	h.detached("--id", "detached", "--input", "--", h.probe, "lines")
	typed := h.liveWith(h.command("attach", "detached"), "detached")
	if err := d.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	pid := 0
	eventually(t, "another daemon answers", func() bool {
		pid = h.daemonPID()
		return pid != 0 && pid != d.cmd.Process.Pid
	})
	h.daemons[pid] = true
	h.wants(h.jail("run", "--", "true"), 0, "")
	r.says("still here")
	r.in.Close()
	h.wants(r.wait(), 0, "")
	// To the new daemon the detached run is one that runs, though it has no handle of it.
	h.detached("--id", "detached", "--input", "--", h.probe, "lines")
	h.wants(h.jail("attach", "detached"), 125, "the daemon before this one has run detached")
	followed := h.command("logs", "-f", "detached")
	out, err := followed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	waited := h.command("wait", "detached")
	if err := errors.Join(followed.Start(), waited.Start()); err != nil {
		t.Fatal(err)
	}
	typed.says("still here")
	lines := bufio.NewReader(out)
	for _, want := range []string{"got hello\n", "got still here\n"} {
		if line, err := lines.ReadString('\n'); line != want {
			t.Errorf("followed %q, %v", line, err)
		}
	}
	typed.in.Close()
	h.wants(typed.wait(), 0, "")
	if err := errors.Join(followed.Wait(), waited.Wait()); err != nil {
		t.Error(err)
	}
	eventually(t, "the old daemon ends", func() bool { return isZombie(d.cmd.Process.Pid) })
	delete(h.daemons, pid)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the socket is gone", func() bool {
		_,
			err := os.Lstat(d.socket)
		return os.IsNotExist(err)
	})
	eventually(t, "the new daemon is gone", func() bool {
		return syscall.Kill(pid, 0) != nil || isZombie(pid)
	})
	delete(h.daemons, d.cmd.Process.Pid)
	// The two had one standard error, to which the upgrade was said.
	took := fmt.Sprintf(
		"jaild: upgrade: jaild %s (process %d) has taken over from jaild %[1]s (process %[3]d), which still has 2 runs and sessions and carries them to their end\n",
		config.Version, pid, d.cmd.Process.Pid)
	if err := d.cmd.Wait(); err != nil || d.err.String() != took {
		t.Errorf("the old daemon: %v: %s, want %s", err, d.err.String(), took)
	}
}

// isZombie: where nothing reaps orphans, they stay so.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err == nil && strings.HasPrefix(state, "Z")
}

// daemonPID is the daemon that answers.
func (h *host) daemonPID() int {
	h.t.Helper()
	c, err := api.Dial(h.t.Context(), filepath.Join(h.state, "jail.sock"))
	if err != nil {
		return 0
	}
	defer c.Close()
	v, err := c.Version(h.t.Context())
	if err != nil {
		return 0
	}
	return v.PID
}

// A successor that does not come up changes nothing.
func TestUpgradeThatFails(t *testing.T) {
	h := newHost(t)
	var log lockedBuffer
	d := h.daemonWith(&log)
	settings := filepath.Join(h.state, "jaild.toml")
	if err := os.WriteFile(settings, []byte("metric = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h.wants(h.jail("run", "--", "true"), 0, "")
		if pid := h.daemonPID(); pid != d.cmd.Process.Pid {
			t.Errorf("%d answers, want %d", pid, d.cmd.Process.Pid)
		}
	}
	eventually(t, "the daemon says so", func() bool {
		h.wants(h.jail("ps"), 0, "")
		return strings.Contains(log.String(), "did not come up")
	})
	if err := os.Remove(settings); err != nil {
		t.Fatal(err)
	}
	// Not killed: what runs leave is cleared away behind their answers.
	d.stop()
	if said := log.String(); !strings.Contains(said, "upgrade: the new jaild did not come up") ||
		!strings.Contains(said, `unknown field "metric"`) {
		t.Errorf("it said %q", said)
	}
}

// Metrics are on the socket, and where the settings say so on a port, which answers nothing else.
func TestMetrics(t *testing.T) {
	h := newHost(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	if err := os.WriteFile(filepath.Join(h.state, "jaild.toml"), []byte("metrics = \""+address+
		"\"\n[admission]\nruns = 3\n[pool]\nsize = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := h.daemon()
	h.wants(h.jail("run", "--", "true"), 0, "")
	h.wants(h.jail("run", "--", "false"), 1, "")
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
			return new(net.Dialer).DialContext(ctx, "unix", d.socket)
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
	d.stop()
}

// Settings that say what cannot be are one sentence.
func TestSettings(t *testing.T) {
	h := newHost(t)
	file := filepath.Join(h.state, "jaild.toml")
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
		o := h.run(h.jaild())
		o.err = strings.ReplaceAll(o.err, "jaild: ", "jail: ")
		h.wants(o, 2, pattern)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// Clients that have stopped reading what they asked for do not keep the daemon from ending, and are
// no failure of it.
func TestEndWithStalledClients(t *testing.T) {
	h := newHost(t)
	d := h.daemon()
	id := h.detached("--", "seq", "140000")
	h.wants(h.jail("wait", id), 0, "")
	for _, ask := range []string{
		"GET " + api.PathRuns + "/" + id + "/logs?follow=1 HTTP/1.1\r\nHost: jail\r\n\r\n",
		"POST " + api.PathRuns + "/" + id +
			"/attach HTTP/1.1\r\nHost: jail\r\nConnection: Upgrade\r\nUpgrade: " + api.Upgrade +
			"\r\nContent-Length: 2\r\n\r\n{}",
	} {
		c, err := net.Dial("unix", d.socket)
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
	d.stop()
}

// A session can be held where the daemon is itself among the first to go when the host runs out of
// memory, as what a user's service manager starts is: its jail goes no later, for nobody without
// CAP_SYS_RESOURCE may lower that.
func TestSessionOfADispensableDaemon(t *testing.T) {
	h := newHost(t)
	h.daemonOf(exec.Command("choom", "-n", "600", "--", "setpriv", "--bounding-set",
		"-sys_resource", "--inh-caps", "-sys_resource", "--", filepath.Join(h.bin, "jaild")), nil)
	id := h.session()
	defer h.stopSession(id, 0)
	h.wants(h.exec(id, "--", "true"), 0, "")
	h.wants(h.jail("run", "--", "true"), 0, "")
	h.wants(h.jail("verify", id), 0, "")
	for _, s := range h.sessions() {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj",
			s.PID)); string(text) != "600\n" {
			t.Errorf("its oom_score_adj is %q, %v", text, err)
		}
	}
}
