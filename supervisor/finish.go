package supervisor

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// finish turns the end of the jail into the result and the record.
func (r *run) finish(e end) error {
	res := &r.result
	res.Truncated = e.pumps.Truncated()
	res.Usage = message.Usage{WallMS: e.wall.Milliseconds(), CPUMS: e.usage.CPU.Milliseconds(),
		MemoryPeak: e.usage.MemoryPeak, PIDsPeak: e.usage.PIDsPeak,
		ThrottledMS: e.usage.Throttled.Milliseconds(), IORead: e.usage.IORead,
		IOWrite: e.usage.IOWrite}
	if rep := e.answer.Report; rep != nil {
		res.Denied = append(res.Denied, checkDenied(rep.Denied)...)
		res.Trap = rep.Trap
	}
	res.Usage.FetchBytesIn, res.Usage.FetchBytesOut = e.fetched.FetchBytesIn, e.fetched.FetchBytesOut
	res.Usage.FetchRequests = e.fetched.FetchRequests
	res.Denied = append(append(res.Denied, e.unfetched...), e.told.list()...)
	met := r.outcome(e)
	if e.answer.Report == nil && e.answer.Failure == "" && e.status.Signal == 0 &&
		res.Limit == nil && r.Ended() == nil {
		// It ended by itself and has nothing to report: it did not get to the tool, or could not
		// tell of it.
		return problem.New(problem.Failed,
			"jail-init ended with code %d and did not say how the run went", e.status.Code)
	}
	if e.answer.Layer != "" && e.answer.Report == nil && r.Ended() == nil {
		return r.s.layers.Missing(e.answer.Layer, e.answer.Failure, nil)
	}
	if r.job.Compile {
		// What is wrong with the module is told to the run that waits for it.
		if e.answer.Failure != "" {
			res.Error = problem.New(problem.Refused, "%s", e.answer.Failure)
		}
		return nil
	}
	if e.answer.NoCwd != 0 && r.Ended() == nil && res.Limit == nil {
		return prepare.NoCwd(r.job.Cwd, syscall.Errno(e.answer.NoCwd))
	}
	if e.answer.NoExec != 0 && r.Ended() == nil && res.Limit == nil {
		return prepare.NoExec(r.job.Tool.Name, syscall.Errno(e.answer.NoExec))
	}
	if e.answer.Failure != "" && r.Ended() == nil && res.Limit == nil {
		return problem.New(problem.Failed, "tool %s: %s", r.job.Tool.Name, e.answer.Failure)
	}
	if err := r.recordEnd(e, met); err != nil {
		return err
	}
	if err := r.review(); err != nil {
		return err
	}
	return r.recordFinished(e)
}

// outcome decides with which code and signal the run ended, and returns which limits it met, the
// one that ended it first.
func (r *run) outcome(e end) (met []message.LimitHit) {
	res := &r.result
	res.ExitCode = e.status.Code
	signal := e.status.Signal
	if rep := e.answer.Report; rep != nil && r.job.Tool.Native != "" && signal == 0 &&
		rep.Signal > 0 && e.status.Code == problem.ExitSignal+rep.Signal {
		// of the program; process 1 ended by itself, with the code that says so
		signal = rep.Signal
	}
	c := r.Ended()
	if c != nil && c.ByOthers() && e.status.Signal == 0 && e.answer.Report != nil {
		// The tool was faster: killed it would be only by a signal.
		c = nil
	}
	limits := r.job.Policy.Policy().Limits
	switch {
	case c != nil && c.Limit != "":
		res.Limit = r.limitHit(c.Limit, c.Peak)
	case c != nil && c.Over:
		// it was told to end, and there was nothing else for it to do
		signal, res.ExitCode = 0, 0
	case c != nil && (c.Gone || c.Fault != nil):
		signal = int(syscall.SIGKILL)
	case c != nil:
		signal = c.Signal
		if c.Daemon != "" {
			res.Warnings = append(res.Warnings,
				"the daemon was stopped or restarted, and ended this run ("+c.Daemon+")")
		}
	case signal == int(syscall.SIGKILL) && e.usage.OOMKills > 0:
		res.Limit = r.limitHit("memory", e.usage.MemoryPeak)
	case signal == int(syscall.SIGKILL) && e.usage.CPU >= limits.CPUTime:
		// The kernel was faster than the watch.
		res.Limit = r.limitHit("cpu_time", e.usage.CPU.Milliseconds())
	}
	if res.Limit != nil {
		met = []message.LimitHit{*res.Limit}
	}
	for _, hit := range r.limitsMet(e) {
		if res.Limit == nil || hit.Name != res.Limit.Name {
			met = append(met, hit)
		}
	}
	if res.Limit == nil && len(met) > 0 {
		res.Limit = &met[0]
	}
	if signal == 0 {
		return met
	}
	name := signalName(syscall.Signal(signal))
	res.Signal, res.ExitCode = &name, problem.ExitSignal+signal
	if res.Limit != nil && slices.Contains([]string{"wall", "cpu_time", limitIdle, limitTime},
		res.Limit.Name) {
		res.ExitCode = problem.ExitTime
	}
	return met
}

func (r *run) limitHit(name string, peak int64) *message.LimitHit {
	l := r.job.Policy.Policy().Limits
	hit := &message.LimitHit{Name: name, Peak: peak}
	switch name {
	case limitIdle:
		hit.Limit = r.session.idle.Milliseconds()
	case limitTime:
		hit.Limit = r.session.total.Milliseconds()
	case "wall":
		hit.Limit = l.Wall.Milliseconds()
	case "cpu_time":
		hit.Limit = l.CPUTime.Milliseconds()
	default:
		hit.Limit, _, _ = l.Get(name)
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
		out = append(out, d)
	}
	return out
}

// recordEnd puts what was refused and which limit was met on record.
func (r *run) recordEnd(e end, met []message.LimitHit) error {
	for _, executed := range r.job.Script.Executed(e.answer.Report) {
		if err := r.records.Record(executed); err != nil {
			return err
		}
	}
	if err := r.recordDenied(e.told); err != nil {
		return err
	}
	return r.recordLimits(met, e.usage.OOMKills > 0)
}

func (r *run) recordFinished(e end) error {
	res, u := &r.result, r.result.Usage
	f := audit.RunFinished{ExitCode: res.ExitCode, Truncated: res.Truncated,
		Workspace: res.Workspace,
		Usage: audit.Usage{WallMS: u.WallMS, CPUMS: u.CPUMS, MemoryPeak: u.MemoryPeak,
			PIDsPeak:    u.PIDsPeak,
			ThrottledMS: u.ThrottledMS, IORead: u.IORead, IOWrite: u.IOWrite,
			WorkspaceBytes: u.WorkspaceBytes,
			FetchBytesIn:   u.FetchBytesIn, FetchBytesOut: u.FetchBytesOut,
			FetchRequests: u.FetchRequests, OutBytes: e.pumps.Seen()},
		Changes: audit.Changes(res.Changes)}
	if res.Signal != nil {
		f.Signal = *res.Signal
	}
	if res.Limit != nil {
		f.Limit = res.Limit.Name
	}
	return r.records.Record(f)
}

// log logs an error of a task that changes nothing of how the run ended.
func (r *run) log(task string, err error) { r.s.config.Log.Failed(task, string(r.job.ID), err) }

// keptAnyway says of a run that failed on our side that its shadow is still there, if it is.
func (r *run) keptAnyway() {
	if r.job.Compile || r.job.Source == nil || r.job.In != nil || r.result.Workspace != "" {
		return
	}
	if w, err := r.s.workspaces.Get(string(r.job.ID)); err == nil {
		r.result.Workspace = "kept"
		w.Close()
	}
}

// review counts what the run changed and does with the shadow what was asked for.
func (r *run) review() error {
	c := r.Ended()
	if r.work == nil {
		if c == nil || c.Fault == nil {
			return nil
		}
		// The session of an invocation was ended because the disk did not take its shadow.
		id := r.job.Session()
		return problem.New(problem.Failed, "session %s was ended: %w", id, c.Fault).
			WithHint("make room on that disk; jail diff " + id + " shows what was saved")
	}
	var fault error
	if c != nil {
		fault = c.Fault
	}
	work := r.work
	r.work = nil
	// The prewarmed jail goes with its mounts of the shadow.
	end, err := work.Review(r.fate(), r.result.ExitCode == 0, fault, r.warm.end)
	r.result.Workspace, r.result.Changes = end.Workspace, end.Changes
	r.result.Usage.WorkspaceBytes = end.Bytes
	return err
}

// fate is what happens to a shadow in which something changed, unless the tool failed.
func (r *run) fate() message.Fate {
	fate := r.job.Req.Fate
	// it is settled: the session has ended
	if h := r.session; r.job.Holds > 0 && h.fate != message.FateDefault {
		fate = h.fate
	}
	if fate == message.FateDefault && r.job.Policy.Policy().Workspace.Commit == policy.CommitAuto {
		fate = message.FateCommit
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
