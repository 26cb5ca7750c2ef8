package agent_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// TestAgentdActivated: jail-agentd answers on the socket that a service manager passes, and makes none
// of its own; on the loopback it answers who names the token, and nobody else.
func TestAgentdActivated(t *testing.T) {
	h := cmdtest.New(t)
	path := filepath.Join(h.State, "passed.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	passed, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", filepath.Join(h.Bin, "jail-agentd"),
		"--listen", "127.0.0.1:0")
	cmd.Dir, cmd.Env = h.Work, append(h.Env[:len(h.Env):len(h.Env)], "LISTEN_FDS=1")
	cmd.ExtraFiles = []*os.File{passed}
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	var place []string
	lines := bufio.NewScanner(said)
	for place == nil && lines.Scan() {
		place = regexp.MustCompile(`address=(\S+) token=(\S+)`).FindStringSubmatch(lines.Text())
	}
	if place == nil {
		t.Fatalf("it does not say where it listens: %v", lines.Err())
	}
	go io.Copy(io.Discard, said)
	if all, err := agentapi.NewClient(path).List(t.Context()); err != nil || len(all) == 0 {
		t.Errorf("by the socket: %+v, %v", all, err)
	}
	if _, err := os.Stat(filepath.Join(h.State, "agentd.sock")); err == nil {
		t.Error("it has made a socket of its own")
	}
	token, err := os.ReadFile(place[2])
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]int{"Bearer " + strings.TrimSpace(string(token)): 200,
		"Bearer x": 401, "": 401} {
		req, err := http.NewRequest("GET", "http://"+place[1]+agentapi.Path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %d, want %d", header, resp.StatusCode, want)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("its end: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket of the service manager: %v", err)
	}
}

// TestAgentdEndsWhenIdle: one that "jail agent" has started answers it, and ends by itself when
// nothing is left to do.
func TestAgentdEndsWhenIdle(t *testing.T) {
	h := cmdtest.New(t)
	for idle, answered := time.Second, false; !answered; idle *= 2 {
		cmd := exec.Command(filepath.Join(h.Bin, "jail-agentd"), "--until-idle", idle.String())
		cmd.Dir, cmd.Env, cmd.Stderr = h.Work, h.Env, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		client := agentapi.NewClient(filepath.Join(h.State, "agentd.sock"))
		// On a busy machine it may have ended before it is asked.
		cmdtest.Eventually(t, "it answers, or has ended", func() bool {
			_, err := client.List(t.Context())
			answered = err == nil
			return answered || cmdtest.Gone(cmd.Process.Pid)
		})
		client.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("its end: %v", err)
		}
	}
}

// TestAgentdWaitsForTheOneBefore: one that starts while another ends, which answers no more and lets
// its agents sleep, waits for the end of that and serves.
func TestAgentdWaitsForTheOneBefore(t *testing.T) {
	h := cmdtest.New(t)
	dir := filepath.Join(h.State, "agentd")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	before, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if err := syscall.Flock(int(before.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(h.Bin, "jail-agentd"))
	cmd.Dir, cmd.Env, cmd.Stderr = h.Work, h.Env, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	fds := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "fd")
	cmdtest.Eventually(t, "it looks at the lock", func() bool {
		all, _ := filepath.Glob(filepath.Join(fds, "*"))
		return slices.ContainsFunc(all, func(fd string) bool {
			to, _ := os.Readlink(fd)
			return to == before.Name()
		})
	})
	before.Close()
	client := agentapi.NewClient(filepath.Join(h.State, "agentd.sock"))
	defer client.Close()
	cmdtest.Eventually(t, "it answers", func() bool {
		_, err := client.List(t.Context())
		return err == nil
	})
	// A third one finds one that answers, and ends.
	if o := h.Run(h.Program(filepath.Join(h.Bin, "jail-agentd"))); o.Code != 125 ||
		!strings.Contains(o.Err, "another jail-agentd uses it") {
		t.Errorf("a third one: %+v", o)
	}
}
