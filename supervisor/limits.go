package supervisor

import (
	"errors"
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// errnoLimits are those that a tool knows as an error of a call only. No counter of the kernel
// tells of all of them, so the inside does; what it keeps to itself it does not get past either.
var errnoLimits = []string{"open_files", "file_size", "workspace", "workspace_files"}

// limitsMet returns the limits that the run met and did not end by, in a fixed order.
func (r *run) limitsMet(e end) []LimitHit {
	limits := r.job.eff.Policy().Limits
	var hits []LimitHit
	add := func(name string, peak int64) {
		if limit, _, ok := limits.Get(name); ok && limit != policy.Unlimited {
			hits = append(hits, LimitHit{name, limit, peak})
		}
	}
	if e.usage.OOMKills > 0 {
		add("memory", e.usage.MemoryPeak)
	} else if rep := e.answer.Report; rep != nil && rep.MemoryRefused != nil {
		// what it had, and not what it was refused
		add("memory", e.usage.MemoryPeak)
	}
	if e.usage.PIDsDenied > 0 {
		add("pids", e.usage.PIDsPeak)
	}
	said := map[string]int64{}
	if rep := e.answer.Report; rep != nil {
		for _, m := range rep.LimitsMet {
			said[m.Name] = m.Peak
		}
	}
	full := r.shadowFull()
	for _, name := range errnoLimits {
		limit, _, _ := limits.Get(name)
		peak, met := said[name]
		switch {
		case full[name]:
			add(name, limit)
		case met && (r.shadow() != nil || name == "open_files" || name == "file_size"):
			// in a shadow that has room again
			add(name, min(max(peak, 0), limit))
		}
	}
	return hits
}

// shadowFull says which of the shadow's limits are used up, as the host sees it.
func (r *run) shadowFull() map[string]bool {
	work := r.shadow()
	if work == nil {
		return nil
	}
	bytes, files, err := work.Room()
	if err != nil {
		// what the inside says remains
		return nil
	}
	return map[string]bool{"workspace": bytes == 0, "workspace_files": files == 0}
}

// recordLimits puts each limit that was met on record. killed says that a process of the run was
// killed because memory ran out.
func (r *run) recordLimits(met []LimitHit, killed bool) error {
	for _, l := range met {
		action := "refused"
		if l == met[0] && r.result.Signal != nil || l.Name == "memory" && killed {
			action = "killed"
		}
		if err := r.records.Record(audit.Limit{Name: l.Name, Limit: l.Limit, Peak: l.Peak,
			Action: action}); err != nil {
			return err
		}
	}
	return nil
}

// checkIO refuses a policy that bounds the use of disks where nothing below slice could hold it.
func checkIO(slice string, l policy.Limits) error {
	if l.IORead == policy.Unlimited && l.IOWrite == policy.Unlimited {
		return nil
	}
	if err := cgroup.MissingIO(slice); err != nil {
		return problem.MissingLayer("control groups",
			fmt.Sprintf("limits io_read and io_write need them to bound the use of disks: %v", err),
			"take io_read and io_write out of the policy, or enable the controller (blkio, or io of cgroup v2)", err)
	}
	return nil
}

// limitIO bounds how fast the jail uses the disks that it can reach: those of its workspace and of
// the daemon's state, where its shadow lies, and the shadow's own.
func (r *run) limitIO(leaf *cgroup.Leaf) error {
	c := r.job.plan.Cgroup
	if c.IORead == 0 && c.IOWrite == 0 {
		return nil
	}
	state, err := os.Open(r.s.config.StateDir)
	if err != nil {
		return problem.New(problem.Failed, "%w", err)
	}
	defer state.Close()
	files := append([]*os.File{state}, r.job.binds...)
	if r.job.source != nil {
		files = append(files, r.job.source)
	}
	if work := r.shadow(); work != nil {
		loop, err := work.Device()
		if err != nil {
			return problem.New(problem.Failed, "%w", err)
		}
		if loop != nil {
			files = append(files, loop)
		}
	}
	done := map[string]bool{}
	for _, f := range files {
		disk, err := cgroup.Disk(f)
		if err == nil && !done[disk] {
			done[disk] = true
			err = leaf.LimitIO(disk, c.IORead, c.IOWrite)
		}
		if err != nil {
			return problem.MissingLayer("control groups",
				fmt.Sprintf("limits io_read and io_write: %v", err),
				"take io_read and io_write out of the policy, or keep the workspace and the daemon's state on a disk", errors.Unwrap(err))
		}
	}
	return nil
}
