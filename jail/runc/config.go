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

// newConfig returns the plan as a configuration of libcontainer. root is the directory on which the
// jail's root is mounted, usernsPath the user namespace that was made for it, and networkPath the
// network namespace of the plan's NetworkOf.
//
// libcontainer joins namespaces that are given by path before it joins the jail's user namespace,
// in which it would have no rights over the other jail's.
func newConfig(p jail.Plan, root, usernsPath, networkPath string) (*configs.Config, error) {
	spec, err := outer.HostKernel(p, outer.Place{Root: root})
	if err != nil {
		return nil, err
	}
	// Both are set below: specconv would add to them.
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
		// The other jail has brought up its loopback device.
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

// newCgroups returns the plan's cgroup as a configuration of libcontainer. Its device rules allow
// only the numbers of the plan's nodes, whatever name a node has.
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

// newSeccomp returns an outer filter as a configuration of libcontainer.
func newSeccomp(f seccomp.Filter) (*configs.Seccomp, error) {
	filter, err := outer.Seccomp(f)
	if err != nil {
		return nil, err
	}
	if err := libseccomp.Check(f); err != nil {
		return nil, fmt.Errorf("outer filter: %w", err)
	}
	// Without architectures the filter is for the host's. The flags are empty and not nil: with
	// nil, specconv adds a flag that turns a mitigation off.
	filter.Architectures, filter.Flags = nil, []specs.LinuxSeccompFlag{}
	return specconv.SetupSeccomp(filter)
}
