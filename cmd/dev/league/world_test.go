//go:build league

package league

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// uid is whom a sandbox runs as that is started by a user, and the owner of what it is given.
const uid = 12345

// idBase is the first of the host ids that containers are given; theirs is idBase + toolUID.
const (
	idBase  = 1 << 20
	toolUID = 1000
)

// A world is the host that the attacks are aimed at: nothing of it but data and store is granted.
type world struct {
	// Of the throwaway, on a file system of its own.
	dir string
	// What a sandbox shows as its root, where it can.
	rootfs string
	probe  string
	data   string // granted read-only
	store  string // granted, writable
	port   int    // a listener on 127.0.0.1
	// name of an abstract socket
	socket string
	// Of a System V segment that everybody may use.
	key int
	// A process with the sandbox's own uid.
	victim int
	// Who that is on the host.
	runsAs int
	owner  int // of what is granted
	// a file of the host that everybody may read
	secret   string
	hostname string
}

func newWorld(t *testing.T, shared string) *world {
	t.Helper()
	w := &world{hostname: "league-host", socket: "league-socket", key: 0x6c656167,
		secret: "/opt/secret"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Mounts of the throwaway only: its namespace is private.
	must(unix.Mount("none", "/opt", "tmpfs", 0, "mode=755"))
	must(unix.Sethostname([]byte(w.hostname)))
	must(loopbackUp())
	w.dir = "/opt/league"
	w.rootfs, w.data, w.store = filepath.Join(w.dir, "rootfs"), filepath.Join(w.dir, "data"),
		filepath.Join(w.dir, "store")
	for _, d := range []string{"proc", "dev", "sys", "tmp", "data", "store"} {
		must(os.MkdirAll(filepath.Join(w.rootfs, d), 0o755))
	}
	for _, d := range []string{w.data, w.store} {
		must(os.MkdirAll(d, 0o755))
	}
	// runc gives its tmpfs the mode of what is below it
	must(os.Chmod(filepath.Join(w.rootfs, "tmp"), 0o1777))
	program, err := os.ReadFile(filepath.Join(shared, "probe"))
	must(err)
	w.probe = filepath.Join(w.dir, "probe")
	for _, p := range []string{w.probe, filepath.Join(w.rootfs, "probe")} {
		must(os.WriteFile(p, program, 0o755))
	}
	must(os.WriteFile(w.secret, []byte("top secret\n"), 0o644))
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	must(err)
	w.port = tcp.Addr().(*net.TCPAddr).Port
	abstract, err := net.Listen("unix", "@"+w.socket)
	must(err)
	segment, err := unix.SysvShmGet(w.key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	must(err)
	t.Cleanup(func() {
		_, err := unix.SysvShmCtl(segment, unix.IPC_RMID, nil)
		if err := errors.Join(tcp.Close(), abstract.Close(), err); err != nil {
			t.Error(err)
		}
	})
	return w
}

// furnish puts into the granted directories what attacks look for, and gives them to the sandbox's
// user.
func (w *world) furnish(t *testing.T) {
	t.Helper()
	program, err := os.ReadFile(w.probe)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{w.data, w.store} {
		for name, content := range map[string][]byte{"f": []byte("canary\n"), "program": program} {
			path := filepath.Join(d, name)
			if err := errors.Join(os.WriteFile(path, content, 0o755),
				os.Chown(path, w.owner, w.owner)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(d, w.owner, w.owner); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", filepath.Join(w.store, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	if err := os.Chmod(filepath.Join(w.store, "socket"), 0o777); err != nil {
		t.Fatal(err)
	}
}

// newVictim starts one, the last being dead.
func (w *world) newVictim(t *testing.T) (stop func()) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.runsAs),
		Gid: uint32(w.runsAs)}, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.victim = cmd.Process.Pid
	return func() {
		// The attack may have done it.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}
