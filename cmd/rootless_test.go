package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestRootless is for a user without rights, also one to whom systemd hands control groups on: nothing runs with less than the whole stack, the
// refusal says what to do, and doctor does not take for there what only root can try. Root drops its rights for it.
func TestRootless(t *testing.T) {
	bin := must(installed())(t)
	dir, err := os.MkdirTemp("", "jail-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { // whoever runs the programs may write here
		t.Fatal(err)
	}
	run := func(program string, args ...string) (int, string, string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, program), args...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "JAIL_STATE=" + filepath.Join(dir, "state")}
		if os.Geteuid() == 0 {
			cmd = as(cmd, stranger)
		}
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		code := 0
		if err := cmd.Run(); errors.As(err, new(*exec.ExitError)) {
			code = cmd.ProcessState.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return code, out.String(), errOut.String()
	}
	for _, c := range []struct {
		program string
		args    []string
		says    string
	}{
		{"jail", []string{"run", "--no-workspace", "--", "true"}, `^jail: error: no daemon answers on .*, and only root can start jails without one\njail: hint: start jaild as a service, or use sudo\n$`},
		{"jail", []string{"run", "--", "touch", "made"}, `^jail: error: no daemon answers on .*, and only root can start jails without one\n`},
		{"jaild", nil, `^jaild: error: only root can start jails\n`},
	} {
		code, out, said := run(c.program, c.args...)
		if code != 125 || out != "" || !regexp.MustCompile(c.says).MatchString(said) {
			t.Errorf("%s %v: exit code %d, %q, %q", c.program, c.args, code, out, said)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	code, out, said := run("jail", "doctor", "--json")
	var d struct {
		OK       bool
		Findings []struct{ Name, Answer string }
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v: %s%s", err, out, said)
	}
	answers := map[string]string{}
	for _, f := range d.Findings {
		answers[f.Name] = f.Answer
	}
	if code == 0 || d.OK || answers["user namespaces"] != "unknown" || answers["seccomp"] != "yes" {
		t.Errorf("doctor: exit code %d, %s", code, out)
	}
}
