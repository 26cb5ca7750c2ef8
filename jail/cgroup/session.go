package cgroup

import (
	"fmt"
	"os"
	"strconv"
)

// A Bound is what all jails of a session may have together. Zero is no bound.
type Bound struct {
	Ceiling
	CPUQuota  int64  // microseconds of CPU time in each period
	CPUPeriod uint64 // microseconds
}

// MakeBounded makes a control group below a slice, for the leaves of jails that share a bound: the kernel takes the least of the bounds on the way up.
// Remove takes it away when the leaves are gone.
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
	} else if err = os.WriteFile(g.file("cpu", "cpu.cfs_period_us"), []byte(period), 0); err == nil {
		err = os.WriteFile(g.file("cpu", "cpu.cfs_quota_us"), []byte(quota), 0)
	}
	if err != nil {
		return fmt.Errorf("control group %s: %w", path, err)
	}
	return nil
}
