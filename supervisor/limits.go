package supervisor

import (
	"errors"
	"fmt"
	"os"

	"github.com/jail-sandbox/jail/jail/cgroup"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// errnoLimits are those that a tool knows as an error of a call only. No counter of the kernel
// tells of all of them, so the inside does; what it keeps to itself it does not get past either.
var errnoLimits = []string{"open_files", "file_size", "workspace", "workspace_files"}

// limitsMet returns the limits that the run met and did not end by, in a fixed order.
func (r *run) limitsMet(e end) []message.LimitHit {
	limits := r.job.Policy.Policy().Limits
	var hits []message.LimitHit
	add := func(name string, peak int64) {
		if limit, _, ok := limits.Get(name); ok && limit != policy.Unlimited {
			hits = append(hits, message.LimitHit{Name: name, Limit: limit, Peak: peak})
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
	full := shadowFull(r.shadow())
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

// shadowFull says which of a shadow's limits are used up, as the host sees it. work may be nil.
func shadowFull(work *workspace.Workspace) map[string]bool {
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
func (r *run) recordLimits(met []message.LimitHit, killed bool) error {
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

// limitIO bounds how fast the jail uses the disks that it can reach: those of its workspace and of
// the daemon's state, where its shadow lies, and the shadow's own.
func (r *run) limitIO(leaf *cgroup.Leaf) error {
	c := r.job.Plan.Cgroup
	if c.IORead == 0 && c.IOWrite == 0 {
		return nil
	}
	state, err := os.Open(r.s.config.StateDir)
	if err != nil {
		return problem.New(problem.Failed, "%w", err)
	}
	defer state.Close()
	files := append([]*os.File{state}, r.job.Binds...)
	if r.job.Source != nil {
		files = append(files, r.job.Source)
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
