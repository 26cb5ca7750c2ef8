package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/policy/syntax"
	"github.com/jail-sandbox/jail/runners"
)

const nativePolicy = `policy = 1
name = "native"
[[mount]]
target = "/tmp"
access = "tmpfs"
[[mount]]
source = %q
target = "/prog"
access = "read+exec"
[limits]
wall = "1m"
cpu_time = "20s"
cpus = 1.0
memory = "256MiB"
pids = 64
open_files = 256
output = "1MiB"
workspace = "16MiB"
workspace_files = 100
file_size = "4MiB"
[tools]
native = ["/prog/**"]
[workspace]
access = "shadow"
[syscalls]
groups = ["native"]
`

// usesDir is taken away after all tests.
var usesDir string

// usesProgram is testdata/native/uses.c, built; it returns the directory that holds it.
var usesProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "native-uses-")
	if err != nil {
		return "", err
	}
	usesDir = dir
	out, err := exec.Command("gcc", "-O1", "-static", "-o", filepath.Join(dir, "uses"),
		filepath.Join("testdata", "native", "uses.c")).CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("gcc: %w\n%s", err, out)
	}
	return dir, os.Chmod(dir, 0o755)
})

// native runs the program with the plan that a policy of programs of the host makes, changed, on a
// terminal or on none. It returns what was refused, how the jail ended, and what it said. A jail
// that has not ended by then is killed.
func (b *bed) native(t *testing.T, terminal bool, wait time.Duration, args []string,
	change func(*jail.Plan)) (refused []control.Refused, code int, said string) {
	t.Helper()
	dir, err := usesProgram()
	if err != nil {
		t.Fatal(err)
	}
	s := jailtest.New(t)
	s.Launcher.Init = b.init
	file, err := syntax.Parse(syntax.Profile, "native.toml", fmt.Appendf(nil, nativePolicy, dir),
		nil)
	if err != nil {
		t.Fatal(err)
	}
	eff, err := policy.Resolve(policy.Layer{Name: "native", Policy: file.Policy})
	if err != nil {
		t.Fatal(err)
	}
	command := jail.Command{Runner: jail.RunnerNative, Cwd: "/tmp", Terminal: terminal}
	s.Plan, err = jail.NewPlan(eff, jail.Request{ID: s.Plan.ID, Base: s.Plan.IDs.Base,
		Slice: jailtest.Slice(), Command: command})
	if err != nil {
		t.Fatal(err)
	}
	groups := s.Plan.InnerFilter.Groups
	if !terminal {
		groups = withoutTerminals()
	}
	s.Plan.InnerFilter = seccomp.NewFilter(append(slices.Clone(groups), loopback)...)
	change(&s.Plan)
	j, err := s.TryStart(t)
	if err != nil {
		return nil, -1, err.Error()
	}
	order := runners.Order{Native: &runners.Native{Program: "/prog/uses"},
		Invocation: runners.Invocation{Args: append(runners.Texts{"uses"}, args...), Cwd: "/tmp"}}
	if terminal {
		order.Native.Terminal = &runners.Terminal{Rows: 24, Columns: 80}
	}
	// A jail-init that has ended already says so by its end.
	_ = j.Invoke(order)
	watchdog := time.AfterFunc(wait, func() { _ = j.Kill() })
	defer watchdog.Stop()
	var answer runners.Answer
	// A jail that was killed has none.
	_ = j.Report(&answer)
	status, err := j.Wait()
	if err != nil {
		t.Fatal(err)
	}
	j.End()
	code = status.Code
	if status.Signal != 0 {
		code = 128 + status.Signal
	}
	return j.Refused(), code, j.Stderr() + answer.Failure
}

// withoutTerminals returns the groups of programs of the host but for what terminals are asked,
// which TestTerminalUses is about.
func withoutTerminals() []string {
	return slices.DeleteFunc(slices.Clone(seccomp.NativeGroups),
		func(group string) bool { return group == "terminals" })
}

// How long a jail may take. Some hang without the call that is missing.
const brief, long = 2 * time.Second, 30 * time.Second

// loopback is the group of a jail whose loopback leads somewhere.
const loopback = "loopback"

// untold are calls without which the listener itself never comes, so that nobody is told: the jail
// then waits until it is ended.
var untold = []string{"futex", "sendmsg", "fcntl"}

// starting are calls that jail-init or the C library makes before the program does anything: where
// one is missing nothing comes after it.
var starting = append([]string{
	"read", "write", "close", "close_range", "openat", "mmap", "munmap", "mprotect", "brk", "clone",
	"vfork", "execve", "exit_group", "wait4", "chdir", "setsid", "dup3",
	"epoll_ctl", "epoll_pwait", "recvmsg", "arch_prctl", "set_tid_address", "set_robust_list",
	"rseq", "prlimit64", "readlinkat", "getrandom",
	"rt_sigaction", "rt_sigprocmask", "sigaltstack", "gettid", "getpid",
}, untold...)

// TestNativeUses takes the calls that programs of the host may make out of their filter: a program
// with a use for each meets the gaps. Where it does not, because the way there leads over other
// gaps, those that it met are filled and it tries again. With the whole filter all of it works. So
// no call is allowed that no test uses, and none that is of no use.
func TestNativeUses(t *testing.T) {
	b := newBed(t)
	f := seccomp.NewFilter(append(withoutTerminals(), loopback)...)
	refused, code, said := b.native(t, false, long, f.Allow, func(*jail.Plan) {})
	if len(refused) != 0 || code != 0 {
		t.Errorf("with the whole filter: refused %+v, ended with %d\n%s", refused, code, said)
	}
	var rest []string
	for _, call := range f.Allow {
		if slices.Contains(starting, call) {
			left, why := b.gaps(t, brief, []string{call})
			// The machine may be busy.
			if len(left) > 0 {
				left, why = b.gaps(t, long, []string{call})
			}
			if len(left) > 0 {
				t.Errorf("%s: %s", call, why)
			}
		} else {
			rest = append(rest, call)
		}
	}
	// A tally tells more apart.
	const most = 40
	for len(rest) > 0 {
		var next []string
		why := ""
		for calls := range slices.Chunk(rest, most) {
			left, said := b.gaps(t, long, calls)
			next, why = append(next, left...), why+said
		}
		if len(next) == len(rest) {
			t.Fatalf("nothing uses %v\n%s", rest, why)
		}
		rest = next
	}
}

// gaps takes calls out of the filter, runs their uses, and returns those that nobody asked for, and
// why.
func (b *bed) gaps(t *testing.T, wait time.Duration, calls []string) (left []string, why string) {
	t.Helper()
	conditions := map[string]int{}
	refused, code, said := b.native(t, false, wait, calls, func(p *jail.Plan) {
		for _, c := range p.InnerFilter.Only {
			conditions[c.Call]++
		}
		for _, call := range calls {
			without(&p.InnerFilter, call)
		}
	})
	// Go's runtime may make any of its calls before the listener is sent: then the start runs into
	// its deadline, and nobody is told which call it was.
	if len(refused) == 0 && strings.Contains(said, "has not restricted itself within") {
		if len(calls) == 1 {
			return nil, ""
		}
		left, why = b.gaps(t, wait, calls[:len(calls)/2])
		more, said := b.gaps(t, wait, calls[len(calls)/2:])
		return append(left, more...), why + said
	}
	for _, call := range calls {
		if len(refused) == 0 && slices.Contains(untold, call) && code == 128+int(syscall.SIGKILL) {
			continue
		}
		// A call that is allowed with some arguments alone is asked for with each of them.
		if got, want := told(refused, call), max(conditions[call], 1); got < want {
			left = append(left, call)
			why += fmt.Sprintf("%s: asked for in %d ways, and %d are allowed\n", call, got, want)
		}
	}
	if len(left) > 0 {
		why += fmt.Sprintf("refused %+v, ended with %d\n%s", refused, code, said)
	}
	return left, why
}

// told is in how many ways a call was refused.
func told(refused []control.Refused, call string) int {
	n := 0
	for _, r := range refused {
		if r.What == call || strings.HasPrefix(r.What, call+"(") {
			n++
		}
	}
	return n
}

// TestTerminalUses: what may be asked of a terminal of the jail's own is asked by a program that
// has one, or by jail-init, which makes it.
func TestTerminalUses(t *testing.T) {
	b := newBed(t)
	refused, code, said := b.native(t, true, long, []string{"terminal"}, func(*jail.Plan) {})
	if len(refused) != 0 || code != 0 {
		t.Errorf("with the whole filter: refused %+v, ended with %d\n%s", refused, code, said)
	}
	plain := seccomp.NewFilter(withoutTerminals()...)
	var rest, first []seccomp.Condition
	for _, c := range seccomp.NewFilter(seccomp.NativeGroups...).Only {
		switch {
		case slices.ContainsFunc(plain.Only,
			func(p seccomp.Condition) bool { return p.String() == c.String() }):
		case slices.Contains(asksFirst, c.Value):
			first = append(first, c)
		default:
			rest = append(rest, c)
		}
	}
	if len(first) != len(asksFirst) {
		t.Errorf("jail-init asks for %x, and the filter allows %v", asksFirst, first)
	}
	for _, c := range first {
		b.unasked(t, []seccomp.Condition{c})
	}
	b.unasked(t, rest)
}

// asksFirst is what jail-init asks of the terminal that it makes: TIOCGPTN, TIOCSPTLCK, TIOCSWINSZ
// and, before it becomes the program, TIOCSCTTY.
var asksFirst = []uint64{0x80045430, 0x40045431, 0x5414, 0x540e}

// unasked takes conditions out of the filter and counts the questions that meet the gap.
func (b *bed) unasked(t *testing.T, conditions []seccomp.Condition) {
	t.Helper()
	refused, code, said := b.native(t, true, long, []string{"terminal"}, func(p *jail.Plan) {
		p.InnerFilter.Only = slices.DeleteFunc(slices.Clone(p.InnerFilter.Only),
			func(c seccomp.Condition) bool {
				return slices.ContainsFunc(conditions,
					func(o seccomp.Condition) bool { return o.String() == c.String() })
			})
	})
	if got := told(refused, "ioctl"); got != len(conditions) {
		t.Errorf("%v: the program asks for %d of them: refused %+v, ended with %d\n%s", conditions,
			got, refused, code, said)
	}
}
