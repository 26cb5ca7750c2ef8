package run

import (
	"github.com/jail-sandbox/jail/jail"
	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// Refuse puts a run on record that never started.
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
	for _, d := range res.Denied {
		if err = records.Record(audit.Denied{Layer: d.Layer, What: d.What, Rule: d.Rule,
			Count: int64(d.Count)}); err != nil {
			break
		}
	}
	if err == nil {
		err = records.Record(audit.RunFinished{ExitCode: res.ExitCode, Error: e.Message})
	}
	if err != nil {
		res.Error = problem.From(err)
		res.ExitCode = res.Error.Exit()
	}
	return res
}
