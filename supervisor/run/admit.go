package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
)

// admit waits until the run may start. The jail that holds a session counts only with its memory,
// and an invocation counts as a run without memory, so an idle session uses up no run. Call leave
// when the run has ended.
func (s *Runner) admit(ctx context.Context, j *prepare.Job) (leave func(), err error) {
	runs, memory := 1, j.Policy.Policy().Limits.Memory
	switch {
	case j.Holds.For > 0:
		runs = 0
	case j.In != nil:
		memory = 0
	}
	leave, err = s.Queue.Enter(ctx, j.Caller.UID, j.Session(), runs, memory)
	if err == nil {
		s.Meters.Queued.Observe(time.Since(j.Begun))
	}
	return leave, err
}

// unbegun records that a run failed with err before it began. It returns err, joined with an error
// of the log.
func unbegun(records *runlog.Log, err error) error {
	e := problem.From(err)
	return errors.Join(e, records.Record(audit.RunFinished{ExitCode: e.Exit(), Error: e.Message}))
}

// maxShownArgs bounds the arguments of a tool that are shown to the approver of its start, in
// bytes.
const maxShownArgs = 4 << 10

// approved returns an error if a tool of the job needs an approval to start and has none. It adds
// the start to the actions that wait for approval, and does not wait itself.
func (s *Runner) approved(ctx context.Context, j *prepare.Job) error {
	if len(j.Tool.Asks) == 0 {
		return nil
	}
	exec := j.Exec()
	shown, left := []string{}, maxShownArgs
	for _, a := range runlog.Readable(exec.Argv[1:]) {
		if left -= len(a); left < 0 {
			shown = append(shown, "...")
			break
		}
		shown = append(shown, a)
	}
	input := sha256.New()
	fmt.Fprintf(input, "%q %q %q %q", []string(j.Req.Args), j.Req.Env, exec.Cwd, j.Workspace())
	if s := j.Req.Script; s != nil {
		fmt.Fprintf(input, " %q", s.Text)
	}
	var tools []approvals.Tool
	for _, t := range j.Tool.Asks {
		tools = append(tools, approvals.Tool{Name: t.Name, Digest: t.Digest,
			Input: hex.EncodeToString(input.Sum(nil)), Args: shown,
			Directory: runlog.Readable([]string{j.Workspace()})[0], Session: j.In != nil})
	}
	run := asks(j)
	return s.Tools.Ask(ctx, j.Caller, run.Run, run.Policy, tools...)
}
