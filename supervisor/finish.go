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
)

// finish turns the end of the jail into the result and the record.
func (r *run) finish(e end) error {
	res := &r.result
	res.Truncated = e.pumps.truncated.Load()
	res.Usage = Usage{WallMS: e.wall.Milliseconds(), CPUMS: e.usage.CPU.Milliseconds(), MemoryPeak: e.usage.MemoryPeak, PIDsPeak: e.usage.PIDsPeak,
		ThrottledMS: e.usage.Throttled.Milliseconds(), IORead: e.usage.IORead, IOWrite: e.usage.IOWrite}
	if rep := e.answer.Report; rep != nil {
		res.Denied = append(res.Denied, checkDenied(rep.Denied)...)
		res.Trap = rep.Trap
	}
	res.Usage.FetchBytesIn, res.Usage.FetchBytesOut, res.Usage.FetchRequests = r.fetched.FetchBytesIn, r.fetched.FetchBytesOut, r.fetched.FetchRequests
	res.Denied = append(append(res.Denied, r.fetchDenied...), r.denials()...)
	r.failure = e.answer.Failure
	r.outcome(e)
	if e.answer.Report == nil && e.answer.Failure == "" && e.status.Signal == 0 && res.Limit == nil && r.ended() == nil {
		// It ended by itself and has nothing to report: it did not get to the tool, or could not tell of it.
		return failed(nil, "", "jail-init ended with code %d and did not say how the run went", e.status.Code)
	}
	if e.answer.Layer != "" && e.answer.Report == nil && r.ended() == nil {
		return r.s.missingLayer(e.answer.Layer, e.answer.Failure, nil)
	}
	if r.job.compile {
		return nil
	}
	if e.answer.Failure != "" && r.ended() == nil && res.Limit == nil {
		return failed(nil, "", "tool %s: %s", r.job.tool.name, e.answer.Failure)
	}
	if err := r.recordEnd(e); err != nil {
		return err
	}
	if err := r.review(); err != nil {
		return err
	}
	return r.recordFinished(e)
}

// outcome says with which code and signal the run ended, and which limit it met.
func (r *run) outcome(e end) {
	res := &r.result
	res.ExitCode = e.status.Code
	signal := e.status.Signal
	if rep := e.answer.Report; rep != nil && r.job.tool.native != "" && signal == 0 && rep.Signal > 0 && e.status.Code == exitSignal+rep.Signal {
		signal = rep.Signal // of the program; process 1 ended by itself, with the code that says so
	}
	c := r.ended()
	limits := r.job.eff.Policy().Limits
	switch {
	case e.usage.OOMKills > 0:
		res.Limit = &LimitHit{"memory", limits.Memory, e.usage.MemoryPeak}
		signal = int(syscall.SIGKILL)
	case c != nil && c.limit != "":
		res.Limit = r.limitHit(c.limit, c.peak)
	case c != nil && c.over:
		signal, res.ExitCode = 0, 0 // it was told to end, and there was nothing else for it to do
	case c != nil && c.gone:
		signal = int(syscall.SIGKILL)
	case c != nil:
		signal = c.signal
	case signal == int(syscall.SIGKILL) && e.usage.CPU >= limits.CPUTime:
		// The kernel was faster than the watch.
		res.Limit = r.limitHit("cpu_time", e.usage.CPU.Milliseconds())
	}
	if res.Limit != nil {
		r.met = []LimitHit{*res.Limit}
	}
	for _, hit := range r.limitsMet(e) {
		if res.Limit == nil || hit.Name != res.Limit.Name {
			r.met = append(r.met, hit)
		}
	}
	if res.Limit == nil && len(r.met) > 0 {
		res.Limit = &r.met[0]
	}
	if signal == 0 {
		return
	}
	name := signalName(syscall.Signal(signal))
	res.Signal, res.ExitCode = &name, exitSignal+signal
	if res.Limit != nil && slices.Contains([]string{"wall", "cpu_time", limitIdle, limitTime}, res.Limit.Name) {
		res.ExitCode = ExitTime
	}
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
		if d.Layer != "wasi" && d.Layer != "policy" || d.Count < 1 || len(d.What) > maxDeniedText || len(d.Rule) > maxDeniedText {
			continue
		}
		out = append(out, d)
	}
	return out
}

// recordEnd puts what was refused and which limit was met on record.
func (r *run) recordEnd(e end) error {
	if err := r.recordExecuted(e.answer.Report); err != nil {
		return err
	}
	if err := r.recordDenied(); err != nil {
		return err
	}
	return r.recordLimits()
}

func (r *run) recordFinished(e end) error {
	res, u := &r.result, r.result.Usage
	f := audit.RunFinished{ExitCode: res.ExitCode, Truncated: res.Truncated, Workspace: res.Workspace,
		Usage: audit.Usage{WallMS: u.WallMS, CPUMS: u.CPUMS, MemoryPeak: u.MemoryPeak, PIDsPeak: u.PIDsPeak,
			ThrottledMS: u.ThrottledMS, IORead: u.IORead, IOWrite: u.IOWrite, WorkspaceBytes: u.WorkspaceBytes,
			FetchBytesIn: u.FetchBytesIn, FetchBytesOut: u.FetchBytesOut, FetchRequests: u.FetchRequests, OutBytes: e.pumps.seen.Load()},
		Changes: audit.Changes(res.Changes)}
	if res.Signal != nil {
		f.Signal = *res.Signal
	}
	if res.Limit != nil {
		f.Limit = res.Limit.Name
	}
	return r.record(f)
}

func (r *run) prepareWorkspace() error {
	j := r.job
	if j.source == nil || !j.plan.Workspace.Shadow || j.in != nil {
		return nil
	}
	w, err := r.s.workspaces.Prepare(workspace.Spec{ID: string(j.id), Source: j.source, Bytes: j.plan.Workspace.Bytes,
		Inodes: j.plan.Workspace.Files, Caller: j.caller.workspace(), Hide: j.eff.Policy().Workspace.Hide})
	switch {
	case errors.Is(err, workspace.ErrSource):
		return &Error{Code: CodeRefused, Message: err.Error(), Err: err}
	case errors.Is(err, workspace.ErrLimits):
		return &Error{Code: CodeRefused, Message: err.Error(), Err: err, Hint: "see to the limits workspace and workspace_files, of the policy or of --limit"}
	case errors.Is(err, workspace.ErrNoSpace):
		return failed(err, "make room, or take less with --limit workspace=SIZE", "%v", err)
	case err != nil:
		for _, f := range probe.Layers() {
			if e := Missing(f, err); e != nil {
				return e
			}
		}
		return failed(err, "", "%v", err)
	}
	r.work = w
	// Now, and not only when it is kept: if this daemon is killed, the next one finds a shadow that can be reviewed.
	if err := r.s.saveTerms(string(j.id), r.terms(true)); err != nil {
		return failed(err, "", "%v", err)
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
		return nil // there is none, or what is wrong with it is told when it is prepared
	}
	defer w.Close()
	return &Error{Code: CodeUsage, Message: fmt.Sprintf("run id %s is in use: the shadow of that run is kept", id),
		Hint: "take another --id; jail diff " + id + " shows that shadow, jail discard " + id + " throws it away"}
}

// terms are those of the run's shadow.
func (r *run) terms(unfinished bool) terms {
	w := r.job.eff.Policy().Workspace
	return terms{Policy: r.job.eff.Digest(), Tool: r.job.tool.name, Protect: w.Protect, Commit: w.Commit, Unfinished: unfinished,
		Revert: r.job.eff.Policy().Limits.Revert, RevertTime: r.job.eff.Policy().Limits.RevertTime}
}

// discardUnused throws the shadow of a run away that never came to an end.
func (r *run) discardUnused() {
	if r.work != nil {
		_ = r.discard() // what cannot be discarded is listed by `jail workspaces`
		_ = r.work.Close()
	}
}

// discard throws the shadow away, and its terms after it.
func (r *run) discard() error {
	if err := r.work.Drop(); err != nil {
		return err
	}
	return r.s.dropTerms(string(r.job.id))
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
		return nil
	}
	work := r.work
	defer func() { // from here on the shadow has its fate, whatever else fails
		r.s.clear(func() { _ = work.Close() })
		r.work = nil
	}()
	sum, digest, err := work.Peek(context.Background())
	if err == nil && sum.Total() == 0 && r.fate() != FateKeep {
		r.result.Workspace = "discarded"
		_ = r.discard() // nothing is in it, and `jail workspaces` shows what stayed
		return nil
	}
	if err == nil && r.fate() == FateDiscard {
		return r.settle(sum, digest)
	}
	r.takeAway() // its mounts of the shadow with it
	if err := work.Freeze(); err != nil {
		r.result.Workspace = "kept"
		return failed(err, "jail discard "+string(r.job.id)+" throws the shadow away", "%v", err)
	}
	sum, digest, err = work.Review(context.Background())
	if err != nil {
		return errors.Join(failed(err, "jail discard "+string(r.job.id)+" throws the shadow away", "%v", err), r.keep())
	}
	return r.settle(sum, digest)
}

// fate is what happens to a shadow in which something changed, unless the tool failed.
func (r *run) fate() Fate {
	fate := r.job.req.Fate
	if h := r.job.hold; h != nil && h.fate != FateDefault { // it is settled: the session has ended
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
	res.Changes = Changes{int64(sum.Added), int64(sum.Modified), int64(sum.Deleted)}
	res.Usage.WorkspaceBytes = sum.Bytes
	if sum.Total() > 0 {
		changed := audit.WorkspaceChanged{Workspace: r.job.source.Name(), Digest: digest, Changes: audit.Changes(res.Changes), Files: digests(r.work.Reviewed())}
		if err := r.record(changed); err != nil {
			return err
		}
	}
	switch fate := r.fate(); {
	case fate == FateDiscard:
		r.result.Workspace = "discarded"
		if err := r.record(audit.WorkspaceDiscarded{Workspace: r.job.source.Name(), Digest: digest, Changes: audit.Changes(r.result.Changes)}); err != nil {
			return err
		}
		if err := r.discard(); err != nil {
			return failed(err, "", "%v", err)
		}
		return nil
	case fate == FateCommit && r.result.ExitCode == 0:
		return r.commit(digest)
	}
	return r.keep()
}

// keep makes the shadow outlive the run, with the terms of its commit.
func (r *run) keep() error {
	if err := errors.Join(r.s.saveTerms(string(r.job.id), r.terms(false)), r.work.Keep()); err != nil {
		return failed(err, "jail diff "+string(r.job.id)+" shows the shadow, jail discard "+string(r.job.id)+" throws it away", "%v", err)
	}
	r.result.Workspace = "kept"
	return nil
}

// commit is --commit: the caller said yes beforehand, to everything but protected names. What is left of the shadow is kept.
func (r *run) commit(digest string) error {
	if err := r.keep(); err != nil {
		return err
	}
	l := r.job.eff.Policy().Limits
	_, err := r.s.commit(context.Background(), r.job.caller, r.work, CommitRequest{Digest: digest}, r.job.eff.Policy().Workspace, retention(l.Revert, l.RevertTime), r.record)
	if err != nil {
		return err
	}
	r.result.Workspace = "committed"
	return nil
}

var signalNames = map[syscall.Signal]string{
	syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGILL: "SIGILL", syscall.SIGABRT: "SIGABRT",
	syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE", syscall.SIGKILL: "SIGKILL", syscall.SIGSEGV: "SIGSEGV", syscall.SIGPIPE: "SIGPIPE",
	syscall.SIGTERM: "SIGTERM", syscall.SIGXCPU: "SIGXCPU", syscall.SIGSYS: "SIGSYS", syscall.SIGALRM: "SIGALRM", syscall.SIGTRAP: "SIGTRAP",
	syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2", syscall.SIGXFSZ: "SIGXFSZ", syscall.SIGVTALRM: "SIGVTALRM",
}

func signalName(s syscall.Signal) string {
	if name, ok := signalNames[s]; ok {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}
