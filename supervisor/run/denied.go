package run

import (
	"strings"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/prepare"
)

// Layers of which the kernel tells. No word from inside may be in their names.
const (
	layerSeccomp  = "seccomp"
	layerLandlock = "landlock"
)

// totalsWait is how long the kernel may take to tell what the domains of a jail refused in all.
// They end after its last process, when nobody can look at them any more.
const totalsWait = 2 * time.Second

// A toldDenial is a refusal that the kernel reported, with its times. Nothing inside can change it.
type toldDenial struct {
	runners.Denial
	first, last time.Time
}

// kernelDenials are the refusals in a jail that the kernel reported.
type kernelDenials struct {
	told []toldDenial
	// atLeast says that the kernel dropped some of what it tells.
	atLeast bool
}

// follow starts to collect what Landlock refuses in the jail, before the tool runs, if the operator
// wants that and the kernel tells. Else it returns nil.
func (s Jails) follow(j *prepare.Job, proc *launch.Process) *denials.Jail {
	if s.Refusals == nil || j.Order.Compile || j.Holds.For > 0 {
		return nil
	}
	ids, domains := j.Plan.IDs, 1
	if j.Plan.Ceiling != nil {
		domains++
	}
	return s.Refusals.Follow(proc.PID, ids.Base, ids.Size, domains)
}

// endFollowing returns what Landlock has refused in a jail with that plan. The jail's processes
// have ended. followed may be nil.
func endFollowing(followed *denials.Jail, plan jail.Plan) (k kernelDenials) {
	if followed == nil {
		return k
	}
	all, atLeast := followed.End(totalsWait)
	k.atLeast = atLeast
	for _, a := range all {
		d := runners.Denial{Layer: layerLandlock,
			What: runners.Printable(seenPath(a.What), maxDeniedText),
			Rule: landlockRule(plan, a.What), Count: int(a.Count)}
		if a.What == "" {
			d.What, d.Rule = "further refusals, not told one by one", "the kernel's totals"
		}
		k.told = append(k.told, toldDenial{d, a.First, a.Last})
	}
	return k
}

// seenPath returns the kernel's text with the path by which the tool knows the file.
func seenPath(what string) string {
	rights, path, ok := strings.Cut(what, " ")
	if !ok || !strings.HasPrefix(path, "/") {
		return what
	}
	return rights + " " + jail.SeenPath(path)
}

// landlockRule says what the plan has on a path, or the ceiling where the plan alone would not have
// refused it.
func landlockRule(p jail.Plan, what string) string {
	rights, path, _ := strings.Cut(what, " ")
	// what has no path has a name in brackets, and any
	if !strings.HasPrefix(path, "/") || strings.Contains(rights, "(") {
		return "the plan's landlock domain"
	}
	if all := strings.Split(rights, ","); p.Ceiling != nil && p.Landlock.Grants(path, all) &&
		!p.Ceiling.Landlock.Grants(path, all) {
		return "the host's ceiling: " + p.Ceiling.Landlock.Says(path)
	}
	return p.Landlock.Says(path)
}

// addCalls adds the system calls that the inner filter refused.
func (k *kernelDenials) addCalls(plan jail.Plan, calls []control.Refused) {
	rule := "filter " + strings.Join(plan.InnerFilter.Groups, "+")
	for _, c := range calls {
		k.told = append(k.told, toldDenial{runners.Denial{Layer: layerSeccomp, What: c.What,
			Rule: rule, Count: int(c.Count), Probe: seccomp.IsProbe(c.What)}, c.First, c.Last})
	}
}

// list returns the denials, which are the last entries of Result.Denied.
func (k kernelDenials) list() (all []runners.Denial) {
	for _, d := range k.told {
		all = append(all, d.Denial)
	}
	return all
}

// Bounds on the texts of an answer, in bytes.
const (
	maxFailure  = 2 << 10
	maxSentence = 512
	maxClass    = 64
	// the largest signal
	maxSignal = 64
)

// checkAnswer takes from inside only what has the form of an answer: texts of bounded length that a
// terminal shows as they are. An honest jail-init says nothing else; one that a broken engine took
// over says what it likes.
func checkAnswer(said runners.Answer) runners.Answer {
	out := runners.Answer{Failure: runners.Printable(said.Failure, maxFailure),
		Layer: runners.Printable(said.Layer, maxClass), NoCwd: said.NoCwd,
		NoExec: said.NoExec}
	if said.Report == nil {
		return out
	}
	rep := *said.Report
	rep.Denied = checkDenied(rep.Denied)
	for i, d := range rep.Denied {
		rep.Denied[i].What, rep.Denied[i].Rule = runners.Printable(d.What, maxDeniedText),
			runners.Printable(d.Rule, maxDeniedText)
	}
	if rep.Trap != nil {
		rep.Trap = &runners.Trap{Class: runners.Printable(rep.Trap.Class, maxClass),
			Sentence: runners.Printable(rep.Trap.Sentence, maxSentence)}
	}
	if rep.Signal < 0 || rep.Signal > maxSignal {
		rep.Signal = 0
	}
	out.Report = &rep
	return out
}
