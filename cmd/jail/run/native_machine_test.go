package run_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/probe"
)

// TestNativeMachine: the files of the machine show programs of the host what the limits of the run
// give, and the programs that read them agree. The control is the host, whose figures are others.
// Where the kernel narrows no mounted proc, as `jail doctor` says there, /proc has none of them.
func TestNativeMachine(t *testing.T) {
	h := cmdtest.New(t)
	limits := []string{"--limit", "memory=192MiB", "--limit", "cpus=1", "--"}
	const kib = "196608"
	fixed := cmdtest.Must(probe.ProcFixed())(t)
	show := func(args ...string) string {
		t.Helper()
		r := runNative(h, "build", append(limits, args...)...)
		if r.ExitCode != 0 || len(r.Denied) > 0 {
			t.Errorf("%q: exit code %d, refused %v: %s%s", args, r.ExitCode, r.Denied, r.Stdout,
				r.Stderr)
		}
		return r.Stdout
	}
	for _, c := range []struct {
		name, script, want string
		// The host answers otherwise.
		other bool
	}{
		{"meminfo", "awk '/^MemTotal:/ {print $2}' /proc/meminfo", kib, true},
		{"nproc", "nproc", "1", true},
		{"cpuinfo", "grep -c ^processor /proc/cpuinfo", "1", true},
		{"stat", "grep -c '^cpu[0-9]' /proc/stat", "1", true},
		{"sys", "cat /sys/devices/system/cpu/online", "0", true},
		{"directories", "ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l", "1", true},
		{"memory.max", "cat /sys/fs/cgroup/memory.max", "201326592", true},
		{"cpu.max", "cat /sys/fs/cgroup/cpu.max", "100000 100000", true},
		{"mounts", "grep -c ' / ' /proc/mounts", "1", false},
		{"df", "df -P . | awk 'NR == 2 {print $6}'", h.Work, true},
		{"uptime", "read -r up idle < /proc/uptime; test ${up%.*} -gt 0 && echo yes", "yes", false},
		{"loadavg", "awk '{print NF}' /proc/loadavg", "5", false},
	} {
		if fixed && strings.Contains(c.script, "/proc/") {
			r := runNative(h, "build", append(limits, "sh", "-c", c.script)...)
			if !strings.Contains(r.Stderr, "No such file") || r.Stdout != "" {
				t.Errorf("%s, of a kernel that narrows no proc: %s%s", c.name, r.Stdout, r.Stderr)
			}
			continue
		}
		if got := strings.TrimSpace(show("sh", "-c", c.script)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		out, err := exec.Command("sh", "-c", c.script).Output()
		if got := strings.TrimSpace(string(out)); c.other && err == nil && got == c.want &&
			processorsHere(t) > 1 {
			t.Errorf("control: %s is %q on the host, too", c.name, got)
		}
	}
	// The kernel's other files are still not there.
	r := runNative(h, "build", append(limits, "sh", "-c",
		"for f in /proc/sys /proc/kcore /proc/version /proc/interrupts /proc/1/status; "+
			"do cat $f; done; ls /proc | grep -v [0-9]; echo x > /proc/uptime")...)
	written := "Read-only"
	if fixed {
		written = "cannot create /proc/uptime"
	}
	if strings.Count(r.Stderr, "No such file") != 4 || !strings.Contains(r.Stderr, written) ||
		r.ExitCode == 0 || strings.TrimSpace(r.Stdout) != "self\nthread-self" {
		t.Errorf("what is left of proc: %s%s", r.Stdout, r.Stderr)
	}
	if shown("node") {
		got := show("node", "-p",
			"[os.cpus().length, os.totalmem(), process.constrainedMemory()].join(' ')")
		want := "1 201326592 201326592\n"
		if fixed {
			// Node asks the kernel for the memory.
			total := strings.Fields(got + " ? ?")[1]
			want = "0 " + total + " 201326592\n"
		}
		if got != want {
			t.Errorf("node: %q, want %q", got, want)
		}
	}
}

func processorsHere(t *testing.T) int {
	t.Helper()
	out, err := exec.Command("nproc").Output()
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNativeLinks: programs of the host list the interfaces of the jail and send datagrams there,
// and nothing is refused.
func TestNativeLinks(t *testing.T) {
	h := cmdtest.New(t)
	for _, c := range []struct{ program, script, want string }{
		{"ip", "ip -o address show", "127.0.0.1"},
		{"node", `node -p 'Object.keys(os.networkInterfaces()).join()'`, "lo\n"},
		{"python3", `python3 -c 'import socket
a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "ab")
a.bind(("127.0.0.1", 0)); b.sendto(b"hello", a.getsockname()); print(a.recv(9))'`, "hello"},
		{"python3", "python3 -c 'import os, ctypes; print(ctypes.CDLL(None).prctl(21))'", "2\n"},
	} {
		if !shown(c.program) {
			t.Logf("the host has no %s that the profile shows", c.program)
			continue
		}
		r := runNative(h, "build", "--", "sh", "-c", c.script)
		if r.ExitCode != 0 || len(r.Denied) > 0 || !strings.Contains(r.Stdout, c.want) {
			t.Errorf("%s: exit code %d, refused %v: %s%s", c.script, r.ExitCode, r.Denied, r.Stdout,
				r.Stderr)
		}
	}
}

// shown reports whether the profile build shows a program of the host.
func shown(program string) bool {
	for _, dir := range []string{"/usr/bin", "/usr/sbin"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			return true
		}
	}
	return false
}
