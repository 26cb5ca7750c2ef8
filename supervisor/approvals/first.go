package approvals

import (
	"context"
	"time"

	"github.com/jail-sandbox/jail/supervisor/caller"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// maxOfRun bounds the actions of one run or session that wait to be approved before they are done.
const maxOfRun = 200

// first is how a queue is asked for actions that are approved before they are done.
type first struct{ q *Queue }

// ask asks whether actions may be done that are approved first. If each was approved, or a
// grant covers it, all are Applied and the last is returned. Else none is, and the first one that
// waits is returned: a known one that is the same, or a new one.
func (f first) ask(c caller.Caller, all ...Action) (Action, error) {
	var out *stored
	err := f.q.step(func(now time.Time) (done line, err error) {
		for _, a := range all {
			var l line
			if out, err = f.pass(&l, a, c, now); err != nil || out.State == Pending {
				return l, err
			}
			done.add(l)
		}
		return done, nil
	})
	return actionOf(out), err
}

// pass makes an action Applied that was approved or that a grant covers. Else it returns the one
// that waits.
func (f first) pass(l *line, a Action, c caller.Caller, now time.Time) (*stored, error) {
	s, waiting := f.like(a)
	var err error
	switch {
	case s == nil && waiting >= maxOfRun:
		return nil, problem.New(problem.Busy, "%d actions of %s wait for an approval, the most there may be",
			waiting, a.Run).WithHint("jail approvals lists them; decide on some")
	case s == nil:
		if s, err = f.q.add(l, a, c, now); err != nil {
			return nil, err
		}
	case s.State == Pending:
		// The grant is newer than the action.
		if g := grantOf(f.q, s.Action, now); g != nil {
			s = l.granted(s, g, now)
		}
	}
	if s.State == Approved {
		// It counts once, whatever becomes of what is done.
		s = l.move(s, Applied, now, s.Decision.actor())
	}
	return s, nil
}

// like returns the action that is the same as a and is not over, an approved one first, and how many
// actions of the run of a wait.
func (f first) like(a Action) (found *stored, waiting int) {
	for _, s := range f.q.actions {
		if s.State.Over() || s.UID != a.UID || s.Commit != nil {
			continue
		}
		if s.State == Pending && s.Run == a.Run {
			waiting++
		}
		if s.Policy == a.Policy && s.same(a) && (found == nil || s.State == Approved) {
			found = s
		}
	}
	return found, waiting
}

// await waits until an action is no longer pending, or ctx ends.
func (f first) await(ctx context.Context, id string) (Action, error) {
	return until(ctx, f.q, func(s State) bool { return s != Pending }, func() (Action, error) {
		// Many may wait: a look at what is known costs no step.
		f.q.mu.Lock()
		s := f.q.actions[id]
		known := s != nil && s.State == Pending && !f.q.journal.changed()
		f.q.mu.Unlock()
		if known {
			return s.Action, nil
		}
		s, err := f.q.current(id)
		return actionOf(s), err
	})
}

// add appends another line.
func (l *line) add(m line) {
	l.Actions, l.Grants = append(l.Actions, m.Actions...), append(l.Grants, m.Grants...)
	l.Ended, l.Records = append(l.Ended, m.Ended...), append(l.Records, m.Records...)
}
