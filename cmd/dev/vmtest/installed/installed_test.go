// Package installed tests the Debian package on a machine that was made for it, freshly booted:
// what a unit is refused before a driver is loaded can be seen once after each boot.
package installed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A machine has the package installed, and two users: one in the group jail, one not.
type machine struct {
	t   *testing.T
	deb string
}

const member, outsider = "jailmember", "jailoutsider"

// run returns the exit code of a shell command, and all that it said.
func (m machine) run(format string, args ...any) (int, string) {
	m.t.Helper()
	cmd := exec.Command("sh", "-c", fmt.Sprintf(format, args...))
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (m machine) must(format string, args ...any) string {
	m.t.Helper()
	code, out := m.run(format, args...)
	if code != 0 {
		m.t.Fatalf("%s: exit code %d\n%s", fmt.Sprintf(format, args...), code, out)
	}
	return out
}

// wants runs a command that must end with code and say something.
func (m machine) wants(code int, says, format string, args ...any) {
	m.t.Helper()
	got, out := m.run(format, args...)
	if got != code || !strings.Contains(out, says) {
		m.t.Errorf("%s: exit code %d, want %d and %q\n%s", fmt.Sprintf(format, args...), got, code,
			says, out)
	}
}

// TestInstalled installs the package, and the first thing that it does is a run with a shadow.
func TestInstalled(t *testing.T) {
	m := machine{t, os.Getenv("JAIL_VM_DEB")}
	switch {
	case m.deb == "":
		t.Skip("installs a package on this machine: runs in machines that were made for it (make " +
			"vm-test)")
	case os.Geteuid() != 0:
		t.Skip("only root can install a package")
	}
	drivers, err := os.ReadFile("/proc/devices")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("loop devices before the installation: %v", bytes.Contains(drivers, []byte(" loop\n")))
	t.Cleanup(func() {
		if t.Failed() {
			_, out := m.run("journalctl -u jaild.service --no-pager -n 60")
			t.Log(out)
		}
		m.run("loginctl terminate-user %s", member)
		m.run("dpkg --purge jail; rm -rf /var/log/jail /var/lib/jail; userdel -r %s; userdel -r %s",
			member, outsider)
	})
	m.must("dpkg --install %s", m.deb)
	work := t.TempDir()
	m.wants(0, "changed 1 file", "cd %s && jail run -- touch made", work)

	m.doctor(0, "jail doctor --json")
	for _, name := range []string{member, outsider} {
		m.must("useradd -m -s /bin/sh %s", name)
	}
	m.must("usermod -aG jail %s", member)
	m.doctor(0, "su - %s -c 'jail doctor --json'", member)
	m.wants(0, "changed 1 file", "su - %s -c 'mkdir w && cd w && jail run -- touch made'", member)
	m.doctor(1, "su - %s -c 'jail doctor --json'", outsider)
	m.wants(126, "members of the group jail", "su - %s -c 'jail run -- true'", outsider)

	t.Run("agent", m.agent)
	t.Run("upgrade", m.upgrade)
	t.Run("restart", m.restart)
	t.Run("purge", m.purge)
}

// doctor wants an exit code of jail doctor, and that it is the one of its judgement.
func (m machine) doctor(code int, format string, args ...any) {
	m.t.Helper()
	got, out := m.run(format, args...)
	var said struct {
		OK       bool
		Findings []struct{ Name, Answer string }
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil || got != code ||
		said.OK != (code == 0) || len(said.Findings) == 0 {
		m.t.Errorf("%s: %v, exit code %d, want %d\n%s", fmt.Sprintf(format, args...), err, got,
			code, out)
	}
}

// agent has a member's own systemd start jail-agentd for a client of its socket. It keeps an agent, a
// program of the host, which answers and counts over a restart of the unit.
func (m machine) agent(t *testing.T) {
	m.t = t
	m.must("loginctl enable-linger %s", member)
	m.until("the user's systemd is there", func() bool {
		code, _ := m.run("systemctl --user -M %s@ is-active default.target", member)
		return code == 0
	})
	const units = "systemctl --user -M " + member + "@ "
	m.must(units + "enable --now jail-agentd.socket")
	as := func(script string) string {
		t.Helper()
		return m.must("su - %s -c 'export XDG_RUNTIME_DIR=/run/user/$(id -u); %s'", member, script)
	}
	as("jail agent new tea")
	// A program of the host: modules take minutes to compile on an emulated processor.
	manifest := "agent = 1\ntype = \"agent\"\nname = \"tea\"\nnative = [\"python3\", \"main.py\"]\n" +
		"profile = \"agent-native\"\ncapabilities = { storage = true }\n"
	path := filepath.Join("/home", member, "tea/agent.toml")
	if err := os.WriteFile(path, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	as("jail agent add ./tea")
	for n, text := range []string{"one", "two"} {
		if out, want := as("jail agent send --wait --timeout 10m tea "+text),
			fmt.Sprintf("echo: %s (%d)\n", text, n+1); out != want {
			t.Errorf("the agent says %q, want %q", out, want)
		}
		m.wants(0, "active", units+"is-active jail-agentd.service")
		m.must(units + "restart jail-agentd.service")
	}
	as("jail agent delete --yes tea")
	m.must(units + "disable --now jail-agentd.socket jail-agentd.service")
	if left := m.must("pgrep -u %s -l . || true", member); strings.Contains(left, "jail") {
		t.Errorf("after the units were stopped: %s", left)
	}
}

// upgrade installs the package over itself: the journal says that another daemon has taken over.
func (m machine) upgrade(t *testing.T) {
	m.t = t
	before := m.must("systemctl show -P MainPID jaild.service")
	m.must("dpkg --install %s", m.deb)
	m.until("another daemon is the service", func() bool {
		_, now := m.run("systemctl show -P MainPID jaild.service")
		return now != before && now != "0\n"
	})
	m.until("the journal has it", func() bool {
		_, out := m.run("journalctl -u jaild.service --no-pager")
		return strings.Contains(out, "has taken over from jaild ")
	})
}

// restart ends a run; its client is told why.
func (m machine) restart(t *testing.T) {
	m.t = t
	cmd := exec.Command("jail", "run", "--id", "restarted", "--no-workspace", "--", "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := []byte("x\n")
	if _, err := in.Write(line); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(line); err != nil { // it runs
		t.Fatalf("%v: %s", err, said.String())
	}
	m.must("systemctl restart jaild.service")
	// The exit code says how.
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 || !strings.Contains(said.String(),
		"the daemon was stopped or restarted, and ended this run") {
		t.Errorf("exit code %d: %s", code, said.String())
	}
	m.must("jail run --no-workspace -- true")
}

// purge keeps the log and its key, and an installation after it goes on with both.
func (m machine) purge(t *testing.T) {
	m.t = t
	files := strings.Fields(m.must("dpkg -L jail"))
	m.wants(0, "kept are the audit log in /var/log/jail", "dpkg --purge jail")
	for _, f := range files {
		if info, err := os.Lstat(f); err == nil && !info.IsDir() {
			t.Errorf("the package leaves %s", f)
		}
	}
	// Of what ran: no process, control group, unit, mount, loop device or socket.
	m.gone(`pgrep -l "^jail"`)
	m.gone(`find /sys/fs/cgroup -mindepth 1 -type d -name "*jail*"`)
	m.gone(`systemctl list-units --all --plain --no-legend "jail*"`)
	m.gone(`grep jail /proc/self/mountinfo`)
	m.gone(`losetup --noheadings --list --output NAME,BACK-FILE | grep jail`)
	m.gone(`find /run /etc /usr/share -xdev -name "jail*"`)
	left, err := filepath.Glob("/var/lib/jail/*")
	if _, logErr := os.Stat("/var/log/jail/audit/head"); err != nil || logErr != nil ||
		len(left) != 1 || left[0] != "/var/lib/jail/keys" {
		t.Errorf("left are %q, %v, %v", left, err, logErr)
	}
	m.must("dpkg --install %s", m.deb)
	m.must("jail run --no-workspace -- true")
	m.wants(0, "verified", "jail audit verify")
}

// gone runs a command that lists what a purge has not removed.
func (m machine) gone(list string) {
	m.t.Helper()
	if _, out := m.run("%s", list); out != "" {
		m.t.Errorf("the purge leaves, by %s:\n%s", list, out)
	}
}

func (m machine) until(what string, f func() bool) {
	m.t.Helper()
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline:
			m.t.Fatalf("not within five minutes: %s", what)
		case <-tick.C:
		}
	}
}
