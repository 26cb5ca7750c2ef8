package run_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// many returns n arguments of size bytes.
func many(n, size int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.Repeat("x", size)
	}
	return all
}

func TestArguments(t *testing.T) {
	h := cmdtest.New(t)
	largeStack(t)
	const whole = 2 << 20
	count := func(args []string) *exec.Cmd {
		return h.Command(append([]string{"run", "--", h.Probe, "count"}, args...)...)
	}
	for _, c := range []struct {
		name    string
		args    []string
		code    int
		pattern string
	}{
		{"none", nil, 0, ""},
		{"empty ones", many(1000, 0), 0, ""},
		{"100,000", many(100_000, 2), 0, ""},
		// Its own name, the verb and the variables of the profile take the rest.
		{"near the bound", many(20, (whole-2048)/20-1), 0, ""},
		{"above the bound", many(20, whole/20), 2,
			`arguments and environment take 2\d{6} bytes, more than 2097152`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := *h
			h.T = t
			h.Wants(h.Run(count(c.args)), c.code, c.pattern)
		})
	}
	t.Run("any bytes arrive", func(t *testing.T) {
		o := h.Jail("run", "--", h.Probe, "args", "\xff\xfe", "", "é", "a\nb", "\x1b[31m", "--id",
			"-")
		want := `"\xff\xfe"` + "\n" + `""` + "\n" + `"é"` + "\n" + `"a\nb"` + "\n" + `"\x1b[31m"` +
			"\n" + `"--id"` + "\n" + `"-"` + "\n"
		if o.Code != 0 || o.Out != want {
			t.Errorf("got %+v, want %q", o, want)
		}
	})
	t.Run("environment", func(t *testing.T) {
		big := "BIG=" + strings.Repeat("x", 120<<10)
		o := h.Jail("run", "--env", big, "--", h.Probe, "env")
		if o.Code != 0 || !strings.Contains(o.Out, big+"\n") {
			t.Errorf("exit code %d, %d bytes: %.500s", o.Code, len(o.Out), o.Err)
		}
		args := []string{"run"}
		for i := range 20 {
			args = append(args, "--env", fmt.Sprintf("BIG%d=%s", i, strings.Repeat("x", 120<<10)))
		}
		h.Wants(h.Jail(append(args, "--", h.Probe, "env")...), 2, "arguments and environment take")
	})
}

// largeStack lets commands take more arguments than Linux usually does, by a larger limit of their
// stack (execve(2)).
func largeStack(t *testing.T) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_STACK, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_STACK,
		&syscall.Rlimit{Cur: 32 << 20, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_STACK, &old); err != nil {
			t.Error(err)
		}
	})
}

// A NUL cannot come by execve(2), but by the API.
func TestArgumentsWithNUL(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	c, err := api.Dial(t.Context(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, req := range map[string]message.Request{
		"argument": {Tool: h.Probe, Args: []string{"args", "a\x00b"}},
		"tool":     {Tool: "gre\x00p"},
		"module":   {Tool: "/a\x00b.wasm"},
		"variable": {Tool: h.Probe, Env: []string{"A=b\x00c"}},
		"work":     {Tool: h.Probe, Workspace: "/tmp/a\x00b"},
		"id":       {Tool: h.Probe, ID: "a\x00b"},
		"profile":  {Tool: h.Probe, Profile: "a\x00b"},
		"limit":    {Tool: h.Probe, Limits: []string{"memory=1\x00GiB"}},
	} {
		if req.Dir = h.Work; req.Workspace == "" {
			req.Workspace = h.Work
		}
		res, err := c.Run(t.Context(), req, nil, io.Discard, io.Discard)
		if err != nil || res.Error == nil || strings.ContainsRune(res.Error.Message, '\n') {
			t.Errorf("%s: %+v, %v", name, res.Error, err)
		} else if code := res.ExitCode; code != 2 && code != 126 && code != 127 {
			t.Errorf("%s: exit code %d: %s", name, code, res.Error.Message)
		}
	}
	d.Stop()
}

func TestStdin(t *testing.T) {
	h := cmdtest.New(t)
	shell := func(script string) cmdtest.Outcome {
		cmd := h.Program("/bin/sh", "-c", script)
		cmd.Env = append(cmd.Env, "PROBE="+h.Probe)
		return h.Run(cmd)
	}
	for script, want := range map[string]string{
		"jail run -- $PROBE count <&-":                     "0 <nil>\n",
		"jail run -- $PROBE count < /dev/null":             "0 <nil>\n",
		"head -c 100 /dev/zero | jail run -- $PROBE count": "100 <nil>\n",
		"jail run -- $PROBE count < .":                     "0 <nil>\n", // a directory
		// a tool that reads nothing, with endless input
		"yes | jail run -- $PROBE exit 0":                    "",
		"mkfifo f; jail run --discard -- $PROBE exit 0 <> f": "", // input that never comes
		"rm f; jail run -- $PROBE exit 0 <&- >&- 2>&-":       "", // no streams at all
	} {
		if o := shell(script); o.Code != 0 || o.Out != want {
			t.Errorf("%s: %+v, want %q", script, o, want)
		}
	}
}

// A gibibyte goes through with no more memory than a few buffers, on either side.
func TestLargeStdin(t *testing.T) {
	// Still more than it may hold.
	blocks := 1024 / min(cmdtest.Slower(), 12)
	h := cmdtest.New(t)
	d := h.Daemon()
	cmd := h.Command("run", "--id", "large", "--policy", cmdtest.Patient(h), "--limit", "memory=64MiB", "--",
		h.Probe, "count")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for range blocks {
		if _, err := in.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	client, daemon := peakKiB(t, cmd.Process.Pid), peakKiB(t, d.Cmd.Process.Pid)
	in.Close()
	if err := cmd.Wait(); err != nil || out.String() != strconv.Itoa(blocks*len(block))+" <nil>\n" {
		t.Errorf("%v: %q", err, out.String())
	}
	t.Logf("peak of jail %d KiB, of jaild %d KiB", client, daemon)
	if const64 := 64 << 10; client > const64 || daemon > const64 {
		t.Errorf("peak of jail %d KiB, of jaild %d KiB: want at most 64 MiB each", client, daemon)
	}
	d.Stop()
}

func peakKiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, ok := strings.Cut(string(text), "VmHWM:")
	if err != nil || !ok {
		t.Fatalf("peak of process %d: %v", pid, err)
	}
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStdout(t *testing.T) {
	h := cmdtest.New(t)
	t.Run("a pipe that closes", func(t *testing.T) {
		cmd := h.Command("run", "--id", "head", "--", "yes")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "y\n" {
			t.Errorf("%q %v", line, err)
		}
		out.Close()
		if code := h.ExitCode(cmd, cmd.Wait()); code != -int(syscall.SIGPIPE) {
			t.Errorf("exit code %d, want an end by SIGPIPE", code)
		}
		cmdtest.Eventually(t, "the end is on record", func() bool {
			return len(h.Records("head", "run.finished")) > 0
		})
		if r := h.Finished("head"); r.Signal != "SIGKILL" {
			t.Errorf("%+v", r)
		}
		h.WantNothingLeft()
	})
	t.Run("full", func(t *testing.T) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		for _, flag := range []string{"--quiet", "--json"} {
			cmd := h.Command("run", flag, "--", h.Probe, "both")
			cmd.Stdout = full
			o := h.Run(cmd)
			o.Err = strings.TrimPrefix(o.Err, "to stderr\n") // which may come before
			h.Wants(o, 125, "standard output: no space left on device")
		}
		cmd := h.Command("run", "--", h.Probe, "both")
		cmd.Stderr = full
		if o := h.Run(cmd); o.Code != 125 {
			t.Errorf("standard error is full: %+v", o)
		}
	})
	t.Run("closed", func(t *testing.T) {
		for _, closed := range []string{">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"} {
			cmd := h.Program("/bin/sh", "-c", `exec jail run -- "$0" exit 3 `+closed, h.Probe)
			if o := h.Run(cmd); o.Code != 3 {
				t.Errorf("%s: %+v", closed, o)
			}
		}
	})
}

// Directories that have no shadow, and callers that may not ask for one.
func TestWorkspaceRefused(t *testing.T) {
	h := cmdtest.New(t)
	file, dangling := filepath.Join(h.Root, "file"), filepath.Join(h.Root, "dangling")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir     string
		code    int
		pattern string
	}{
		{"/", 126, "is the root of the host"},
		{home, 126, "is your home directory"},
		{file, 127, "workspace .*file: not a directory"},
		{dangling, 127, "workspace .*dangling: no such file or directory"},
		{h.Root, 126, "holds the state directory of jail itself"},
		{filepath.Join(h.State, "state", "modules"), 0, ""},
		{"/proc", 126, "."},
		{"/dev", 126, "."},
		{strings.Repeat("x", 300), 127, "file name too long"},
		{strings.Repeat("x/", 3000), 127, "file name too long"},
		{"", 0, ""},
	} {
		h.Wants(h.Jail("run", "--workspace", c.dir, "--", "true"), c.code, c.pattern)
	}
}

// Without a daemon a user whom nobody has left a control group cannot start jails.
func TestNoRights(t *testing.T) {
	h := cmdtest.New(t)
	cmd := cmdtest.As(h.Command("run", "--", "true"), cmdtest.Stranger)
	h.Wants(h.Run(cmd), 126, "layer control groups cannot be set up here: ")
	cmd = cmdtest.As(h.Program(filepath.Join(h.Bin, "jaild")), cmdtest.Stranger)
	if o := h.Run(cmd); o.Code != 126 || !strings.HasPrefix(o.Err,
		"jaild: error: layer control groups cannot be set up here: ") {
		t.Errorf("jaild: %+v", o)
	}
}

// T-508: a request larger than any that is honest is refused before it is kept anywhere.
func TestHugeRequest(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	c, err := api.Dial(context.Background(), d.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, req := range map[string]message.Request{
		"arguments": {Tool: h.Probe, Args: many(20, 1<<20), Dir: h.Work},
		"policy":    {Tool: h.Probe, Policy: strings.Repeat("# x\n", 5<<20), Dir: h.Work},
	} {
		res, err := c.Run(t.Context(), req, nil, io.Discard, io.Discard)
		if err == nil && res.Error == nil {
			t.Errorf("%s: it ran", name)
		}
	}
	d.Stop()
}
