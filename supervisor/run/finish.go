package run

import (
	"fmt"
	"syscall"

	"github.com/jail-sandbox/jail/jail"
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
	res.Denied = append(append(res.Denied, e.unfetched...), e.told.list()...)
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
