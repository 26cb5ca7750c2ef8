package launch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// ownIDs is that the tool is nobody of the host.
const ownIDs wall = "ids of its own"

// allWalls are the layers of which each must have an attack that it alone stops: else nobody would
// see if it were gone.
var allWalls = []wall{inner, outer, domain, caps, ownIDs, mount, netns, pidns, ipcns, utsns,
	cgroupns, group, rlimit, counts}

// onlyAttacks are what one layer alone stops, where no other attack of the table is.
var onlyAttacks = []attack{
	{name: "open a socket before jail-init has restricted itself", calls: call("=early"),
		filters: []string{"socket"}, walls: []wall{outer}, through: "ok",
		prepare: func(t *testing.T, h *host) { h.Early(t) }},
	{name: "100 inotify instances, where the filters let programs of the host have them",
		calls: call("=take", text("inotify"), i(100)),
		walls: []wall{counts}, through: "ok", weaken: uncount("inotify_instances"),
		prepare: func(t *testing.T, h *host) {
			manyFiles(t, h)
			for _, f := range []*seccomp.Filter{&h.Plan.InnerFilter, &h.Plan.OuterFilter} {
				allow(f, []string{"inotify_init1"})
			}
		}},
	{name: "list the root", calls: call("=readdir", text("/")), walls: []wall{domain},
		through: "ok"},
	{name: "read what its owner alone may read", calls: call("openat", i(unix.AT_FDCWD),
		text("/data/secret"), i(0)), walls: []wall{caps},
		caps: []string{"CAP_DAC_OVERRIDE"}, through: "ok", prepare: func(t *testing.T, h *host) {
			putSecret(t, h, 0)
		}},
	{name: "read a file of a user of the host, where owners cannot be mapped", calls: call("openat",
		i(unix.AT_FDCWD), text("/data/secret"), i(0)),
		walls: []wall{ownIDs}, through: "ok", weaken: hostIDs, prepare: func(t *testing.T,
			h *host) {
			mountRamfs(t, h.Data)
			putSecret(t, h, jailtest.UID)
		}},
	{name: "read the names of the host's sockets", calls: call("=read",
		text("/proc/self/net/unix")), walls: []wall{netns}, through: "ok", itself: "ENOENT",
		prepare: func(t *testing.T, h *host) { listen(t, h); planted = h.socket },
		judge:   sees(func() string { return planted })},
	{name: "read about a process of the host", prepare: startVictim, walls: []wall{pidns},
		through: "ok", weaken: map[wall]func(*jail.Plan){pidns: withoutPIDs},
		calls: func(h *host) []victim.Call {
			return []victim.Call{do("=read", text(fmt.Sprintf("/proc/%d/status", h.pid)))}
		}},
	{name: "learn which ipc namespace the host has", calls: call("=readlink",
		text("/proc/self/ns/ipc")), walls: []wall{ipcns}, through: "ok",
		judge: sees(hostNS("ipc"))},
	{name: "learn which uts namespace the host has", calls: call("=readlink",
		text("/proc/self/ns/uts")), walls: []wall{utsns}, through: "ok",
		judge: sees(hostNS("uts"))},
}

// moreAttacks are of rows that had none.
var moreAttacks = []attack{
	{name: "fsopen binfmt_misc", calls: call("fsopen", text("binfmt_misc"), i(0)),
		walls: filtersP(caps), caps: admin, through: "ok"},
	{name: "move_mount", calls: call("move_mount", i(unix.AT_FDCWD), text("/tmp"), i(unix.AT_FDCWD),
		text("/data"), i(0)), walls: filtersP(domain, caps), caps: admin, through: "EINVAL"},
	{name: "process_vm_writev", calls: call("process_vm_writev", i(1), i(0), i(0), i(0), i(0),
		i(0)), walls: filters, through: "ok"},
	{name: "take a capability by capset", calls: call("capset", victim.Bytes(0x22, 5, 8, 0x20, 0, 0, 0, 0),
		victim.Bytes(1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
		walls: filtersP(caps), caps: []string{"CAP_CHOWN"}, through: "ok"},
	{name: "kcmp", calls: call("kcmp", i(1), i(1), i(0), i(0), i(1)), walls: filters,
		through: "ok"},
	{name: "pidfd_getfd", calls: call("pidfd_getfd", i(0), i(1), i(0)), walls: filters,
		through: "EBADF"},
	{name: "kill every process that the tool may", prepare: startVictimOfAll, judge: hit,
		walls: filtersP(domain, pidns), abi: 6, through: "ok",
		calls:  call("kill", i(-1), i(int64(unix.SIGTERM))),
		weaken: map[wall]func(*jail.Plan){pidns: withoutPIDs}},
	{name: "kill a process of another user of the host", prepare: startNeighbour,
		walls: filtersP(domain, ownIDs), abi: 6, through: "ok",
		calls: func(h *host) []victim.Call {
			return []victim.Call{do("kill", i(int64(h.pid)), i(int64(unix.SIGTERM)))}
		},
		weaken: hostIDs},
	{name: "have signals of a descriptor sent to a process of the host", prepare: startVictim,
		filters: []string{"fcntl"}, walls: filtersP(pidns), through: "ok",
		calls: func(h *host) []victim.Call {
			return []victim.Call{do("fcntl", i(3), i(unix.F_SETOWN), i(int64(h.pid)))}
		},
		weaken: map[wall]func(*jail.Plan){pidns: withoutPIDs}},
	{name: "open a message queue of the host", prepare: makeQueue, walls: filtersP(domain, ipcns),
		through: "ok",
		calls: func(*host) []victim.Call {
			return []victim.Call{do("mq_open", text(queueName()), i(unix.O_RDONLY), i(0), i(0))}
		}},
}

// planted is what an attack of the test that runs would see.
var planted string

// hostIDs lets the tool be the user of the host whose number it has inside.
var hostIDs = map[wall]func(*jail.Plan){ownIDs: func(p *jail.Plan) { p.IDs.Base = 0 }}

func hostNS(kind string) func() string {
	return func() string {
		to, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return err.Error()
		}
		return to
	}
}

func startVictimOfAll(t *testing.T, h *host) {
	startVictim(t, h)
	planted = strconv.Itoa(h.pid)
}

// hit says whether the planted process has got a signal that ends it. A process that has, and is
// not ended yet, shows it as pending.
func hit(r []victim.Result) string {
	text, err := os.ReadFile("/proc/" + planted + "/status")
	if err != nil {
		return err.Error()
	}
	got := status(string(text))
	none := strings.Repeat("0", 16)
	if strings.HasPrefix(got["State"], "Z") || strings.HasPrefix(got["State"], "X") ||
		got["SigPnd"] != none || got["ShdPnd"] != none {
		return "ok"
	}
	if e := firstError(r); e != "ok" {
		return e
	}
	return "nobody is hit"
}

func putSecret(t *testing.T, h *host, uid int) {
	t.Helper()
	path := filepath.Join(h.Data, "secret")
	if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
}

// mountRamfs puts a file system below dir that knows nothing of mapped owners.
func mountRamfs(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("none", dir, "ramfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

func queueName() string { return fmt.Sprintf("jailtest-%d", os.Getpid()) }

// makeQueue makes a message queue that everybody may read (mq_overview(7)).
func makeQueue(t *testing.T, _ *host) {
	t.Helper()
	name, err := unix.BytePtrFromString(queueName())
	if err != nil {
		t.Fatal(err)
	}
	old := unix.Umask(0)
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)),
		unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o666, 0, 0, 0)
	unix.Umask(old)
	if errno != 0 {
		t.Fatal(errno)
	}
	unix.Close(int(fd))
	t.Cleanup(func() {
		if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0,
			0); errno != 0 {
			t.Error(errno)
		}
	})
}

const onlyHead = `
## What one layer alone stops

These attacks have one layer in their row of the table above: no other layer stops them.

| layer | attacks that only it stops |
|---|---|
`

// onlySummary says of each layer what it alone stops; that there is nothing fails the test.
func onlySummary(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(onlyHead)
	for _, w := range allWalls {
		var names []string
		for _, a := range attacks {
			if slices.Equal(a.walls, []wall{w}) {
				names = append(names, a.name)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s: no attack shows that it is needed", w)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", w, strings.Join(names, "; "))
	}
	return b.String()
}
