package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that has no descriptor left for accept(2) answers a client with the reason.
func TestNoDescriptorToAccept(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	inner, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := newBoundedListener(inner, 100)
	defer d.Close()
	client, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := os.NewFile(uintptr(client), "client")
	defer conn.Close()
	exhaustDescriptors(t)
	accepted := make(chan error, 1)
	go func() {
		_, err := d.Accept()
		accepted <- err
	}()

	if err := syscall.Connect(client, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetsockoptTimeval(client, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO,
		&syscall.Timeval{Sec: 120}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn,
		"GET /v1/version HTTP/1.1\r\nHost: jail\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if want := "jaild is busy: it has as many files open as it may"; err != nil ||
		resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), want) {
		t.Errorf("status %d, %s, %v; wanted %q", resp.StatusCode, text, err, want)
	}
	inner.Close()
	select {
	case <-accepted:
	case <-time.After(2 * time.Minute):
		t.Error("Accept goes on with a closed listener")
	}
}

// exhaustDescriptors leaves this process no descriptor until the test has ended.
func exhaustDescriptors(t *testing.T) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 128
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	var opened []*os.File
	t.Cleanup(func() {
		for _, f := range opened {
			f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		opened = append(opened, f)
	}
}
