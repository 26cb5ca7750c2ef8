package run

import (
	"sync"

	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// An intent is the record that a run starts. It must be on the disk before any of the tool runs.
// For a prewarmed jail it is written while the jail is made ready, since everything in it is known
// by then.
type intent struct {
	// written waits until start and execution are recorded. It is nil if only the start was
	// recorded, at once.
	written func() error
}

// announce records the start of the run. For a prewarmed jail it also records the execution, and
// does not wait.
func announce(records *runlog.Log, j *prepare.Job, given claimed) (intent, error) {
	started := j.Started()
	started.Start = given.start()
	if given.jail == nil {
		return intent{}, records.Record(started)
	}
	events := []audit.Event{started, j.Exec()}
	written := make(chan error, 1)
	go func() { written <- records.RecordAll(events) }()
	return intent{sync.OnceValue(func() error { return <-written })}, nil
}

// wait waits until the records of announce are on the disk.
func (i intent) wait() error {
	if i.written == nil {
		return nil
	}
	return i.written()
}

// execute records the execution, or waits until it is recorded. A jail that holds a session
// executes nothing.
func (i intent) execute(records *runlog.Log, j *prepare.Job) error {
	if j.Holds.For > 0 {
		return nil
	}
	if i.written != nil {
		return i.written()
	}
	return records.Record(j.Exec())
}

// recordEnd records what was executed and refused, and which limits were met.
func recordEnd(records *runlog.Log, j *prepare.Job, res message.Result, e end,
	met []message.LimitHit) error {
	for _, executed := range j.Tool.Script.Executed(e.answer.Report) {
		if err := records.Record(executed); err != nil {
			return err
		}
	}
	if err := recordDenied(records, res, e.told); err != nil {
		return err
	}
	return recordLimits(records, res, met, e.usage.OOMKills > 0)
}

// recordDenied records each refusal once, with its count. Only refusals that the kernel reported
// have times, because the inside of a jail is not trusted to report them.
func recordDenied(records *runlog.Log, res message.Result, k kernelDenials) error {
	said := len(res.Denied) - len(k.told)
	for i, d := range res.Denied {
		e := audit.Denied{Layer: d.Layer, What: d.What, Rule: d.Rule, Count: int64(d.Count)}
		if i >= said {
			e.First, e.Last = k.told[i-said].first, k.told[i-said].last
		}
		if err := records.Record(e); err != nil {
			return err
		}
	}
	if !k.atLeast {
		return nil
	}
	return records.Record(audit.Gap{
		Reason: "the kernel's audit dropped records of what Landlock refused", Count: -1})
}

// recordLimits records each limit in met. killed says that the kernel's OOM killer killed a process
// of the run.
func recordLimits(records *runlog.Log, res message.Result, met []message.LimitHit,
	killed bool) error {
	for _, l := range met {
		action := "refused"
		if l == met[0] && res.Signal != nil || l.Name == "memory" && killed {
			action = "killed"
		}
		if err := records.Record(audit.Limit{Name: l.Name, Limit: l.Limit, Peak: l.Peak,
			Action: action}); err != nil {
			return err
		}
	}
	return nil
}

func recordFinished(records *runlog.Log, res message.Result, e end) error {
	u := res.Usage
	f := audit.RunFinished{ExitCode: res.ExitCode, Truncated: res.Truncated,
		Workspace: res.Workspace,
		Usage: audit.Usage{WallMS: u.WallMS, CPUMS: u.CPUMS, MemoryPeak: u.MemoryPeak,
			PIDsPeak:    u.PIDsPeak,
			ThrottledMS: u.ThrottledMS, IORead: u.IORead, IOWrite: u.IOWrite,
			WorkspaceBytes: u.WorkspaceBytes,
			FetchBytesIn:   u.FetchBytesIn, FetchBytesOut: u.FetchBytesOut,
			FetchRequests: u.FetchRequests, OutBytes: e.pipes.Seen()},
		Changes: audit.Changes(res.Changes), LeftProcesses: res.LeftProcesses}
	if res.Error != nil {
		f.Error = res.Error.Message
	}
	if res.Kept != nil {
		f.KeptEnv, f.UnsetEnv = res.Kept.Set, res.Kept.Unset
	}
	if res.Signal != nil {
		f.Signal = *res.Signal
	}
	if res.Limit != nil {
		f.Limit = res.Limit.Name
	}
	return records.Record(f)
}

// Refuse records a run that was refused with err, and returns its result. It closes j, which may be
// nil.
func (s *Runner) Refuse(c caller.Caller, req message.Request, j *prepare.Job,
	err error) (res message.Result) {
	e := problem.From(err)
	err = nil
	defer func() { s.Meters.Ended(&res, 0) }()
	res = message.Result{ID: req.ID, ExitCode: e.Exit(), Error: e, Denied: e.Denied}
	if j != nil {
		defer j.Close()
		res.ID = string(j.ID)
	}
	if res.ID == "" {
		res.ID = string(jail.NewID())
	}
	entry := audit.Entry{Run: res.ID, Actor: c.Actor()}
	if j != nil {
		res.Session, entry.Session = j.Session(), j.Session()
		if !j.Policy.IsZero() {
			res.Policy = j.Policy.Digest()
			entry.Policy = res.Policy
		}
	}
	if res.Denied == nil {
		res.Denied = []runners.Denial{}
	}
	records := runlog.New(s.Log, entry)
	defer func() { res.Audit = records.Span() }()
	if err = recordDenied(records, res, kernelDenials{}); err == nil {
		err = records.Record(audit.RunFinished{ExitCode: res.ExitCode, Error: e.Message})
	}
	if err != nil {
		res.Error = problem.From(err)
		res.ExitCode = res.Error.Exit()
	}
	return res
}
