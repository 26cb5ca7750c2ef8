package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A rootlessUser is a user without rights, and the control group that was handed on to that user, or "".
type rootlessUser struct {
	bin, home, group string
}

// newRootlessUser makes a home for stranger. Root drops its rights for it.
func newRootlessUser(t *testing.T) *rootlessUser {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user, and hand control groups on")
	}
	home, err := os.MkdirTemp("", "jail-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	if err := errors.Join(os.Chown(home, stranger, stranger), os.Chmod(home, 0o755)); err != nil {
		t.Fatal(err)
	}
	return &rootlessUser{bin: must(installed())(t), home: home}
}

// delegate hands a control group on, as a service manager with Delegate= does. It goes with the test.
func (u *rootlessUser) delegate(t *testing.T) {
	t.Helper()
	u.group = fmt.Sprintf("jail-rootless-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	roots := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		roots = nil
		all, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
		if err != nil || len(all) == 0 {
			t.Fatalf("no control groups: %v", err)
		}
		for _, procs := range all {
			roots = append(roots, filepath.Dir(procs))
		}
	} else if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.removeGroups(t, roots) })
	for _, root := range roots {
		dir := filepath.Join(root, u.group)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} { // which are empty in a new group of v1
			if text, err := os.ReadFile(filepath.Join(root, name)); err == nil {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			err = errors.Join(err, os.Chown(filepath.Join(dir, f.Name()), stranger, stranger))
		}
		if err = errors.Join(err, os.Chown(dir, stranger, stranger)); err != nil {
			t.Fatal(err)
		}
	}
}

func (u *rootlessUser) removeGroups(t *testing.T, roots []string) {
	for _, root := range roots {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(root, u.group), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if err := os.Remove(dir); err != nil {
				t.Errorf("a control group is left: %v", err)
			}
		}
	}
}

// command runs a program as the user, in the user's control group.
func (u *rootlessUser) command(dir string, args ...string) *exec.Cmd {
	script := `exec setpriv --reuid "$0" --regid "$0" --clear-groups -- "$@"`
	if u.group != "" {
		script = `for f in /sys/fs/cgroup/` + u.group + `/cgroup.procs /sys/fs/cgroup/systemd/` + u.group + `/cgroup.procs /sys/fs/cgroup/unified/` + u.group +
			`/cgroup.procs; do [ ! -e "$f" ] || echo $$ > "$f" || exit 99; done; ` + script
	}
	cmd := exec.Command("sh", append([]string{"-c", script, strconv.Itoa(stranger)}, args...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + u.bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + u.home}
	return cmd
}

func (u *rootlessUser) run(t *testing.T, dir string, args ...string) (int, string, string) {
	t.Helper()
	cmd := u.command(dir, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// must exit with 0.
func (u *rootlessUser) ok(t *testing.T, dir string, args ...string) string {
	t.Helper()
	code, out, said := u.run(t, dir, args...)
	if code != 0 {
		t.Fatalf("%q: exit code %d, %s%s", args, code, out, said)
	}
	return out
}

func (u *rootlessUser) workspace(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(u.home, "w")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a": "one\n", "d/b": "two\n", ".env": "SECRET\n"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600),
			os.Chown(filepath.Dir(path), stranger, stranger), os.Chown(path, stranger, stranger)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestRootlessRefused: a user to whom nobody has handed on a control group gets no run with less than the limits, and is told what to do.
func TestRootlessRefused(t *testing.T) {
	u := newRootlessUser(t)
	dir := u.workspace(t)
	for _, args := range [][]string{{"run", "--no-workspace", "--", "true"}, {"run", "--", "touch", "made"}, {"workspaces"}} {
		code, out, said := u.run(t, dir, append([]string{"jail"}, args...)...)
		if code != 126 || out != "" || !regexp.MustCompile(`^jail: error: layer control groups cannot be set up here: .*\njail: hint: .+\n$`).MatchString(said) {
			t.Errorf("%q: exit code %d, %q, %q", args, code, out, said)
		}
	}
	if _, err := os.Stat(filepath.Join(u.home, ".local")); err == nil {
		t.Error("a refused run has left state")
	}
	code, out, said := u.run(t, dir, "jail", "doctor", "--json")
	var d struct {
		OK       bool
		Findings []struct{ Name, Answer, Detail, Fix string }
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v: %s%s", err, out, said)
	}
	for _, f := range d.Findings {
		want := map[string]string{"control groups": "no", "user namespaces": "yes", "seccomp": "yes"}[f.Name]
		if want != "" && (f.Answer != want || want == "no" && f.Fix == "") {
			t.Errorf("doctor: %+v", f)
		}
	}
	if code == 0 || d.OK {
		t.Errorf("doctor: exit code %d, %s", code, out)
	}
}

// TestRootless is what a user has without root where a control group was handed on.
func TestRootless(t *testing.T) {
	u := newRootlessUser(t)
	u.delegate(t)
	if code, out, said := u.run(t, u.home, "jail", "doctor"); code != 0 {
		t.Fatalf("doctor: exit code %d\n%s%s", code, out, said)
	}
	t.Run("change", u.change)
	t.Run("limits", u.limits)
	t.Run("walls", u.walls)
	t.Run("verify", u.verify)
	t.Run("killed", u.killed)
	t.Run("refused", u.refused)
	if out := u.ok(t, u.home, "jail", "audit", "verify"); !strings.HasPrefix(out, "verified ") {
		t.Errorf("audit verify: %s", out)
	}
}

// change: what a run changes is reviewed, committed and reverted, each by a daemon of its own.
func (u *rootlessUser) change(t *testing.T) {
	dir := u.workspace(t)
	before := u.ok(t, dir, "sh", "-c", "ls -lR; cat a d/b")
	u.ok(t, dir, "jail", "sh", "--id", "change", "-c", "echo more >> a; rm -r d; mkdir d; echo new > d/c; ln -s a l")
	if now := u.ok(t, dir, "sh", "-c", "ls -lR; cat a d/b"); now != before {
		t.Errorf("the real directory has changed:\n%s\nand was\n%s", now, before)
	}
	diff := u.ok(t, dir, "jail", "diff", "change")
	for _, line := range []string{"\n# M a ", "\n# D d/b", "\n# A d/c ", "\n# A l "} {
		if !strings.Contains(diff, line) {
			t.Errorf("diff has no %q:\n%s", line, diff)
		}
	}
	u.ok(t, dir, "jail", "commit", "change")
	if got := u.ok(t, dir, "sh", "-c", "cat a d/c; readlink l; ls d"); got != "one\nmore\nnew\na\nc\n" {
		t.Errorf("committed: %q", got)
	}
	u.ok(t, dir, "jail", "revert", "change")
	if got := u.ok(t, dir, "sh", "-c", "cat a; ls . d"); got != "one\n.:\na\nd\n\nd:\nb\n" {
		t.Errorf("reverted: %q", got)
	}
	if code, out, said := u.run(t, dir, "jail", "sh", "--discard", "-c", "cat d/b; echo x > e"); code != 0 || out != "two\n" || !strings.Contains(said, "discarded") {
		t.Errorf("discarded: exit code %d, %q, %q", code, out, said)
	}
}

func (u *rootlessUser) limits(t *testing.T) {
	dir := u.workspace(t)
	for _, c := range []struct {
		limit, script string
		code          int
		out, says     string
	}{
		{"memory=64MiB", "head -c 200000000 /dev/zero | tail -c 150000000 > /dev/null", 137, "", "limit: memory: 64 MiB reached"},
		{"pids=20", "for i in $(seq 60); do sleep 5 & done", 2, "", "limit: pids: 20 reached"},
		{"wall=1s", "exec sleep 60", 124, "", "limit: wall: 1s reached"},
		{"workspace_files=20", "for i in $(seq 50); do echo > f$i; done 2>/dev/null; ls | grep -c ^f", 0, "20\n", "limit: workspace_files: 20 reached"},
	} {
		code, out, said := u.run(t, dir, "jail", "run", "--profile", "build", "--discard", "--limit", c.limit, "--", "/bin/sh", "-c", c.script)
		if code != c.code || out != c.out || !strings.Contains(said, c.says) {
			t.Errorf("%s: exit code %d, %.200q, %.500q", c.limit, code, out, said)
		}
	}
}

// walls: native code in a user's jail meets them all. Each attack works for the same user outside, so that the test could see one work.
func (u *rootlessUser) walls(t *testing.T) {
	dir := u.workspace(t)
	if err := errors.Join(os.WriteFile(filepath.Join(u.home, "secret"), []byte("x"), 0o600), os.Chown(filepath.Join(u.home, "secret"), stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	victim := u.command(dir, "sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(victim.Process.Kill(), victim.Wait()) }()
	for name, script := range map[string]string{
		"read a file of the user's":          "cat " + u.home + "/secret",
		"write a file of the user's":         "echo x > " + u.home + "/secret",
		"write to the real directory":        "echo x > " + dir + "/a",
		"signal a process of the user's":     fmt.Sprintf("kill -0 %d", victim.Process.Pid),
		"see a process of the user's":        fmt.Sprintf("test -d /proc/%d", victim.Process.Pid),
		"make a user namespace":              "unshare --user true",
		"make mounts":                        "unshare --user --map-root-user --mount mount -t tmpfs none /mnt",
		"connect to the host's own loopback": "exec 3<>/dev/tcp/127.0.0.1/" + port,
		"see the host's network":             "test $(grep -c : /proc/net/dev) -gt 1",
		"use a control group":                "ls /sys/fs/cgroup/*",
		"write to a kernel's switch":         "test -e /proc/sys",
		"change an owner's name in a map":    "unshare --user sh -c 'echo 0 0 1 > /proc/self/uid_map; true'",
		"read the user's keys":               "test -e " + u.home + "/.local/state/jail/state/keys/audit.key",
	} {
		outside, out, said := u.run(t, u.workspace(t), "bash", "-c", script)
		if outside != 0 {
			t.Errorf("control: %s: outside it does not work either: %s%s", name, out, said)
		}
		inside, out, said := u.run(t, dir, "jail", "run", "--profile", "build", "--discard", "--", "/bin/bash", "-c", script)
		if inside == 0 || inside == 125 || inside == 126 {
			t.Errorf("%s: exit code %d inside: %s%s", name, inside, out, said)
		}
	}
	// What it is called inside gives nothing.
	status := u.ok(t, dir, "jail", "run", "--profile", "build", "--", "/bin/cat", "/proc/self/status")
	for _, line := range []string{"CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line+"\n") {
			t.Errorf("no %q in\n%s", line, status)
		}
	}
}

// daemon starts a jaild of the user's, and returns it with what says to ask it.
func (u *rootlessUser) daemon(t *testing.T, name string) (daemon *exec.Cmd, jail func(args ...string) []string) {
	t.Helper()
	socket := filepath.Join(u.home, name)
	daemon = u.command(u.home, "jaild", "--socket", socket)
	daemon.Stderr = os.Stderr
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal("no daemon after a minute")
		}
	}
	return daemon, func(args ...string) []string {
		return append([]string{"env", "JAIL_SOCKET=" + socket, "jail"}, args...)
	}
}

// verify: a live jail is what its plan says.
func (u *rootlessUser) verify(t *testing.T) {
	daemon, jail := u.daemon(t, "verify.sock")
	defer func() {
		if err := errors.Join(daemon.Process.Signal(os.Interrupt), daemon.Wait()); err != nil {
			t.Errorf("the daemon's end: %v", err)
		}
	}()
	dir := u.workspace(t)
	id := strings.TrimSpace(u.ok(t, dir, jail("session", "start")...))
	u.ok(t, dir, jail("session", "exec", id, "--", "touch", "made")...)
	if out := u.ok(t, dir, jail("session", "exec", id, "--", "ls")...); !strings.Contains(out, "made\n") {
		t.Errorf("a session's next invocation sees %q", out)
	}
	if code, out, errOut := u.run(t, dir, jail("verify", id)...); code != 0 {
		t.Errorf("verify: exit code %d\n%s%s", code, out, errOut)
	}
	u.ok(t, dir, jail("session", "stop", id)...)
	u.ok(t, dir, jail("discard", id)...)
}

// killed: what lay in the memory of a daemon that is killed is gone with it, the jail too, and the next one says so.
func (u *rootlessUser) killed(t *testing.T) {
	dir := u.workspace(t)
	daemon, jail := u.daemon(t, "killed.sock")
	const nap = "98765"
	run := u.command(dir, jail("run", "--id", "killed", "--profile", "build", "--", "/bin/sh", "-c", "echo x > made; exec sleep "+nap)...)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	naps := func(are bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); napping(nap) != are; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the tool runs after a minute: %v", !are)
			}
		}
	}
	naps(true)
	_ = errors.Join(daemon.Process.Kill(), daemon.Wait(), run.Wait()) // none of them ends well
	naps(false)
	if code, _, said := u.run(t, dir, "jail", "diff", "killed"); code != 125 || !strings.Contains(said, "is gone with it") {
		t.Errorf("diff: exit code %d, %.500q", code, said)
	}
	u.ok(t, dir, "jail", "discard", "killed")
}

// napping reports whether there is a process sleep with that argument.
func napping(arg string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(all, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && string(text) == "sleep\x00"+arg+"\x00"
	})
}

// refused: what only root's daemon can do is refused, with a hint.
func (u *rootlessUser) refused(t *testing.T) {
	dir := u.workspace(t)
	policy := filepath.Join(dir, "p.toml")
	if err := os.WriteFile(policy, []byte("policy = 1\nname = \"p\"\ninclude = [\"build\"]\n[audit]\nfiles = \"changes\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, said := u.run(t, dir, "jail", "run", "--policy", policy, "--no-workspace", "--", "/bin/true")
	if code != 126 || !strings.Contains(said, "file events") || !strings.Contains(said, "hint: ") {
		t.Errorf("audit.files: exit code %d, %q, %q", code, out, said)
	}
}
