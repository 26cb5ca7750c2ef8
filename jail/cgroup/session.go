package cgroup

import (
	"fmt"
	"os"
	"strconv"
)

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
