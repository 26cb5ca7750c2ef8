package libseccomp_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

// ending are allowed calls that would end or double the probe, or never come back, whatever their
// arguments.
var ending = []string{"exit", "exit_group", "rt_sigreturn", "pause", "fork", "vfork"}

// unfiltered are two calls that Linux exempts from every filter: uretprobe and uprobe are for code
// that the kernel itself inserts. Any other caller gets SIGILL.
var unfiltered = map[int]bool{335: true, 336: true}

// TestLiveNumbers makes every call that there is, inside a jail, with arguments that none of them
// could like, and compares what the kernel answers and what the listener was told with what the
// filter says (T-053).
func TestLiveNumbers(t *testing.T) {
	jailtest.Require(t)
	for name, f := range map[string]seccomp.Filter{"wasi": seccomp.NewFilter(seccomp.WASIGroups...),
		"native": seccomp.NewFilter(seccomp.NativeGroups...)} {
		t.Run(name, func(t *testing.T) {
			s := jailtest.New(t)
			f.Allow, f.Only = slices.Clone(f.Allow), slices.Clone(f.Only)
			s.Plan.InnerFilter = f
			s.Plan.OuterFilter = seccomp.NewOuterFilter(append(slices.Clone(seccomp.InitGroups),
				f.Groups...)...)
			if name == "native" {
				addRuntime(&s.Plan.InnerFilter)
			}
			live(t, s)
		})
	}
}

// addRuntime lets the probe, a Go program, take its orders.
func addRuntime(f *seccomp.Filter) {
	for _, name := range []string{"recvmsg", "sendmsg"} {
		f.Only = slices.DeleteFunc(f.Only, func(c seccomp.Condition) bool { return c.Call == name })
	}
}

func live(t *testing.T, s *jailtest.Setup) {
	j := s.Start(t)
	f := s.Plan.InnerFilter
	var calls []victim.Call
	var want []string
	told := 0
	for nr := range numbers {
		name, known := libseccomp.NameOf(nr)
		if unfiltered[nr] || slices.Contains(f.Allow, name) && slices.Contains(ending, name) {
			continue
		}
		answer := "" // the kernel's own
		switch {
		case slices.Contains(f.ENOSYS, name) || name == "futex":
			// The kernel has no such operation of it.
			answer = "ENOSYS"
		case slices.Contains(f.ENOTSUP, name):
			answer = "ENOTSUP"
		case slices.Contains(f.EINVAL, name):
			answer = "EINVAL"
		case !known:
			answer = "ENOSYS"
			told++
		case !slices.Contains(f.Allow, name) || slices.ContainsFunc(f.Only,
			func(c seccomp.Condition) bool { return c.Call == name }):
			answer = "EPERM"
			told++
		}
		bad := victim.Int(-1)
		calls, want = append(calls, victim.Call{Nr: nr,
			Args: []victim.Arg{bad, bad, bad, bad, bad, bad}}), append(want, answer)
	}
	for i, r := range j.Do(calls...) {
		if want[i] != "" && r.Errno != want[i] || want[i] == "" && r.Errno == "ENOSYS" {
			t.Errorf("call %d: %v, want %q", calls[i].Nr, r, want[i])
		}
	}
	if refused := total(leave(t, j)); refused != int64(told) {
		t.Errorf("%d calls were told of, want %d", refused, told)
	}
	if len(calls) < numbers-20 {
		t.Errorf("only %d calls were made", len(calls))
	}
}

// leave lets the jail end by itself and returns what it was refused.
func leave(t *testing.T, j *jailtest.Jail) []control.Refused {
	t.Helper()
	if r, err := j.Try(victim.Do("=exit", victim.Int(0))); err == nil {
		t.Fatalf("it lives on, with %v", r)
	}
	if status, err := j.Wait(); err != nil || status != (control.Exited{}) {
		t.Fatalf("ended with %+v, %v", status, err)
	}
	return j.Refused()
}

func total(refused []control.Refused) int64 {
	sum := int64(0)
	for _, r := range refused {
		sum += r.Count
	}
	return sum
}

// TestTold: what was refused is told by what it asked for, each with its exact count.
func TestTold(t *testing.T) {
	j := jailtest.New(t).Start(t)
	i := victim.Int
	refused := map[string]struct {
		call  victim.Call
		count int
	}{
		"mount":                                 {victim.Do("mount", i(0), i(0), i(0), i(0), i(0)), 3},
		"socket(AF_VSOCK)":                      {victim.Do("socket", i(40), i(1), i(0)), 2},
		"socket(AF_ALG, SOCK_SEQPACKET)":        {victim.Do("socket", i(38), i(5), i(0)), 1},
		"socket(AF_INET, protocol 262)":         {victim.Do("socket", i(2), i(1|0x80000), i(262)), 1},
		"socket(AF_PACKET, SOCK_RAW)":           {victim.Do("socket", i(17|1<<40), i(3), i(0)), 4},
		"socketpair(AF_UNIX, SOCK_DGRAM)":       {victim.Do("socketpair", i(1), i(2), i(0), i(0)), 1},
		"prctl(PR_SET_SECCOMP)":                 {victim.Do("prctl", i(22), i(2), i(0)), 1},
		"ioctl(TIOCSTI)":                        {victim.Do("ioctl", i(0), i(0x5412|1<<32), i(0)), 2},
		"clone(CLONE_NEWUSER)":                  {victim.Do("clone", i(0x10000011), i(0), i(0)), 1},
		"unshare(CLONE_NEWNS|CLONE_NEWNET)":     {victim.Do("unshare", i(0x40020000), i(0), i(0)), 1},
		"mseal":                                 {victim.Call{Nr: 462}, 1},
		"system call 1000":                      {victim.Call{Nr: 1000}, 5},
		"system calls of numbers that none has": {victim.Call{Nr: 5000}, 2},
	}
	var calls []victim.Call
	for _, r := range refused {
		for range r.count {
			calls = append(calls, r.call)
		}
	}
	j.Do(calls...)
	got := leave(t, j)
	for _, r := range got {
		if want := refused[r.What]; r.Count != int64(want.count) {
			t.Errorf("%s was told of %d times, want %d", r.What, r.Count, want.count)
		}
		if r.First.IsZero() || r.Last.Before(r.First) {
			t.Errorf("%s: from %v to %v", r.What, r.First, r.Last)
		}
	}
	if len(got) != len(refused) {
		t.Errorf("%d things were told of, want %d: %+v", len(got), len(refused), got)
	}
}

// TestTallyIsBounded: what a tool makes up costs no more memory the longer it makes up, and nothing
// goes uncounted (T-409).
func TestTallyIsBounded(t *testing.T) {
	j := jailtest.New(t).Start(t)
	var calls []victim.Call
	for n := range int64(300) {
		calls = append(calls, victim.Do("socket", victim.Int(n), victim.Int(n%16), victim.Int(n)),
			victim.Call{Nr: 500 + int(n)})
	}
	j.Do(calls...)
	got := leave(t, j)
	if total(got) != int64(len(calls)) || len(got) > 70 {
		t.Errorf("%d calls as %d things, want all %d as 65 at most", total(got), len(got),
			len(calls))
	}
	if last := got[len(got)-1].What; last != fmt.Sprintf("%d other system calls", 64+300+1-64) {
		t.Errorf("the last is %q", last)
	}
}
