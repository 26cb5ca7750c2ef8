package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/confine"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

const testUID = 0x7ffb0000

// startProcess starts a real proxy, confined as for a run.
func startProcess(t testing.TB, w *world, died func(error)) *Process {
	t.Helper()
	program, err := launch.Launcher{Shim: jailtest.Binary(t, jailtest.Shim)}.CompileFilter(
		context.Background(), confine.Filter())
	if err != nil {
		t.Fatal(err)
	}
	w.setup.Filter, w.setup.UID = program, testUID
	slice := jailtest.Slice()
	if err := cgroup.MakeSlice(slice, cgroup.Ceiling{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := jailtest.RemoveSlice(slice); err != nil {
			t.Error(err)
		}
	})
	p, err := Start(context.Background(), Spec{Exe: proxyProgram(t), Cgroup: slice + "/x.fetch",
		Setup: w.setup, Record: w.notes, Died: func(err error) {
			t.Log("the proxy ended: ", err)
			died(err)
		}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// program is the proxy's, built once.
var program struct {
	once sync.Once
	dir  string
	err  error
}

func proxyProgram(t testing.TB) string {
	t.Helper()
	program.once.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "fetch-proxy-"); program.err != nil {
			return
		}
		program.err = built.Program(filepath.Join(program.dir, "proxy"),
			[]string{"CGO_ENABLED=0"}, "./supervisor/fetch/testdata/proxy")
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return filepath.Join(program.dir, "proxy")
}

// openStream requests a stream on socket, as the inside of a jail does.
func openStream(t testing.TB, socket *control.Conn) net.Conn {
	t.Helper()
	if err := socket.Send(control.OpenStream{}); err != nil {
		t.Fatal(err)
	}
	var opened control.Opened
	files, err := socket.Receive(&opened)
	if err != nil || opened.Refused || len(files) != 1 {
		t.Fatalf("%+v, %d descriptors, %v", opened, len(files), err)
	}
	conn, err := net.FileConn(files[0])
	files[0].Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(hanging)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestProcess: the proxy has no rights, and what it does is on record; killed, it is the end of the
// network and is said to be (T-266, T-270).
func TestProcess(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	w.names.Set("slow.example.com", []string{"93.184.216.50"})
	fetchtest.StartHost(t, upIP+":443", w.ca.Config(t, time.Now().Add(time.Hour), upName),
		says("hi"))
	reached, release := make(chan bool, 1), make(chan bool)
	fetchtest.StartHost(t, "93.184.216.50:80", nil, func(net.Conn) { reached <- true; <-release })
	died := make(chan error, 1)
	p := startProcess(t, w, func(err error) { died <- err })
	defer close(release)
	socket := control.New(p.Door)
	conn := openStream(t, socket)
	fmt.Fprint(conn,
		"GET https://up.example.com/ HTTP/1.1\r\nHost: up.example.com\r\nConnection: close\r\n\r\n")
	if out, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(out), "\r\n\r\nhi") {
		t.Errorf("%q, %v", out, err)
	}
	confined(t, p.PID)

	conn = openStream(t, socket)
	fmt.Fprint(conn, "GET http://slow.example.com/ HTTP/1.1\r\nHost: slow.example.com\r\n\r\n")
	select {
	case <-reached:
	case err := <-died:
		t.Fatal(err)
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-died; err == nil {
		t.Error("the proxy ended without a reason")
	}
	if err := socket.Send(control.OpenStream{}); err == nil {
		var opened control.Opened
		if _, err := socket.Receive(&opened); err == nil {
			t.Error("a dead proxy opens")
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	socket.Close()
	intents, ends, _ := w.notes.take()
	if len(intents) != 2 || len(ends) != 2 || ends[0].Status != 200 ||
		!strings.HasPrefix(ends[1].Error, "unknown") {
		t.Errorf("%+v %+v", intents, ends)
	}
}

// TestLateProxy: a proxy that is never ready is killed, and its control group removed. The error
// says that, and nothing of a connection.
func TestLateProxy(t *testing.T) {
	old := startTime
	startTime = 100 * time.Millisecond
	defer func() { startTime = old }()
	slice := jailtest.Slice()
	if err := cgroup.MakeSlice(slice, cgroup.Ceiling{}); err != nil {
		t.Fatal(err)
	}
	silent := filepath.Join(t.TempDir(), "silent")
	if err := os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), Spec{Exe: silent, Cgroup: slice + "/x.fetch"})
	if p != nil || !errors.Is(err, ErrLate) ||
		err.Error() != "fetch proxy: it was not ready in time, which is 100ms" {
		t.Errorf("%v, %v", p, err)
	}
	if err := jailtest.RemoveSlice(slice); err != nil {
		t.Error(err)
	}
}

// TestEnvironment: no variable of the daemon's puts anything between the proxy and its hosts, nor
// roots beside the operator's (T-253).
func TestEnvironment(t *testing.T) {
	between := fetchtest.StartHost(t, "93.184.216.60:3128", nil, says("between"))
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy",
		"https_proxy", "all_proxy"} {
		t.Setenv(name, "http://93.184.216.60:3128")
	}
	w := newWorld(t, anyTo)
	other := fetchtest.NewAuthority(t)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, other.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", roots)
	w.names.Set(upName, []string{upIP})
	w.names.Set("other.example.com", []string{"93.184.216.61"})
	fetchtest.StartHost(t, upIP+":80", nil, says("hi"))
	fetchtest.StartHost(t, upIP+":443", w.ca.Config(t, time.Now().Add(time.Hour), upName),
		says("hi"))
	fetchtest.StartHost(t, "93.184.216.61:443",
		other.Config(t, time.Now().Add(time.Hour), "other.example.com"), says("hi"))
	p := startProcess(t, w, func(err error) { t.Errorf("died: %v", err) })
	socket := control.New(p.Door)
	defer socket.Close()
	for url, want := range map[string]string{"http://up.example.com/": "HTTP/1.1 200",
		"https://up.example.com/": "HTTP/1.1 200", "https://other.example.com/": "HTTP/1.1 502"} {
		conn := openStream(t, socket)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", url,
			strings.Split(url, "/")[2])
		if out, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %q, %v", url, out, err)
		}
	}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID)); err != nil ||
		strings.Contains(strings.ToLower(string(text)), "_proxy") || strings.Contains(string(text),
		"SSL_") {
		t.Errorf("the proxy has variables of the daemon's, %v", err) // not to be shown
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got, _, n := between.Took(); n > 0 {
		t.Errorf("between them was sent %q", got)
	}
}

// confined asks the kernel what the proxy is.
func confined(t *testing.T, pid int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(testUID)
	for _, want := range []string{"Uid:\t" + id + "\t" + id + "\t" + id + "\t" + id, "Gid:\t" + id +
		"\t" + id + "\t" + id + "\t" + id, "Groups:\t \n", "CapEff:\t0000000000000000",
		"CapPrm:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("status does not say %q:\n%s", want, text)
		}
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatal(err)
	}
	for _, task := range tasks { // each thread for itself
		text, err := os.ReadFile(task + "/status")
		if err != nil {
			continue // it has ended
		}
		if !strings.Contains(string(text), "Seccomp:\t2") || !strings.Contains(string(text),
			"CapEff:\t0000000000000000") {
			t.Errorf("%s is not confined", task)
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if err == nil && strings.HasPrefix(to, "/") && to != os.DevNull {
			t.Errorf("it holds %s", to)
		}
	}
	group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(group), "x.fetch") {
		t.Errorf("it is in %s, %v", group, err)
	}
}

// TestEndInOrder: a run that ends takes its proxy along, with all that it has to say and nothing
// left.
func TestEndInOrder(t *testing.T) {
	w := newWorld(t, anyTo)
	w.names.Set(upName, []string{upIP})
	reached := make(chan bool, 1)
	fetchtest.StartHost(t, upIP+":80", nil, func(c net.Conn) {
		reached <- true
		_,
			_ = io.ReadAll(c)
	})
	p := startProcess(t, w, func(err error) { t.Errorf("died: %v", err) })
	socket := control.New(p.Door)
	conn := openStream(t, socket)
	fmt.Fprint(conn, firstLines+"\r\n")
	<-reached
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	socket.Close()
	intents, ends, _ := w.notes.take()
	if len(intents) != 1 || len(ends) != 1 || strings.HasPrefix(ends[0].Error, "unknown") {
		t.Errorf("%+v %+v", intents, ends)
	}
}
