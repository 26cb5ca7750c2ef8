package session

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/run"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// commits has the session commit after each invocation, if its policy says so and its request does
// not say what becomes of the shadow. It refuses a directory to which nothing can be committed.
func (h *session) commits(j *prepare.Job) error {
	p := j.Policy.Policy()
	// A commit that waits for an approval is proposed once, when the session ends.
	if p.Workspace.Commit != policy.CommitAuto ||
		p.Approve.Mode(policy.ActionCommit) != policy.ApproveAuto ||
		j.Req.Fate != message.FateDefault || j.Source == nil || !j.Plan.Workspace.Shadow {
		return nil
	}
	closed, err := workspace.ReadOnly(j.Source)
	if err != nil {
		return problem.New(problem.Failed, "%w", err)
	}
	if closed {
		return problem.New(problem.Refused,
			`workspace.commit is "auto", and %s is mounted read-only`, j.Source.Name()).
			WithHint("start the session with --keep: then nothing is committed")
	}
	h.invocations.settler.on = true
	return nil
}

// after does what a session does with its shadow when the jail of an invocation has ended: it saves
// the bases for merges, and commits what needs no person if its policy says so. A failure of that
// is none of the tool.
func (h *session) after(r *run.Run) *shadows.AutoCommit {
	if h.shadow == nil {
		return nil
	}
	id := string(h.run.Job().ID)
	h.runner.Errors.Failed("save what the tools began with", id,
		workspace.SaveBases(context.Background(), h.shadow))
	settler := &h.invocations.settler
	if !settler.on || h.ended() {
		// The end of the session commits what is left.
		return nil
	}
	done := shadows.AutoCommit{Waits: true}
	settler.settle(r, func() {
		done = h.runner.Shadows.TakePlain(context.Background(), h.run.Job().Caller, id)
		done.Left = settler.name(done.Left)
	})
	return &done
}

// left is called when an invocation is over, however it ended. If its end was a failure of jail's,
// nothing was committed after it, and others may have left their changes to it.
func (h *session) left(r *run.Run) {
	h.invocations.leave(r)
	settler := &h.invocations.settler
	if !settler.on {
		return
	}
	settler.leave(r, func() {
		if h.ended() {
			// The end of the session commits what is left.
			return
		}
		id := string(h.run.Job().ID)
		done := h.runner.Shadows.TakePlain(context.Background(), h.run.Job().Caller, id)
		if done.Error != "" {
			h.runner.Errors.Failed("commit what invocations left", id, errors.New(done.Error))
		}
	})
}

// A settler lets a session commit what its invocations left, while none of them writes. Its methods
// may be called from several goroutines.
type settler struct {
	mu sync.Mutex
	// working are the invocations whose tools may write to the shadow.
	working map[*run.Run]bool
	// settled is closed when the commit that is under way is over; nil if none is.
	settled chan struct{}
	// on says that the session commits by itself. It is set before the first invocation.
	on bool
	// waits says that an invocation left changes to the last that writes.
	waits bool
	// left has what invocations named that is left for a person. Only settle uses it.
	left map[workspace.Name]string
}

// wait returns, with s.mu held, when no commit is under way.
func (s *settler) wait() {
	s.mu.Lock()
	for s.settled != nil {
		over := s.settled
		s.mu.Unlock()
		<-over
		s.mu.Lock()
	}
}

// begin lets an invocation write. It waits for a commit that is under way.
func (s *settler) begin(r *run.Run) {
	s.wait()
	defer s.mu.Unlock()
	if s.working == nil {
		s.working = map[*run.Run]bool{}
	}
	s.working[r] = true
}

// end says that an invocation writes no more. It may be called twice.
func (s *settler) end(r *run.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.working, r)
}

// settle ends an invocation, and calls f while none writes and none begins. If others write, f is
// not called: the last of them settles.
func (s *settler) settle(r *run.Run, f func()) {
	s.end(r)
	s.wait()
	if len(s.working) > 0 {
		s.waits = true
		s.mu.Unlock()
		return
	}
	s.call(f)
}

// leave is end, and calls f as settle does if others left their changes to this one, and it ended
// without settle.
func (s *settler) leave(r *run.Run, f func()) {
	s.end(r)
	s.mu.Lock()
	// While a commit is under way none works, so that nothing was left since it began.
	if !s.waits || len(s.working) > 0 || s.settled != nil {
		s.mu.Unlock()
		return
	}
	s.call(f)
}

// call calls f while none begins. s.mu is held, and released.
func (s *settler) call(f func()) {
	s.waits = false
	over := make(chan struct{})
	s.settled = over
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.settled = nil
		s.mu.Unlock()
		close(over)
	}()
	f()
}

// name returns those of the changes that are left for a person that were not named before.
func (s *settler) name(all []workspace.Held) []workspace.Held {
	named := s.left
	s.left = map[workspace.Name]string{}
	for _, left := range all {
		s.left[left.Path] = left.Why
	}
	return slices.DeleteFunc(all, func(left workspace.Held) bool {
		return named[left.Path] == left.Why
	})
}
