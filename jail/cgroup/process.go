package cgroup

import (
	"fmt"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Enclose makes a leaf with a ceiling for one process of the host, and moves the process into it.
// Remove removes the leaf after the process has ended.
func Enclose(path string, c Ceiling, pid int) error {
	if err := checkLeaf(path); err != nil {
		return err
	}
	layout, err := Detect()
	if err != nil {
		return err
	}
	if layout == V2 {
		none := int64(0)
		leaf, err := cgroup2.NewManager(Root, path,
			&cgroup2.Resources{Memory: &cgroup2.Memory{Max: &c.Memory, Swap: &none},
				Pids: &cgroup2.Pids{Max: c.PIDs}})
		if err == nil {
			err = leaf.AddProc(uint64(pid))
		}
		return enclosed(path, err)
	}
	leaf, err := cgroup1.New(cgroup1.StaticPath(path), &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &c.Memory, Swap: &c.Memory},
		Pids:   &specs.LinuxPids{Limit: &c.PIDs}})
	if err == nil {
		err = leaf.AddProc(uint64(pid))
	}
	return enclosed(path, err)
}

func enclosed(path string, err error) error {
	if err != nil {
		return fmt.Errorf("control group %s: %w", path, err)
	}
	return nil
}
