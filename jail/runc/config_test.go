package runc

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

func plan() jail.Plan {
	return jail.Plan{
		ID: "x", Hostname: "jail", NoNewPrivileges: true,
		Namespaces: []jail.Namespace{"user", "mount", "pid", "net", "ipc", "uts", "cgroup"},
		IDs: jail.IDs{Base: 0x70000000, Size: 65535, UID: 7, GID: 8,
			Extra: []jail.IDMap{{Inside: 1 << 20, Host: 0x7000ffff}}},
		Cgroup: jail.Cgroup{Path: "/jail/x", Memory: 1 << 26, PIDs: 32, CPUQuota: 50000,
			CPUPeriod: 100000, OOMScore: 500},
		Mounts: []jail.Mount{{Kind: jail.MountProc, Target: "/proc"},
			{Kind: jail.MountTmpfs, Target: "/tmp", Write: true}},
		Devices:     []string{"null", "zero"},
		OuterFilter: seccomp.NewOuterFilter("runtime", "wasi", "init"),
	}
}

// TestConfig: every layer of the plan is in libcontainer's words.
func TestConfig(t *testing.T) {
	p := plan()
	c, err := newConfig(p, "/mnt", "/proc/1/fd/9", "/proc/1/fd/8")
	if err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"root":        c.Rootfs == "/mnt" && c.Readonlyfs,
		"propagation": c.RootPropagation == syscall.MS_PRIVATE|syscall.MS_REC,
		"privileges": c.NoNewPrivileges &&
			len(c.Capabilities.Bounding)+len(c.Capabilities.Effective)+len(
				c.Capabilities.Permitted)+len(c.Capabilities.Inheritable)+len(
				c.Capabilities.Ambient) == 0,
		"namespaces": len(c.Namespaces) == 7 &&
			c.Namespaces.PathOf(configs.NEWUSER) == "/proc/1/fd/9" &&
			c.Namespaces.IsPrivate(configs.NEWNET),
		"ids": len(c.UIDMappings) == 2 && len(c.GIDMappings) == 2 &&
			c.UIDMappings[1].ContainerID == 1<<20 && c.UIDMappings[1].HostID == 0x7000ffff &&
			c.UIDMappings[1].Size == 1,
		"network": len(c.Networks) == 1 && c.Networks[0].Type == "loopback",
		"memory": c.Cgroups.Resources.Memory == 1<<26 &&
			c.Cgroups.Resources.MemorySwap == 1<<26,
		"tasks": *c.Cgroups.Resources.PidsLimit == 32,
		"cpu": c.Cgroups.Resources.CpuQuota == 50000 &&
			c.Cgroups.Resources.CpuPeriod == 100000,
		"devices": len(c.Cgroups.Resources.Devices) == 3 &&
			!c.Cgroups.Resources.Devices[0].Allow && c.Cgroups.Path == "/jail/x",
		"out of memory": *c.OomScoreAdj == 500,
		"filter": c.Seccomp != nil && c.Seccomp.DefaultAction == configs.Trace &&
			*c.Seccomp.DefaultErrnoRet == uint(syscall.ENOSYS) && len(c.Seccomp.Syscalls) > 60,
		"ending": c.ParentDeathSignal == int(syscall.SIGKILL),
	} {
		if !ok {
			t.Errorf("%s: not as planned: %+v", what, c)
		}
	}
	for _, call := range c.Seccomp.Syscalls {
		if call.Name == "clone" && (len(call.Args) != 1 || call.Args[0].Op != configs.MaskEqualTo) {
			t.Errorf("clone is allowed with %v", call.Args)
		}
	}
	for _, m := range c.Mounts {
		if m.Destination == "/proc" && (m.Flags&syscall.MS_NOSUID == 0 ||
			m.Flags&syscall.MS_NODEV == 0 || m.Flags&syscall.MS_NOEXEC == 0 ||
			!strings.Contains(m.Data, "subset=pid")) {
			t.Errorf("proc: %+v", m)
		}
	}
}

// TestConfigNetworkOf: a jail that has the network namespace of another joins that one, and leaves
// its loopback as it is. It never joins the host's.
func TestConfigNetworkOf(t *testing.T) {
	p := plan()
	p.NetworkOf = "session"
	c, err := newConfig(p, "/mnt", "/proc/1/fd/9", "/proc/1/fd/8")
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespaces.PathOf(configs.NEWNET) != "/proc/1/fd/8" || len(c.Networks) != 0 {
		t.Errorf("%+v, %+v", c.Namespaces, c.Networks)
	}
	host, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if err := checkNetwork(p, host); err == nil {
		t.Error("it may have the host's")
	}
	p.NetworkOf = ""
	if err := checkNetwork(p, host); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// TestConfigRefused: what the plan says and libcontainer could not do is an error.
func TestConfigRefused(t *testing.T) {
	for says, change := range map[string]func(*jail.Plan){
		`namespace "moon"`: func(p *jail.Plan) { p.Namespaces = append(p.Namespaces, "moon") },
		`device "kvm"`:     func(p *jail.Plan) { p.Devices = append(p.Devices, "kvm") },
		`device "../kvm"`:  func(p *jail.Plan) { p.Devices = append(p.Devices, "../kvm") },
		`"moonwalk"`: func(p *jail.Plan) {
			p.OuterFilter.Allow = append(p.OuterFilter.Allow, "moonwalk")
		},
		`errno "ENOENT"`: func(p *jail.Plan) { p.OuterFilter.Errno = "ENOENT" },
	} {
		p := plan()
		change(&p)
		if c, err := newConfig(p, "/mnt", "", ""); err == nil || c != nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestRootPath never covers the directory of the run itself.
func TestRootPath(t *testing.T) {
	first, err := rootPath("/run/jail/x")
	if err != nil {
		t.Skip(err)
	}
	for _, dir := range []string{first, first + "/x"} {
		if other, err := rootPath(dir); err == nil && other == first {
			t.Errorf("the root of a run in %s is built on %s", dir, other)
		}
	}
}

func TestDeviceNodes(t *testing.T) {
	for _, name := range []string{"kvm", "", "..", "null/x"} {
		if err := bindDevice(name, t.TempDir()+"/node"); err == nil {
			t.Errorf("device %q was bound", name)
		}
	}
}
