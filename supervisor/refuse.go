package supervisor

import (
	"context"

	"github.com/jail-sandbox/jail/runners"
	"github.com/jail-sandbox/jail/supervisor/audit"
)

// refuse puts a run on record that never started.
func (s *Supervisor) refuse(c Caller, req Request, j *job, err error) (res Result) {
	e := AsError(err)
	defer func() { s.meters.ended(&res, 0) }()
	res = Result{ID: req.ID, ExitCode: e.Exit(), Error: e, Denied: e.Denied}
	entry := audit.Entry{Run: req.ID, Actor: c.actor()}
	if j != nil {
		defer j.close()
		res.ID, entry.Run = string(j.id), string(j.id)
		res.Session, entry.Session = j.session(), j.session()
		if j.resolved {
			res.Policy = j.eff.Digest()
			entry.Policy = res.Policy
		}
	}
	if res.Denied == nil {
		res.Denied = []runners.Denial{}
	}
	for _, d := range res.Denied {
		entry.Event = audit.Denied{Layer: d.Layer, What: d.What, Rule: d.Rule, Count: int64(d.Count)}
		seq, err := s.log.Append(context.Background(), entry)
		if err != nil {
			res.Error = failed(err, "", "audit log: %v", err)
			return res
		}
		res.Audit.add(seq)
	}
	entry.Event = audit.RunFinished{ExitCode: res.ExitCode, Error: e.Message}
	seq, err := s.log.Append(context.Background(), entry)
	if err != nil {
		res.Error = failed(err, "", "audit log: %v", err)
		return res
	}
	res.Audit.add(seq)
	return res
}

func (a *AuditSpan) add(seq uint64) {
	if a.First == 0 {
		a.First = seq
	}
	a.Last = seq
}
