package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// newManager listens as a service manager does, and returns what it is sent.
func newManager(t *testing.T) (next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return func() string {
		t.Helper()
		buf := make([]byte, 4096)
		_ = l.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := l.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestNotify(t *testing.T) {
	next := newManager(t)
	ready("serves")
	if got := next(); got != "READY=1\nSTATUS=serves" {
		t.Errorf("%q", got)
	}
	forgetManager()
	ready("to nobody")
	t.Setenv("WATCHDOG_USEC", "30000")
	if got := watchdog(); got != 0 {
		t.Errorf("a watchdog of %v without a manager", got)
	}
}

// A daemon that does not answer what a client would ask says nothing to the manager.
func TestWatchdog(t *testing.T) {
	next := newManager(t)
	t.Setenv("WATCHDOG_USEC", "30000")
	// The first process of the service, where this one is its successor.
	t.Setenv("WATCHDOG_PID", "1")
	limit := watchdog()
	if limit != 30*time.Millisecond {
		t.Fatalf("%v", limit)
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	keepAlive(ctx, limit, func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("asked without a deadline")
		}
		asked++
		if asked == 3 {
			cancel()
		}
		if asked != 2 {
			return errors.New("no answer")
		}
		return nil
	})
	notify("last")
	if first, second := next(), next(); first != "WATCHDOG=1" || second != "last" {
		t.Errorf("%q, %q", first, second)
	}
}

// passingEnv makes TestTakePassed the process that sockets are passed to.
const passingEnv = "JAILD_TEST_PASSED"

func TestTakePassed(t *testing.T) {
	if os.Getenv(passingEnv) != "" {
		p, err := takePassed()
		fmt.Printf("\nerr=%v api=%t metrics=%t env=%q\n", err, p.api != nil, p.metrics != nil,
			os.Getenv("LISTEN_FDS"))
		return
	}
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file := func(l net.Listener) *os.File {
		f, err := l.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close(); l.Close() })
		return f
	}
	u, m := file(unix), file(tcp)
	for _, tt := range []struct {
		names string
		files []*os.File
		want  string
	}{
		{"api:metrics", []*os.File{u, m}, `err=<nil> api=true metrics=true env=""`},
		{"metrics:api", []*os.File{m, u}, `err=<nil> api=true metrics=true env=""`},
		{"", []*os.File{u}, `err=<nil> api=true metrics=false env=""`},
		{"", nil, `err=<nil> api=false metrics=false env=""`},
		{"api:more", []*os.File{u, u},
			`want one Unix socket, named api, and at most one other, named metrics`},
		{"api", []*os.File{m}, `want one Unix socket`},
	} {
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run='^TestTakePassed$'`,
			os.Args[0])
		cmd.Env = append(slices.Clone(os.Environ()), passingEnv+"=1",
			fmt.Sprint("LISTEN_FDS=", len(tt.files)), "LISTEN_FDNAMES="+tt.names)
		cmd.ExtraFiles = tt.files
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: %v\n%s\nwant %s", tt.names, err, out, tt.want)
		}
	}
}
