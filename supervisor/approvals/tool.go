package approvals

import (
	"context"

	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/caller"
)

// Tools asks about tools before they start.
type Tools struct{ first }

// Tools returns what the runs do with the queue.
func (q *Queue) Tools() Tools { return Tools{first{q}} }

// Ask returns nil if the tools of a run or session may start, which is then on record. Else it adds
// the first of them that needs one to the actions that wait for an approval, and the error says so.
// It does not wait: nothing has started that would be lost.
func (t Tools) Ask(ctx context.Context, c caller.Caller, run, digest string, tools ...Tool) error {
	var all []Action
	for _, tool := range tools {
		all = append(all, Action{Type: policy.ActionTool, UID: c.UID, Run: run, Policy: digest,
			Tool: &tool})
	}
	a, err := t.ask(ctx, c, all...)
	switch {
	case err != nil:
		return err
	case a.State == Pending, a.State == Approved:
		return Waits(a)
	case a.State != Applied:
		return Refused(a)
	}
	return nil
}
