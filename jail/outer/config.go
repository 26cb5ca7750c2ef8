package outer

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/seccomp"
)

// ptsMajor is the major device number of the terminals of a devpts.
const ptsMajor = 136

var namespaceTypes = map[jail.Namespace]specs.LinuxNamespaceType{
	"user": specs.UserNamespace, "mount": specs.MountNamespace, "pid": specs.PIDNamespace,
	"net": specs.NetworkNamespace, "ipc": specs.IPCNamespace, "uts": specs.UTSNamespace,
	"cgroup": specs.CgroupNamespace,
}

// HostKernel returns the config.json of a plan for a runtime whose containers use the host's
// kernel. Only mounts that must be made inside the new namespaces are in it; the root has the
// others.
func HostKernel(p jail.Plan, at Place) (*specs.Spec, error) {
	spec, err := common(p, at)
	if err != nil {
		return nil, err
	}
	flags := []string{"nosuid", "nodev", "noexec"}
	hidden := []string{"subset=pid", "hidepid=4"}
	if p.MachineInProc() {
		// It is narrowed after the files of the machine are mounted.
		hidden = hidden[1:]
	}
	for _, m := range p.Mounts {
		if m.Kind == jail.MountProc {
			spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.Target, Type: "proc",
				Source: "proc", Options: append(slices.Clone(flags), hidden...)})
		}
	}
	// With a bind on /dev the runtime makes no nodes of its own.
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/dev", Type: "bind",
		Source: filepath.Join(at.Root, "dev"), Options: []string{"rbind"}})
	for _, m := range p.Mounts {
		if m.Kind == jail.MountPTS {
			spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.Target, Type: "devpts",
				Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance",
					"ptmxmode=0666", "mode=0620", "max=64"}})
		}
	}
	return spec, nil
}

// kernelInside returns the config.json of a plan for a runtime with a kernel of its own, which
// enforces the rights of all mounts. The runtime makes /dev, /proc and /dev/pts itself.
func kernelInside(p jail.Plan, at Place) (*specs.Spec, error) {
	at.UserNS = ""
	spec, err := common(p, at)
	if err != nil {
		return nil, err
	}
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/proc", Type: "proc", Source: "proc",
		Options: []string{"nosuid", "nodev", "noexec"}})
	bind := func(target string, write, exec bool) {
		options := []string{"rbind", "nosuid", "nodev"}
		if !write {
			options = append(options, "ro")
		}
		if !exec {
			options = append(options, "noexec")
		}
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: target, Type: "bind",
			Source: filepath.Join(at.Root, target), Options: options})
	}
	for _, m := range p.Mounts {
		switch m.Kind {
		case jail.MountTmpfs, jail.MountBind, jail.MountCache:
			bind(m.Target, m.Write, m.Exec)
		case jail.MountMachine:
			spec.Mounts = append(spec.Mounts, specs.Mount{Destination: m.Target, Type: "bind",
				Source:  filepath.Join(at.Root, m.MachineFile()),
				Options: []string{"rbind", "nosuid", "nodev", "noexec", "ro"}})
		case jail.MountProc, jail.MountPTS:
		default:
			return nil, fmt.Errorf("mount %s: a %s cannot be there", m.Target, m.Kind)
		}
	}
	if w := p.Workspace; w != nil {
		bind(w.Target, w.Shadow, w.Exec)
	}
	bind(jail.InitPath, false, true)
	for _, l := range p.Rlimits {
		name, ok := rlimitNames[l.Name]
		if !ok {
			return nil, fmt.Errorf("rlimit %q: unknown name", l.Name)
		}
		if l.Name == "memlock" && l.Value > 0 {
			l.Value += usertrap
		}
		spec.Process.Rlimits = append(spec.Process.Rlimits,
			specs.POSIXRlimit{Type: name, Hard: l.Value, Soft: l.Value})
	}
	return spec, nil
}

// usertrap is the number of bytes that gVisor's platform systrap locks in each process. They count
// against RLIMIT_MEMLOCK.
const usertrap = 5 << 12

var rlimitNames = map[string]string{"core": "RLIMIT_CORE", "memlock": "RLIMIT_MEMLOCK",
	"msgqueue": "RLIMIT_MSGQUEUE", "nice": "RLIMIT_NICE", "rtprio": "RLIMIT_RTPRIO",
	"sigpending": "RLIMIT_SIGPENDING", "nofile": "RLIMIT_NOFILE", "fsize": "RLIMIT_FSIZE",
	"cpu": "RLIMIT_CPU"}

// common returns the part of config.json that is the same for every runtime.
func common(p jail.Plan, at Place) (*specs.Spec, error) {
	if p.Outer != nil && p.NetworkOf != "" {
		return nil, errors.New("no runtime joins the network namespace of another jail")
	}
	filter, err := Seccomp(p.OuterFilter)
	if err != nil {
		return nil, err
	}
	namespaces, err := namespaces(p, at)
	if err != nil {
		return nil, err
	}
	none := p.Capabilities
	return &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			User: specs.User{UID: p.IDs.UID, GID: p.IDs.GID}, Args: at.Args, Env: at.Env, Cwd: "/",
			Capabilities: &specs.LinuxCapabilities{Bounding: none, Effective: none,
				Inheritable: none, Permitted: none, Ambient: none},
			NoNewPrivileges: p.NoNewPrivileges, OOMScoreAdj: &p.Cgroup.OOMScore,
		},
		Root:     &specs.Root{Path: at.Root, Readonly: p.ImageRoot() == nil},
		Hostname: p.Hostname,
		Linux: &specs.Linux{UIDMappings: mappings(p.IDs, p.IDs.Base),
			GIDMappings: mappings(p.IDs, p.IDs.HostGroup()), Seccomp: filter, Namespaces: namespaces},
	}, nil
}

func namespaces(p jail.Plan, at Place) (all []specs.LinuxNamespace, err error) {
	for _, name := range p.Namespaces {
		kind, ok := namespaceTypes[name]
		if !ok {
			return nil, fmt.Errorf("namespace %q: unknown kind", name)
		}
		path := ""
		if kind == specs.UserNamespace {
			path = at.UserNS
		}
		all = append(all, specs.LinuxNamespace{Type: kind, Path: path})
	}
	return all, nil
}

func mappings(ids jail.IDs, base uint32) []specs.LinuxIDMapping {
	all := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: ids.Size}}
	for _, e := range ids.Extra {
		all = append(all, specs.LinuxIDMapping{ContainerID: e.Inside, HostID: e.Host, Size: 1})
	}
	return all
}

// Resources returns the limits and device rules of the plan's cgroup.
func Resources(p jail.Plan) (*specs.LinuxResources, error) {
	// Memory and swap together: no swap.
	r := &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &p.Cgroup.Memory, Swap: &p.Cgroup.Memory},
		Pids:   &specs.LinuxPids{Limit: &p.Cgroup.PIDs},
	}
	if p.Cgroup.CPUQuota > 0 {
		r.CPU = &specs.LinuxCPU{Quota: &p.Cgroup.CPUQuota, Period: &p.Cgroup.CPUPeriod}
	}
	var err error
	r.Devices, err = Devices(p.Devices,
		slices.ContainsFunc(p.Mounts, func(m jail.Mount) bool { return m.Kind == jail.MountPTS }))
	return r, err
}

// Devices returns cgroup device rules that allow to open the named device nodes, with pts also the
// terminals of a devpts, and no others.
func Devices(names []string, pts bool) ([]specs.LinuxDeviceCgroup, error) {
	rules := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	allow := func(major int64, minor *int64) {
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &major,
			Minor: minor, Access: "rw"})
	}
	for _, name := range names {
		number, ok := jail.DeviceNumbers[name]
		if !ok {
			return nil, fmt.Errorf("device %q: not one that a jail may have", name)
		}
		allow(number[0], &number[1])
	}
	if pts {
		allow(5, new(int64(2)))
		allow(ptsMajor, nil)
	}
	return rules, nil
}

// Seccomp returns an outer filter in the form of the runtime-spec. It refuses with SCMP_ACT_TRACE:
// without a tracer the call fails with ENOSYS, and the listener of the inner filter still gets it,
// since its action has precedence (seccomp(2)).
func Seccomp(f seccomp.Filter) (*specs.LinuxSeccomp, error) {
	if f.Errno != "ENOSYS" {
		return nil, fmt.Errorf("outer filter: errno %q: only ENOSYS is supported", f.Errno)
	}
	enosys := uint(38)
	out := &specs.LinuxSeccomp{DefaultAction: specs.ActTrace, DefaultErrnoRet: &enosys,
		Architectures: []specs.Arch{specs.ArchX86_64}}
	conditional := map[string]bool{}
	for _, c := range f.Only {
		conditional[c.Call] = true
		var args []specs.LinuxSeccompArg
		for _, b := range c.All() {
			args = append(args, specs.LinuxSeccompArg{Index: b.Arg, Value: b.Mask, ValueTwo: b.Value,
				Op: specs.OpMaskedEqual})
		}
		out.Syscalls = append(out.Syscalls, specs.LinuxSyscall{Names: []string{c.Call},
			Action: specs.ActAllow, Args: args})
	}
	var names []string
	for _, name := range f.Allow {
		if !conditional[name] {
			names = append(names, name)
		}
	}
	out.Syscalls = append(out.Syscalls, specs.LinuxSyscall{Names: names, Action: specs.ActAllow})
	return out, nil
}
