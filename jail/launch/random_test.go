package launch_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
)

// patience is how long one jail with random calls may run; one that has put itself to sleep is
// ended.
const patience = 500 * time.Millisecond

// enough calls is what a test has made that says something; a slow computer takes longer than its
// time for them.
const enough = 100

// TestRandomCalls makes system calls with random numbers and arguments inside jails, 5 seconds of
// them, or 10 minutes with JAIL_TEST_LONG (T-095). They may do to the jail what they like. The host
// is as it was: its name, its clock, its mounts, what it says in its log of faults, a process, and
// the files that the jail may only read.
func TestRandomCalls(t *testing.T) {
	before, begun := hostState(t), started(t)
	made, jails := uint64(0), 0
	// The programs are built when the time begins.
	jailtest.New(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seeds from %d", seed)
	end := time.Now().Add(time.Duration(short(5, 600)) * time.Second)
	for late := end.Add(jailtest.Bound(time.Minute)); time.Now().Before(end) || made < enough &&
		time.Now().Before(late); jails++ {
		s := jailtest.New(t)
		h := &host{Setup: s}
		if jails == 0 {
			startVictim(t, h)
		}
		// Landlock's own work is done by the other layers then
		if jails%2 == 1 {
			s.WithoutLandlock(t)
		}
		j := s.Start(t)
		timer := time.AfterFunc(patience, func() { _ = j.Kill() })
		r, err := j.Try(do("=random", i(int64(seed)+int64(jails))))
		if err == nil {
			t.Fatalf("jail %d: no calls: %v", jails, r)
		}
		timer.Stop()
		j.End()
		made += countIn(t, filepath.Join(s.Store, "count"))
		if content, err := os.ReadFile(filepath.Join(s.Data, "f")); err != nil ||
			string(content) != "canary\n" {
			t.Fatalf("jail %d: the file is %q, %v", jails, content, err)
		}
		if h.pid != 0 && unix.Kill(h.pid, 0) != nil {
			t.Errorf("jail %d: the process of the host is gone", jails)
		}
	}
	if after := hostState(t); !slices.Equal(after, before) {
		t.Errorf("the host is now %q, was %q", after, before)
	}
	if by := started(t) - begun; by < -60 || by > 60 {
		t.Errorf("the clock of the day was set by %d seconds", by)
	}
	if made < enough {
		t.Errorf("only %d calls were made", made)
	}
	t.Logf("%d calls in %d jails", made, jails)
}

// hostState is what random calls could change of the host.
func hostState(t *testing.T) []string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	tainted := read(t, "/proc/sys/kernel/tainted")
	return append([]string{name, tainted, read(t, "/proc/sys/kernel/core_pattern")},
		mountPoints(t)...)
}

// started is when the host did, in seconds, by its clock of the day: it stays the same, unless
// somebody sets that.
func started(t *testing.T) int64 {
	t.Helper()
	var day, run unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_REALTIME, &day),
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &run)); err != nil {
		t.Fatal(err)
	}
	return day.Sec - run.Sec
}

func countIn(t *testing.T, path string) uint64 {
	t.Helper()
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || len(content) != 8 {
		// A call has renamed, removed or changed it.
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(content)
}

// fresh lets a plan be started once more: a control group is never used again.
func fresh(s *jailtest.Setup) {
	s.Plan.ID = jail.NewID()
	s.Plan.Cgroup.Path = filepath.Join(jailtest.Slice(), string(s.Plan.ID))
}
