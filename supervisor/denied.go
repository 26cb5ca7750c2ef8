package supervisor

import (
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// Layers of which the kernel tells. No word from inside may be in their names.
const (
	layerSeccomp  = "seccomp"
	layerLandlock = "landlock"
)

// totalsWait is how long the kernel may take to tell what the domains of a jail refused in all. They end after its last process, when nobody can
// look at them any more.
const totalsWait = 2 * time.Second

// A toldDenial is one of which the kernel told, and when: exact, whatever runs inside.
type toldDenial struct {
	runners.Denial
	first, last time.Time
}

// follow begins to collect what Landlock refuses in the jail, before the tool runs, where the operator wants that and the kernel tells.
func (r *run) follow(proc *launch.Process) {
	if r.s.refusals == nil || r.job.compile || r.job.hold != nil {
		return
	}
	ids, domains := r.job.plan.IDs, 1
	if r.job.plan.Ceiling != nil {
		domains++
	}
	r.followed = r.s.refusals.Follow(proc.PID, ids.Base, ids.Size, domains)
}

// dropFollowed forgets what was refused in a run that came to nothing.
func (r *run) dropFollowed() {
	if r.followed != nil {
		r.followed.Drop()
	}
}

// endFollowing collects what Landlock refused; the jail's processes have ended.
func (r *run) endFollowing() {
	if r.followed == nil {
		return
	}
	all, atLeast := r.followed.End(totalsWait)
	r.followed = nil
	if r.atLeast = atLeast; atLeast {
		r.result.Warnings = append(r.result.Warnings, "the kernel dropped some of what it tells of refused paths: there may be more of them than denied says")
	}
	for _, a := range all {
		d := runners.Denial{Layer: layerLandlock, What: runners.Printable(a.What, maxDeniedText), Rule: landlockRule(r.job.plan, a.What), Count: int(a.Count)}
		if a.What == "" {
			d.What, d.Rule = "further refusals, not told one by one", "the kernel's totals"
		}
		r.told = append(r.told, toldDenial{d, a.First, a.Last})
	}
}

// landlockRule says what the plan has on a path, or the ceiling where the plan alone would not have refused it.
func landlockRule(p jail.Plan, what string) string {
	rights, path, _ := strings.Cut(what, " ")
	if !strings.HasPrefix(path, "/") || strings.Contains(rights, "(") { // what has no path has a name in brackets, and any
		return "the plan's landlock domain"
	}
	if all := strings.Split(rights, ","); p.Ceiling != nil && p.Landlock.Grants(path, all) && !p.Ceiling.Landlock.Grants(path, all) {
		return "the host's ceiling: " + p.Ceiling.Landlock.Says(path)
	}
	return p.Landlock.Says(path)
}

// refusedCalls adds the system calls that the inner filter refused.
func (r *run) refusedCalls() {
	rule := "filter " + strings.Join(r.job.plan.InnerFilter.Groups, "+")
	for _, c := range r.refused {
		r.told = append(r.told, toldDenial{runners.Denial{Layer: layerSeccomp, What: c.What, Rule: rule, Count: int(c.Count)}, c.First, c.Last})
	}
}

// denials are what the kernel told, the last entries of result.Denied.
func (r *run) denials() (all []runners.Denial) {
	r.refusedCalls()
	for _, d := range r.told {
		all = append(all, d.Denial)
	}
	return all
}

// recordDenied puts what was refused on record, each thing once with its count. When the first and the last were is known of what the kernel
// told; of the rest there is the word of the inside alone, which is not taken for that.
func (r *run) recordDenied() error {
	said := len(r.result.Denied) - len(r.told)
	for i, d := range r.result.Denied {
		e := audit.Denied{Layer: d.Layer, What: d.What, Rule: d.Rule, Count: int64(d.Count)}
		if i >= said {
			e.First, e.Last = r.told[i-said].first, r.told[i-said].last
		}
		if err := r.record(e); err != nil {
			return err
		}
	}
	if !r.atLeast {
		return nil
	}
	return r.record(audit.Gap{Reason: "the kernel's audit dropped records of what Landlock refused", Count: -1})
}

// openRefusals begins to read what Landlock refuses on this host. Where that is not to be had the daemon does without: no wall depends on it, and jail
// doctor says why.
func (s *Supervisor) openRefusals() {
	if s.config.Refusals {
		s.refusals, _ = denials.Start()
	}
}

// closeRefusals ends that. No run is active any more.
func (s *Supervisor) closeRefusals() {
	if s.refusals != nil {
		_ = s.refusals.Close() // nothing is read any more in any case
	}
}
