package main_test

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

	"github.com/jail-sandbox/jail/cmd/cmdtest"
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
		deadline := time.Now().Add(cmdtest.Bound)
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
	h := cmdtest.New(t)
	d := h.Daemon()
	d.Admit()
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	descriptors, memory := settledDescriptors(d), cmdtest.ResidentKiB(t, d.Cmd.Process.Pid)
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
		dialAs(t, cmdtest.Stranger+uid, d.Socket, n/users, func(i int) string { return said[i%len(said)] })
		h.Wants(h.Jail("run", "--", "true"), 0, "")
	}
	// What the daemon had, an eighth of what it may have for connections, and some for a run.
	if now, most := openDescriptors(d), descriptors+min(int(files.Cur)/8, 4096)+spare/8; now > most {
		t.Errorf("%d connections: the daemon has %d descriptors, want %d at most", n, now, most)
	}
	if now := cmdtest.ResidentKiB(t, d.Cmd.Process.Pid); now > memory+256<<10 {
		t.Errorf("%d connections: the daemon has grown from %d KiB to %d KiB", n, memory, now)
	} else {
		t.Logf("%d connections: %d descriptors before and %d with them, resident %d KiB and %d KiB",
			n, descriptors, openDescriptors(d), memory, now)
	}
	one := h.Command("run", "--no-workspace", "--", "true")
	one.Dir = "/"
	h.Wants(h.Run(cmdtest.As(one, cmdtest.Stranger+users)), 0, "")
}

// daemonWithFew starts a daemon that may have so many descriptors.
func daemonWithFew(h *cmdtest.Host, descriptors int) *cmdtest.SharedDaemon {
	h.T.Helper()
	return cmdtest.DaemonOf(h, exec.Command("prlimit", fmt.Sprintf("--nofile=%d", descriptors),
		filepath.Join(h.Bin, "jaild")), nil)
}

// T-508: a user that has all the connections it may have is told so, and nobody else.
func TestConnectionsOfAUser(t *testing.T) {
	h := cmdtest.New(t)
	// 32 connections, of which two are root's, and 27 of one other's
	d := daemonWithFew(h, 256)
	d.Admit()
	var open []net.Conn
	// Those of the test itself, root's, may be closing still: then there is one less, and one more
	// in a moment.
	fill := func(n int) {
		t.Helper()
		for _, c := range dialAs(t, cmdtest.Stranger, d.Socket, n, func(int) string { return askVersion }) {
			_ = c.SetReadDeadline(time.Now().Add(cmdtest.Bound))
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
	ps := func(uid uint32) cmdtest.Outcome {
		t.Helper()
		cmd := h.Command("ps")
		cmd.Dir = "/"
		return h.Run(cmdtest.As(cmd, uid))
	}
	cmdtest.Eventually(t, "the user has all it may have",
		func() bool { fill(1); return ps(cmdtest.Stranger).Code != 0 })
	if len(open) > 27 {
		t.Errorf("a user had %d connections", len(open))
	}
	h.Wants(ps(cmdtest.Stranger), 125, "jaild is busy: the connections of this user")
	h.Wants(ps(cmdtest.Stranger+1), 0, "")
	h.Wants(h.Jail("run", "--", "true"), 0, "")
	for _, c := range open {
		c.Close()
	}
	cmdtest.Eventually(t, "what was given back can be had again",
		func() bool { return ps(cmdtest.Stranger).Code == 0 })
}

// With 256 descriptors the daemon runs what they suffice for, tells the others that it is busy, and
// goes on.
func TestFewDescriptors(t *testing.T) {
	h := cmdtest.New(t)
	if err := os.WriteFile(filepath.Join(h.State, "jaild.toml"),
		[]byte("[admission]\nwait = \"1s\"\n[pool]\nsize = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := daemonWithFew(h, 256)
	h.Wants(h.Jail("run", "--", "true"), 0, "") // compiles it
	var live []*cmdtest.LiveRun
	for i := range 5 {
		live = append(live, h.Live(fmt.Sprintf("live%d", i), "--discard"))
	}
	t.Logf("%d live runs: %d descriptors", len(live), openDescriptors(d))
	outcomes := make([]cmdtest.Outcome, 40)
	var wg sync.WaitGroup
	for i := range outcomes {
		cmd := h.Command("run", "--", "true")
		wg.Go(func() { outcomes[i] = h.Run(cmd) })
	}
	wg.Wait()
	for _, o := range outcomes {
		// Of those beyond all bounds not all are told why.
		h.Wants(o, 125, "jaild is busy|has more connections than it takes")
	}
	for _, r := range live {
		r.Says("still here")
		r.In.Close()
		h.Wants(r.Wait(), 0, "")
	}
	h.Wants(h.Jail("run", "--", "true"), 0, "")
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
	h := cmdtest.New(t)
	// What they are promised, and none of them uses, is no more than that here; the host may have
	// less.
	if err := os.WriteFile(filepath.Join(h.State, "jaild.toml"),
		[]byte("[admission]\nmemory = \"16GiB\"\n[pool]\nsize = 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := h.Daemon()
	d.Admit()
	outcomes := make([]cmdtest.Outcome, asked)
	var clients sync.WaitGroup
	for user := range users {
		clients.Go(func() {
			for i := user; i < asked; i += users {
				cmd := h.Command("session", "start", "--no-workspace", "--limit", "memory=32MiB",
					"--id", fmt.Sprintf("left%d", i))
				cmd.Dir = "/"
				outcomes[i] = h.Run(cmdtest.As(cmd, uint32(cmdtest.Stranger+user)))
			}
		})
	}
	clients.Wait()
	open := 0
	for _, o := range outcomes {
		if o.Code == 0 {
			open++
			continue
		}
		h.Wants(o, 125,
			"you have 64 sessions open, as many as one user may have|256 sessions are open, as many as this daemon takes")
	}
	if want := min(users*mine, all); open != want {
		t.Errorf("%d of %d sessions are open, want %d", open, asked, want)
	}
	t.Logf("%d sessions are open: the daemon has %d descriptors and %d KiB", open, openDescriptors(d),
		cmdtest.ResidentKiB(t, d.Cmd.Process.Pid))
	if n := len(h.Sessions()); n != open {
		t.Errorf("%d sessions are listed, want %d", n, open)
	}
	one := h.Command("run", "--no-workspace", "--", "true")
	one.Dir = "/"
	h.Wants(h.Run(cmdtest.As(one, uint32(cmdtest.Stranger+users))), 0, "")
	d.Stop()
	ended := 0
	for _, r := range h.Records("", "run.finished") {
		if r.Signal == "SIGTERM" {
			ended++
		}
	}
	if ended != open {
		t.Errorf("%d of %d sessions ended with the daemon, as it is on record", ended, open)
	}
	h.WantNothingLeft()
}

// T-504: what is at the socket's path and is not the daemon's own stays there, and the daemon says
// so.
func TestSocketNotMine(t *testing.T) {
	h := cmdtest.New(t)
	socket := filepath.Join(h.State, "jail.sock")
	target := filepath.Join(h.Root, "target")
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
			return os.Symlink(filepath.Join(h.Root, "nothing"), socket)
		},
		"a link to a stale socket": func() error {
			return errors.Join(stale(target+".sock", 0), os.Symlink(target+".sock", socket))
		},
		"a directory": func() error { return os.Mkdir(socket, 0o700) },
		"a pipe":      func() error { return syscall.Mkfifo(socket, 0o600) },
		"a stale socket of another": func() error {
			return stale(socket, cmdtest.Stranger)
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
			o := h.Run(jaild(h))
			if want := "jaild: error: socket " + socket +
				": something else is there, which is not mine to remove\n" +
				"jaild: hint: end what is there, or name another place with --socket\n"; o.Code != 125 || o.Err != want {
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
		o := h.Run(jaild(h, "--socket", filepath.Join(target, "jail.sock")))
		if o.Code != 125 || strings.Count(o.Err, "\n") > 2 || !strings.Contains(o.Err, target) {
			t.Errorf("%+v", o)
		}
	})
	t.Run("too long for a socket", func(t *testing.T) {
		o := h.Run(jaild(h, "--socket", filepath.Join(h.Root, strings.Repeat("x", 120))))
		if o.Code != 125 || strings.Count(o.Err, "\n") > 2 || !strings.HasPrefix(o.Err,
			"jaild: error: socket ") {
			t.Errorf("%+v", o)
		}
	})
}
