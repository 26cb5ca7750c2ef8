package cmd_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// dialAs connects as that user. The kernel takes the peer's credentials from the thread that
// connects, so one thread takes on the user's, and ends.
func dialAs(t *testing.T, uid int, socket string, n int, first func(i int) string) []net.Conn {
	t.Helper()
	var conns []net.Conn
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid),
			^uintptr(0)); errno != 0 {
			err = errno
			return
		}
		deadline := time.Now().Add(bound)
		for i := 0; i < n; {
			conn, dialErr := net.Dial("unix", socket)
			if errors.Is(dialErr, syscall.EAGAIN) && time.Now().Before(deadline) {
				// More wait to be let in than the kernel keeps.
				time.Sleep(time.Millisecond)
				continue
			}
			if dialErr != nil {
				err = dialErr
				return
			}
			conns = append(conns, conn)
			_ = conn.SetWriteDeadline(deadline)
			// It may have been closed already.
			_, _ = conn.Write([]byte(first(i)))
			i++
		}
	})
	wg.Wait()
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	if err != nil {
		t.Fatalf("connection %d: %v", len(conns), err)
	}
	return conns
}

const askVersion = "GET /v1/version HTTP/1.1\r\nHost: jail\r\n\r\n"

// T-508: a client that opens ten thousand connections, and stalls or says what means nothing, costs
// the daemon a bounded part of what it has, and others nothing.
func TestManyConnections(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	const spare = 512
	if files.Cur < 2*spare {
		t.Skipf("this test may have %d descriptors only", files.Cur)
	}
	h := newHost(t)
	d := h.daemon()
	d.admit()
	h.wants(h.jail("run", "--", "true"), 0, "")
	descriptors, memory := d.settledDescriptors(), residentKiB(t, d.cmd.Process.Pid)
	said := []string{
		"", // nothing at all
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"GET /v1/runs HTTP/1.1\r\nHost: jail\r\nX-",
		"POST /v1/runs HTTP/1.1\r\nHost: jail\r\nUpgrade: jail-streams\r\nContent-Length: 16000000\r\n\r\n{\"tool\":\"",
		"PUT /v1/sessions/x HTTP/1.1\r\nHost: jail\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"id\"",
		askVersion, // and no more
	}
	n := min(10_000, int(files.Cur)-spare)
	// Three at a time: one alone could be held to its own bound.
	const users = 3
	for uid := range users {
		dialAs(t, stranger+uid, d.socket, n/users, func(i int) string { return said[i%len(said)] })
		h.wants(h.jail("run", "--", "true"), 0, "")
	}
	// What the daemon had, an eighth of what it may have for connections, and some for a run.
	if now, most := d.descriptors(), descriptors+min(int(files.Cur)/8, 4096)+spare/8; now > most {
		t.Errorf("%d connections: the daemon has %d descriptors, want %d at most", n, now, most)
	}
	if now := residentKiB(t, d.cmd.Process.Pid); now > memory+256<<10 {
		t.Errorf("%d connections: the daemon has grown from %d KiB to %d KiB", n, memory, now)
	} else {
		t.Logf("%d connections: %d descriptors before and %d with them, resident %d KiB and %d KiB",
			n, descriptors, d.descriptors(), memory, now)
	}
	one := h.command("run", "--no-workspace", "--", "true")
	one.Dir = "/"
	h.wants(h.run(as(one, stranger+users)), 0, "")
}

// few starts a daemon that may have so many descriptors.
func (h *host) few(descriptors int) *sharedDaemon {
	h.t.Helper()
	return h.daemonOf(exec.Command("prlimit", fmt.Sprintf("--nofile=%d", descriptors),
		filepath.Join(h.bin, "jaild")), nil)
}

// T-508: a user that has all the connections it may have is told so, and nobody else.
func TestConnectionsOfAUser(t *testing.T) {
	h := newHost(t)
	// 32 connections, of which two are root's, and 27 of one other's
	d := h.few(256)
	d.admit()
	var open []net.Conn
	// Those of the test itself, root's, may be closing still: then there is one less, and one more
	// in a moment.
	fill := func(n int) {
		t.Helper()
		for _, c := range dialAs(t, stranger, d.socket, n, func(int) string { return askVersion }) {
			_ = c.SetReadDeadline(time.Now().Add(bound))
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil &&
				resp.StatusCode == http.StatusOK {
				open = append(open, c)
			}
		}
	}
	fill(27)
	if len(open) < 20 {
		t.Errorf("a user had %d connections", len(open))
	}
	ps := func(uid uint32) outcome {
		t.Helper()
		cmd := h.command("ps")
		cmd.Dir = "/"
		return h.run(as(cmd, uid))
	}
	eventually(t, "the user has all it may have",
		func() bool { fill(1); return ps(stranger).code != 0 })
	if len(open) > 27 {
		t.Errorf("a user had %d connections", len(open))
	}
	h.wants(ps(stranger), 125, "jaild is busy: the connections of this user")
	h.wants(ps(stranger+1), 0, "")
	h.wants(h.jail("run", "--", "true"), 0, "")
	for _, c := range open {
		c.Close()
	}
	eventually(t, "what was given back can be had again",
		func() bool { return ps(stranger).code == 0 })
}

// With 256 descriptors the daemon runs what they suffice for, tells the others that it is busy, and
// goes on.
func TestFewDescriptors(t *testing.T) {
	h := newHost(t)
	if err := os.WriteFile(filepath.Join(h.state, "jaild.toml"),
		[]byte("[admission]\nwait = \"1s\"\n[pool]\nsize = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := h.few(256)
	h.wants(h.jail("run", "--", "true"), 0, "") // compiles it
	var live []*liveRun
	for i := range 5 {
		live = append(live, h.live(fmt.Sprintf("live%d", i), "--discard"))
	}
	t.Logf("%d live runs: %d descriptors", len(live), d.descriptors())
	outcomes := make([]outcome, 40)
	var wg sync.WaitGroup
	for i := range outcomes {
		cmd := h.command("run", "--", "true")
		wg.Go(func() { outcomes[i] = h.run(cmd) })
	}
	wg.Wait()
	for _, o := range outcomes {
		// Of those beyond all bounds not all are told why.
		h.wants(o, 125, "jaild is busy|has more connections than it takes")
	}
	for _, r := range live {
		r.says("still here")
		r.in.Close()
		h.wants(r.wait(), 0, "")
	}
	h.wants(h.jail("run", "--", "true"), 0, "")
}

// Of many sessions that are left open, as many stay as one user and all users may have; the others
// are refused with that reason, the daemon still serves other users, and all sessions end with it.
// JAIL_TEST_LONG=1 opens a thousand, else the test opens two hundred.
func TestSessionsLeftOpen(t *testing.T) {
	asked, users := 200, 2
	if os.Getenv("JAIL_TEST_LONG") != "" {
		asked, users = 1000, 5
	}
	const mine, all = 64, 256 // of sessions
	h := newHost(t)
	// What they are promised, and none of them uses, is no more than that here; the host may have
	// less.
	if err := os.WriteFile(filepath.Join(h.state, "jaild.toml"),
		[]byte("[admission]\nmemory = \"16GiB\"\n[pool]\nsize = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := h.daemon()
	d.admit()
	outcomes := make([]outcome, asked)
	var clients sync.WaitGroup
	for user := range users {
		clients.Go(func() {
			for i := user; i < asked; i += users {
				cmd := h.command("session", "start", "--no-workspace", "--limit", "memory=32MiB",
					"--id", fmt.Sprintf("left%d", i))
				cmd.Dir = "/"
				outcomes[i] = h.run(as(cmd, uint32(stranger+user)))
			}
		})
	}
	clients.Wait()
	open := 0
	for _, o := range outcomes {
		if o.code == 0 {
			open++
			continue
		}
		h.wants(o, 125,
			"you have 64 sessions open, as many as one user may have|256 sessions are open, as many as this daemon takes")
	}
	if want := min(users*mine, all); open != want {
		t.Errorf("%d of %d sessions are open, want %d", open, asked, want)
	}
	t.Logf("%d sessions are open: the daemon has %d descriptors and %d KiB", open, d.descriptors(),
		residentKiB(t, d.cmd.Process.Pid))
	if n := len(h.sessions()); n != open {
		t.Errorf("%d sessions are listed, want %d", n, open)
	}
	one := h.command("run", "--no-workspace", "--", "true")
	one.Dir = "/"
	h.wants(h.run(as(one, uint32(stranger+users))), 0, "")
	d.stop()
	ended := 0
	for _, r := range h.records("", "run.finished") {
		if r.Signal == "SIGTERM" {
			ended++
		}
	}
	if ended != open {
		t.Errorf("%d of %d sessions ended with the daemon, as it is on record", ended, open)
	}
	h.wantNothingLeft()
}

// T-504: what is at the socket's path and is not the daemon's own stays there, and the daemon says
// so.
func TestSocketNotMine(t *testing.T) {
	h := newHost(t)
	socket := filepath.Join(h.state, "jail.sock")
	target := filepath.Join(h.root, "target")
	if err := os.WriteFile(target, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	stale := func(path string, uid int) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		return errors.Join(l.Close(), os.Chown(path, uid, uid))
	}
	for name, place := range map[string]func() error{
		"a link to a file": func() error { return os.Symlink(target, socket) },
		"a link to nothing": func() error {
			return os.Symlink(filepath.Join(h.root, "nothing"), socket)
		},
		"a link to a stale socket": func() error {
			return errors.Join(stale(target+".sock", 0), os.Symlink(target+".sock", socket))
		},
		"a directory": func() error { return os.Mkdir(socket, 0o700) },
		"a pipe":      func() error { return syscall.Mkfifo(socket, 0o600) },
		"a stale socket of another": func() error {
			return stale(socket, stranger)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := place(); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(socket)
			if err != nil {
				t.Fatal(err)
			}
			o := h.run(h.jaild())
			if want := "jaild: error: socket " + socket +
				": something else is there, which is not mine to remove\n" +
				"jaild: hint: end what is there, or name another place with --socket\n"; o.code != 125 || o.err != want {
				t.Errorf("%+v, want %s", o, want)
			}
			if after, err := os.Lstat(socket); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was replaced: %v", err)
			}
			if text, err := os.ReadFile(target); string(text) != "mine" {
				t.Errorf("the target is %q, %v", text, err)
			}
			if err := os.Remove(socket); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("in a directory that is a file", func(t *testing.T) {
		o := h.run(h.jaild("--socket", filepath.Join(target, "jail.sock")))
		if o.code != 125 || strings.Count(o.err, "\n") > 2 || !strings.Contains(o.err, target) {
			t.Errorf("%+v", o)
		}
	})
	t.Run("too long for a socket", func(t *testing.T) {
		o := h.run(h.jaild("--socket", filepath.Join(h.root, strings.Repeat("x", 120))))
		if o.code != 125 || strings.Count(o.err, "\n") > 2 || !strings.HasPrefix(o.err,
			"jaild: error: socket ") {
			t.Errorf("%+v", o)
		}
	})
}
