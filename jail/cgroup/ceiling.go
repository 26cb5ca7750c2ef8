package cgroup

import (
	"os"
	"strconv"

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
	return named(path, err)
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
		leaf, err := newV2(path, c)
		if err == nil {
			err = leaf.AddProc(uint64(pid))
		}
		return named(path, err)
	}
	leaf, err := newV1(path, c)
	if err == nil {
		err = leaf.AddProc(uint64(pid))
	}
	return named(path, err)
}
