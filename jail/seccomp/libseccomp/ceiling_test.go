package libseccomp_test

import (
	"testing"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
	"github.com/jail-sandbox/jail/policy"
)

// Every ceiling's filter compiles, whatever groups it grants together.
func TestCeilingFiltersCompile(t *testing.T) {
	for n := range 1 << 4 {
		c := policy.Top()
		c.Syscalls.Groups = nil
		for i, g := range policy.SyscallGroups() {
			if n&(1<<i) != 0 {
				c.Syscalls.Groups = append(c.Syscalls.Groups, g.Name)
			}
		}
		if n&8 != 0 {
			c.Fetch.Allow = nil
		}
		plan := jail.Plan{Command: jail.Command{Runner: jail.RunnerNative}}
		if _, err := libseccomp.CompileOutside(jail.NewCeiling(c.Normal(),
			jail.Request{Slice: "/jail", Base: jail.FirstBase}, plan).Filter); err != nil {
			t.Errorf("groups %v: %v", c.Syscalls.Groups, err)
		}
	}
}

// A filter that answers for itself would keep the one above from telling.
func TestOutsideIsENOSYS(t *testing.T) {
	if _, err := libseccomp.CompileOutside(seccomp.NewFilter(seccomp.WASIGroups...)); err == nil {
		t.Error("a filter of EPERM is taken")
	}
}
