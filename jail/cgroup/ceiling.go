package cgroup

import (
	"fmt"
	"os"
	"strconv"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jail-sandbox/jail/jail"
)

// MakeCeiling makes the cgroup that holds a run's leaf to the host's ceiling, if the plan has a
// ceiling. Remove removes it after the leaf.
func MakeCeiling(p jail.Plan) error {
	c := CeilingOf(p)
	if c == nil {
		return nil
	}
	return MakeBounded(c.Path, Bound{Ceiling: Ceiling{Memory: max(c.Memory, 0), PIDs: c.PIDs},
		CPUQuota: c.CPUQuota, CPUPeriod: c.CPUPeriod})
}

// RemoveCeiling removes the cgroup that MakeCeiling made.
func RemoveCeiling(p jail.Plan) error {
	c := CeilingOf(p)
	if c == nil {
		return nil
	}
	return Remove(c.Path)
}

// CeilingOf returns the cgroup of the ceiling, or nil.
func CeilingOf(p jail.Plan) *jail.Cgroup {
	if p.Ceiling == nil {
		return nil
	}
	return p.Ceiling.Cgroup
}

// Bound bounds all jails of a session together. A zero field is no bound.
type Bound struct {
	Ceiling
	// CPUQuota is in microseconds of CPU time per period.
	CPUQuota int64
	// CPUPeriod is in microseconds.
	CPUPeriod uint64
}

// MakeBounded makes a cgroup below a slice for the leaves of jails that share a bound. The kernel
// applies the smallest bound on the way up. Remove removes the group after its leaves.
func MakeBounded(path string, b Bound) error {
	if err := checkLeaf(path); err != nil {
		return err
	}
	if err := MakeSlice(path, b.Ceiling); err != nil {
		return err
	}
	if b.CPUQuota <= 0 {
		return nil
	}
	g, err := Open(path)
	if err != nil {
		return err
	}
	quota, period := strconv.FormatInt(b.CPUQuota, 10), strconv.FormatUint(b.CPUPeriod, 10)
	if g.layout == V2 {
		err = os.WriteFile(g.file("cpu", "cpu.max"), []byte(quota+" "+period), 0)
	} else if err = os.WriteFile(g.file("cpu", "cpu.cfs_period_us"), []byte(period),
		0); err == nil {
		err = os.WriteFile(g.file("cpu", "cpu.cfs_quota_us"), []byte(quota), 0)
	}
	if err != nil {
		return fmt.Errorf("control group %s: %w", path, err)
	}
	return nil
}

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
