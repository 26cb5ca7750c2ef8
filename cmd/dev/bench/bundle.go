package main

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// runc returns the measurement of `runc run`. Its bundle is made from the plan of the jail that it
// is compared with: the same namespaces, the same limits, the same outer seccomp filter, no
// capabilities, a read-only root. What runc cannot do is left out: Landlock, the filter inside, a
// record, and a root that nothing of the host's is in.
func (b *bed) runc(ctx context.Context) (*subject, error) {
	s := &subject{name: runcTrue, bare: bareTrue, bwrap: bwrapTrue}
	runc, busybox := find("runc"), find("busybox")
	switch {
	case runc == "":
		s.missing = "runc is not installed"
		return s, nil
	case !static(busybox):
		s.missing = "a static true, of busybox-static, is not installed"
		return s, nil
	}
	plan, err := b.client.Plan(ctx, b.request(b.path("trivial.wasm"), nil, "small"))
	if err != nil {
		return nil, err
	}
	slice := "/jail-bench-" + strconv.Itoa(os.Getpid())
	b.undo = append(b.undo, func() error { return removeGroups(slice) })
	if err := b.writeBundle("bundle", bundleConfig(plan, slice+"/true"), busybox); err != nil {
		return nil, err
	}
	n := 0
	s.once = b.process("none", func() []string {
		n++
		return []string{runc, "--root", b.path("runc"), "run", "--bundle", b.path("bundle"),
			"bench-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(n)}
	})
	return s, nil
}

// static reports whether a program needs no interpreter: there are no libraries in the bundle.
func static(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// writeBundle makes a bundle with true and sleep in it.
func (b *bed) writeBundle(name string, spec *specs.Spec, busybox string) error {
	root := b.path(name, "rootfs")
	// runc may make none: they are not of its user namespace
	for _, dir := range []string{"bin", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	busyboxText, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	for _, program := range []string{"true", "sleep"} {
		if err := os.WriteFile(filepath.Join(root, "bin", program), busyboxText, 0o755); err != nil {
			return err
		}
	}
	config, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(b.path(name, "config.json"), config, 0o644)
}

// bundleConfig says in the words of the OCI what a plan says.
func bundleConfig(plan jail.Plan, group string) *specs.Spec {
	// The others have the same name in both.
	kinds := map[jail.Namespace]specs.LinuxNamespaceType{"net": specs.NetworkNamespace}
	var namespaces []specs.LinuxNamespace
	for _, n := range plan.Namespaces {
		kind, ok := kinds[n]
		if !ok {
			kind = specs.LinuxNamespaceType(n)
		}
		namespaces = append(namespaces, specs.LinuxNamespace{Type: kind})
	}
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: plan.IDs.Base, Size: plan.IDs.Size}}
	return &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{Args: []string{"/bin/true"}, Cwd: "/", NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{}},
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Hostname: plan.Hostname,
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc",
				Options: []string{"nosuid", "nodev", "noexec"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
				Options: []string{"nosuid", "mode=755", "size=64k"}},
		},
		Linux: &specs.Linux{
			Namespaces:  namespaces,
			UIDMappings: ids,
			GIDMappings: ids,
			CgroupsPath: group,
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
				Memory:  &specs.LinuxMemory{Limit: &plan.Cgroup.Memory, Swap: &plan.Cgroup.Memory},
				Pids:    &specs.LinuxPids{Limit: &plan.Cgroup.PIDs},
				CPU:     &specs.LinuxCPU{Quota: &plan.Cgroup.CPUQuota, Period: &plan.Cgroup.CPUPeriod},
			},
			Seccomp: bundleFilter(plan.OuterFilter),
		},
	}
}

func bundleFilter(f seccomp.Filter) *specs.LinuxSeccomp {
	eperm, enosys, enotsup := uint(syscall.EPERM), uint(syscall.ENOSYS), uint(syscall.ENOTSUP)
	einval := uint(syscall.EINVAL)
	var always []string
	for _, name := range f.Allow {
		if !slices.ContainsFunc(f.Only, func(c seccomp.Condition) bool { return c.Call == name }) {
			always = append(always, name)
		}
	}
	calls := []specs.LinuxSyscall{
		{Names: always, Action: specs.ActAllow},
		{Names: f.ENOSYS, Action: specs.ActErrno, ErrnoRet: &enosys},
	}
	if len(f.ENOTSUP) > 0 {
		calls = append(calls, specs.LinuxSyscall{Names: f.ENOTSUP, Action: specs.ActErrno,
			ErrnoRet: &enotsup})
	}
	if len(f.EINVAL) > 0 {
		calls = append(calls, specs.LinuxSyscall{Names: f.EINVAL, Action: specs.ActErrno,
			ErrnoRet: &einval})
	}
	for _, c := range f.Only {
		arg := specs.LinuxSeccompArg{Index: c.Arg, Value: c.Mask, ValueTwo: c.Value,
			Op: specs.OpMaskedEqual}
		calls = append(calls, specs.LinuxSyscall{Names: []string{c.Call}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{arg}})
	}
	return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &eperm,
		Syscalls: calls}
}

// removeGroups removes the control groups that runc leaves: those of the name that was ours alone,
// in whichever hierarchies it made them.
func removeGroups(slice string) error {
	var err error
	for _, pattern := range []string{cgroup.Root + slice, cgroup.Root + "/*" + slice} {
		dirs, globErr := filepath.Glob(pattern)
		err = errors.Join(err, globErr)
		for _, dir := range dirs {
			leaves, globErr := filepath.Glob(dir + "/*/")
			err = errors.Join(err, globErr)
			for _, d := range append(leaves, dir) {
				// rmdir and nothing else: what is not empty is not ours to empty.
				if rmErr := syscall.Rmdir(d); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
					err = errors.Join(err, fmt.Errorf("control group %s: %w", d, rmErr))
				}
			}
		}
	}
	return err
}

// request asks for a tool to run in one of the directories.
func (b *bed) request(tool string, args []string, dir string) message.Request {
	return message.Request{Tool: tool, Args: args, Dir: b.path(dir)}
}
