// Package runshadow manages the shadow workspace of one run: it makes the shadow before the tool
// starts, and reviews it after the tool's end, to keep, discard or commit it.
package runshadow

import (
	"context"
	"errors"
	"io/fs"

	"github.com/jail-sandbox/jail/jail/probe"
	"github.com/jail-sandbox/jail/jail/workspace"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/hostlayers"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/prepare"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/runlog"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// Options are what a Shadow needs from the run.
type Options struct {
	Store   *shadows.Store
	Layers  hostlayers.Host
	Job     *prepare.Job
	Records *runlog.Log
	// Failed logs err, unless it is nil, for a task whose failure does not change the run's result.
	Failed func(task, id string, err error)
	// CleanUp runs a function without waiting for it.
	CleanUp func(func())
	// Ahead: Review also prepares an empty shadow for the next run, to save time.
	Ahead bool
}

// A Shadow is the shadow of one run. A nil *Shadow is valid for a run without one.
type Shadow struct {
	o    Options
	work *workspace.Workspace
	end  End
	// resumed: the shadow existed before, of a session that was asleep or committed.
	resumed bool
	// earlier are the terms that a resumed shadow had before, nil if it had none.
	earlier *shadows.Terms
	// ended: the session of the shadow cannot be resumed any more.
	ended bool
	// reviewed: Review was called.
	reviewed bool
}

// An End says what Review did with a shadow.
type End struct {
	// Workspace is "kept", "discarded" or "committed".
	Workspace string
	Changes   shadows.Changes
	// Bytes is the size of the added and modified files.
	Bytes int64
}

// Workspace returns the workspace of the shadow, or nil if s is nil.
func (s *Shadow) Workspace() *workspace.Workspace {
	if s == nil {
		return nil
	}
	return s.work
}

func (s *Shadow) log(task string, err error) { s.o.Failed(task, string(s.o.Job.ID), err) }

// Prepare makes or resumes the shadow of a run. It returns nil if the run has none of its own. If
// it returns a shadow and an error, the caller calls Abandon.
func Prepare(o Options) (*Shadow, error) {
	j := o.Job
	if j.Source == nil || !j.Plan.Workspace.Shadow || j.In != nil {
		return nil, nil
	}
	spec := workspace.Spec{ID: string(j.ID), Source: j.Source,
		Bytes:  j.Plan.Workspace.Bytes,
		Inodes: j.Plan.Workspace.Files, Caller: j.Caller.Workspace(),
		Hide: j.Policy.Policy().Workspace.Hide, Resumable: j.Holds.For > 0}
	resumes := j.Holds.Wakes || reopens(o.Store, j)
	var earlier *shadows.Terms
	w, err := (*workspace.Workspace)(nil), error(nil)
	if resumes {
		if earlier, err = earlierTerms(o.Store, spec.ID); err != nil {
			return nil, err
		}
		w, err = o.Store.Kept.Resume(context.Background(), spec)
	} else {
		w, err = o.Store.Kept.Prepare(spec)
	}
	switch {
	case errors.Is(err, workspace.ErrShape):
		return nil, problem.New(problem.Refused, "the session cannot be woken: %w", err).
			WithHint("jail diff " + spec.ID + " shows its shadow; jail session stop " + spec.ID +
				" ends it and keeps the shadow")
	case errors.Is(err, workspace.ErrBusy), errors.Is(err, workspace.ErrActive):
		return nil, problem.New(problem.Busy, "%w", err).WithHint("try again when it has ended")
	case errors.Is(err, workspace.ErrConflict), errors.Is(err, workspace.ErrState):
		return nil, problem.New(problem.Conflict, "the session cannot be woken: %w", err).
			WithHint("jail diff " + spec.ID + " shows its shadow")
	case errors.Is(err, workspace.ErrSource):
		return nil, problem.New(problem.Refused, "%w", err)
	case errors.Is(err, workspace.ErrLimits):
		return nil, problem.New(problem.Refused, "%w", err).
			WithHint("see to the limits workspace and workspace_files, of the policy or of --limit")
	case errors.Is(err, workspace.ErrNoSpace):
		return nil, problem.New(problem.Failed, "%w", err).
			WithHint("make room, end other runs, or take less with --limit workspace=SIZE")
	case err != nil:
		for _, f := range probe.Layers() {
			if e := problem.Missing(f, err); e != nil {
				return nil, e
			}
		}
		return nil, o.Layers.Failed("shadow workspaces", err)
	}
	s := &Shadow{o: o, work: w, resumed: resumes, earlier: earlier}
	// Saved now, and not only by keep: if this daemon is killed, the next one finds a shadow that
	// can be reviewed.
	if err := o.Store.SaveTerms(string(j.ID), s.terms(true)); err != nil {
		return s, problem.New(problem.Failed, "%w", err)
	}
	return s, nil
}

// earlierTerms returns the terms of a stored shadow, nil if it has none.
func earlierTerms(store *shadows.Store, id string) (*shadows.Terms, error) {
	t, err := store.LoadTerms(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, problem.New(problem.Failed, "terms of %s: %w", id, err)
	}
	return &t, nil
}

// InUse returns an error if the caller chose the id of an earlier run whose shadow is still kept.
func InUse(store *shadows.Store, j *prepare.Job) error {
	id := string(j.ID)
	if j.Req.ID == "" || j.In != nil || j.Holds.Wakes || reopens(store, j) {
		return nil
	}
	w, err := store.Kept.Get(id)
	if err != nil {
		// There is no such shadow, or Prepare reports what is wrong.
		return nil
	}
	defer w.Close()
	return problem.New(problem.Usage, "run id %s is in use: the shadow of that run is kept", id).
		WithHint("take another --id; jail diff " + id + " shows that shadow, jail discard " + id +
			" throws it away")
}

// reopens reports whether a job reopens an ended session whose shadow has nothing left to review.
func reopens(store *shadows.Store, j *prepare.Job) bool {
	if j.Holds.For == 0 || j.Source == nil {
		return false
	}
	w, err := store.Kept.Get(string(j.ID))
	if err != nil {
		return false
	}
	defer w.Close()
	state := w.Info().State
	return state == workspace.Committed || state == workspace.ChangedBack
}

// Ends marks the session of the shadow as ended, so that it cannot be resumed any more.
func (s *Shadow) Ends() {
	if s != nil {
		s.ended = true
		// If this fails, it is logged only: a session without a record is not resumed, either.
		s.log("end the session", s.work.SetResumable(false))
	}
}

// terms returns the terms of the run's shadow, from the run's policy.
func (s *Shadow) terms(unfinished bool) shadows.Terms {
	j := s.o.Job
	p := j.Policy.Policy()
	w, l := p.Workspace, p.Limits
	mode := p.Approve.Mode(policy.ActionCommit)
	if mode == policy.ApproveNever {
		w.Commit = policy.CommitNever
	}
	return shadows.Terms{Ask: mode == policy.ApproveAsk,
		Policy: j.Policy.Digest(), Tool: j.Tool.Name, Protect: w.Protect,
		Commit: w.Commit, Unfinished: unfinished, Revert: l.Revert, RevertTime: l.RevertTime}
}

// Abandon closes the shadow of a run that failed because of jail. It discards the shadow, unless
// the shadow was resumed or the tool ran and wrote something. It does nothing after Review.
func (s *Shadow) Abandon(ran bool) {
	if s == nil || s.reviewed {
		return
	}
	if s.resumed {
		if !ran {
			// No tool ran under the new policy, so the earlier terms hold for the shadow.
			s.log("restore the terms of the shadow", s.restoreTerms())
		}
		s.log("freeze the shadow", s.work.Freeze())
		s.log("keep the shadow", s.work.Keep())
	} else if !ran || !s.wrote() {
		// If this fails, `jail workspaces` lists the shadow.
		s.log("discard the shadow", s.discard())
	}
	s.log("close the shadow", s.work.Close())
}

// restoreTerms restores the terms that a resumed shadow had before.
func (s *Shadow) restoreTerms() error {
	id := string(s.o.Job.ID)
	if s.earlier == nil {
		return s.o.Store.DropTerms(id)
	}
	return s.o.Store.SaveTerms(id, *s.earlier)
}

// wrote freezes the shadow and reports whether it may have changes or commits. If so, wrote also
// makes the shadow outlive the run.
func (s *Shadow) wrote() bool {
	if s.work.Freeze() == nil {
		if sum, _, err := s.work.Review(context.Background()); err == nil && sum.Total() == 0 &&
			!s.committed() {
			return false
		}
	}
	// Prepare has saved the terms, which mark the run as unfinished.
	s.log("keep the shadow", s.work.Keep())
	return true
}

// committed reports whether the shadow has commits, which a user may want to revert.
func (s *Shadow) committed() bool { return len(s.work.Info().Commits) > 0 }

// discard removes the shadow, then its terms.
func (s *Shadow) discard() error {
	if err := s.work.Drop(); err != nil {
		return err
	}
	return s.o.Store.DropTerms(string(s.o.Job.ID))
}

// Review counts the run's changes and keeps, discards or commits the shadow as fate says.
// succeeded: the tool's exit status was 0. fault is a disk error during the run, after which Review
// keeps what the disk has. unmount ends the remaining mounts of the shadow. Review is called once.
// Its End is valid also with an error.
func (s *Shadow) Review(fate message.Fate, succeeded bool, fault error,
	unmount func()) (End, error) {
	// Abandon does nothing from here on, even if Review fails.
	s.reviewed = true
	defer s.o.CleanUp(func() {
		s.log("close the shadow", s.work.Close())
		if s.o.Ahead {
			s.log("make a shadow ahead", s.o.Store.Kept.Stock(s.work))
		}
	})
	err := s.review(fate, succeeded, fault, unmount)
	if s.ended {
		s.o.Store.Approvals().SessionEnded(string(s.o.Job.ID))
	}
	return s.end, err
}

func (s *Shadow) review(fate message.Fate, succeeded bool, fault error, unmount func()) error {
	work := s.work
	if fault != nil {
		return s.salvage(work.Freeze(), fault)
	}
	if branches, err := workspace.BranchesOf(s.o.Store.Kept).Of(work); err != nil || len(branches) > 0 {
		// Branches need the layers of the shadow.
		fate = message.FateKeep
	}
	sum, digest, err := work.Peek(context.Background())
	if err == nil && sum.Total() == 0 && fate != message.FateKeep && !s.committed() {
		s.end.Workspace = "discarded"
		// The shadow is empty. If this fails, `jail workspaces` lists it.
		s.log("discard the shadow", s.discard())
		return nil
	}
	if err == nil && fate == message.FateDiscard {
		return s.settle(sum, digest, fate, succeeded)
	}
	unmount()
	if err := work.Freeze(); err != nil {
		if damage := (*workspace.DamageError)(nil); errors.As(err, &damage) {
			return s.salvage(err, nil)
		}
		s.end.Workspace = "kept"
		return problem.New(problem.Failed, "%w", err).
			WithHint("jail discard " + string(s.o.Job.ID) + " throws the shadow away")
	}
	sum, digest, err = work.Review(context.Background())
	if err != nil {
		return errors.Join(problem.New(problem.Failed, "%w", err).
			WithHint("jail discard "+string(s.o.Job.ID)+" throws the shadow away"), s.keep())
	}
	return s.settle(sum, digest, fate, succeeded)
}

// settle records the changes, then keeps, discards or commits them.
func (s *Shadow) settle(sum workspace.Summary, digest string, fate message.Fate,
	succeeded bool) error {
	s.end.Changes, s.end.Bytes = shadows.ChangesOf(sum), sum.Bytes
	if sum.Total() > 0 {
		if err := s.recordChanges(digest); err != nil {
			return err
		}
	}
	switch {
	case sum.Total() == 0 && s.committed() &&
		(fate == message.FateDefault || fate == message.FateAuto):
		// A revert needs the shadow and its terms.
		if err := errors.Join(s.keep(), s.work.Conclude()); err != nil {
			return problem.New(problem.Failed, "%w", err)
		}
		s.end.Workspace = "committed"
		return nil
	case fate == message.FateDiscard:
		s.end.Workspace = "discarded"
		if err := s.o.Records.Record(audit.WorkspaceDiscarded{Workspace: s.o.Job.Source.Name(),
			Digest: digest, Changes: audit.Changes(s.end.Changes)}); err != nil {
			return err
		}
		if err := s.discard(); err != nil {
			return problem.New(problem.Failed, "%w", err)
		}
		return nil
	case s.sleeps() && s.terms(false).Ask:
		// A session asks for an approval once, when it ends for good.
		return s.keep()
	case fate == message.FateCommit && succeeded:
		return s.commit(digest, false)
	case fate == message.FateAuto:
		return s.commit(digest, true)
	}
	return s.keep()
}

// recordChanges records the changes that the last review found.
func (s *Shadow) recordChanges(digest string) error {
	return s.o.Records.Record(audit.WorkspaceChanged{Workspace: s.o.Job.Source.Name(), Digest: digest,
		Changes: audit.Changes(s.end.Changes), Files: shadows.Digests(s.work.Reviewed())})
}

// sleeps reports whether the shadow belongs to a session that can be resumed.
func (s *Shadow) sleeps() bool { return s.o.Job.Holds.For > 0 && !s.ended }

// keep makes the shadow outlive the run and saves its terms.
func (s *Shadow) keep() error {
	if err := errors.Join(s.o.Store.SaveTerms(string(s.o.Job.ID), s.terms(false)),
		s.work.Keep()); err != nil {
		return problem.New(problem.Failed, "%w", err).
			WithHint("jail diff " + string(s.o.Job.ID) + " shows the shadow, jail discard " +
				string(s.o.Job.ID) + " throws it away")
	}
	s.end.Workspace = "kept"
	return nil
}

// commit commits the reviewed changes, except protected names, since the caller agreed to that with
// --commit. If plain is set, it commits only changes that need no review. The rest is kept.
func (s *Shadow) commit(digest string, plain bool) error {
	if err := s.keep(); err != nil {
		return err
	}
	done, err := s.o.Store.CommitShadow(context.Background(), s.o.Job.Caller, s.work,
		shadows.CommitRequest{Digest: digest, Auto: plain}, s.terms(false), s.o.Records.Record)
	pending, ok := errors.AsType[*problem.Error](err)
	switch {
	case err != nil && plain && !(ok && pending.Code == problem.ApprovalPending):
		// The session itself succeeded, and its shadow is kept.
		s.log("commit what needs no person", err)
	case err != nil:
		return err
	// A change set of named pipes and sockets has nothing to commit.
	case plain && done.State == workspace.Committed, !plain && done.ID != "":
		s.end.Workspace = "committed"
	}
	return nil
}

// salvage keeps the part of a shadow that reached the disk, and returns the error for the loss.
// frozen is the error of Freeze, fault the disk error of before, which is used if frozen is nil.
func (s *Shadow) salvage(frozen, fault error) error {
	id := string(s.o.Job.ID)
	s.end.Workspace = "kept"
	// The kernel reports a loss only once, so Freeze may succeed after the fault.
	if frozen == nil {
		frozen = fault
	}
	lost := problem.New(problem.Failed, "%w", frozen).
		WithHint("make room on that disk; jail diff " + id +
			" shows what was saved, and jail commit " + id + " takes it")
	sum, digest, err := s.work.Review(context.Background())
	if err != nil {
		return errors.Join(lost, err)
	}
	s.end.Changes, s.end.Bytes = shadows.ChangesOf(sum), sum.Bytes
	err = s.recordChanges(digest)
	// A full disk may refuse the writes with which Keep makes the shadow durable.
	s.log("keep the shadow", s.work.Keep())
	return errors.Join(lost, err)
}
