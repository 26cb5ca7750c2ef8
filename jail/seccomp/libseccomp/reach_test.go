package libseccomp_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

// runs are the widest filters of runs, by kind: with the fetch proxy, as scripts.
func runs() map[string]seccomp.Filter {
	filter := func(groups []string, more ...string) seccomp.Filter {
		return seccomp.NewFilter(append(slices.Clone(groups), more...)...)
	}
	return map[string]seccomp.Filter{
		"module": filter(seccomp.WASIGroups), "module that fetches": filter(seccomp.WASIGroups,
			"fetch"),
		"compiler": filter(seccomp.WASIGroups, "compile"), "script": filter(seccomp.WASIGroups,
			"shell"), "script that fetches": filter(seccomp.WASIGroups, "shell", "fetch"),
		"program":              filter(seccomp.NativeGroups),
		"program that fetches": filter(seccomp.NativeGroups, "loopback", "fetch"),
	}
}

// reachable is how many calls a run of each kind may make, with some arguments.
var reachable = map[string]int{
	"module": 60, "module that fetches": 60, "script": 60, "script that fetches": 60,
	"compiler": 60, "program": 191, "program that fetches": 191,
}

// TestReach counts the calls that each compiled filter lets through, whatever their arguments are,
// by following every way through it.
func TestReach(t *testing.T) {
	for name, f := range runs() {
		program := compile(t, f)
		var let []string
		for nr := range uint32(numbers) {
			if answers := ways(t, program, nr); answers[retAllow] {
				call, known := libseccomp.NameOf(int(nr))
				if !known {
					t.Errorf("%s: number %d, which nobody knows, is allowed", name, nr)
				}
				let = append(let, call)
			}
		}
		slices.Sort(let)
		if !slices.Equal(let, f.Allow) {
			t.Errorf("%s: %v are let through, and %v are named", name, let, f.Allow)
		}
		if len(let) > reachable[name] || len(let) == 0 {
			t.Errorf("%s: %d calls are let through, more than %d", name, len(let), reachable[name])
		}
		t.Logf("%s: %d calls", name, len(let))
	}
}

// ways follows every way through a filter for one call, whose arguments are anything, and returns
// how they end.
func ways(t *testing.T, program []byte, nr uint32) map[uint32]bool {
	t.Helper()
	type point struct {
		pc    int
		a     uint32
		known bool // what is in a
	}
	ends, seen := map[uint32]bool{}, map[point]bool{}
	for todo := []point{{}}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[p] {
			continue
		}
		seen[p] = true
		ins := program[p.pc*8:]
		code, jt, jf, k := binary.LittleEndian.Uint16(ins), int(ins[2]), int(ins[3]),
			binary.LittleEndian.Uint32(ins[4:])
		next := point{p.pc + 1, p.a, p.known}
		switch {
		case code == unix.BPF_RET|unix.BPF_K:
			ends[k] = true
			continue
		case code == unix.BPF_LD|unix.BPF_W|unix.BPF_ABS:
			next.a, next.known = map[uint32]uint32{0: nr, 4: x64}[k], k < 8
		case code == unix.BPF_ALU|unix.BPF_AND|unix.BPF_K:
			next.a &= k
		case code == unix.BPF_JMP|unix.BPF_JA:
			next.pc += int(k)
		case code&0x7 == unix.BPF_JMP:
			yes, no := next, next
			yes.pc, no.pc = next.pc+jt, next.pc+jf
			if p.known {
				taken := map[uint16]bool{unix.BPF_JEQ: p.a == k, unix.BPF_JGT: p.a > k,
					unix.BPF_JGE: p.a >= k, unix.BPF_JSET: p.a&k != 0}[code&0xf0]
				if next = no; taken {
					next = yes
				}
			} else {
				todo = append(todo, yes)
				next = no
			}
		default:
			t.Fatalf("instruction %d: code %#x is none that a filter uses", p.pc, code)
		}
		if !next.known {
			next.a = 0
		}
		todo = append(todo, next)
	}
	return ends
}

// TestCommonNumbers: the position of a call in the list of newer calls is its number, both ways.
func TestCommonNumbers(t *testing.T) {
	for name, want := range map[string]int{"pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL,
		"clone3": unix.SYS_CLONE3, "openat2": unix.SYS_OPENAT2,
		"mount_setattr": unix.SYS_MOUNT_SETATTR, "fchmodat2": unix.SYS_FCHMODAT2,
		"landlock_restrict_self": unix.SYS_LANDLOCK_RESTRICT_SELF, "listmount": unix.SYS_LISTMOUNT,
		"mseal": unix.SYS_MSEAL, "open_tree_attr": unix.SYS_OPEN_TREE_ATTR,
		"rseq_slice_yield": unix.SYS_RSEQ_SLICE_YIELD} {
		n, err := libseccomp.NumberOf(name)
		back, ok := libseccomp.NameOf(want)
		if n != want || err != nil || back != name || !ok {
			t.Errorf("%s is %d (%v), and %d is %q (%v)", name, n, err, want, back, ok)
		}
	}
	for _, n := range []int{-1, unix.SYS_RSEQ_SLICE_YIELD + 1} {
		if name, ok := libseccomp.NameOf(n); ok {
			t.Errorf("call %d is %s", n, name)
		}
	}
}
