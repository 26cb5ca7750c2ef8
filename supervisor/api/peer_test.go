package api

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// connectAs connects as a user, from a socket of that name, becomes root again and does after, all
// on a thread that ends then.
func connectAs(t *testing.T, uid int, name, socket string, after func()) net.Conn {
	t.Helper()
	var conn net.Conn
	var err error
	become := func(uid int) bool {
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid),
			^uintptr(0))
		if errno != 0 {
			err = errno
		}
		return errno == 0
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocked
		if !become(uid) {
			return
		}
		var from *net.UnixAddr
		if name != "" {
			from = &net.UnixAddr{Name: name, Net: "unix"}
		}
		conn, err = net.DialUnix("unix", from, &net.UnixAddr{Name: socket, Net: "unix"})
		if become(0) && after != nil {
			after()
		}
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// T-501, T-502: a caller is who made the connection, as the kernel noted it then: whatever its
// socket is called, whatever it becomes, and when it is gone.
func TestPeerIsWhoConnected(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("connecting as others needs root")
	}
	const uid = 12345
	dir := t.TempDir()
	for _, at := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "jail.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	accept := func() (uint32, string) {
		t.Helper()
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		c, err := peer(in)
		if err != nil {
			t.Fatal(err)
		}
		return c.UID, in.RemoteAddr().String()
	}
	for n, name := range []string{"", filepath.Join(dir, "x;uid=0;"),
		filepath.Join(dir, "pid=1;uid=0;socket=;\n"), "@;uid=0;", fmt.Sprintf("@%d\n0", uid)} {
		// It is root again before anybody accepts.
		conn := connectAs(t, uid, name, socket, nil)
		if got, from := accept(); got != uid || name != "" && from != name {
			t.Errorf("%d: %q is taken for user %d, from %q", n, name, got, from)
		}
		conn.Close()
	}
	// The caller is the user who connected, root or not, whichever user holds the connection now.
	for _, c := range []struct{ connects, later int }{{0, uid}, {uid, 0}} {
		var got uint32
		conn := connectAs(t, c.connects, "", socket, func() {
			if c.later != 0 {
				_, _, _ = syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(c.later),
					^uintptr(0))
			}
			got, _ = accept()
		})
		if got != uint32(c.connects) {
			t.Errorf("%d connected and is now %d: taken for %d", c.connects, c.later, got)
		}
		conn.Close()
	}
}
