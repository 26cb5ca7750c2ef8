package launch_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// TestPriorities: no tool gets a class or a priority by which it would come before the host's own
// work (T-407). The filters of modules answer nothing of the kind; without them the kernel refuses
// what needs a capability, and lets through what harms nobody, so that the test can see it.
func TestPriorities(t *testing.T) {
	const self, process = 0, unix.PRIO_PROCESS
	// struct sched_param
	priority := func(n uint32) victim.Arg {
		return victim.Bytes(binary.LittleEndian.AppendUint32(nil, n)...)
	}
	// struct sched_attr: a millisecond in every two
	deadline := make([]byte, 48)
	binary.LittleEndian.PutUint32(deadline, 48)
	binary.LittleEndian.PutUint32(deadline[4:], unix.SCHED_DEADLINE)
	for at, ns := range map[int]uint64{24: 1e6, 32: 2e6, 40: 2e6} {
		binary.LittleEndian.PutUint64(deadline[at:], ns)
	}
	attacks := []struct {
		name string
		call victim.Call
		// Its answer without the filters.
		kernel string
	}{
		{"real time, first come",
			do("sched_setscheduler", i(self), i(unix.SCHED_FIFO), priority(1)), "EPERM"},
		{"real time, in turn", do("sched_setscheduler", i(self), i(unix.SCHED_RR), priority(99)),
			"EPERM"},
		{"deadlines", do("sched_setattr", i(self), victim.Bytes(deadline...), i(0)), "EPERM"},
		{"before others", do("setpriority", i(process), i(self), i(-20)), "EACCES"},
		{"disks first", do("ioprio_set", i(1), i(self), i(1<<13)), "EPERM"}, // IOPRIO_CLASS_RT
		{"the control: as a batch",
			do("sched_setscheduler", i(self), i(unix.SCHED_BATCH), priority(0)), ""},
		{"the control: after others", do("setpriority", i(process), i(self), i(19)), ""},
		{"the control: one processor",
			do("sched_setaffinity", i(self), i(8), victim.Bytes(1, 0, 0, 0, 0, 0, 0, 0)), ""},
	}
	whole, open := jailtest.New(t), jailtest.New(t)
	letThrough(open)
	for _, s := range []*jailtest.Setup{whole, open} {
		j := s.Start(t)
		var calls []victim.Call
		for _, a := range attacks {
			calls = append(calls, a.call)
		}
		for n, r := range j.Do(calls...) {
			want := attacks[n].kernel
			if s == whole {
				want = "EPERM"
			}
			if r.Errno != want {
				t.Errorf("%s, with the filters %v: %v, want %q", attacks[n].name, s == whole, r,
					want)
			}
		}
	}
}

func letThrough(s *jailtest.Setup) {
	for _, f := range []*seccomp.Filter{&s.Plan.InnerFilter, &s.Plan.OuterFilter} {
		allow(f, []string{"sched_setscheduler", "sched_setattr", "setpriority", "ioprio_set",
			"sched_setaffinity"})
	}
}

// TestInheritedPriority: a daemon that was started with a right to better priorities does not hand
// it on (T-407). In the control the plan says nothing of it.
func TestInheritedPriority(t *testing.T) {
	jailtest.Require(t)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NICE, &before); err != nil {
		t.Fatal(err)
	}
	const best = 40
	if err := unix.Setrlimit(unix.RLIMIT_NICE, &unix.Rlimit{Cur: best, Max: best}); err != nil {
		t.Skipf("there is nothing to inherit where root may not raise its limits: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NICE, &before); err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{"EACCES", ""} {
		s := jailtest.New(t)
		letThrough(s)
		if want == "" {
			s.Plan.Rlimits = slices.DeleteFunc(slices.Clone(s.Plan.Rlimits),
				func(l jail.Rlimit) bool { return l.Name == "nice" })
		}
		if r := s.Start(t).One("setpriority", i(unix.PRIO_PROCESS), i(0), i(-1)); r.Errno != want {
			t.Errorf("before others: %v, want %q", r, want)
		}
	}
}
