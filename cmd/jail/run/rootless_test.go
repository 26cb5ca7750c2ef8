package run_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/cgroup"
)

// TestRootlessRefused: a user to whom nobody has handed on a control group gets no run with less
// than the limits, and is told what to do.
func TestRootlessRefused(t *testing.T) {
	u := newRootlessUser(t)
	dir := u.workspace(t)
	for _, args := range [][]string{{"run", "--no-workspace", "--", "true"},
		{"run", "--", "touch", "made"}, {"workspaces"}} {
		code, out, said := u.run(t, dir, append([]string{"jail"}, args...)...)
		if code != 126 || out != "" ||
			!regexp.MustCompile(
				`^jail: error: layer control groups cannot be set up here: .*\njail: hint: .+\n$`).MatchString(said) {
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
		want := map[string]string{"control groups": "no", "user namespaces": "yes",
			"seccomp": "yes"}[f.Name]
		if want != "" && (f.Answer != want || want == "no" && f.Fix == "") {
			t.Errorf("doctor: %+v", f)
		}
	}
	if code == 0 || d.OK {
		t.Errorf("doctor: exit code %d, %s", code, out)
	}
}

// TestRootlessShared: with control groups v2 a group that is handed on has to be jaild's alone, and
// where there is a manager that could make one, the user is told.
func TestRootlessShared(t *testing.T) {
	if layout, err := cgroup.Detect(); err != nil {
		t.Fatal(err)
	} else if layout != cgroup.V2 {
		t.Skip("this host has control groups v1: a group that holds processes hands its controllers on")
	}
	run := func(u *rootlessUser, hint string) {
		t.Helper()
		code, out, said := u.run(t, u.workspace(t), "jail", "run", "--", "true")
		if code != 126 || out != "" || !regexp.MustCompile(`^jail: error: .+\njail: hint: .*`+hint+
			`.*\n$`).MatchString(said) {
			t.Errorf("exit code %d, %q, %q, want the hint %s", code, out, said, hint)
		}
	}
	u := newRootlessUser(t)
	u.handOn(t)
	run(u, "in one of its own")
	u = newRootlessUser(t)
	u.logIn(t)
	manager := u.runtime
	u.runtime = "" // as after su
	run(u, "set XDG_RUNTIME_DIR="+manager+",")
}

// TestRootless is what a user has without root where control groups can be had.
func TestRootless(t *testing.T) {
	u := newRootlessUser(t)
	u.delegate(t)
	code, out, said := u.run(t, u.home, "jail", "doctor")
	if kernelBefore(t, 6, 6) {
		if code == 0 || !strings.Contains(out, "boot Linux 6.6 or newer") {
			t.Errorf("doctor: exit code %d\n%s%s", code, out, said)
		}
		t.Run("without shadows", u.withoutShadows)
		return
	}
	if code != 0 {
		t.Fatalf("doctor: exit code %d\n%s%s", code, out, said)
	}
	t.Run("change", u.change)
	t.Run("streams", u.streams)
	t.Run("limits", u.limits)
	t.Run("walls", u.walls)
	t.Run("image", u.image)
	t.Run("verify", u.verify)
	t.Run("verify, private daemons", u.verifyPrivate)
	t.Run("disks", u.disks)
	t.Run("group writes", u.groupWrites)
	t.Run("killed", u.killed)
	t.Run("refused", u.refused)
	// Control groups of v1 are left to nobody's manager.
	if u.runtime != "" {
		t.Run("unit", u.unit)
	}
	if out := u.ok(t, u.home, "jail", "audit", "verify"); !strings.HasPrefix(out, "verified ") {
		t.Errorf("audit verify: %s", out)
	}
}

// change: what a run changes is reviewed, committed and reverted, each by a daemon of its own.
func (u *rootlessUser) change(t *testing.T) {
	dir := u.workspace(t)
	before := u.ok(t, dir, "sh", "-c", "ls -lR; cat a d/b")
	u.ok(t, dir, "jail", "sh", "--id", "change", "-c",
		"echo more >> a; rm -r d; mkdir d; echo new > d/c; ln -s a l")
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
	if got := u.ok(t, dir, "sh", "-c",
		"cat a d/c; readlink l; ls d"); got != "one\nmore\nnew\na\nc\n" {
		t.Errorf("committed: %q", got)
	}
	u.ok(t, dir, "jail", "revert", "change")
	if got := u.ok(t, dir, "sh", "-c", "cat a; ls . d"); got != "one\n.:\na\nd\n\nd:\nb\n" {
		t.Errorf("reverted: %q", got)
	}
	if code, out, said := u.run(t, dir, "jail", "sh", "--discard", "-c",
		"cat d/b; echo x > e"); code != 0 || out != "two\n" || !strings.Contains(said,
		"discarded") {
		t.Errorf("discarded: exit code %d, %q, %q", code, out, said)
	}
}

// streams: a program opens its streams by name, whose pipes are the user's own.
func (u *rootlessUser) streams(t *testing.T) {
	cmd := u.command(u.workspace(t), "jail", "run", "--no-workspace", "--profile", "build", "--",
		"/bin/sh", "-c", useStreams)
	var out, said strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(streamsInput), &out, &said
	if err := cmd.Run(); err != nil || out.String() != streamsOut || said.String() != streamsErr {
		t.Errorf("%v: %q, %q", err, out.String(), said.String())
	}
}

func (u *rootlessUser) limits(t *testing.T) {
	u.meets(t, "--discard")
	dir := u.workspace(t)
	code, out, said := u.run(t, dir, "jail", "run", "--profile", "build", "--discard", "--limit",
		"workspace_files=20", "--", "/bin/sh", "-c",
		"for i in $(seq 50); do echo > f$i; done 2>/dev/null; ls | grep -c ^f")
	if code != 0 || out != "20\n" || !strings.Contains(said, "limit: workspace_files: 20 reached") {
		t.Errorf("workspace_files: exit code %d, %.200q, %.500q", code, out, said)
	}
}

// meets the limits that the control group and the daemon hold.
func (u *rootlessUser) meets(t *testing.T, workspace string) {
	dir := u.workspace(t)
	for _, c := range []struct {
		limit, script string
		code          int
		says          string
	}{
		{"memory=64MiB", "head -c 200000000 /dev/zero | tail -c 150000000 > /dev/null", 137,
			"limit: memory: 64 MiB reached"},
		{"pids=20", "for i in $(seq 60); do sleep 5 & done", 2, "limit: pids: 20 reached"},
		{"wall=1s", "exec sleep 60", 124, "limit: wall: 1s reached"},
	} {
		code, out, said := u.run(t, dir, "jail", "run", "--profile", "build", workspace, "--limit",
			c.limit, "--", "/bin/sh", "-c", c.script)
		if code != c.code || out != "" || !strings.Contains(said, c.says) {
			t.Errorf("%s: exit code %d, %.200q, %.500q", c.limit, code, out, said)
		}
	}
}

// withoutShadows: on a kernel whose tmpfs no shadow can lie in, what needs one is refused, and the
// rest is as everywhere.
func (u *rootlessUser) withoutShadows(t *testing.T) {
	dir := u.workspace(t)
	code, out, said := u.run(t, dir, "jail", "run", "--", "cat", "a")
	if code != 126 || out != "" || !strings.Contains(said,
		"\njail: hint: boot Linux 6.6 or newer") {
		t.Errorf("a run with a workspace: exit code %d, %q, %q", code, out, said)
	}
	if out := u.ok(t, dir, "jail", "run", "--no-workspace", "--", "echo", "x"); out != "x\n" {
		t.Errorf("it said %q", out)
	}
	u.meets(t, "--no-workspace")
	u.powerless(t, dir, "--no-workspace")
}

// walls: native code in a user's jail meets them all. Each attack works for the same user outside,
// so that the test could see one work.
func (u *rootlessUser) walls(t *testing.T) {
	dir := u.workspace(t)
	secret := filepath.Join(u.home, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.own(t, secret)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).Port
	port := fmt.Sprint(at)
	victim := u.command(dir, "sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(victim.Process.Kill(), victim.Wait()) }()
	for name, script := range map[string]string{
		"read a file of the user's":          "cat " + u.home + "/secret",
		"signal a process of the user's":     fmt.Sprintf("kill -0 %d", victim.Process.Pid),
		"see a process of the user's":        fmt.Sprintf("test -d /proc/%d", victim.Process.Pid),
		"make a user namespace":              "unshare --user true",
		"make mounts":                        "unshare --user --map-root-user --mount mount -t tmpfs none /mnt",
		"connect to the host's own loopback": "exec 3<>/dev/tcp/127.0.0.1/" + port,
		// Who listens there.
		"see the host's network": fmt.Sprintf("grep -q ':%04X 00000000:0000 0A' /proc/net/tcp", at),
		// Not the files of the jail's own that show the limits there.
		"use a control group":             "ls /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs | grep .",
		"write to a kernel's switch":      "test -e /proc/sys",
		"change an owner's name in a map": "unshare --user sh -c 'echo 0 0 1 > /proc/self/uid_map; true'",
		"read the user's keys": "test -e " + u.home +
			"/.local/state/jail/state/keys/audit.key",
	} {
		outside, out, said := u.run(t, u.workspace(t), "bash", "-c", script)
		if outside != 0 {
			t.Errorf("control: %s: outside it does not work either: %s%s", name, out, said)
		}
		inside, out, said := u.run(t, dir, "jail", "run", "--profile", "build", "--discard", "--",
			"/bin/bash", "-c", script)
		if inside == 0 || inside == 125 || inside == 126 {
			t.Errorf("%s: exit code %d inside: %s%s", name, inside, out, said)
		}
	}
	// Inside, what is at these paths is the shadow, or memory of the jail's own.
	for _, path := range []string{u.home + "/secret", dir + "/a"} {
		written := func(who string) bool {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return string(text) == who+"\n"
		}
		script := func(who string) string { return "echo " + who + " > " + path }
		u.ok(t, u.workspace(t), "bash", "-c", script("outside"))
		if !written("outside") {
			t.Errorf("control: %s is not written outside either", path)
		}
		u.run(t, dir, "jail", "run", "--profile", "build", "--discard", "--", "/bin/bash", "-c",
			script("inside"))
		if !written("outside") {
			t.Errorf("a tool wrote to %s", path)
		}
	}
	u.powerless(t, dir, "--discard")
}

// powerless: what the user is called inside gives nothing.
func (u *rootlessUser) powerless(t *testing.T, dir, workspace string) {
	status := u.ok(t, dir, "jail", "run", "--profile", "build", workspace, "--", "/bin/cat",
		"/proc/self/status")
	for _, line := range []string{"CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000",
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line+"\n") {
			t.Errorf("no %q in\n%s", line, status)
		}
	}
}

// daemon starts a jaild of the user's, and returns it with what says to ask it.
func (u *rootlessUser) daemon(t *testing.T, name string) (daemon *exec.Cmd,
	jail func(args ...string) []string) {
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
	if out := u.ok(t, dir, jail("session", "exec", id, "--", "ls")...); !strings.Contains(out,
		"made\n") {
		t.Errorf("a session's next invocation sees %q", out)
	}
	if code, out, errOut := u.run(t, dir, jail("verify", id)...); code != 0 {
		t.Errorf("verify: exit code %d\n%s%s", code, out, errOut)
	}
	u.ok(t, dir, jail("session", "stop", id)...)
	u.ok(t, dir, jail("discard", id)...)
	// Invocations that share a loopback join the network namespace of another jail, where one can.
	id = strings.TrimSpace(u.ok(t, dir, jail("session", "start", "--profile", "build")...))
	u.ok(t, dir, jail("session", "exec", "--background", "--id", "up", id, "--", "python3", "-c",
		"import socket, time\ns = socket.create_server(('127.0.0.1', 4000))\n"+
			"print('up', flush=True)\ntime.sleep(1000)")...)
	cmdtest.Eventually(t, "the server is up", func() bool {
		return u.ok(t, dir, jail("logs", "up")...) == "up\n"
	})
	u.ok(t, dir, jail("session", "exec", id, "--", "python3", "-c",
		"import socket\nsocket.create_connection(('127.0.0.1', 4000))")...)
	u.ok(t, dir, jail("verify", "up")...)
	u.ok(t, dir, jail("session", "stop", "--discard", id)...)
}

// verifyPrivate: the user looks at a jail whose daemon is private. Another private daemon could
// not, whose user namespace is beside that of the jail.
func (u *rootlessUser) verifyPrivate(t *testing.T) {
	dir := u.workspace(t)
	run := u.command(dir, "jail", "run", "--id", "private", "--discard", "--profile", "build", "--",
		"/bin/sh", "-c", "echo ready; read x")
	in, err := run.StdinPipe()
	out, outErr := run.StdoutPipe()
	if err := errors.Join(err, outErr, run.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := u.run(t, dir, "jail", "verify", "private"); code != 0 {
		t.Errorf("verify: exit code %d\n%s%s", code, out, errOut)
	}
	if code, _, errOut := u.run(t, dir, "jail", "verify", "other"); code != 127 ||
		!strings.Contains(errOut, `no run "other" is running`) {
		t.Errorf("verify of what is not there: exit code %d, %s", code, errOut)
	}
	in.Close()
	// Read met the end of its input.
	_ = run.Wait()
}

// disks: a shadow of a user's lies in memory, and the limits of disks hold for the others: where
// the user was left the controller, else the run is refused.
func (u *rootlessUser) disks(t *testing.T) {
	dir := u.workspace(t)
	code, out, said := u.run(t, dir, "jail", "run", "--discard", "--limit", "io_write=100MiB", "--",
		"cat", "a")
	lacking := code == 126 && strings.Contains(said, "layer control groups") &&
		strings.Contains(said, "io_read and io_write")
	if !lacking && (code != 0 || out != "one\n") {
		t.Errorf("exit code %d, %q, %q", code, out, said)
	}
	t.Logf("exit code %d", code)
	roots := u.workspace(t)
	if err := os.Chown(roots, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(roots, 0o755); err != nil {
		t.Fatal(err)
	}
	code, _, said = u.run(t, roots, "jail", "run", "--", "true")
	if code != 126 || !strings.Contains(said, "belongs to root or to another user") {
		t.Errorf("a directory of root's: exit code %d, %q", code, said)
	}
}

// groupWrites: directories made under umask 0002 are trusted where their group is the user's own
// and nobody else's; else the refusal has the one command that mends all of them.
func (u *rootlessUser) groupWrites(t *testing.T) {
	dir, config := u.workspace(t), filepath.Join(u.home, ".config")
	defer os.RemoveAll(config)
	u.ok(t, dir, "sh", "-c",
		"umask 0002 && mkdir -p ~/.config/jail/profiles && echo 'policy = 1' > ~/.config/jail/profiles/own.toml")
	code, _, said := u.run(t, dir, "jail", "run", "--discard", "--", "true")
	// An account of this machine, with a group that useradd made.
	if u.runtime != "" {
		if code != 0 {
			t.Errorf("exit code %d, %s", code, said)
		}
		return
	}
	all := filepath.Join(config, "jail/profiles") + " " + filepath.Join(config, "jail") + " " +
		config
	_, command, ok := strings.Cut(strings.SplitN(said, "\n", 2)[0], "mend it with: ")
	if code != 125 || !ok || command != "chmod go-w "+all {
		t.Fatalf("exit code %d, %q, want a command for %s", code, said, all)
	}
	u.ok(t, dir, "sh", "-c", command)
	u.ok(t, dir, "jail", "run", "--discard", "--", "true")
}

// killed: what lay in the memory of a daemon that is killed is gone with it, the jail too, and the
// next one says so.
func (u *rootlessUser) killed(t *testing.T) {
	dir := u.workspace(t)
	daemon, jail := u.daemon(t, "killed.sock")
	const nap = "98765"
	run := u.command(dir, jail("run", "--id", "killed", "--profile", "build", "--", "/bin/sh", "-c",
		"echo x > made; exec sleep "+nap)...)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	naps := func(are bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); napping(nap) != are; time.Sleep(
			10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the tool runs after a minute: %v", !are)
			}
		}
	}
	naps(true)
	// None of them ends well.
	_ = errors.Join(daemon.Process.Kill(), daemon.Wait(), run.Wait())
	naps(false)
	if code, _, said := u.run(t, dir, "jail", "diff", "killed"); code != 125 ||
		!strings.Contains(said, "is gone with it") {
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
	if err := os.WriteFile(policy,
		[]byte("policy = 1\nname = \"p\"\ninclude = [\"build\"]\n[audit]\nfiles = \"changes\"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	code, out, said := u.run(t, dir, "jail", "run", "--policy", policy, "--no-workspace", "--",
		"/bin/true")
	if code != 126 || !strings.Contains(said, "file events") || !strings.Contains(said, "hint: ") {
		t.Errorf("audit.files: exit code %d, %q, %q", code, out, said)
	}
	if err := os.WriteFile(policy, []byte("policy = 1\nname = \"p\"\ninclude = [\"build\"]\n[[mount]]\n"+
		"access = \"cache\"\nname = \"things\"\ntarget = \"/cache\"\nsize = \"4MiB\"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	code, out, said = u.run(t, dir, "jail", "run", "--policy", policy, "--no-workspace", "--",
		"/bin/true")
	if code != 126 || !strings.Contains(said, "only root can mount") {
		t.Errorf("a cache: exit code %d, %q, %q", code, out, said)
	}
	for _, layer := range []string{"bwrap", "crun", "runc", "runsc"} {
		code, out, said = u.run(t, dir, "jail", "run", "--outer", layer, "--no-workspace", "--", "true")
		if code != 126 || !strings.Contains(said, "one id only") || !strings.Contains(said, "hint: ") {
			t.Errorf("outer layer %s: exit code %d, %q, %q", layer, code, out, said)
		}
	}
}

// unit: a jaild for all of a user's runs is a service of the user's manager, with the jails beside
// it in the group that the unit is left.
func (u *rootlessUser) unit(t *testing.T) {
	socket, name := filepath.Join(u.home, "unit.sock"), fmt.Sprintf("jail-rootless-test-%d.service",
		os.Getpid())
	u.ok(t, u.home, "systemd-run", "--user", "--quiet", "--collect", "--unit="+name,
		"--property=Delegate=yes", "--setenv=HOME="+u.home, "--",
		filepath.Join(u.bin, "jaild"), "--delegated", "--socket", socket)
	stop := sync.OnceFunc(func() { u.ok(t, u.home, "systemctl", "--user", "stop", name) })
	defer stop()
	cmdtest.Eventually(t, "the service answers", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	jail := func(args ...string) []string {
		return append([]string{"env", "JAIL_SOCKET=" + socket, "jail"}, args...)
	}
	dir := u.workspace(t)
	if out := u.ok(t, dir, jail("run", "--", "cat", "a")...); out != "one\n" {
		t.Errorf("it read %q", out)
	}
	u.ok(t, dir, jail("session", "start", "--id", "unit")...)
	var open []struct{ PID int }
	if err := json.Unmarshal([]byte(u.ok(t, dir, jail("session", "list", "--json")...)),
		&open); err != nil || len(open) != 1 {
		t.Fatalf("%d sessions, %v", len(open), err)
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", open[0].PID))
	if want := "/" + name + "/jails/unit."; err != nil || !strings.Contains(string(group), want) {
		t.Errorf("a jail is in %q (%v), want it in %s", group, err, want)
	}
	stop()
	cmdtest.Eventually(t, "the socket is gone", func() bool {
		_,
			err := os.Lstat(socket)
		return os.IsNotExist(err)
	})
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", open[0].PID)); err == nil {
		t.Error("a session outlives its daemon")
	}
}
