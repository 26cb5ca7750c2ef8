package cgroup

import "github.com/jail-sandbox/jail/jail"

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
