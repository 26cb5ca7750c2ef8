package seccomp

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRulesHaveReasons: each rule names calls and says why they are allowed.
func TestRulesHaveReasons(t *testing.T) {
	for name, rules := range groups {
		for _, r := range rules {
			if r.why == "" || len(r.calls) == 0 {
				t.Errorf("group %s: rule %+v lacks a reason or a call", name, r)
			}
		}
	}
}

// A call that counts as a probe is one that no program of the host may make.
func TestProbes(t *testing.T) {
	f := NewFilter(NativeGroups...)
	for _, call := range probed {
		if slices.Contains(slices.Concat(f.Allow, f.ENOSYS, f.ENOTSUP, f.EINVAL), call) {
			t.Errorf("%s is not refused", call)
		}
	}
}

// TestFamilies: a family of sockets is shown by its name, and an unknown one by its number.
func TestFamilies(t *testing.T) {
	for family, want := range map[uint64]string{unix.AF_UNSPEC: "AF_UNSPEC",
		unix.AF_INET6: "AF_INET6", unix.AF_DECnet: "AF_DECnet", unix.AF_NETLINK: "AF_NETLINK",
		unix.AF_PPPOX: "AF_PPPOX", unix.AF_BLUETOOTH: "AF_BLUETOOTH", unix.AF_ALG: "AF_ALG",
		unix.AF_VSOCK: "AF_VSOCK", unix.AF_MCTP: "AF_MCTP", unix.AF_MCTP + 1: "0x2e",
		1 << 31: "0x80000000"} {
		got := Describe("socket", []uint64{family, unix.SOCK_STREAM, 0})
		if got != "socket("+want+")" {
			t.Errorf("family %d is %s, want %s", family, got, want)
		}
	}
}
