package run_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// If the standard input of jail is /dev/null, that of a program of the host is /dev/null, too: rg
// then searches the directory, as it does outside. A pipe stays a pipe, a file is read as one, and a
// terminal of the jail's own comes before all of these.
func TestNoInput(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	id := h.Session("--discard", "--profile", "build")
	const script = `readlink /proc/self/fd/0 | sed 's/:.*//'; cat`
	run := []string{"run", "--quiet", "--discard", "--profile", "build", "--"}
	exec := []string{"session", "exec", "--quiet", id, "--"}
	file := filepath.Join(h.Root, "input")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"jail", "jail-full"} {
		for name, args := range map[string][]string{"a run": run, "a session": exec} {
			for _, in := range []struct{ from, want string }{
				{os.DevNull, "/dev/null\n"}, {file, "pipe\nfrom a file\n"},
			} {
				cmd := h.Program(filepath.Join(h.Bin, program), append(args, "sh", "-c", script)...)
				f, err := os.Open(in.from)
				if err != nil {
					t.Fatal(err)
				}
				cmd.Stdin = f
				o := h.Run(cmd)
				f.Close()
				if o.Code != 0 || o.Out != in.want {
					t.Errorf("%s by %s from %s: %+v", name, program, in.from, o)
				}
			}
			cmd := h.Program(filepath.Join(h.Bin, program), append(args, "sh", "-c", script)...)
			cmd.Stdin = strings.NewReader("from a pipe\n")
			if o := h.Run(cmd); o.Code != 0 || o.Out != "pipe\nfrom a pipe\n" {
				t.Errorf("%s by %s from a pipe: %+v", name, program, o)
			}
		}
	}
	h.StopSession(id, 0)

	// A detached run has no input unless it asks for some, and a module has its empty pipe.
	h.Wants(h.Jail("run", "--detach", "--quiet", "--discard", "--id", "apart", "--profile", "build",
		"--", "sh", "-c", script), 0, "")
	h.Wants(h.Jail("wait", "apart"), 0, "")
	if o := h.Jail("logs", "apart"); o.Out != "/dev/null\n" {
		t.Errorf("detached: %+v", o)
	}
	// A client that attaches without streams, and so without input, ends the input of the run.
	h.Wants(h.Jail("run", "--detach", "--input", "--quiet", "--discard", "--id", "typed", "--profile",
		"build", "--", "sh", "-c", script), 0, "")
	socket := filepath.Join(h.State, "jail.sock")
	for _, query := range []string{"", "?input=none"} {
		res, err := (&http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			}}}).Post("http://jail/v1/runs/typed/attach"+query, "application/json",
			strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK ||
			!strings.Contains(string(text), `"exit_code":0`) {
			t.Errorf("attach%s: %s, %v\n%s", query, res.Status, err, text)
		}
		res.Body.Close()
	}
	module := h.Command("run", "--quiet", "--discard", "--", "cat")
	if o := h.Run(module); o.Code != 0 || o.Out != "" {
		t.Errorf("a module: %+v", o)
	}
}
