package landlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/landlock"
)

// A domain is for good, so each test of one runs in a copy of the test binary.
const childEnv = "JAIL_LANDLOCK_TEST_CHILD"

type order struct {
	Landlock *jail.Landlock // nil: no domain
	Op, Path string
	// Of an older kernel; 0: the running one's.
	ABI int
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		os.Stdout.WriteString(child(text))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(text string) string {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err.Error()
	}
	if o.Landlock != nil {
		runtime.LockOSThread()
		restrict := landlock.RestrictThread
		if o.ABI != 0 {
			restrict = func(l jail.Landlock) error { return landlock.RestrictAs(l, o.ABI) }
		}
		if err := restrict(*o.Landlock); err != nil {
			return "restrict: " + err.Error()
		}
	}
	err := ops[o.Op](o.Path)
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return err.Error()
}

var ops = map[string]func(string) error{
	"read":    func(p string) error { _, err := os.ReadFile(p); return err },
	"list":    func(p string) error { _, err := os.ReadDir(p); return err },
	"write":   func(p string) error { return os.WriteFile(p, nil, 0o600) },
	"remove":  os.Remove,
	"mkdir":   func(p string) error { return os.Mkdir(p, 0o700) },
	"symlink": func(p string) error { return os.Symlink("f", p) },
	"link": func(p string) error {
		return os.Link(filepath.Join(filepath.Dir(filepath.Dir(p)), "secret", "f"), p)
	},
	"fifo": func(p string) error { return syscall.Mkfifo(p, 0o600) },
	"socket": func(p string) error {
		l, err := net.Listen("unix", p)
		if err == nil {
			l.Close()
		}
		return err
	},
	"connect": func(p string) error {
		c, err := net.Dial("unix", p)
		if err == nil {
			c.Close()
		}
		return err
	},
	"execute": func(p string) error { return exec.Command(p).Run() },
	"listen": func(string) error {
		var c net.ListenConfig
		// Landlock does not see MPTCP; the filters let no socket be made at all
		c.SetMultipathTCP(false)
		l, err := c.Listen(context.Background(), "tcp4", "127.0.0.1:0")
		if err == nil {
			l.Close()
		}
		return err
	},
}

// ask runs an operation in a child.
func ask(t *testing.T, o order) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"read", "write", "exec", "pipes", "secret"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, d, "f"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, d, "run"), []byte("#!/bin/true\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// serve listens on a socket until the test ends.
func serve(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// TestRights tries every operation in a domain, and without one, where it works.
func TestRights(t *testing.T) {
	abi, err := landlock.ABI()
	if err != nil {
		t.Skipf("landlock: %v", err)
	}
	const denied = "permission denied"
	for _, c := range []struct {
		op, path, want string
		abi            int
	}{
		{op: "read", path: "read/f", want: "ok"},
		{op: "list", path: "read", want: "ok"},
		{op: "write", path: "read/f", want: denied},
		{op: "write", path: "read/new", want: denied},
		{op: "remove", path: "read/f", want: denied},
		{op: "mkdir", path: "read/new", want: denied},
		{op: "symlink", path: "read/new", want: denied},
		{op: "execute", path: "read/run", want: denied},
		{op: "read", path: "write/f", want: "ok"},
		{op: "write", path: "write/f", want: "ok"},
		{op: "write", path: "write/new", want: "ok"},
		{op: "remove", path: "write/f", want: "ok"},
		{op: "mkdir", path: "write/new", want: "ok"},
		{op: "symlink", path: "write/new", want: "ok"},
		{op: "link", path: "write/new", want: denied},
		{op: "fifo", path: "write/new", want: denied},
		{op: "socket", path: "write/new", want: denied},
		{op: "execute", path: "write/run", want: denied},
		{op: "fifo", path: "pipes/new", want: "ok"},
		{op: "socket", path: "pipes/new", want: "ok"},
		{op: "connect", path: "pipes/socket", want: "ok"},
		{op: "connect", path: "write/socket", want: denied, abi: 9},
		{op: "execute", path: "exec/run", want: "ok"},
		{op: "write", path: "exec/f", want: denied},
		{op: "read", path: "secret/f", want: denied},
		{op: "list", path: "secret", want: denied},
		{op: "write", path: "secret/new", want: denied},
		{op: "listen", want: denied, abi: 4},
	} {
		t.Run(c.op+" "+c.path, func(t *testing.T) {
			if abi < c.abi {
				t.Skipf("landlock version %d: this right needs %d", abi, c.abi)
			}
			dir := tree(t)
			l := &jail.Landlock{MinABI: 1, Rules: []jail.LandlockRule{{Path: filepath.Join(dir,
				"read")}, {Path: filepath.Join(dir, "write"), Write: true},
				{Path: filepath.Join(dir, "exec"), Exec: true},
				{Path: filepath.Join(dir, "pipes"), Write: true, Pipes: true},
				{Path: "/bin", Exec: true},
				{Path: "/lib", Exec: true}, {Path: "/usr", Exec: true}, {Path: "/dev",
					Write: true}}}
			if _, err := os.Stat("/lib64"); err == nil {
				l.Rules = append(l.Rules, jail.LandlockRule{Path: "/lib64", Exec: true})
			}
			o := order{Op: c.op, Path: filepath.Join(dir, c.path), Landlock: l}
			if c.op == "connect" {
				serve(t, o.Path)
			}
			got := ask(t, o)
			if got != c.want && (c.op != "link" || !strings.Contains(got, "cross-device")) {
				t.Errorf("in the domain: %s, want %s", got, c.want)
			}
			if c.want == "ok" {
				return
			}
			o.Landlock = nil
			if got := ask(t, o); got != "ok" {
				t.Errorf("without a domain: %s; the test could not have seen it work", got)
			}
		})
	}
}

// TestRefused: what cannot be enforced whole is not enforced at all, and said (T-061).
func TestRefused(t *testing.T) {
	if _, err := landlock.ABI(); err != nil {
		t.Skipf("landlock: %v", err)
	}
	for says, l := range map[string]jail.Landlock{
		"the plan needs 1000": {MinABI: 1000},
		"no such file or directory": {MinABI: 1,
			Rules: []jail.LandlockRule{{Path: "/does/not/exist"}}},
	} {
		if got := ask(t, order{Landlock: &l, Op: "list", Path: "/"}); !strings.HasPrefix(got,
			"restrict: ") || !strings.Contains(got, says) {
			t.Errorf("%s, want an error that says %q", got, says)
		}
	}
}

// TestNothing: a domain without rules grants nothing.
func TestNothing(t *testing.T) {
	if _, err := landlock.ABI(); err != nil {
		t.Skipf("landlock: %v", err)
	}
	if got := ask(t,
		order{Landlock: &jail.Landlock{}, Op: "list", Path: "/"}); got != "permission denied" {
		t.Error(got)
	}
}
