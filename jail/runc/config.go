package runc

import (
	"fmt"
	"syscall"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/outer"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/seccomp/libseccomp"
)

// newConfig writes the plan in libcontainer's words: those of the runtime-spec, and what that has no
// words for. root is where the jail's root is mounted, usernsPath names the user namespace that was
// made for it, and networkPath the network namespace of the plan's NetworkOf.
//
// libcontainer joins the namespaces of paths while it still has the rights of this process over the
// user namespace of the other jail, and before it joins the jail's own, which gives none over them.
func newConfig(p jail.Plan, root, usernsPath, networkPath string) (*configs.Config, error) {
	spec, err := outer.HostKernel(p, outer.Place{Root: root})
	if err != nil {
		return nil, err
	}
	// Each is set below as it is to be: specconv adds to them.
	spec.Linux.Seccomp, spec.Linux.Resources = nil, nil
	config, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{Spec: spec})
	if err != nil {
		return nil, err
	}
	if config.Cgroups, err = newCgroups(p); err != nil {
		return nil, err
	}
	if config.Seccomp, err = newSeccomp(p.OuterFilter); err != nil {
		return nil, err
	}
	config.Devices = nil
	// libcontainer refuses ids for a jail that has no user namespace.
	config.UIDMappings, config.GIDMappings = idMaps(spec.Linux.UIDMappings),
		idMaps(spec.Linux.GIDMappings)
	if config.Namespaces.Contains(configs.NEWUSER) {
		config.Namespaces.Add(configs.NEWUSER, usernsPath)
	}
	if p.NetworkOf != "" {
		// Its loopback device is not the jail's to bring up.
		config.Namespaces.Add(configs.NEWNET, networkPath)
		config.Networks = nil
	}
	config.ParentDeathSignal = int(syscall.SIGKILL)
	config.RootPropagation = syscall.MS_PRIVATE | syscall.MS_REC
	return config, nil
}

func idMaps(all []specs.LinuxIDMapping) (maps []configs.IDMap) {
	for _, m := range all {
		maps = append(maps, configs.IDMap{ContainerID: int64(m.ContainerID), HostID: int64(m.HostID),
			Size: int64(m.Size)})
	}
	return maps
}

// newCgroups writes the control group of the plan in the library's words. What is no node of the plan
// cannot be opened by whatever name it has.
func newCgroups(p jail.Plan) (*cgroups.Cgroup, error) {
	resources, err := outer.Resources(p)
	if err != nil {
		return nil, err
	}
	return newGroup(p.Cgroup.Path, resources)
}

func newGroup(path string, resources *specs.LinuxResources) (*cgroups.Cgroup, error) {
	return specconv.CreateCgroupConfig(&specconv.CreateOpts{Spec: &specs.Spec{
		Linux: &specs.Linux{CgroupsPath: path, Resources: resources}}}, nil)
}

// newSeccomp writes an outer filter in the library's words.
func newSeccomp(f seccomp.Filter) (*configs.Seccomp, error) {
	filter, err := outer.Seccomp(f)
	if err != nil {
		return nil, err
	}
	if err := libseccomp.Check(f); err != nil {
		return nil, fmt.Errorf("outer filter: %w", err)
	}
	// Without architectures it is that of this host. No flags are not the same as nil, with which
	// specconv has the kernel leave a mitigation out.
	filter.Architectures, filter.Flags = nil, []specs.LinuxSeccompFlag{}
	return specconv.SetupSeccomp(filter)
}
