package launch_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest"
)

// startVictim starts a process of the host with the tool's uid there.
func startVictim(t *testing.T, h *host) { h.pid = startAs(t, h.HostUID()) }

// startNeighbour starts a process of the host with the uid that the tool has inside, where the tool
// can name it.
func startNeighbour(t *testing.T, h *host) {
	h.pid = startAs(t, jailtest.UID)
	withoutPIDs(&h.Plan)
}

func startAs(t *testing.T, uid uint32) int {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The attack may have got through.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// makeSegment makes a segment that everybody may attach.
func makeSegment(t *testing.T, h *host) {
	t.Helper()
	h.segment = 0x6a000000 | os.Getpid()
	id, err := unix.SysvShmGet(h.segment, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
			t.Error(err)
		}
	})
}

// listen listens on the host where a jail could find it: on loopback, under an abstract name, and
// in a directory that it may write to.
func listen(t *testing.T, h *host) {
	t.Helper()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.port = tcp.Addr().(*net.TCPAddr).Port
	h.socket = "jailtest-" + string(h.Plan.ID)
	abstract, err := net.Listen("unix", "@"+h.socket)
	if err != nil {
		t.Fatal(err)
	}
	file, err := net.Listen("unix", filepath.Join(h.Store, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(h.Store, "socket"), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close(); abstract.Close(); file.Close() })
}

// putProgram puts a program that can be executed into the read-only bind.
func putProgram(t *testing.T, h *host) {
	t.Helper()
	content, err := os.ReadFile(jailtest.Binary(t, jailtest.Probe))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.Data, "program")
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, jailtest.UID, jailtest.UID); err != nil {
		t.Fatal(err)
	}
}
