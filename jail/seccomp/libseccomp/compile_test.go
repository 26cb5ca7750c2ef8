package libseccomp_test

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/jailtest"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

func TestMain(m *testing.M) { os.Exit(jailtest.Main(m)) }

// numbers is more than any system call has.
const numbers = 1024

const (
	retErrno  = unix.SECCOMP_RET_ERRNO
	retAllow  = unix.SECCOMP_RET_ALLOW
	retNotify = unix.SECCOMP_RET_USER_NOTIF
	retKill   = unix.SECCOMP_RET_KILL_PROCESS
	x86       = 0x40000003 // AUDIT_ARCH_I386
	x64       = 0xc000003e // AUDIT_ARCH_X86_64
	x32Bit    = 0x40000000
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
		code, jt, jf, k := binary.LittleEndian.Uint16(ins), int(ins[2]), int(ins[3]),
			binary.LittleEndian.Uint32(ins[4:])
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

func compile(t *testing.T, f seccomp.Filter) []byte {
	t.Helper()
	program, err := libseccomp.CompileTold(f)
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// number returns what a name means here.
func number(t *testing.T, name string) uint32 {
	t.Helper()
	n, err := libseccomp.NumberOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// filters are those that are compiled, by the name of their golden file.
func filters() map[string]seccomp.Filter {
	return map[string]seccomp.Filter{"wasi": seccomp.NewFilter(seccomp.WASIGroups...),
		"init":   seccomp.NewOuterFilter(seccomp.InitGroups...),
		"native": seccomp.NewFilter(append(slices.Clone(seccomp.NativeGroups), "loopback")...)}
}

// TestEveryNumber asks the compiled filters about every number that there is, and some that there
// are not: what is not named is told to the listener and does not happen.
func TestEveryNumber(t *testing.T) {
	all := filters()
	all["nothing"] = seccomp.NewFilter()
	for name, f := range all {
		t.Run(name, func(t *testing.T) {
			program := compile(t, f)
			want := map[uint32]uint32{}
			for _, name := range f.Allow {
				want[number(t, name)] = retAllow
			}
			for _, name := range f.ENOSYS {
				want[number(t, name)] = retErrno | uint32(unix.ENOSYS)
			}
			for _, name := range f.ENOTSUP {
				want[number(t, name)] = retErrno | uint32(unix.ENOTSUP)
			}
			for _, name := range f.EINVAL {
				want[number(t, name)] = retErrno | uint32(unix.EINVAL)
			}
			for _, c := range f.Only { // with arguments of zero
				want[number(t, c.Call)] = retNotify
			}
			for _, c := range f.Only {
				if slices.Contains([]string{"clone", "shmget", "shmctl"}, c.Call) && c.Value == 0 {
					want[number(t, c.Call)] = retAllow
				}
			}
			for nr := range uint32(numbers) {
				expected, ok := want[nr]
				if !ok {
					expected = retNotify
				}
				if got := run(t, program, data(x64, nr)); got != expected {
					t.Errorf("call %d: %#x, want %#x", nr, got, expected)
				}
				if got := run(t, program, data(x86, nr)); got != retKill {
					t.Errorf("call %d of a 32-bit program: %#x", nr, got)
				}
				if got := run(t, program, data(x64, nr|x32Bit)); got != retKill {
					t.Errorf("call %d of an x32 program: %#x", nr, got)
				}
			}
			for _, nr := range []uint32{1 << 31, 0xffffffff, 1<<31 | 39} {
				if got := run(t, program, data(x64, nr)); got != retKill && got != retNotify {
					t.Errorf("call %#x: %#x", nr, got)
				}
			}
		})
	}
}

// TestRefused: a filter that cannot be what it says is no filter.
func TestRefused(t *testing.T) {
	good := seccomp.Filter{Allow: []string{"read"}, Errno: "EPERM"}
	for name, c := range map[string]struct {
		change func(*seccomp.Filter)
		says   string
	}{
		"an unknown name": {func(f *seccomp.Filter) {
			f.Allow = append(f.Allow, "moonwalk")
		}, "moonwalk"},
		"an empty name": {func(f *seccomp.Filter) { f.Allow = append(f.Allow, "") }, `""`},
		"an unknown name for ENOSYS": {func(f *seccomp.Filter) { f.ENOSYS = []string{"moonwalk"} },
			"moonwalk"},
		"a call of another machine": {func(f *seccomp.Filter) {
			f.Allow = append(f.Allow, "socketcall")
		}, "socketcall"},
		"an unknown errno": {func(f *seccomp.Filter) { f.Errno = "EMOON" }, "EMOON"},
		"no errno":         {func(f *seccomp.Filter) { f.Errno = "" }, "errno"},
		"both allowed and ENOSYS": {func(f *seccomp.Filter) { f.ENOSYS = []string{"read"} },
			"read"},
		"a condition on what is not": {func(f *seccomp.Filter) {
			f.Only = []seccomp.Condition{
				{Call: "clone"}}
		}, "clone"},
		"a condition on argument six": {func(f *seccomp.Filter) {
			f.Only = []seccomp.Condition{
				{Call: "read", Arg: 6}}
		}, "read"},
	} {
		f := good
		f.Allow = slices.Clone(good.Allow)
		c.change(&f)
		if program, err := libseccomp.CompileTold(f); err == nil || program != nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d bytes, error %v", name, len(program), err)
		}
	}
	compile(t, good)
}
