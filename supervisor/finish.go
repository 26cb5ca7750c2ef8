package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// finish turns the end of the jail into the result and the record.
func (r *run) finish(e end) error {
	res := &r.result
	res.Truncated = e.pumps.Truncated()
	res.Usage = Usage{WallMS: e.wall.Milliseconds(), CPUMS: e.usage.CPU.Milliseconds(),
		MemoryPeak: e.usage.MemoryPeak, PIDsPeak: e.usage.PIDsPeak,
		ThrottledMS: e.usage.Throttled.Milliseconds(), IORead: e.usage.IORead,
		IOWrite: e.usage.IOWrite}
	if rep := e.answer.Report; rep != nil {
		res.Denied = append(res.Denied, checkDenied(rep.Denied)...)
		res.Trap = rep.Trap
	}
	res.Usage.FetchBytesIn, res.Usage.FetchBytesOut, res.Usage.FetchRequests = e.fetched.usage.FetchBytesIn, e.fetched.usage.FetchBytesOut, e.fetched.usage.FetchRequests
	res.Denied = append(append(res.Denied, e.fetched.denied...), e.told.list()...)
	r.failure = e.answer.Failure
	met := r.outcome(e)
	if e.answer.Report == nil && e.answer.Failure == "" && e.status.Signal == 0 &&
		res.Limit == nil && r.ended() == nil {
		// It ended by itself and has nothing to report: it did not get to the tool, or could not
		// tell of it.
		return problem.New(problem.Failed,
			"jail-init ended with code %d and did not say how the run went", e.status.Code)
	}
	if e.answer.Layer != "" && e.answer.Report == nil && r.ended() == nil {
		return r.s.layers.Missing(e.answer.Layer, e.answer.Failure, nil)
	}
	if r.job.compile {
		return nil
	}
	if e.answer.NoCwd != 0 && r.ended() == nil && res.Limit == nil {
		return noCwd(r.job.cwd, syscall.Errno(e.answer.NoCwd))
	}
	if e.answer.Failure != "" && r.ended() == nil && res.Limit == nil {
		return problem.New(problem.Failed, "tool %s: %s", r.job.tool.name, e.answer.Failure)
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
func (r *run) outcome(e end) (met []LimitHit) {
	res := &r.result
	res.ExitCode = e.status.Code
	signal := e.status.Signal
	if rep := e.answer.Report; rep != nil && r.job.tool.native != "" && signal == 0 &&
		rep.Signal > 0 && e.status.Code == problem.ExitSignal+rep.Signal {
		// of the program; process 1 ended by itself, with the code that says so
		signal = rep.Signal
	}
	c := r.ended()
	if c != nil && c.byOthers() && e.status.Signal == 0 && e.answer.Report != nil {
		// The tool was faster: killed it would be only by a signal.
		c = nil
	}
	limits := r.job.eff.Policy().Limits
	switch {
	case c != nil && c.limit != "":
		res.Limit = r.limitHit(c.limit, c.peak)
	case c != nil && c.over:
		// it was told to end, and there was nothing else for it to do
		signal, res.ExitCode = 0, 0
	case c != nil && (c.gone || c.fault != nil):
		signal = int(syscall.SIGKILL)
	case c != nil:
		signal = c.signal
		if c.daemon != "" {
			res.Warnings = append(res.Warnings,
				"the daemon was stopped or restarted, and ended this run ("+c.daemon+")")
		}
	case signal == int(syscall.SIGKILL) && e.usage.OOMKills > 0:
		res.Limit = r.limitHit("memory", e.usage.MemoryPeak)
	case signal == int(syscall.SIGKILL) && e.usage.CPU >= limits.CPUTime:
		// The kernel was faster than the watch.
		res.Limit = r.limitHit("cpu_time", e.usage.CPU.Milliseconds())
	}
	if res.Limit != nil {
		met = []LimitHit{*res.Limit}
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

func (r *run) limitHit(name string, peak int64) *LimitHit {
	l := r.job.eff.Policy().Limits
	hit := &LimitHit{Name: name, Peak: peak}
	switch name {
	case limitIdle:
		hit.Limit = r.job.hold.idle.Milliseconds()
	case limitTime:
		hit.Limit = r.job.hold.total.Milliseconds()
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
func (r *run) recordEnd(e end, met []LimitHit) error {
	if err := r.recordExecuted(e.answer.Report); err != nil {
		return err
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

func (r *run) prepareWorkspace() error {
	j := r.job
	if j.source == nil || !j.plan.Workspace.Shadow || j.in != nil {
		return nil
	}
	w, err := r.s.workspaces.Prepare(workspace.Spec{ID: string(j.id), Source: j.source,
		Bytes:  j.plan.Workspace.Bytes,
		Inodes: j.plan.Workspace.Files, Caller: j.caller.Workspace(),
		Hide: j.eff.Policy().Workspace.Hide})
	switch {
	case errors.Is(err, workspace.ErrSource):
		return problem.New(problem.Refused, "%w", err)
	case errors.Is(err, workspace.ErrLimits):
		return problem.New(problem.Refused, "%w", err).
			WithHint("see to the limits workspace and workspace_files, of the policy or of --limit")
	case errors.Is(err, workspace.ErrNoSpace):
		return problem.New(problem.Failed, "%w", err).
			WithHint("make room, end other runs, or take less with --limit workspace=SIZE")
	case err != nil:
		for _, f := range probe.Layers() {
			if e := problem.Missing(f, err); e != nil {
				return e
			}
		}
		return r.s.layers.Failed("shadow workspaces", err)
	}
	r.work = w
	r.result.Warnings = append(r.result.Warnings, w.Warnings()...)
	// Now, and not only when it is kept: if this daemon is killed, the next one finds a shadow that
	// can be reviewed.
	if err := r.s.workspaces.SaveTerms(string(j.id), r.terms(true)); err != nil {
		return problem.New(problem.Failed, "%w", err)
	}
	return nil
}

// shadowKept is an error where the caller named the run as one whose shadow is still kept.
func (r *run) shadowKept() error {
	id := string(r.job.id)
	if r.job.req.ID == "" || r.job.in != nil {
		return nil
	}
	w, err := r.s.workspaces.Get(id)
	if err != nil {
		// there is none, or what is wrong with it is told when it is prepared
		return nil
	}
	defer w.Close()
	return problem.New(problem.Usage, "run id %s is in use: the shadow of that run is kept", id).
		WithHint("take another --id; jail diff " + id + " shows that shadow, jail discard " + id +
			" throws it away")
}

// terms are those of the run's shadow.
func (r *run) terms(unfinished bool) shadows.Terms {
	w := r.job.eff.Policy().Workspace
	return shadows.Terms{Policy: r.job.eff.Digest(), Tool: r.job.tool.name, Protect: w.Protect,
		Commit: w.Commit, Unfinished: unfinished,
		Revert: r.job.eff.Policy().Limits.Revert, RevertTime: r.job.eff.Policy().Limits.RevertTime}
}

// discardUnused throws the shadow of a run away that jail failed, unless its tool wrote something.
func (r *run) discardUnused() {
	if r.work == nil {
		return
	}
	if r.pumps == nil || !r.wrote() {
		// What cannot be discarded is listed by `jail workspaces`.
		r.log("discard the shadow", r.discard())
	}
	r.log("close the shadow", r.work.Close())
}

// wrote reports whether there is something in the shadow of a run whose jail is gone, or may be.
// Then it outlives the run.
func (r *run) wrote() bool {
	if r.work.Freeze() == nil {
		if sum, _, err := r.work.Review(context.Background()); err == nil && sum.Total() == 0 {
			return false
		}
	}
	// The terms, which say that the run was cut off, are there already.
	r.log("keep the shadow", r.work.Keep())
	return true
}

// log logs an error of a task that changes nothing of how the run ended.
func (r *run) log(task string, err error) { r.s.config.Log.Failed(task, string(r.job.id), err) }

// discard throws the shadow away, and its terms after it.
func (r *run) discard() error {
	if err := r.work.Drop(); err != nil {
		return err
	}
	return r.s.workspaces.DropTerms(string(r.job.id))
}

// keptAnyway says of a run that failed on our side that its shadow is still there, if it is.
func (r *run) keptAnyway() {
	if r.job.compile || r.job.source == nil || r.job.in != nil || r.result.Workspace != "" {
		return
	}
	if w, err := r.s.workspaces.Get(string(r.job.id)); err == nil {
		r.result.Workspace = "kept"
		w.Close()
	}
}

// review counts what the run changed and does with the shadow what was asked for.
func (r *run) review() error {
	if r.work == nil {
		return r.sessionFault()
	}
	work := r.work
	// from here on the shadow has its fate, whatever else fails
	defer func() {
		r.s.life.CleanUp(func() { r.log("close the shadow", work.Close()) })
		r.work = nil
	}()
	if c := r.ended(); c != nil && c.fault != nil {
		return r.salvage(work.Freeze())
	}
	sum, digest, err := work.Peek(context.Background())
	if err == nil && sum.Total() == 0 && r.fate() != FateKeep {
		r.result.Workspace = "discarded"
		// Nothing is in it, and `jail workspaces` shows what stayed.
		r.log("discard the shadow", r.discard())
		return nil
	}
	if err == nil && r.fate() == FateDiscard {
		return r.settle(sum, digest)
	}
	// its mounts of the shadow with it
	r.warm.end()
	if err := work.Freeze(); err != nil {
		if damage := (*workspace.DamageError)(nil); errors.As(err, &damage) {
			return r.salvage(err)
		}
		r.result.Workspace = "kept"
		return problem.New(problem.Failed, "%w", err).
			WithHint("jail discard " + string(r.job.id) + " throws the shadow away")
	}
	sum, digest, err = work.Review(context.Background())
	if err != nil {
		return errors.Join(problem.New(problem.Failed, "%w", err).
			WithHint("jail discard "+string(r.job.id)+" throws the shadow away"), r.keep())
	}
	return r.settle(sum, digest)
}

// fate is what happens to a shadow in which something changed, unless the tool failed.
func (r *run) fate() Fate {
	fate := r.job.req.Fate
	// it is settled: the session has ended
	if h := r.job.hold; h != nil && h.fate != FateDefault {
		fate = h.fate
	}
	if fate == FateDefault && r.job.eff.Policy().Workspace.Commit == policy.CommitAuto {
		fate = FateCommit
	}
	return fate
}

// settle puts on record what changed, and keeps, discards or commits it.
func (r *run) settle(sum workspace.Summary, digest string) error {
	res := &r.result
	res.Changes = shadows.ChangesOf(sum)
	res.Usage.WorkspaceBytes = sum.Bytes
	if sum.Total() > 0 {
		changed := audit.WorkspaceChanged{Workspace: r.job.source.Name(), Digest: digest,
			Changes: audit.Changes(res.Changes), Files: shadows.Digests(r.work.Reviewed())}
		if err := r.records.Record(changed); err != nil {
			return err
		}
	}
	switch fate := r.fate(); {
	case fate == FateDiscard:
		r.result.Workspace = "discarded"
		if err := r.records.Record(audit.WorkspaceDiscarded{Workspace: r.job.source.Name(),
			Digest: digest, Changes: audit.Changes(r.result.Changes)}); err != nil {
			return err
		}
		if err := r.discard(); err != nil {
			return problem.New(problem.Failed, "%w", err)
		}
		return nil
	case fate == FateCommit && r.result.ExitCode == 0:
		return r.commit(digest)
	}
	return r.keep()
}

// keep makes the shadow outlive the run, with the terms of its commit.
func (r *run) keep() error {
	if err := errors.Join(r.s.workspaces.SaveTerms(string(r.job.id), r.terms(false)),
		r.work.Keep()); err != nil {
		return problem.New(problem.Failed, "%w", err).
			WithHint("jail diff " + string(r.job.id) + " shows the shadow, jail discard " +
				string(r.job.id) + " throws it away")
	}
	r.result.Workspace = "kept"
	return nil
}

// commit is --commit: the caller said yes beforehand, to everything but protected names. What is
// left of the shadow is kept.
func (r *run) commit(digest string) error {
	if err := r.keep(); err != nil {
		return err
	}
	_, err := r.s.workspaces.CommitShadow(context.Background(), r.job.caller, r.work,
		shadows.CommitRequest{Digest: digest}, r.terms(false), r.records.Record)
	if err != nil {
		return err
	}
	r.result.Workspace = "committed"
	return nil
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
