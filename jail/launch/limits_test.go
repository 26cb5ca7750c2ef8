package launch_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// outermost holds whatever a jail takes here whose own limits were taken away, so that the machine
// survives its tests.
var outermost = cgroup.Ceiling{Memory: 4 << 30, PIDs: 20_000}

// hogging returns a setup whose filters let through what takes resources.
func hogging(t *testing.T) *jailtest.Setup {
	t.Helper()
	s := jailtest.New(t)
	if err := cgroup.MakeSlice(jailtest.Slice(), outermost); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"clone", "kill", "setsid", "memfd_create", "socketpair", "stat",
			"newfstatat", "pipe2", "sendmsg"})
	}
	return s
}

func leafOf(t *testing.T, s *jailtest.Setup) *cgroup.Leaf {
	t.Helper()
	leaf, err := cgroup.Open(s.Plan.Cgroup.Path)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func usageOf(t *testing.T, leaf *cgroup.Leaf) cgroup.Usage {
	t.Helper()
	u, err := leaf.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestMemoryConsumers: whatever memory a tool takes, also the kernel's for it, counts against its
// limit, and nothing outside is killed for it (T-402). In the control the limit is higher, and the
// same takes more than the first limit was.
func TestMemoryConsumers(t *testing.T) {
	// Each name is a system call of its own, so that fewer bytes of names are asked for.
	const limit, wanted, names = 40 << 20, 160 << 20, 48 << 20
	for _, c := range []struct {
		name string
		// Whether the kernel ends the jail: what cannot be given back does, and dirty pages do
		// where the disk is too slow to give them back.
		kills string
		call  func(*jailtest.Jail) error
	}{
		{"anonymous", "always", func(j *jailtest.Jail) error {
			_,
				err := j.Try(do("=touch", i(wanted)))
			return err
		}},
		{"tmpfs", "always", func(j *jailtest.Jail) error {
			_,
				err := j.Try(do("=fill", text("/tmp/f"), i(wanted)))
			return err
		}},
		{"dirty page cache", "perhaps", func(j *jailtest.Jail) error {
			_,
				err := j.Try(do("=fill", text("/store/f"), i(wanted)))
			return err
		}},
		{"memfd", "always", func(j *jailtest.Jail) error {
			_, err := j.Try(do("=hog", text("memfd"), i(wanted)))
			return err
		}},
		{"pipes", "always", func(j *jailtest.Jail) error {
			_, err := j.Try(do("=hog", text("pipes"), i(wanted)))
			return err
		}},
		{"sockets", "always", func(j *jailtest.Jail) error {
			_,
				err := j.Try(do("=hog", text("sockets"), i(wanted)))
			return err
		}},
		{"names of files", "never", func(j *jailtest.Jail) error {
			_,
				err := j.Try(do("=hog", text("names"), i(names)))
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			meet := func(memory int64) (cgroup.Usage, error) {
				s := hogging(t)
				s.Plan.Cgroup.Memory = memory
				resize(&s.Plan, 2*wanted)
				weakenRlimit("nofile", 1<<16)[rlimit](&s.Plan)
				weakenRlimit("fsize", 1<<30)[rlimit](&s.Plan)
				weakenRlimit("cpu", 3600)[rlimit](&s.Plan)
				j := s.Start(t)
				err := c.call(j)
				defer j.End()
				return usageOf(t, leafOf(t, s)), err
			}
			held, err := meet(limit)
			killed := held.OOMKills > 0
			if held.MemoryPeak > limit+nofail || (err != nil) != killed || c.kills != "perhaps" &&
				killed != (c.kills == "always") {
				t.Errorf("with a limit of %d: %+v, %v", limit, held, err)
			}
			free, err := meet(1 << 30)
			if free.MemoryPeak <= limit || free.OOMKills > 0 || err != nil {
				t.Errorf("the control takes no more than that limit: %+v, %v", free, err)
			}
			t.Logf("peak %d KiB of %d; without the limit %d KiB", held.MemoryPeak>>10, limit>>10,
				free.MemoryPeak>>10)
		})
	}
}

// nofail is what a group may have beyond its limit: some allocations of the kernel's own may not
// fail (__GFP_NOFAIL) and are charged all the same, a file system's for some pages.
const nofail = 64 << 10

// A lingerer is a tool that tries to outlive its deadline.
type lingerer struct {
	kind string
	n    int
	pids int64
	wait bool // until tasks are refused
}

var lingerers = []lingerer{
	{kind: "sleep", pids: 64}, {kind: "spin", n: 4, pids: 64}, {kind: "fifo", pids: 64},
	{kind: "read", pids: 64},
	{kind: "stopped", n: 10, pids: 64}, {kind: "daemons", n: 10, pids: 64},
	{kind: "bomb", pids: 500, wait: true}, {kind: "threads", n: 10_000, pids: 11_000},
}

// begin starts a jail with the lingerer in it, and returns when it lingers.
func (l lingerer) begin(t *testing.T, weaken ...func(*jail.Plan)) (*jailtest.Jail, *cgroup.Leaf) {
	t.Helper()
	s := hogging(t)
	s.Plan.Cgroup.Memory, s.Plan.Cgroup.PIDs = 2<<30, l.pids
	for _, w := range weaken {
		w(&s.Plan)
	}
	if err := unix.Mkfifo(filepath.Join(s.Store, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(s.Store, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	j := s.Start(t)
	leaf := leafOf(t, s)
	if err := j.Invoke([]victim.Call{do("=stay", text(l.kind), i(int64(l.n)))}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(jailtest.Bound(time.Minute)); ; time.Sleep(time.Millisecond) {
		_, err := os.Stat(filepath.Join(s.Store, "ready"))
		if err == nil && (!l.wait || usageOf(t, leaf).PIDsDenied > 0) {
			return j, leaf
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has not begun: %v", l.kind, err)
		}
	}
}

// end does what the daemon does at a deadline, and returns how long it took until nothing was left.
func end(t *testing.T, j *jailtest.Jail, leaf *cgroup.Leaf) time.Duration {
	t.Helper()
	start := time.Now()
	if err := errors.Join(j.Kill(), leaf.KillAtOnce()); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := leaf.Kill(jailtest.Bound(time.Minute)); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if pids, err := leaf.PIDs(); err != nil || len(pids) > 0 {
		t.Errorf("%d processes are left, %v", len(pids), err)
	}
	return took
}

// TestDeadline: nothing that a tool does keeps its control group from being empty after its
// deadline (T-401, T-408, T-414). With JAIL_TEST_LONG it is done 50 times for each, for the
// figures.
func TestDeadline(t *testing.T) {
	for _, l := range lingerers {
		t.Run(l.kind, func(t *testing.T) {
			rounds := 1
			if os.Getenv("JAIL_TEST_LONG") != "" {
				rounds = 50
			}
			var took []time.Duration
			for range rounds {
				t.Run("", func(t *testing.T) {
					j, leaf := l.begin(t)
					if l.kind == "bomb" {
						hostForks(t)
					}
					took = append(took, end(t, j, leaf))
				})
			}
			slices.Sort(took)
			if len(took) > 0 {
				t.Logf("from the deadline to an empty control group: p50 %v, p99 %v, of %d",
					took[len(took)/2], took[(99*len(took)+99)/100-1], len(took))
			}
		})
	}
}

// TestKernelsCPULimit: should nobody look at what is used, the kernel ends a process that uses too
// much; in the control it has more, and uses it.
func TestKernelsCPULimit(t *testing.T) {
	spins := lingerer{kind: "spin", n: 4, pids: 64}
	j, _ := spins.begin(t, weakenRlimit("cpu", 1)[rlimit])
	if status, err := j.Wait(); err != nil || status.Signal != int(unix.SIGKILL) {
		t.Errorf("with a limit of 1 s: %+v, %v", status, err)
	}
	j, leaf := spins.begin(t, weakenRlimit("cpu", 3600)[rlimit])
	for usageOf(t, leaf).CPU < 2*time.Second {
		if pids, err := leaf.PIDs(); err != nil || len(pids) == 0 {
			t.Fatalf("the control has ended: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	end(t, j, leaf)
}

// hostForks: while a jail has used up its tasks, there are still some for the host.
func hostForks(t *testing.T) {
	t.Helper()
	for range 20 {
		if err := exec.Command("/bin/true").Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDaemonsOutlive is the control of those who daemonise: without a process namespace the end of
// the first process is not theirs, and it takes the control group to end them.
func TestDaemonsOutlive(t *testing.T) {
	j, leaf := lingerer{kind: "daemons", n: 10, pids: 64}.begin(t, withoutPIDs)
	if err := j.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Wait(); err != nil {
		t.Fatal(err)
	}
	if pids, err := leaf.PIDs(); err != nil || len(pids) == 0 {
		t.Errorf("all ended with the first process, %v: the test sees no daemon", err)
	}
	if err := leaf.Kill(jailtest.Bound(time.Minute)); err != nil {
		t.Error(err)
	}
}

// TestForkBombWithoutLimit is the control of the bomb: a higher limit lets it make more.
func TestForkBombWithoutLimit(t *testing.T) {
	s := hogging(t)
	s.Plan.Cgroup.PIDs, s.Plan.Cgroup.Memory = 2000, 1<<30
	j := s.Start(t)
	if r := j.One("=forks", i(1000)); r.Errno != "" {
		t.Errorf("1000 processes below a limit of 2000: %v", r)
	}
	if u := usageOf(t, leafOf(t, s)); u.PIDsDenied != 0 || u.PIDsPeak < 1000 && u.PIDsPeak != 0 {
		t.Errorf("%+v", u)
	}
}

// TestDescriptorsUnderWay: descriptors that lie in a socket and are nobody's count against the
// limit of open files, and none comes out of the jail (T-404). In the control the limit is higher.
func TestDescriptorsUnderWay(t *testing.T) {
	for limit, want := range map[uint64]string{88: "ETOOMANYREFS", 1 << 16: ""} {
		s := hogging(t)
		weakenRlimit("nofile", limit)[rlimit](&s.Plan)
		if r := s.Start(t).One("=pass", i(2000)); r.Errno != want || want != "" && r.Ret > 2*253 {
			t.Errorf("with a limit of %d: %v (%d), want %q", limit, r, r.Ret, want)
		}
	}
}

// TestQuota: spinners get no more CPU than the quota, and the time that they were kept from it is
// known (T-407). The control has none, and is kept from nothing. A busy machine by itself gives the
// jail a part of a processor: the quota is less.
func TestQuota(t *testing.T) {
	for _, quota := range []int64{5_000, 0} {
		s := hogging(t)
		s.Plan.Cgroup.CPUQuota = quota
		if quota == 0 {
			s.Plan.Cgroup.CPUPeriod = 0
		}
		j := s.Start(t)
		leaf := leafOf(t, s)
		if err := j.Invoke([]victim.Call{do("=stay", text("spin"), i(4))}); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(jailtest.Bound(2 * time.Minute)); ; time.Sleep(
			time.Millisecond) {
			u := usageOf(t, leaf)
			if quota > 0 && u.Throttled > 0 {
				break
			}
			if quota == 0 && u.Throttled > 0 || time.Now().After(deadline) {
				t.Fatalf("quota %d: %+v", quota, u)
			}
			if quota == 0 && u.CPU >= 300*time.Millisecond {
				break
			}
		}
		j.End()
	}
}

// TestOwnLimits: a jail cannot take itself out of the memory killer's sight, nor raise its own
// limits (T-420). In the controls the host does the one, and the plan gives the other.
func TestOwnLimits(t *testing.T) {
	more := make([]byte, 16) // struct rlimit64
	more[1], more[9] = 1, 1  // 256, soft and hard
	for value, want := range map[uint64]string{88: "EPERM", 1024: ""} {
		s := hogging(t)
		s.WithoutLandlock(t)
		weakenRlimit("nofile", value)[rlimit](&s.Plan)
		for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
			allow(f, []string{"prlimit64"})
		}
		j := s.Start(t)
		r := j.Do(do("=write", text("/proc/self/oom_score_adj"), text("0")),
			do("prlimit64", i(0), i(unix.RLIMIT_NOFILE), victim.Bytes(more...), i(0)))
		if r[0].Errno != "EACCES" {
			t.Errorf("oom_score_adj: %v", r[0])
		}
		if r[1].Errno != want {
			t.Errorf("256 files where the plan gives %d: %v, want %q", value, r[1], want)
		}
		file := filepath.Join("/proc", strconv.Itoa(j.PID), "oom_score_adj")
		for _, score := range []string{strconv.Itoa(s.Plan.Cgroup.OOMScore), "0"} {
			if got, err := os.ReadFile(file); err != nil ||
				strings.TrimSpace(string(got)) != score {
				t.Errorf("oom_score_adj is %s, %v, want %s", got, err, score)
			}
			if err := os.WriteFile(file, []byte("0"), 0); err != nil {
				t.Error(err)
			}
		}
		j.End()
	}
}
