package cgroup

import "github.com/jail-sandbox/jail/jail"

// MakeCeiling makes the group that holds a run's leaf to the host's ceiling, if the plan has one. Remove takes it away when the leaf is gone.
func MakeCeiling(p jail.Plan) error {
	c := CeilingOf(p)
	if c == nil {
		return nil
	}
	return MakeBounded(c.Path, Bound{Ceiling: Ceiling{Memory: max(c.Memory, 0), PIDs: c.PIDs}, CPUQuota: c.CPUQuota, CPUPeriod: c.CPUPeriod})
}

// RemoveCeiling removes what MakeCeiling made.
func RemoveCeiling(p jail.Plan) error {
	c := CeilingOf(p)
	if c == nil {
		return nil
	}
	return Remove(c.Path)
}

// CeilingOf is that group, or nil.
func CeilingOf(p jail.Plan) *jail.Cgroup {
	if p.Ceiling == nil {
		return nil
	}
	return p.Ceiling.Cgroup
}
