package main

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// A comparison is fair only if runc is told what the jail is told.
func TestBundleConfig(t *testing.T) {
	plan := jail.Plan{
		Namespaces: []jail.Namespace{"user", "mount", "pid", "net", "ipc", "uts", "cgroup"},
		IDs:        jail.IDs{Base: 0x70000000, Size: 65536},
		Cgroup:     jail.Cgroup{Memory: 1 << 28, PIDs: 32, CPUQuota: 100_000, CPUPeriod: 100_000},
		OuterFilter: seccomp.Filter{Allow: []string{"clone", "read", "write"},
			ENOSYS: []string{"clone3"}, Errno: "EPERM",
			Only: []seccomp.Condition{{Call: "clone", Arg: 0, Mask: 0xff00, Value: 0x0100}}},
	}
	c := bundleConfig(plan, "/group/leaf")
	got := map[specs.LinuxNamespaceType]bool{}
	for _, n := range c.Linux.Namespaces {
		got[n.Type] = true
	}
	for _, want := range []specs.LinuxNamespaceType{specs.UserNamespace, specs.MountNamespace,
		specs.PIDNamespace, specs.NetworkNamespace,
		specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace} {
		if !got[want] {
			t.Errorf("namespace %s is missing", want)
		}
	}
	r := c.Linux.Resources
	if *r.Memory.Limit != 1<<28 || *r.Memory.Swap != 1<<28 || *r.Pids.Limit != 32 ||
		*r.CPU.Quota != 100_000 {
		t.Errorf("limits %+v", r)
	}
	if c.Linux.UIDMappings[0].HostID != 0x70000000 || c.Linux.CgroupsPath != "/group/leaf" ||
		!c.Root.Readonly || !c.Process.NoNewPrivileges {
		t.Errorf("config %+v", c)
	}
	if s := c.Linux.Seccomp; s.DefaultAction != specs.ActErrno || len(s.Syscalls) != 3 ||
		len(s.Syscalls[0].Names) != 2 || s.Syscalls[2].Names[0] != "clone" ||
		s.Syscalls[2].Args[0] != (specs.LinuxSeccompArg{Index: 0, Value: 0xff00, ValueTwo: 0x0100,
			Op: specs.OpMaskedEqual}) {
		t.Errorf("filter %+v", s)
	}
	if caps := c.Process.Capabilities; caps == nil ||
		len(caps.Bounding)+len(caps.Effective)+len(caps.Permitted) != 0 {
		t.Errorf("capabilities %+v", caps)
	}
}

// The names of groups that do not exist are no error, and nothing else is removed.
func TestRemoveGroupsOfNobody(t *testing.T) {
	if err := removeGroups("/jail-bench-test-of-nobody"); err != nil {
		t.Error(err)
	}
}
