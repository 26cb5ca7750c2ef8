package cmd_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// lonely is a copy of the front where it finds no other program of jail's: what runs with it, the
// front has carried alone.
func lonely(h *cmdtest.Host) string {
	h.T.Helper()
	path := filepath.Join(h.Root, "alone", "jail")
	text, err := os.ReadFile(filepath.Join(h.Bin, "jail"))
	if err = errors.Join(err, os.Mkdir(filepath.Dir(path), 0o755),
		os.WriteFile(path, text, 0o755)); err != nil {
		h.T.Fatal(err)
	}
	return path
}

// peak matches what a limit event says of a moment that is another one in each run.
var peak = regexp.MustCompile(`\(peak [^)]*\)`)

// freshID matches a random name of a run, and one that the test chose.
var freshID = regexp.MustCompile(`\b[0-9a-hjkmnp-tv-z]{26}\b|\bx[0-9]+\b`)

// The front and the whole program are one to a user: each command line has the same streams and
// exit code with both. The plain runs do without the whole program.
func TestFront(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	alone, whole := lonely(h), filepath.Join(h.Bin, "jail-full")
	h.Wants(h.Jail("session", "start", "--id", "open"), 0, "")
	if err := os.WriteFile(filepath.Join(h.Work, "f"), []byte("text\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	next := 0
	for _, c := range []struct {
		args  []string
		stdin string
		alone bool
		code  int
	}{
		{args: []string{"version"}, alone: true},
		{args: []string{"run", "--", h.Probe, "args", "a", "--json", "\u00e9"}, alone: true},
		{args: []string{"run", h.Probe, "both"}, alone: true},
		{args: []string{"run", "--quiet", "--", h.Probe, "exit", "3"}, alone: true, code: 3},
		{args: []string{"run", "--", h.Probe, "exit", "255"}, alone: true, code: 255},
		{args: []string{"run", "--", h.Probe, "count"}, stdin: strings.Repeat("x", 1_000_000),
			alone: true},
		{args: []string{"run", "--discard", "--", h.Probe, "files", "2"}, alone: true},
		{args: []string{"run", "--id", "ID", "--", h.Probe, "files", "2"}, alone: true},
		{args: []string{"run", "--id", "ID", "--keep", "--", h.Probe, "exit", "0"}, alone: true},
		{args: []string{"run", "--id", "ID", "--keep", "--quiet", "--", h.Probe, "files", "1"},
			alone: true},
		{args: []string{"run", "--no-workspace", "--", h.Probe, "both"}, alone: true},
		{args: []string{"run", "--workspace", h.Work, "--", "cat", "f"}, alone: true},
		{args: []string{"run", "--profile", "readonly", "--", "cat", "f"}, alone: true},
		{args: []string{"run", "--", "grep", "missing", "f"}, alone: true, code: 1},
		{args: []string{"session", "exec", "open", "--", "cat", "f"}, alone: true},
		{args: []string{"session", "exec", "--quiet", "open", "grep", "no", "f"}, alone: true,
			code: 1},
		{args: []string{"session", "exec", "open", "--id", "ID", "--", h.Probe, "count"},
			stdin: "abc", alone: true},
		// What is said of these the whole program says.
		{args: []string{"run", "--", h.Probe, "panic"}, code: 2},
		{args: []string{"run", "--", "cat", "/etc/shadow"}, code: 1},
		{args: []string{"run", "--profile", "readonly", "--", "touch", "new"}, code: 1},
		{args: []string{"run", "--quiet", "--", "cat", "/etc/shadow"}, code: 1},
		{args: []string{"run", "--", h.Probe, "flood", "3"}, code: 137},
		{args: []string{"run", "--", "no-such-tool"}, code: 127},
		{args: []string{"run", "--quiet", "--", "no-such-tool"}, code: 127},
		{args: []string{"run", "--profile", "no-such", "--", "true"}, code: 127},
		{args: []string{"run", "--id", "../x", "--", "true"}, code: 2},
		{args: []string{"run", "--limit", "wall=1ms", "--", h.Probe, "sleep", "1h"}, code: 124},
		{args: []string{"run", "--keep", "--discard", "--", "true"}, code: 2},
		{args: []string{"run", "--no-such", "--", "true"}, code: 2},
		{args: []string{"run"}, code: 2},
		{args: []string{"session", "exec", "none", "--", "true"}, code: 127},
		{args: []string{"session", "exec", "open"}, code: 2},
		{args: []string{"no-such-command"}, code: 2},
		{args: nil},
		{args: []string{"--ended"}, code: 2},
	} {
		var outcomes []cmdtest.Outcome
		programs := []string{whole, filepath.Join(h.Bin, "jail")}
		if c.alone {
			programs = append(programs, alone)
		}
		for _, program := range programs {
			args := append([]string{}, c.args...)
			id := ""
			for i, a := range args {
				if a == "ID" {
					next++
					id = fmt.Sprintf("x%d", next)
					args[i] = id
				}
			}
			cmd := h.Program(program, args...)
			cmd.Args[0], cmd.Stdin = "jail", strings.NewReader(c.stdin)
			o := h.Run(cmd)
			for _, kept := range regexp.MustCompile(`jail (?:diff|discard) (\S+)\n`).
				FindAllStringSubmatch(o.Err, -1) {
				h.Discard(kept[1])
				id = ""
			}
			if id != "" && strings.Contains(strings.Join(args, " "), "--keep") {
				h.Discard(id)
			}
			o.Out = freshID.ReplaceAllString(o.Out, "ID")
			o.Err = peak.ReplaceAllString(freshID.ReplaceAllString(o.Err, "ID"), "(peak)")
			outcomes = append(outcomes, o)
		}
		if outcomes[0].Code != c.code {
			t.Errorf("%q: exit code %d, want %d\n%s", c.args, outcomes[0].Code, c.code,
				outcomes[0].Err)
		}
		for i, o := range outcomes[1:] {
			if o != outcomes[0] {
				t.Errorf("%q by %s:\n%+v\nwant\n%+v", c.args, programs[i+1], o, outcomes[0])
			}
		}
	}
	h.Wants(h.Jail("session", "stop", "open"), 0, "")
}

// Signals, a reader that is gone and a full disk end the command as they end the whole program.
func TestFrontEnds(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	alone, whole := lonely(h), filepath.Join(h.Bin, "jail-full")
	programs := []string{whole, alone}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGQUIT} {
		var outcomes []cmdtest.Outcome
		for i, program := range programs {
			id := fmt.Sprintf("x%d", 10*int(s)+i)
			r := h.LiveWith(h.Program(program, "run", "--discard", "--id", id, "--", h.Probe,
				"lines"), id)
			if err := r.Cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			outcomes = append(outcomes, r.Wait())
		}
		if outcomes[0] != outcomes[1] || outcomes[0].Code != 128+int(s) {
			t.Errorf("%v: %+v\nwant %+v", s, outcomes[1], outcomes[0])
		}
	}
	front := filepath.Join(h.Bin, "jail")
	for name, stdout := range map[string]func() (*os.File, error){
		"nobody reads": func() (*os.File, error) {
			r, w, err := os.Pipe()
			if err == nil {
				r.Close()
			}
			return w, err
		},
		"full": func() (*os.File, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) },
	} {
		for _, args := range [][]string{{"version"}, {"run", "--", h.Probe, "flood", "1"}} {
			var outcomes []cmdtest.Outcome
			for _, program := range []string{whole, front} {
				out, err := stdout()
				if err != nil {
					t.Fatal(err)
				}
				cmd := h.Program(program, args...)
				cmd.Stdout = out
				outcomes = append(outcomes, h.Run(cmd))
				out.Close()
			}
			if outcomes[0] != outcomes[1] || outcomes[0].Code == 0 {
				t.Errorf("%s, %q: %+v\nwant %+v", name, args, outcomes[1], outcomes[0])
			}
		}
	}
}

// A signal ends the command also where the daemon takes nothing any more.
func TestFrontOfStuckDaemon(t *testing.T) {
	h := cmdtest.New(t)
	d := h.Daemon()
	alone := lonely(h)
	r := h.LiveWith(h.Program(alone, "run", "--discard", "--id", "stuck", "--", h.Probe, "lines"),
		"stuck")
	if err := d.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// More than the sockets hold: the front is in the middle of a write.
	go io.WriteString(r.In, strings.Repeat("x", 4<<20))
	ended := make(chan cmdtest.Outcome, 1)
	go func() { ended <- r.Wait() }()
	// The first asks the daemon to end the run, which takes no request; the second cuts the
	// connection. Two that come at once are one to Go's runtime.
	cmdtest.Eventually(t, "the front has ended", func() bool {
		select {
		case o := <-ended:
			if o.Code != 128+int(syscall.SIGTERM) || o.Err != "" {
				t.Errorf("%+v", o)
			}
			return true
		default:
			r.Cmd.Process.Signal(syscall.SIGTERM)
			return false
		}
	})
	if err := d.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
