package seccomp_test

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/jailtest/victim"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

func TestMain(m *testing.M) { os.Exit(jailtest.Main(m)) }

// numbers is more than any system call has.
const numbers = 1024

const (
	retErrno = unix.SECCOMP_RET_ERRNO
	retAllow = unix.SECCOMP_RET_ALLOW
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
	x86      = 0x40000003 // AUDIT_ARCH_I386
	x64      = 0xc000003e // AUDIT_ARCH_X86_64
	x32Bit   = 0x40000000
)

// data is struct seccomp_data of a call.
func data(arch, nr uint32, args ...uint64) []byte {
	d := binary.LittleEndian.AppendUint32(nil, nr)
	d = binary.LittleEndian.AppendUint32(d, arch)
	d = binary.LittleEndian.AppendUint64(d, 0)
	for i := range 6 {
		v := uint64(0)
		if i < len(args) {
			v = args[i]
		}
		d = binary.LittleEndian.AppendUint64(d, v)
	}
	return d
}

// run is the kernel's machine for classic BPF, as far as filters use it.
func run(t *testing.T, program, in []byte) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(program)/8; pc++ {
		ins := program[pc*8:]
		code, jt, jf, k := binary.LittleEndian.Uint16(ins), int(ins[2]), int(ins[3]), binary.LittleEndian.Uint32(ins[4:])
		jump := func(yes bool) {
			if yes {
				pc += jt
			} else {
				pc += jf
			}
		}
		switch code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = binary.LittleEndian.Uint32(in[k:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= k
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(k)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == k)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jump(a > k)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(a >= k)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&k != 0)
		case unix.BPF_RET | unix.BPF_K:
			return k
		default:
			t.Fatalf("instruction %d: code %#x is none that a filter uses", pc, code)
		}
	}
	t.Fatal("the filter does not end")
	return 0
}

func compile(t *testing.T, f jail.Filter) []byte {
	t.Helper()
	program, err := seccomp.Compile(f)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// number returns what a name means here.
func number(t *testing.T, name string) uint32 {
	t.Helper()
	n, err := libseccomp.GetSyscallFromName(name)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func eperm() uint32 { return retErrno | uint32(unix.EPERM) }

// TestEveryNumber asks the compiled filters about every number that there is, and some that there are not: what is not named is refused.
func TestEveryNumber(t *testing.T) {
	for _, f := range []jail.Filter{jail.NewFilter("runtime", "wasi"), jail.NewFilter("runtime", "wasi", "init"), jail.NewFilter()} {
		t.Run(strings.Join(f.Groups, "+"), func(t *testing.T) {
			program := compile(t, f)
			want := map[uint32]uint32{}
			for _, name := range f.Allow {
				want[number(t, name)] = retAllow
			}
			for _, name := range f.ENOSYS {
				want[number(t, name)] = retErrno | uint32(unix.ENOSYS)
			}
			for _, c := range f.Only {
				want[number(t, c.Call)] = eperm() // with arguments of zero
			}
			for nr := range uint32(numbers) {
				expected, ok := want[nr]
				if !ok {
					expected = eperm()
				}
				if got := run(t, program, data(x64, nr)); got != expected {
					t.Errorf("call %d: %#x, want %#x", nr, got, expected)
				}
				if got := run(t, program, data(x86, nr)); got != retKill {
					t.Errorf("call %d of a 32-bit program: %#x", nr, got)
				}
				if got := run(t, program, data(x64, nr|x32Bit)); got == retAllow {
					t.Errorf("call %d of an x32 program is allowed", nr)
				}
			}
			for _, nr := range []uint32{1 << 31, 0xffffffff, 1<<31 | 39} {
				if got := run(t, program, data(x64, nr)); got == retAllow {
					t.Errorf("call %#x is allowed", nr)
				}
			}
		})
	}
}

// TestConditions: clone makes threads and nothing else, whatever is in the bits that the kernel does not read (T-030, T-052).
func TestConditions(t *testing.T) {
	const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD
	inner, outer := compile(t, jail.NewFilter("runtime", "wasi")), compile(t, jail.NewFilter("runtime", "wasi", "init"))
	for _, c := range []struct {
		call         string
		arg          uint64
		inner, outer bool
	}{
		{"clone", thread, true, true},
		{"clone", thread | 1<<40, true, true},
		{"clone", uint64(unix.SIGCHLD), false, false},
		{"clone", unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD), false, false},
		{"clone", thread | unix.CLONE_NEWUSER, false, false},
		{"clone", thread | unix.CLONE_NEWNS, false, false},
		{"clone", thread | unix.CLONE_NEWPID, false, false},
		{"clone", thread | unix.CLONE_NEWNET, false, false},
		{"clone", thread | unix.CLONE_NEWIPC, false, false},
		{"clone", thread | unix.CLONE_NEWUTS, false, false},
		{"clone", thread | unix.CLONE_NEWCGROUP, false, false},
		{"clone", thread | unix.CLONE_NEWTIME, false, false},
		{"clone", unix.CLONE_NEWUSER | 1<<40, false, false},
		{"prctl", unix.PR_SET_VMA, true, true},
		{"prctl", unix.PR_SET_VMA | 1<<40, true, true},
		{"prctl", unix.PR_SET_DUMPABLE, false, true},
		{"prctl", unix.PR_SET_PDEATHSIG, false, true},
		{"prctl", unix.PR_SET_SECCOMP, false, true},
	} {
		in := data(x64, number(t, c.call), c.arg)
		if got := run(t, inner, in) == retAllow; got != c.inner {
			t.Errorf("inner filter: %s(%#x) allowed: %v", c.call, c.arg, got)
		}
		if got := run(t, outer, in) == retAllow; got != c.outer {
			t.Errorf("outer filter: %s(%#x) allowed: %v", c.call, c.arg, got)
		}
	}
}

// TestRefused: a filter that cannot be what it says is no filter.
func TestRefused(t *testing.T) {
	good := jail.Filter{Allow: []string{"read"}, Errno: "EPERM"}
	for name, c := range map[string]struct {
		change func(*jail.Filter)
		says   string
	}{
		"an unknown name":             {func(f *jail.Filter) { f.Allow = append(f.Allow, "moonwalk") }, "moonwalk"},
		"an empty name":               {func(f *jail.Filter) { f.Allow = append(f.Allow, "") }, `""`},
		"an unknown name for ENOSYS":  {func(f *jail.Filter) { f.ENOSYS = []string{"moonwalk"} }, "moonwalk"},
		"a call of another machine":   {func(f *jail.Filter) { f.Allow = append(f.Allow, "socketcall") }, "socketcall"},
		"an unknown errno":            {func(f *jail.Filter) { f.Errno = "EMOON" }, "EMOON"},
		"no errno":                    {func(f *jail.Filter) { f.Errno = "" }, "errno"},
		"both allowed and ENOSYS":     {func(f *jail.Filter) { f.ENOSYS = []string{"read"} }, "read"},
		"a condition on what is not":  {func(f *jail.Filter) { f.Only = []jail.Condition{{Call: "clone"}} }, "clone"},
		"a condition on argument six": {func(f *jail.Filter) { f.Only = []jail.Condition{{Call: "read", Arg: 6}} }, "read"},
	} {
		f := good
		f.Allow = slices.Clone(good.Allow)
		c.change(&f)
		if program, err := seccomp.Compile(f); err == nil || program != nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d bytes, error %v", name, len(program), err)
		}
	}
	compile(t, good)
}

// TestLiveNumbers makes every call that is refused, inside a jail, with arguments that none of them could like.
func TestLiveNumbers(t *testing.T) {
	s := jailtest.New(t)
	j := s.Start(t)
	named := map[uint32]string{}
	for _, name := range s.Plan.InnerFilter.Allow {
		named[number(t, name)] = name
	}
	// Linux lets two calls past every filter: they belong to the kernel's own tracing of programs, and whoever else makes them is sent SIGILL.
	named[335], named[336] = "uretprobe", "uprobe"
	var calls []victim.Call
	for nr := 1; nr < numbers; nr++ { // 0 is read, which is allowed
		if _, ok := named[uint32(nr)]; !ok {
			bad := victim.Int(-1)
			calls = append(calls, victim.Call{Nr: nr, Args: []victim.Arg{bad, bad, bad, bad, bad, bad}})
		}
	}
	for i, r := range j.Do(calls...) {
		want := "EPERM"
		if calls[i].Nr == int(number(t, "clone3")) {
			want = "ENOSYS"
		}
		if r.Errno != want {
			t.Errorf("call %d: %v, want %s", calls[i].Nr, r, want)
		}
	}
	if len(calls) < numbers-150 {
		t.Errorf("only %d calls were made", len(calls))
	}
}
