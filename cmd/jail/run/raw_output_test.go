package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// TestRawOutput: what an untrusted tool writes reaches a terminal without what sets titles, reads
// or writes the clipboard, or has the terminal type an answer. With -t, with --raw and in a pipe
// every byte of it passes. T-021.
func TestRawOutput(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for name, text := range map[string]string{
		"first":  "A\x1b[1;31mred\x1b[0m\x1b[2K\x1b]0;title\aB\x1b]2;title\x1b\\C\x1b]52;c;cm0gLXJmIC8=\aD\x1bP$q",
		"second": "m\x1b\\E\x1b[cF\x1b[6nG\x1b[21tH\x1b[8;9;9té\x1b[",
		"third":  "6n\u009d0;title\u009cZ",
	} {
		if err := os.WriteFile(filepath.Join(h.Work, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw := "A\x1b[1;31mred\x1b[0m\x1b[2K\x1b]0;title\aB\x1b]2;title\x1b\\C\x1b]52;c;cm0gLXJmIC8=\aD\x1bP$qm\x1b\\E\x1b[cF\x1b[6nG\x1b[21tH\x1b[8;9;9té\x1b[6n\u009d0;title\u009cZ"
	const harmless = "A\x1b[1;31mred\x1b[0m\x1b[2KBCDEFGHéZ"
	// Sequences are cut between calls.
	const script = "cat first; cat second; cat third"
	session := h.Session()
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"run", []string{"run", "--", "cat", "first", "second", "third"}, harmless},
		{"sh", []string{"sh", "-c", script}, harmless},
		{"standard error", []string{"sh", "-c", "{ " + script + "; } >&2"}, harmless},
		{"session", []string{"session", "exec", session, "--", "cat", "first", "second", "third"},
			harmless},
		{"raw", []string{"sh", "--raw", "-c", script}, raw},
		{"a terminal of its own", []string{"run", "--profile", "build", "-t", "--", "cat", "first",
			"second", "third"}, raw},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := cmdtest.NewTerminal(t)
			cmd := h.Command(c.args...)
			x.Start(cmd)
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v", err)
			}
			var got string
			cmdtest.Eventually(t, "the terminal shows all", func() bool {
				x.Mu.Lock()
				defer x.Mu.Unlock()
				got = x.Shown.String()
				return strings.Contains(got, "Z")
			})
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("the terminal got %q, want %q", got, c.want)
			}
			x.WantAsBefore()
		})
	}
	if o := h.Jail("sh", "-c", script); o.Out != raw {
		t.Errorf("in a pipe: %q, want %q", o.Out, raw)
	}
	h.StopSession(session, 0)
}
