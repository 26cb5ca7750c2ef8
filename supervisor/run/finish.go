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

// conclude turns the end of the jail into the result, puts it on record and does with the shadow
// what was asked for. unmount ends what still mounts the shadow.
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

// maxLeft bounds the changes in a result that are left for a person.
const maxLeft = 100

// afterInvocation adds to the result of an invocation what was committed after it. A person reads
// in a warning what is left.
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

// failure returns the error of a run that did not get to its tool, or nil.
func (s *Runner) failure(j *prepare.Job, cause *ending.Cause, res message.Result, e end) error {
	if cause != nil {
		return nil
	}
	switch a := e.answer; {
	case a.Report == nil && a.Failure == "" && e.status.Signal == 0 && res.Limit == nil:
		// It ended by itself without a report: it did not get to the tool, or could not report the
		// end.
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

// outcome adds to a result what the run used and was refused, and with which code and signal it
// ended. It also returns which limits the run met, the one that ended it first. c is why the run
// was ended from outside, or nil, and work the shadow that it worked on, or nil.
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
	// recordDenied relies on the order: what the kernel reported comes last.
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
		// of the program; process 1 ended by itself, with the code that says so
		signal = rep.Signal
	}
	if c != nil && c.ByOthers() && e.status.Signal == 0 && e.answer.Report != nil {
		// The tool was faster: killed it would be only by a signal.
		c = nil
	}
	limits := j.Policy.Policy().Limits
	switch {
	case c != nil && c.Limit != "":
		res.Limit = limitHit(limits, *c)
	case c != nil && c.Over:
		// The session was asked to end, and its jail runs nothing else.
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
			// It ended within the grace, with a code of its own.
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

// nameLayer names the outer layer in limits that the layer's own use counts in.
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

// limitHit returns how a limit ended a run.
func limitHit(l policy.Limits, c ending.Cause) *message.LimitHit {
	hit := &message.LimitHit{Name: c.Limit, Limit: c.Allowed, Peak: c.Peak}
	switch c.Limit {
	case ending.LimitIdle, ending.LimitTime:
		// The policy does not have them.
	case ending.LimitWall:
		hit.Limit = l.Wall.Milliseconds()
	case ending.LimitCPUTime:
		hit.Limit = l.CPUTime.Milliseconds()
	default:
		hit.Limit, _, _ = l.Get(c.Limit)
	}
	return hit
}

// maxDenied and maxDeniedText bound what a report from inside may bring.
const (
	maxDenied     = 100
	maxDeniedText = 8 << 10
)

// checkDenied takes from inside only what has the form of a denial.
func checkDenied(said []runners.Denial) []runners.Denial {
	var out []runners.Denial
	for _, d := range said[:min(len(said), maxDenied)] {
		if d.Layer != "wasi" && d.Layer != "policy" || d.Count < 1 || len(d.What) > maxDeniedText ||
			len(d.Rule) > maxDeniedText {
			continue
		}
		// What is a probe the host alone says.
		d.Probe = false
		out = append(out, d)
	}
	return out
}

// review counts what the run changed and does with the shadow what fate says. A run without a
// shadow of its own has none to review.
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

// fate is what happens to a shadow in which something changed, unless the tool failed.
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
