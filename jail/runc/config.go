package runc

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

// Numbers of the device nodes that a plan may name (the kernel's
// Documentation/admin-guide/devices.txt).
type deviceNumber struct{ major, minor int64 }

var deviceNumbers = map[string]deviceNumber{"null": {1, 3}, "zero": {1, 5}, "full": {1, 7},
	"random": {1, 8}, "urandom": {1, 9}, "tty": {5, 0}}

// ptsNumbers are the nodes of a devpts: the one that makes terminals, and the terminals.
var ptsNumbers = []deviceNumber{{5, 2}, {136, devices.Wildcard}}

var namespaceTypes = map[jail.Namespace]configs.NamespaceType{
	"user": configs.NEWUSER, "mount": configs.NEWNS, "pid": configs.NEWPID, "net": configs.NEWNET,
	"ipc": configs.NEWIPC, "uts": configs.NEWUTS, "cgroup": configs.NEWCGROUP,
}

// newConfig writes the plan in libcontainer's words. root is where the jail's root is mounted,
// usernsPath names the user namespace that was made for it, and networkPath the network namespace
// of the plan's NetworkOf.
func newConfig(p jail.Plan, root, usernsPath, networkPath string) (*configs.Config, error) {
	namespaces, err := newNamespaces(p, usernsPath, networkPath)
	if err != nil {
		return nil, err
	}
	group, err := newCgroups(p)
	if err != nil {
		return nil, err
	}
	filter, err := newSeccomp(p.OuterFilter)
	if err != nil {
		return nil, err
	}
	var networks []*configs.Network
	// Elsewhere the loopback device is not the jail's to bring up.
	if slices.Contains(p.Namespaces, "net") && p.NetworkOf == "" {
		networks = []*configs.Network{{Type: "loopback"}}
	}
	return &configs.Config{
		Rootfs:            root,
		Readonlyfs:        p.ImageRoot() == nil,
		ParentDeathSignal: int(syscall.SIGKILL),
		RootPropagation:   syscall.MS_PRIVATE | syscall.MS_REC,
		Namespaces:        namespaces,
		UIDMappings:       newMappings(p.IDs, p.IDs.Base),
		GIDMappings:       newMappings(p.IDs, p.IDs.HostGroup()),
		Hostname:          p.Hostname,
		Mounts:            newMounts(p.Mounts, root),
		Capabilities:      newCapabilities(p.Capabilities),
		NoNewPrivileges:   p.NoNewPrivileges,
		Networks:          networks,
		OomScoreAdj:       &p.Cgroup.OOMScore,
		Seccomp:           filter,
		Cgroups:           group,
	}, nil
}

// newCgroups writes the control group of the plan in the library's words.
func newCgroups(p jail.Plan) (*cgroups.Cgroup, error) {
	// What is no node of the plan cannot be opened by whatever name it has.
	rules, err := deviceRules(p.Devices, slices.ContainsFunc(p.Mounts, isPTS))
	if err != nil {
		return nil, err
	}
	return &cgroups.Cgroup{Path: p.Cgroup.Path, Resources: &cgroups.Resources{
		Devices: rules,
		Memory:  p.Cgroup.Memory,
		// Memory and swap together: no swap.
		MemorySwap: p.Cgroup.Memory,
		PidsLimit:  &p.Cgroup.PIDs,
		CpuQuota:   p.Cgroup.CPUQuota,
		CpuPeriod:  p.Cgroup.CPUPeriod,
	}}, nil
}

// newNamespaces names those that are not new by their paths. libcontainer joins them while it still
// has the rights of this process over the user namespace of the other jail, and before it joins
// the jail's own, which gives none over them.
func newNamespaces(p jail.Plan, usernsPath, networkPath string) (configs.Namespaces, error) {
	var all configs.Namespaces
	for _, name := range p.Namespaces {
		kind, ok := namespaceTypes[name]
		if !ok {
			return nil, fmt.Errorf("namespace %q: unknown kind", name)
		}
		path := ""
		switch {
		case kind == configs.NEWUSER:
			path = usernsPath
		case kind == configs.NEWNET && p.NetworkOf != "":
			path = networkPath
		}
		all = append(all, configs.Namespace{Type: kind, Path: path})
	}
	return all, nil
}

// newCapabilities returns sets of which each holds all of names, so that a program of the jail
// keeps the capabilities of the plan when it executes another.
func newCapabilities(names []string) *configs.Capabilities {
	return &configs.Capabilities{Bounding: names, Effective: names, Inheritable: names,
		Permitted: names, Ambient: names}
}

func newMappings(ids jail.IDs, base uint32) []configs.IDMap {
	all := []configs.IDMap{{ContainerID: 0, HostID: int64(base), Size: int64(ids.Size)}}
	for _, e := range ids.Extra {
		all = append(all,
			configs.IDMap{ContainerID: int64(e.Inside), HostID: int64(e.Host), Size: 1})
	}
	return all
}

// newMounts leaves to libcontainer only what must be mounted inside the new namespaces: proc, and
// the jail's own terminals. That /dev is a bind tells it that the nodes are there already.
func newMounts(planned []jail.Mount, root string) []*configs.Mount {
	const flags = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
	var all []*configs.Mount
	for _, m := range planned {
		if m.Kind == jail.MountProc {
			options := "subset=pid,hidepid=4"
			if slices.ContainsFunc(planned, inProc) {
				// showMachine narrows it when the files of the machine are on it.
				options = "hidepid=4"
			}
			all = append(all, &configs.Mount{Device: "proc", Source: "proc", Destination: m.Target,
				Flags: flags, Data: options})
		}
	}
	all = append(all, &configs.Mount{Device: "bind", Source: filepath.Join(root, devDir),
		Destination: "/" + devDir,
		Flags:       syscall.MS_BIND | syscall.MS_REC})
	for _, m := range planned {
		if m.Kind == jail.MountPTS {
			all = append(all, &configs.Mount{Device: "devpts", Source: "devpts",
				Destination: m.Target,
				Flags:       syscall.MS_NOSUID | syscall.MS_NOEXEC, Data: ptsOptions})
		}
	}
	return all
}

// deviceRules let nodes be opened by their names in /dev, and the terminals of a devpts.
func deviceRules(names []string, pts bool) ([]*devices.Rule, error) {
	rules := []*devices.Rule{{Type: devices.WildcardDevice, Major: devices.Wildcard,
		Minor: devices.Wildcard, Permissions: "rwm", Allow: false}}
	allow := func(n deviceNumber) {
		rules = append(rules, &devices.Rule{Type: devices.CharDevice, Major: n.major,
			Minor: n.minor, Permissions: "rw", Allow: true})
	}
	for _, name := range names {
		number, ok := deviceNumbers[name]
		if !ok {
			return nil, fmt.Errorf("device %q: not one that a jail may have", name)
		}
		allow(number)
	}
	if pts {
		for _, n := range ptsNumbers {
			allow(n)
		}
	}
	return rules, nil
}

// newSeccomp refuses by an action that asks a tracer: a jail has none and can get none, and the
// kernel then answers ENOSYS. It does not hide from the inner filter's listener what is refused, as
// an errno would: of what several filters say the kernel takes the strictest, and refusing is
// stricter than telling, and telling than asking a tracer.
func newSeccomp(f seccomp.Filter) (*configs.Seccomp, error) {
	if f.Errno != "ENOSYS" {
		return nil, fmt.Errorf("outer filter: errno %q: only ENOSYS is supported", f.Errno)
	}
	if err := libseccomp.Check(f); err != nil {
		return nil, fmt.Errorf("outer filter: %w", err)
	}
	enosys := uint(syscall.ENOSYS)
	out := &configs.Seccomp{DefaultAction: configs.Trace, DefaultErrnoRet: &enosys}
	conditional := map[string]bool{}
	for _, c := range f.Only {
		conditional[c.Call] = true
		args := []*configs.Arg{{Index: c.Arg, Value: c.Mask, ValueTwo: c.Value,
			Op: configs.MaskEqualTo}}
		for _, b := range c.And {
			args = append(args, &configs.Arg{Index: b.Arg, Value: b.Mask, ValueTwo: b.Value,
				Op: configs.MaskEqualTo})
		}
		out.Syscalls = append(out.Syscalls,
			&configs.Syscall{Name: c.Call, Action: configs.Allow, Args: args})
	}
	for _, name := range f.Allow {
		if !conditional[name] {
			out.Syscalls = append(out.Syscalls, &configs.Syscall{Name: name, Action: configs.Allow})
		}
	}
	return out, nil
}
