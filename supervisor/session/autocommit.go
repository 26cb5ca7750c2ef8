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

// commits lets the session commit after each invocation if the policy says so and the request sets
// no fate for the shadow. It returns an error if the directory is mounted read-only.
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

// after saves the merge bases of the shadow when the jail of an invocation has ended, and commits
// the changes that need no review if the policy says so. It returns nil if nothing is committed
// automatically. Errors do not change the result of the tool.
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

// left is called when an invocation is over. If the invocation ended by a failure of jail, nothing
// was committed after it, so left commits changes that earlier invocations left to it.
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

// A settler makes automatic commits of a session while none of its invocations writes. Its methods
// may be called from several goroutines.
type settler struct {
	mu sync.Mutex
	// working are the invocations whose tools may write to the shadow.
	working map[*run.Run]bool
	// settled is closed when the current commit is over; nil if there is none.
	settled chan struct{}
	// on says that the session commits automatically. It is set before the first invocation.
	on bool
	// waits says that changes of ended invocations wait for the last invocation that writes.
	waits bool
	// left has the changes that were already reported as left for a person, with the reason. Only
	// settle uses it.
	left map[workspace.Name]string
}

// wait waits until no commit is under way, and returns with s.mu held.
func (s *settler) wait() {
	s.mu.Lock()
	for s.settled != nil {
		over := s.settled
		s.mu.Unlock()
		<-over
		s.mu.Lock()
	}
}

// begin registers an invocation that may write. It waits for a commit that is under way.
func (s *settler) begin(r *run.Run) {
	s.wait()
	defer s.mu.Unlock()
	if s.working == nil {
		s.working = map[*run.Run]bool{}
	}
	s.working[r] = true
}

// end notes that an invocation no longer writes. It may be called twice.
func (s *settler) end(r *run.Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.working, r)
}

// settle ends an invocation and calls f while no other writes or begins. If others still write, the
// last of them calls its own f instead.
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

// leave ends an invocation. If it ended without settle and changes of others wait for it, leave
// calls f as settle does.
func (s *settler) leave(r *run.Run, f func()) {
	s.end(r)
	s.mu.Lock()
	// During a commit no invocation works, so nothing new waits.
	if !s.waits || len(s.working) > 0 || s.settled != nil {
		s.mu.Unlock()
		return
	}
	s.call(f)
}

// call calls f while no invocation begins. s.mu is held at the call and released.
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

// name returns the changes left for a person that were not reported before.
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
