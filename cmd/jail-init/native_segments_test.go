package main_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/landlock"
)

// withoutNamespace leaves a namespace out of the plan.
func withoutNamespace(name jail.Namespace) func(*jailtest.Setup) {
	return func(s *jailtest.Setup) {
		s.Plan.Namespaces = slices.DeleteFunc(s.Plan.Namespaces,
			func(n jail.Namespace) bool { return n == name })
	}
}

// TestNativeSegments: programs of the host have System V segments, and lock memory, as far as
// PostgreSQL and gpg need: no segment of the host's, no more memory than the jail has, and no more
// locked memory than the limit. T-063, T-402.
func TestNativeSegments(t *testing.T) {
	b := newBed(t)
	key := 0x6b000000 | os.Getpid()
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	ofHost := fmt.Sprint("host_segment:", key)
	roomy := func(s *jailtest.Setup) {
		withoutNamespace("ipc")(s)
		allowing("shmctl")(s)
		for n := range s.Plan.Rlimits {
			if s.Plan.Rlimits[n].Name == "memlock" {
				s.Plan.Rlimits[n].Value = 1 << 20
			}
		}
	}
	for _, c := range []struct {
		name          string
		want, control int
	}{
		{"own_segment", 0, 0}, {"lock_some", 0, 0},
		{ofHost, int(syscall.ENOENT), 0},
		{"lock_much", int(syscall.ENOMEM), 0},
		{"lock_segment", int(syscall.EPERM), 0},
	} {
		if o := b.attack(t, []string{c.name}, false, nil); o.code != c.want {
			t.Errorf("%s: ended with %d, want %d\n%s", c.name, o.code, c.want, o.said)
		}
		if o := b.attack(t, []string{c.name}, false, roomy); o.code != c.control {
			t.Errorf("control: %s: ended with %d\n%s", c.name, o.code, o.said)
		}
	}
	const killed = 128 + int(syscall.SIGKILL)
	if o := b.attack(t, []string{"fill_segments"}, false, nil); o.code != killed {
		t.Errorf("more segments than memory: ended with %d\n%s", o.code, o.said)
	}
	if o := b.attack(t, []string{"fill_segments"}, false, func(s *jailtest.Setup) {
		s.Plan.Cgroup.Memory = 1 << 30
	}); o.code != 0 {
		t.Errorf("control: segments with room: ended with %d\n%s", o.code, o.said)
	}
}

// TestNativePairs: a pair of datagram sockets can be connected anew. It reaches no more than a
// stream does: no abstract socket of the host, and of the sockets with a path what a mount shows,
// before version 9 of Landlock. T-074.
func TestNativePairs(t *testing.T) {
	b := newBed(t)
	abstract, err := net.ListenUnixgram("unixgram",
		&net.UnixAddr{Name: "@jail-attack-datagrams", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	if o := b.attack(t, []string{"pair_own"}, false, nil); o.code != 0 {
		t.Errorf("messages to a child: ended with %d\n%s", o.code, o.said)
	}
	o := b.attack(t, []string{"pair_abstract"}, false, nil)
	if !slices.Contains([]int{int(syscall.ECONNREFUSED), int(syscall.EPERM)}, o.code) {
		t.Errorf("an abstract socket: ended with %d\n%s", o.code, o.said)
	}
	if o := b.attack(t, []string{"pair_abstract"}, false, func(s *jailtest.Setup) {
		withoutNamespace("net")(s)
		s.Plan.Landlock.Scoped = false
	}); o.code != 0 {
		t.Errorf("control: the abstract socket without the namespace: ended with %d\n%s", o.code,
			o.said)
	}
	abi, err := landlock.ABI()
	if err != nil {
		t.Fatal(err)
	}
	var sockets []net.Conn
	listen := func(s *jailtest.Setup) {
		path := filepath.Join(s.Store, "datagrams")
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, l)
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for _, s := range sockets {
			s.Close()
		}
	}()
	want := 0
	if abi >= 9 {
		want = int(syscall.EACCES)
	}
	if o := b.attack(t, []string{"pair_store"}, false, listen); o.code != want {
		t.Errorf("a socket in a mount: ended with %d, want %d\n%s", o.code, want, o.said)
	}
}
