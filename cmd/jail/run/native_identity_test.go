package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// A commit in a jail has the caller's name: of the environment, or as git finds it in the
// directory. A profile that does not pass it on has none.
func TestNativeIdentity(t *testing.T) {
	cmdtest.Have(t, "/usr/bin/git")
	h := cmdtest.New(t)
	h.Daemon()
	home := t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(home, ".gitconfig"): "[user]\n\tname = Ada\n\temail = ada@example.com\n",
		filepath.Join(h.Work, "x"):        "text\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const commit = `git init -q . && git add x && git commit -qm one && ` +
		`git log --format='%an <%ae> %cn <%ce>'`
	run := func(args []string, environ ...string) cmdtest.Outcome {
		cmd := h.Command(args...)
		cmd.Env = append(cmd.Env, append([]string{"HOME=" + home}, environ...)...)
		return h.Run(cmd)
	}
	session := h.Session("--discard", "--profile", "build")
	for _, c := range []struct{ environ, want string }{
		{"OTHER=x", "Ada <ada@example.com> Ada <ada@example.com>"},
		{"GIT_AUTHOR_NAME=Eve", "Eve <ada@example.com> Ada <ada@example.com>"},
	} {
		for _, args := range [][]string{{"run", "--discard", "--profile", "build"},
			{"run", "--limit", "pids=64", "--discard", "--profile", "build"},
			{"session", "exec", session}} {
			o := run(append(args, "--", "sh", "-c", "rm -rf .git && "+commit), c.environ)
			if strings.TrimSpace(o.Out) != c.want {
				t.Errorf("%s, %q: %+v", c.environ, args, o)
			}
		}
	}
	o := run([]string{"run", "--discard", "--profile", "python-native", "--", "python3", "-c",
		`import os; print([v for v in os.environ if v.startswith("GIT_A")])`})
	if o.Out != "[]\n" {
		t.Errorf("python-native: %+v", o)
	}
}
