package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// sshChild says to this program that it is the child of [TestGitSSH], in namespaces of its own.
const sshChild = "JAIL_TEST_SSH_CHILD"

// TestGitSSH: heads get to a repository behind a real ssh server, with the keys and the known hosts
// of the daemon's user; a host whose key is another one or not known, one that refuses, one that
// never answers and one that is not there are named, bounded, and tried again.
//
// It runs in a mount namespace in which the user's home is a directory of the test, because ssh
// looks nowhere else for known hosts, and in a network namespace in which nobody else takes the
// port while the server is away.
func TestGitSSH(t *testing.T) {
	if os.Getenv(sshChild) == "" {
		for _, program := range []string{"dropbear", "dropbearkey", "ssh", "ssh-keygen"} {
			if _, err := exec.LookPath(program); err != nil {
				if os.Getenv("JAIL_TEST_LONG") != "" {
					t.Fatal(err)
				}
				t.Skip(err) // .ci/deps installs it
			}
		}
		if os.Geteuid() != 0 {
			t.Skip("only root may have a mount namespace of its own here")
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestGitSSH$",
			"-test.v", "-test.timeout=20m")
		cmd.Env = append(os.Environ(), sshChild+"=1", "TMPDIR="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
			Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: TestGitSSH")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := fetchtest.Enter(); err != nil {
		t.Fatal(err)
	}
	s := startSSH(t)
	log, l := newLog(t)
	dir := bare(t)
	k := keeperOf(t, log, "git+ssh://root@"+s.address+dir, "")
	var said []audit.Anchored
	k.Record = func(a audit.Anchored) error {
		said = append(said, a)
		return nil
	}

	refused(t, k, "Host key verification failed") // not known
	s.knows(t, s.hostKey)
	once(t, k)
	put(t, l)
	once(t, k)
	has(t, log, dir, 2)

	// Another key: somebody between, or another host.
	s.knows(t, s.otherKey)
	put(t, l)
	for range 2 {
		refused(t, k, "exit status 128: Host key for ["+strings.Replace(s.address, ":", "]:", 1)+
			" has changed and you have requested strict checking.; Host key verification failed.")
	}
	has(t, log, dir, 2)
	s.knows(t, s.hostKey)
	once(t, k)
	has(t, log, dir, 3)
	if n := len(said); n != 4 || said[0].Error == "" || said[1].Error != "" ||
		!strings.Contains(said[2].Error, "has changed") || said[3].Error != "" ||
		said[3].Failed != 2 {
		t.Errorf("on record is %+v", said)
	}

	// A key that the server does not take asks nobody for a password.
	if err := os.Rename(s.authorized, s.authorized+".away"); err != nil {
		t.Fatal(err)
	}
	put(t, l)
	refused(t, k, "Permission denied")
	if err := os.Rename(s.authorized+".away", s.authorized); err != nil {
		t.Fatal(err)
	}
	// A repository that is not there, and one that takes nothing that is not a fast-forward: what
	// was taken cannot be taken away.
	refused(t, keeperOf(t, log, "git+ssh://root@"+s.address+dir+".none", ""),
		"does not appear to be a git repository")
	once(t, k)
	has(t, log, dir, 4)

	// Nobody listens; and somebody does who never says a word, which ends with the time for one try
	// and leaves no program behind.
	s.stop()
	put(t, l)
	refused(t, k, "Connection refused")
	mute, err := net.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if _, err := k.Once(ctx); err == nil || !strings.Contains(err.Error(), s.address) {
		t.Errorf("%v", err)
	}
	// What was killed is there until the kernel has put it away.
	for end := time.Now().Add(bound); programsOf(t, s.address) != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left behind: %s", programsOf(t, s.address))
		}
	}
	mute.Close()
	s.start(t)
	once(t, k)
	has(t, log, dir, 5)
}

// programsOf are the command lines of processes that name a text.
func programsOf(t *testing.T, text string) (all string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(text, ":")
	for _, name := range files {
		line, _ := os.ReadFile(name) // it may have ended
		if bytes.HasPrefix(line, []byte("ssh\x00")) && bytes.Contains(line,
			[]byte("\x00"+port+"\x00")) {
			all += strings.ReplaceAll(string(line), "\x00", " ") + "\n"
		}
	}
	return all
}

// An sshServer is a real one on the loopback interface, and what its clients in this mount
// namespace know of it.
type sshServer struct {
	address, home, authorized string
	hostKey, otherKey         string // "ssh-ed25519 AAAA…"
	cmd                       *exec.Cmd
}

func startSSH(t *testing.T) *sshServer {
	t.Helper()
	s := &sshServer{home: filepath.Join(t.TempDir(), "home")}
	dir := filepath.Join(s.home, ".ssh")
	s.authorized = filepath.Join(dir, "authorized_keys")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	users = regexp.MustCompile(`(?m)^root:.*$`).ReplaceAll(users, []byte("root:x:0:0:root:"+s.home+
		":/bin/sh"))
	passwd := filepath.Join(t.TempDir(), "passwd")
	if err := errors.Join(os.WriteFile(passwd, users, 0o644), syscall.Mount("", "/", "",
		syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount(passwd, "/etc/passwd", "", syscall.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	run := func(program string, args ...string) string {
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", program, args, err, out)
		}
		return string(out)
	}
	key := regexp.MustCompile(`(?m)^ssh-ed25519 \S+`)
	s.hostKey = key.FindString(run("dropbearkey", "-t", "ed25519", "-f",
		filepath.Join(s.home, "host")))
	s.otherKey = key.FindString(run("dropbearkey", "-t", "ed25519", "-f",
		filepath.Join(s.home, "other")))
	run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "id_ed25519"))
	if err := os.Rename(filepath.Join(dir, "id_ed25519.pub"), s.authorized); err != nil {
		t.Fatal(err)
	}
	// Of the whole loopback nobody else has this address, so that nobody takes the port meanwhile.
	l, err := net.Listen("tcp", "127.86.7.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	l.Close()
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

func (s *sshServer) start(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command("dropbear", "-F", "-E", "-s", "-r", filepath.Join(s.home, "host"), "-p",
		s.address, "-P", filepath.Join(s.home, "pid"))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func (s *sshServer) stop() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()
}

// knows has the clients know the server by a key.
func (s *sshServer) knows(t *testing.T, key string) {
	t.Helper()
	host, port, err := net.SplitHostPort(s.address)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.home, ".ssh", "known_hosts"),
			fmt.Appendf(nil, "[%s]:%s %s\n", host, port, key), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
