package run

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/jail/control"
	"github.com/jail-sandbox/jail/jail/denials"
	"github.com/jail-sandbox/jail/jail/launch"
	"github.com/jail-sandbox/jail/jail/seccomp"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/ending"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runshadow"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// conclude makes the result of the run from the end of its jail, records it and keeps, commits or
// discards the shadow as requested. unmount ends all that still mounts the shadow.
func (s *Runner) conclude(r *Run, res message.Result, e end, shadow *runshadow.Shadow,
	unmount func()) (message.Result, error) {
	cause := r.Ended()
	res, met := outcome(r.job, cause, res, e, r.shadow(shadow.Workspace()))
	if err := s.failure(r.job, cause, res, e); err != nil {
		return res, err
	}
	if err := recordEnd(r.records, r.job, res, e, met); err != nil {
		return res, err
	}
	if r.holder != nil && !r.holder.Sleeps() {
		shadow.Ends()
		if shadow == nil {
			s.Shadows.Approvals().SessionEnded(string(r.job.ID))
		}
	}
	if e.waits != nil && cause == nil {
		// Not a success, whatever the tool made of it: nothing is committed unasked.
		res.Error = problem.From(e.waits)
		res.ExitCode = res.Error.Exit()
	}
	res, err := review(r.job, r.fate(), cause, res, shadow, unmount)
	if err != nil {
		return res, err
	}
	if rep := e.answer.Report; rep != nil && r.in.Keep != nil && r.job.Req.KeepEnv {
		if res.Kept = r.in.Keep(rep.Kept); res.Kept != nil && res.Kept.Error != "" {
			res.Warnings = append(res.Warnings, res.Kept.Error)
		}
	}
	if r.in.After != nil {
		res = afterInvocation(res, r.in.After())
	}
	return res, recordFinished(r.records, res, e)
}

// maxLeft bounds how many uncommitted changes a result lists.
const maxLeft = 100

// afterInvocation adds to the result of an invocation the automatic commit that followed it. A
// warning names the changes that were left for a person to review. done may be nil.
func afterInvocation(res message.Result, done *shadows.AutoCommit) message.Result {
	if done == nil {
		return res
	}
	res.Commit = done
	if done.Error != "" {
		res.Warnings = append(res.Warnings, "nothing was committed: "+done.Error)
	}
	if n := len(done.Left); n > 0 {
		text := fmt.Sprintf("%s: %s", done.Left[0].Path, done.Left[0].Why)
		if n > 1 {
			text += fmt.Sprintf("; and %d more", n-1)
		}
		res.Warnings = append(res.Warnings, "left for you, and not committed: "+text+
			" (jail diff lists the changes of the session)")
		done.Left = done.Left[:min(n, maxLeft)]
	}
	return res
}

// failure returns the error of a run whose tool did not start, or nil. A run that was ended from
// outside has none.
func (s *Runner) failure(j *prepare.Job, cause *ending.Cause, res message.Result, e end) error {
	if cause != nil {
		return nil
	}
	switch a := e.answer; {
	case a.Report == nil && a.Failure == "" && e.status.Signal == 0 && res.Limit == nil:
		// It ended without a report: the tool did not start, or its end could not be reported.
		return problem.New(problem.Failed,
			"jail-init ended with code %d and did not say how the run went", e.status.Code)
	case a.Layer != "" && a.Report == nil:
		return s.Jails.Layers.Missing(a.Layer, a.Failure, nil)
	case j.Order.Compile || res.Limit != nil:
		return nil
	case a.NoCwd != 0:
		return prepare.NoCwd(j.Plan.Command.Cwd, syscall.Errno(a.NoCwd))
	case a.NoExec != 0:
		return prepare.NoExec(j.Tool.Name, syscall.Errno(a.NoExec))
	case a.Failure != "":
		return problem.New(problem.Failed, "tool %s: %s", j.Tool.Name, a.Failure)
	}
	return nil
}

// outcome adds usage, refusals, exit code and signal to a result. It also returns the limits that
// the run met, first the one that ended it. c is why the run was ended from outside, or nil. work
// is the run's shadow, or nil.
func outcome(j *prepare.Job, c *ending.Cause, res message.Result, e end,
	work *workspace.Workspace) (_ message.Result, met []message.LimitHit) {
	res.Truncated = e.pipes.Truncated()
	res.Usage = message.Usage{WallMS: e.wall.Milliseconds(), CPUMS: e.usage.CPU.Milliseconds(),
		MemoryPeak: e.usage.MemoryPeak, PIDsPeak: e.usage.PIDsPeak,
		ThrottledMS: e.usage.Throttled.Milliseconds(), IORead: e.usage.IORead,
		IOWrite: e.usage.IOWrite, FetchBytesIn: e.fetched.FetchBytesIn,
		FetchBytesOut: e.fetched.FetchBytesOut, FetchRequests: e.fetched.FetchRequests}
	if rep := e.answer.Report; rep != nil {
		res.Denied = append(res.Denied, checkDenied(rep.Denied)...)
		res.Trap = rep.Trap
		if j.Tool.Native != "" {
			res.LeftProcesses = min(max(rep.LeftProcesses, 0), j.Policy.Policy().Limits.PIDs)
		}
	}
	// recordDenied relies on the order: the kernel's reports come last.
	res.Denied = append(res.Denied, e.unfetched...)
	for _, d := range e.told.told {
		res.Denied = append(res.Denied, d.Denial)
	}
	if e.told.atLeast {
		res.Warnings = append(res.Warnings,
			"the kernel dropped some of what it tells of refused paths: "+
				"there may be more of them than denied says")
	}
	res.ExitCode = e.status.Code
	signal := e.status.Signal
	if rep := e.answer.Report; rep != nil && j.Tool.Native != "" && signal == 0 &&
		rep.Signal > 0 && e.status.Code == problem.ExitSignal+rep.Signal {
		// The signal ended the program; process 1 ended by itself, with the exit code for this
		// signal.
		signal = rep.Signal
	}
	if c != nil && c.ByOthers() && e.status.Signal == 0 && e.answer.Report != nil {
		// The tool ended first: an end by the caller or the daemon would show as a signal.
		c = nil
	}
	limits := j.Policy.Policy().Limits
	switch {
	case c != nil && c.Limit != "":
		res.Limit = limitHit(limits, *c)
	case c != nil && c.Over:
		// The session was stopped, and its jail runs no tool.
		signal, res.ExitCode = 0, 0
	case c != nil && (c.Gone || c.Fault != nil):
		signal = int(syscall.SIGKILL)
	case c != nil:
		signal = c.Signal
		if c.Daemon != "" {
			res.Warnings = append(res.Warnings,
				"the daemon was stopped or restarted, and ended this run ("+c.Daemon+")")
		}
		if c.Grant != "" {
			res.Warnings = append(res.Warnings,
				"the grant "+c.Grant+", by which this run had more than its profile, is over")
		}
	case signal == int(syscall.SIGKILL) && e.usage.OOMKills > 0:
		res.Limit = limitHit(limits, ending.Cause{Limit: "memory", Peak: e.usage.MemoryPeak})
	case signal == int(syscall.SIGKILL) && e.usage.CPU >= limits.CPUTime:
		// The kernel was faster than the watch.
		res.Limit = limitHit(limits, ending.Cause{Limit: ending.LimitCPUTime,
			Peak: e.usage.CPU.Milliseconds()})
	}
	if res.Limit != nil {
		met = []message.LimitHit{*res.Limit}
	}
	for _, hit := range append(limitsMet(limits, e, work), cachesFull(j)...) {
		if res.Limit == nil || hit.Name != res.Limit.Name {
			met = append(met, hit)
		}
	}
	nameLayer(j.Plan, met)
	if len(met) > 0 && (res.Limit == nil || met[0].Name == res.Limit.Name) {
		res.Limit = &met[0]
	}
	if signal == 0 {
		if c != nil && ending.IsTime(c.Limit) {
			// It ended within the grace, with its own exit code.
			res.ExitCode = problem.ExitTime
		}
		return res, met
	}
	name := signalName(syscall.Signal(signal))
	res.Signal, res.ExitCode = &name, problem.ExitSignal+signal
	if res.Limit != nil && ending.IsTime(res.Limit.Name) {
		res.ExitCode = problem.ExitTime
	}
	return res, met
}

// nameLayer sets the outer sandbox as the layer of each hit whose limit also counts the outer
// sandbox's own use.
func nameLayer(p jail.Plan, hits []message.LimitHit) {
	if p.Outer == nil {
		return
	}
	own := map[string]bool{"memory": p.Outer.Memory > 0, "pids": p.Outer.PIDs > 0}
	for i := range hits {
		if own[hits[i].Name] {
			hits[i].Layer = p.Outer.Layer
		}
	}
}

// limitHit returns the limit that ended a run, with its bound and peak.
func limitHit(l policy.Limits, c ending.Cause) *message.LimitHit {
	hit := &message.LimitHit{Name: c.Limit, Limit: c.Allowed, Peak: c.Peak}
	switch c.Limit {
	case ending.LimitIdle, ending.LimitTime:
		// These limits are not in the policy; c.Allowed is their bound.
	case ending.LimitWall:
		hit.Limit = l.Wall.Milliseconds()
	case ending.LimitCPUTime:
		hit.Limit = l.CPUTime.Milliseconds()
	default:
		hit.Limit, _, _ = l.Get(c.Limit)
	}
	return hit
}

// maxDenied and maxDeniedText (in bytes) bound the denials that a report from inside the jail may
// contain.
const (
	maxDenied     = 100
	maxDeniedText = 8 << 10
)

// checkDenied returns the well-formed denials of a report from inside the jail, at most maxDenied.
func checkDenied(said []runners.Denial) []runners.Denial {
	var out []runners.Denial
	for _, d := range said[:min(len(said), maxDenied)] {
		if d.Layer != "wasi" && d.Layer != "policy" || d.Count < 1 || len(d.What) > maxDeniedText ||
			len(d.Rule) > maxDeniedText {
			continue
		}
		// Only the host decides which denials are probes.
		d.Probe = false
		out = append(out, d)
	}
	return out
}

// review counts the changes of the run and keeps, commits or discards its shadow as fate says. It
// does nothing for a run without a shadow of its own.
func review(j *prepare.Job, fate message.Fate, c *ending.Cause, res message.Result,
	shadow *runshadow.Shadow, unmount func()) (message.Result, error) {
	var fault error
	if c != nil {
		fault = c.Fault
	}
	if shadow == nil {
		if fault == nil {
			return res, nil
		}
		// The session of an invocation was ended because the disk did not take its shadow.
		id := j.Session()
		return res, problem.New(problem.Failed, "session %s was ended: %w", id, fault).
			WithHint("make room on that disk; jail diff " + id + " shows what was saved")
	}
	end, err := shadow.Review(fate, res.ExitCode == 0, fault, unmount)
	res.Workspace, res.Changes = end.Workspace, end.Changes
	res.Usage.WorkspaceBytes = end.Bytes
	return res, err
}

// fate returns what happens to a changed shadow if the tool succeeds: the wish of the request or of
// the stop of a session, else the policy's.
func (r *Run) fate() message.Fate {
	fate := r.job.Req.Fate
	if r.holder != nil {
		if settled := r.holder.Fate(); settled != message.FateDefault {
			fate = settled
		}
	}
	if fate == message.FateDefault && r.job.Policy.Policy().Workspace.Commit == policy.CommitAuto {
		fate = message.FateCommit
		if r.holder != nil {
			fate = message.FateAuto
		}
	}
	return fate
}

var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT",
	syscall.SIGILL: "SIGILL", syscall.SIGABRT: "SIGABRT",
	syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGKILL: "SIGKILL",
	syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE",
	syscall.SIGTERM: "SIGTERM", syscall.SIGXCPU: "SIGXCPU", syscall.SIGSYS: "SIGSYS",
	syscall.SIGALRM: "SIGALRM", syscall.SIGTRAP: "SIGTRAP",
	syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2", syscall.SIGXFSZ: "SIGXFSZ",
	syscall.SIGVTALRM: "SIGVTALRM",
}

func signalName(s syscall.Signal) string {
	if name, ok := signalNames[s]; ok {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// errnoLimits are the limits that a tool sees only as the error of a system call. Since the kernel
// does not count all of them, the inside of the jail reports them. An unreported limit still holds.
var errnoLimits = []string{"open_files", "file_size", "workspace", "workspace_files"}

// limitsMet returns the limits that a run met without being ended by them, in a fixed order. work
// is the run's shadow, or nil.
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
		// The peak is the memory in use, without the refused request.
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
			// The shadow has room again.
			add(name, min(max(peak, 0), limit))
		}
	}
	return hits
}

// cachesFull returns a limit hit for each cache of the run that is full, as seen from the host.
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
		// If the host cannot tell, only the tool's own error shows it.
		bytes, files, err := workspace.CacheRoom(f)
		if err == nil && (bytes == 0 || files == 0) {
			hits = append(hits, message.LimitHit{Name: limitCache, Limit: m.Size, Peak: m.Size})
		}
	}
	return hits
}

// limitCache names the limit on the size of a cache.
const limitCache = "cache"

// shadowFull returns which limits of a shadow are used up, by name, as seen from the host. work may
// be nil.
func shadowFull(work *workspace.Workspace) map[string]bool {
	if work == nil {
		return nil
	}
	bytes, files, err := work.Room()
	if err != nil {
		// The report from inside the jail still counts.
		return nil
	}
	return map[string]bool{"workspace": bytes == 0, "workspace_files": files == 0}
}

// Layers whose refusals the kernel reports. A report from inside the jail cannot name them.
const (
	layerSeccomp  = "seccomp"
	layerLandlock = "landlock"
)

// totalsWait is how long to wait for the kernel to report the totals of a jail's Landlock domains.
// They are reported after the last process of the jail has ended.
const totalsWait = 2 * time.Second

// A toldDenial is a refusal that the kernel reported, with the times of the first and the last one.
// Nothing inside the jail can forge it.
type toldDenial struct {
	runners.Denial
	first, last time.Time
}

// kernelDenials are the refusals in one jail that the kernel reported.
type kernelDenials struct {
	told []toldDenial
	// atLeast says that the kernel dropped some reports, so that the counts are lower bounds.
	atLeast bool
}

// follow starts to collect the refusals of Landlock in the jail, before the tool runs. It returns
// nil if the operator did not enable it, or if the jail runs no tool.
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

// endFollowing returns what Landlock refused in a jail with this plan, whose processes have ended.
// followed may be nil.
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

// seenPath replaces the path in the kernel's text with the path by which the tool knows the file.
func seenPath(what string) string {
	rights, path, ok := strings.Cut(what, " ")
	if !ok || !strings.HasPrefix(path, "/") {
		return what
	}
	return rights + " " + jail.SeenPath(path)
}

// landlockRule returns the rule that refused the kernel's text what: the plan's for its path, or
// the ceiling's if only the ceiling refuses it.
func landlockRule(p jail.Plan, what string) string {
	rights, path, _ := strings.Cut(what, " ")
	// Other objects than files have a name in brackets.
	if !strings.HasPrefix(path, "/") || strings.Contains(rights, "(") {
		return "the plan's landlock domain"
	}
	if all := strings.Split(rights, ","); p.Ceiling != nil && p.Landlock.Grants(path, all) &&
		!p.Ceiling.Landlock.Grants(path, all) {
		return "the host's ceiling: " + p.Ceiling.Landlock.Says(path)
	}
	return p.Landlock.Says(path)
}

// addCalls adds the system calls that the inner seccomp filter refused.
func (k *kernelDenials) addCalls(plan jail.Plan, calls []control.Refused) {
	rule := "filter " + strings.Join(plan.InnerFilter.Groups, "+")
	for _, c := range calls {
		k.told = append(k.told, toldDenial{runners.Denial{Layer: layerSeccomp, What: c.What,
			Rule: rule, Count: int(c.Count), Probe: seccomp.IsProbe(c.What)}, c.First, c.Last})
	}
}

// Bounds on the texts of an answer, in bytes.
const (
	maxFailure  = 2 << 10
	maxSentence = 512
	maxClass    = 64
	// the largest signal
	maxSignal = 64
)

// checkAnswer bounds and cleans the texts of an answer from inside the jail, so that a terminal can
// show them. An honest jail-init sends nothing else, but a compromised engine may send anything.
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
