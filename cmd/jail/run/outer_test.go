package run_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/policy"
)

// says checks the code of a command, and that one of its streams has a text.
func says(t *testing.T, o cmdtest.Outcome, code int, text string) {
	t.Helper()
	if o.Code != code || !strings.Contains(o.Out+o.Err, text) {
		t.Errorf("exit code %d, want %d and %q in\n%s%s", o.Code, code, text, o.Out, o.Err)
	}
}

// TestOuter runs tools of each kind inside each outer layer, and without one as the control.
func TestOuter(t *testing.T) {
	cmdtest.Have(t, "/bin/sh")
	layers := cmdtest.OuterLayers(t)
	if len(layers) == 0 {
		t.Skip("no runtime of an outer layer works here")
	}
	h := cmdtest.New(t)
	h.Daemon()
	h.Write(map[string]string{"a": "text\n"})
	kernel := h.Jail("run", "--profile", "build", "--outer", "none", "--discard", "--", "uname", "-r").Out
	for _, l := range layers {
		inside := func(args ...string) []string {
			return append([]string{"--outer", l.Name, "--discard"}, args...)
		}
		native := func(script string, flags ...string) cmdtest.Outcome {
			return h.Jail(append(append([]string{"run"}, inside(append(flags, "--profile", "build")...)...),
				"--", "sh", "-c", script)...)
		}
		says(t, h.Jail(append([]string{"run"}, inside("--", "cat", "a")...)...), 0, "text")
		says(t, h.Jail(append([]string{"sh"}, inside("-c", "cat a | tr t T")...)...), 0, "TexT")
		says(t, h.Jail(append([]string{"run"}, inside("--", "cat", "/etc/shadow")...)...), 1,
			"denied: read /etc/shadow")
		o := native("uname -r; cat a; exit 7")
		says(t, o, 7, "text")
		if got := strings.Split(o.Out, "\n")[0] + "\n"; l.Replaces == (got == kernel) {
			t.Errorf("%s: the kernel inside is %s", l.Name, got)
		}
		says(t, native("test -d /proc/$$ && echo its own proc"), 0, "its own proc")
		says(t, native("sleep 60", "--limit", "wall=3s"), 124, "limit: wall")
		says(t, native("dd if=/dev/zero of=big bs=1M count=4", "--limit", "workspace=1MiB"), 1,
			"limit: workspace")
		says(t, native("echo x > /usr/x"), 2, "")
		id := "outer-" + l.Name
		res := h.ObjectOf("run", "--outer", l.Name, "--profile", "build", "--id", id, "--json", "--",
			"sh", "-c", "rm a; echo b > b")
		if res.Changes.Added != 1 || res.Changes.Deleted != 1 {
			t.Errorf("%s: changes %+v", l.Name, res.Changes)
		}
		shown := h.Jail("audit", "query", "--json", "--run", id, "--type", "run.started")
		for _, want := range []string{`"outer":"` + l.Name + `"`, `"outer_digest":"sha256:`} {
			if !strings.Contains(strings.ReplaceAll(shown.Out, `": "`, `":"`), want) {
				t.Errorf("%s: the record lacks %s: %+v", l.Name, want, shown)
			}
		}
		says(t, h.Jail("diff", id), 0, "# D a")
		h.Discard(id)
		session := h.Session("--discard", "--profile", "build", "--outer", l.Name)
		says(t, h.Exec(session, "sh", "-c", "echo one > s; echo two > /tmp/t"), 0, "")
		says(t, h.Exec(session, "sh", "-c", "cat s /tmp/t"), 0, "two")
		says(t, h.Exec(session, "sh", "-c", "echo of the tool >&2"), 0, "of the tool")
		h.StopSession(session, 1)
	}
}

// TestOuterUser: a user of the host's daemon has the layers, too, and the user's owner and streams.
func TestOuterUser(t *testing.T) {
	cmdtest.Have(t, "/bin/sh")
	h := cmdtest.New(t)
	h.Daemon().Admit()
	h.Write(map[string]string{"a": "text\n"})
	for _, path := range []string{h.Work, filepath.Join(h.Work, "a")} {
		if err := os.Chown(path, cmdtest.Stranger, cmdtest.Stranger); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range append(cmdtest.OuterLayers(t), policy.OuterLayer{Name: policy.OuterNone}) {
		o := h.Run(cmdtest.As(h.Command("run", "--outer", l.Name, "--discard", "--profile", "build", "--",
			"sh", "-c", "cat a && echo b >> a && id -u && echo error >&2"), cmdtest.Stranger))
		says(t, o, 0, "error")
		if want := fmt.Sprintf("text\n%d\n", cmdtest.Stranger); o.Out != want {
			t.Errorf("%s: %q, want %q", l.Name, o.Out, want)
		}
	}
}

// A layer that the profile does not allow is refused, and so is one that does not exist.
func TestOuterRefused(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	only := filepath.Join(h.Root, "only.toml")
	for path, text := range map[string]string{
		only:                                  "layer = \"runsc\"\n",
		filepath.Join(h.Root, "several.toml"): "allow = [\"runc\", \"crun\"]\n",
	} {
		text = "policy = 1\nname = \"only\"\ninclude = [\"default\"]\n[outer]\n" + text
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says(t, h.Jail("run", "--outer", "gvisor", "--", "true"), 2, "there are none, bwrap, crun, runc, runsc")
	says(t, h.Jail("run", "--outer", "none", "--policy", only, "--", "true"), 126,
		"outer layer none is not allowed")
	says(t, h.Jail("run", "--policy", filepath.Join(h.Root, "several.toml"), "--", "true"), 126,
		"choose one of crun, runc with --outer")
	// The control: another profile has none, and runs.
	says(t, h.Jail("run", "--outer", "none", "--", "echo", "ran"), 0, "ran")
}

// The end of a runtime is the end of the run: it is no success, and nothing of it is left.
func TestOuterKilled(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for _, l := range cmdtest.OuterLayers(t) {
		run := h.Live("killed-"+l.Name, "--policy", cmdtest.Patient(h), "--outer", l.Name)
		says(t, h.Jail("verify", run.ID), 0, "")
		says(t, h.Jail("kill", run.ID), 0, "")
		if o := run.Wait(); o.Code != 137 {
			t.Errorf("%s, killed: %+v", l.Name, o)
		}
		run = h.Live("crashed-"+l.Name, "--policy", cmdtest.Patient(h), "--outer", l.Name)
		// Of gVisor it is the runtime, of the others jail-init.
		if err := syscall.Kill(run.InitPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if o := run.Wait(); o.Code != 137 {
			t.Errorf("%s, its first process killed: %+v", l.Name, o)
		}
	}
	h.WantNothingLeft()
}
