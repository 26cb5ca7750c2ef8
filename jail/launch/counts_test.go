package launch_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// A counted thing is one that the kernel counts for a user, or up the chain of user namespaces.
type counted struct {
	kind string
	// How many a hostile jail takes, or tries to.
	n int
	// That filters refuse, and that are let through to see the limit.
	calls []string
	// How many a jail can have; 0: as many as it tries, or none where it is refused.
	bound int64
	// How one more is; "": as the kernel likes.
	refused string
	// The control: how one more is refused to a program of the host that has the hostile jail's
	// user. It has a low limit of its own, so that nothing of the machine need be used up.
	control  string
	resource int
	low      uint64
}

var allCounted = []counted{
	{kind: "signals", n: 2000, calls: []string{"timer_create"}, bound: 256, refused: "EAGAIN",
		control: "EAGAIN", resource: unix.RLIMIT_SIGPENDING, low: 1000},
	{kind: "inotify", n: 1 << 14, calls: []string{"inotify_init1"}, bound: 64, refused: "EMFILE",
		control: "EMFILE"},
	{kind: "fanotify", n: 1 << 14, calls: []string{"fanotify_init"}, refused: "EMFILE",
		control: "EMFILE"},
	{kind: "queues", n: 200, calls: []string{"mq_open", "mq_unlink"}, refused: "EMFILE",
		control: "EMFILE", resource: unix.RLIMIT_MSGQUEUE, low: 100 << 10},
	{kind: "keys", n: 1000, calls: []string{"add_key"}, refused: "EDQUOT", control: "EDQUOT"},
	{kind: "pipes", n: 200, calls: []string{"pipe2", "fcntl"}, refused: "EPERM", control: "EPERM"},
	{kind: "locked", n: 16, calls: []string{"shmget", "shmctl"}, refused: "EPERM",
		control: "ENOMEM", resource: unix.RLIMIT_MEMLOCK, low: 1 << 20},
	{kind: "descriptors", n: 500, calls: []string{"socketpair", "sendmsg"},
		control: "ETOOMANYREFS", resource: unix.RLIMIT_NOFILE, low: 100},
	{kind: "pids", n: 100, calls: []string{"clone"}, refused: "EAGAIN",
		control: "EAGAIN", resource: unix.RLIMIT_NPROC, low: 10},
	// The machine's own bounds on these are far above what the memory of a jail is enough for, or
	// there are none, so that they have no control.
	{kind: "epoll", n: 5000, calls: []string{"fcntl", "eventfd2", "epoll_create1", "epoll_ctl"}},
	{kind: "io_uring", n: 16, calls: []string{"io_uring_setup"}},
	{kind: "leases", n: 500, calls: []string{"openat", "unlink", "unlinkat", "fcntl"}},
}

// taking returns the setup of a jail that may take the thing, but for limits.
func (c counted) taking(t *testing.T) *jailtest.Setup {
	t.Helper()
	s := hogging(t)
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, c.calls)
	}
	weakenRlimit("nofile", 1<<16)[rlimit](&s.Plan)
	s.Plan.Cgroup.Memory = 256 << 20
	return s
}

// one takes one of the thing.
func (c counted) one(j *jailtest.Jail) string { return j.One("=take", text(c.kind), i(1)).Errno }

// ask has a program of the host take one, as that user, and returns how that went.
func (c counted) ask(t *testing.T, uid uint32) string {
	t.Helper()
	calls := []victim.Call{do("=take", text(c.kind), i(1))}
	if uid != 0 && c.low != 0 {
		var now unix.Rlimit
		if err := unix.Getrlimit(c.resource, &now); err != nil {
			t.Fatal(err)
		}
		set := func(soft uint64) victim.Call {
			pair := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil,
				min(soft, now.Max)), now.Max)
			return do("prlimit64", i(0), i(int64(c.resource)), victim.Bytes(pair...), i(0))
		}
		calls = []victim.Call{set(c.low), calls[0], set(now.Cur)}
	}
	program, err := os.Open(jailtest.Binary(t, jailtest.Probe))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	in, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	// No other user may walk to its path.
	cmd := exec.Command("/proc/self/fd/3", "unconfined")
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles, cmd.Dir = bytes.NewReader(in), &said,
		[]*os.File{program}, "/"
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.Output()
	var results []victim.Result
	if err == nil {
		err = json.Unmarshal(out, &results)
	}
	if err != nil || len(results) != len(calls) {
		t.Fatalf("a program of user %d: %v: %s", uid, err, said.String())
	}
	if len(results) == 1 {
		return results[0].Errno
	}
	if results[0].Errno != "" || results[2].Errno != "" {
		t.Fatalf("the limit of a program of user %d: %v", uid, results)
	}
	return results[1].Errno
}

// TestCounted exhausts each thing that is counted in one jail. Another jail starts then and takes
// one of it, and so does a program of the host's root. In the control a program of the host has the
// user to whom the first jail's are charged, and the jail has no limits of its own: there is none
// left for it.
func TestCounted(t *testing.T) {
	for _, c := range allCounted {
		t.Run(c.kind, func(t *testing.T) {
			jailtest.Require(t)
			if errno := c.ask(t, 0); errno != "" {
				t.Skipf("this machine refuses one to root by itself: %s", errno)
			}
			c.meet(t, false)
			if c.control == "" {
				return
			}
			hostile := c.taking(t)
			uncounted(&hostile.Plan)
			hostile.WithoutLandlock(t)
			hostile.Plan.IDs.Owner = hostile.HostUID()
			r := hostile.Start(t).One("=take", text(c.kind), i(int64(c.n)))
			if r.Ret == 0 {
				t.Errorf("without the walls a jail took none: %v", r)
			}
			if got := c.ask(t, hostile.HostUID()); got != c.control {
				if c.low == 0 && r.Errno == "" {
					t.Skipf("this machine has more than %d", c.n)
				}
				t.Errorf("without the walls, to the user of a jail that has taken %d: %q, want "+
					"%s: this test would see nothing", r.Ret, got, c.control)
			}
		})
	}
}

// TestCountedLater is TestCounted for jails that stand before their run is known.
func TestCountedLater(t *testing.T) {
	jailtest.Require(t)
	for _, c := range allCounted[:2] {
		t.Run(c.kind, func(t *testing.T) { c.meet(t, true) })
	}
}

func (c counted) meet(t *testing.T, later bool) {
	t.Helper()
	start := func() *jailtest.Jail {
		s := c.taking(t)
		if s.Later = later; later {
			giveShadow(t, s)
		}
		return s.Start(t)
	}
	r := start().One("=take", text(c.kind), i(int64(c.n)))
	if c.refused != "" && r.Errno != c.refused || c.bound != 0 && r.Ret > c.bound {
		t.Errorf("a jail took %d: %v, want %q after %d", r.Ret, r, c.refused, c.bound)
	}
	want := ""
	if r.Ret == 0 {
		// It is refused to every jail.
		want = r.Errno
	}
	if errno := c.one(start()); errno != want {
		t.Errorf("to another jail: %q, want %q", errno, want)
	}
	if errno := c.ask(t, 0); errno != "" {
		t.Errorf("to the host's root: %s", errno)
	}
}

// uncounted takes away what bounds the things in the jail itself, but for what is the control
// group's.
func uncounted(p *jail.Plan) {
	p.UserCounts = nil
	p.Rlimits = slices.DeleteFunc(slices.Clone(p.Rlimits), func(r jail.Rlimit) bool {
		return slices.Contains([]string{"sigpending", "msgqueue", "memlock"}, r.Name)
	})
}
