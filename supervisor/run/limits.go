package run

import (
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
)

// errnoLimits are the limits that a tool sees only as the error of a call. The kernel has no
// counter for all of them, so the inside reports them. If it does not report one, the limit still
// holds.
var errnoLimits = []string{"open_files", "file_size", "workspace", "workspace_files"}

// limitsMet returns the limits that a run met and did not end by, in a fixed order. work is the
// shadow that it worked on, or nil.
func limitsMet(limits policy.Limits, e end, work *workspace.Workspace) []message.LimitHit {
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
	full := shadowFull(work)
	for _, name := range errnoLimits {
		limit, _, _ := limits.Get(name)
		peak, met := said[name]
		switch {
		case full[name]:
			add(name, limit)
		case met && (work != nil || name == "open_files" || name == "file_size"):
			// in a shadow that has room again
			add(name, min(max(peak, 0), limit))
		}
	}
	return hits
}

// cachesFull returns a hit for each cache of the run that has no room left, as the host sees it.
func cachesFull(j *prepare.Job) (hits []message.LimitHit) {
	binds := j.Host.Binds
	for _, m := range j.Plan.Mounts {
		if !m.HasSource() || len(binds) == 0 {
			continue
		}
		f := binds[0]
		binds = binds[1:]
		if m.Kind != jail.MountCache {
			continue
		}
		// Where the host cannot tell, the tool has its error alone.
		bytes, files, err := workspace.CacheRoom(f)
		if err == nil && (bytes == 0 || files == 0) {
			hits = append(hits, message.LimitHit{Name: limitCache, Limit: m.Size, Peak: m.Size})
		}
	}
	return hits
}

// limitCache is the limit that a run meets where a cache of its has no room left.
const limitCache = "cache"

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
