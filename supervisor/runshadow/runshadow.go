// Package runshadow is the shadow workspace of one run: it is made before the tool starts, and
// after the tool's end it is reviewed, and kept, discarded or committed.
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

// Options say what a Shadow needs of the run.
type Options struct {
	Store   *shadows.Store
	Layers  hostlayers.Host
	Job     *prepare.Job
	Records *runlog.Log
	// Failed logs the error of a task that changes nothing of how the run ended, if there is one.
	Failed func(task, id string, err error)
	// CleanUp calls a function that no caller waits for.
	CleanUp func(func())
	// Ahead says that an empty shadow is made for the next run, to save time.
	Ahead bool
}

// A Shadow is that of one run. A nil one is of a run that has none.
type Shadow struct {
	o    Options
	work *workspace.Workspace
	end  End
	// resumed says that the shadow was there before, of a session that slept or was committed.
	resumed bool
	// earlier are the terms of a resumed one of before, nil if it had none.
	earlier *shadows.Terms
	// ended says that the session of the shadow does not wake again.
	ended bool
	// reviewed says that the shadow has its fate, or failed to get it.
	reviewed bool
}

// An End is what became of a shadow.
type End struct {
	// Workspace is kept, discarded or committed.
	Workspace string
	Changes   shadows.Changes
	// Bytes are those that the changes take.
	Bytes int64
}

// Workspace returns the shadow itself, or nil.
func (s *Shadow) Workspace() *workspace.Workspace {
	if s == nil {
		return nil
	}
	return s.work
}

func (s *Shadow) log(task string, err error) { s.o.Failed(task, string(s.o.Job.ID), err) }

// Prepare makes the shadow of a run, or returns nil where the run has none of its own. Also with an
// error there may be a shadow, which is to be abandoned.
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
	// Now, and not only when it is kept: if this daemon is killed, the next one finds a shadow that
	// can be reviewed.
	if err := o.Store.SaveTerms(string(j.ID), s.terms(true)); err != nil {
		return s, problem.New(problem.Failed, "%w", err)
	}
	return s, nil
}

// earlierTerms returns the terms of a shadow that is kept, nil if it has none.
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

// InUse returns an error if the caller named the run as one whose shadow is still kept.
func InUse(store *shadows.Store, j *prepare.Job) error {
	id := string(j.ID)
	if j.Req.ID == "" || j.In != nil || j.Holds.Wakes || reopens(store, j) {
		return nil
	}
	w, err := store.Kept.Get(id)
	if err != nil {
		// There is none, or preparing it reports what is wrong.
		return nil
	}
	defer w.Close()
	return problem.New(problem.Usage, "run id %s is in use: the shadow of that run is kept", id).
		WithHint("take another --id; jail diff " + id + " shows that shadow, jail discard " + id +
			" throws it away")
}

// reopens reports whether a job opens a session again that had ended and of whose shadow nothing is
// left to review.
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

// Ends says that the session of the shadow does not wake again.
func (s *Shadow) Ends() {
	if s != nil {
		s.ended = true
		// Nobody wakes a session without a record of it, either.
		s.log("end the session", s.work.SetResumable(false))
	}
}

// terms are those of the run's shadow.
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

// Abandon throws the shadow of a run away that jail failed, unless the tool ran and wrote
// something, or the shadow was reviewed.
func (s *Shadow) Abandon(ran bool) {
	if s == nil || s.reviewed {
		return
	}
	if s.resumed {
		if !ran {
			// The policy of now has not governed what is in the shadow.
			s.log("restore the terms of the shadow", s.restoreTerms())
		}
		s.log("freeze the shadow", s.work.Freeze())
		s.log("keep the shadow", s.work.Keep())
	} else if !ran || !s.wrote() {
		// What cannot be discarded is listed by `jail workspaces`.
		s.log("discard the shadow", s.discard())
	}
	s.log("close the shadow", s.work.Close())
}

// restoreTerms gives a resumed shadow its terms of before.
func (s *Shadow) restoreTerms() error {
	id := string(s.o.Job.ID)
	if s.earlier == nil {
		return s.o.Store.DropTerms(id)
	}
	return s.o.Store.SaveTerms(id, *s.earlier)
}

// wrote reports whether there is something in the shadow of a run whose jail is gone, or may be.
// Then it outlives the run.
func (s *Shadow) wrote() bool {
	if s.work.Freeze() == nil {
		if sum, _, err := s.work.Review(context.Background()); err == nil && sum.Total() == 0 &&
			!s.committed() {
			return false
		}
	}
	// The terms, which say that the run was cut off, are there already.
	s.log("keep the shadow", s.work.Keep())
	return true
}

// committed reports whether a commit was made while the run lived, which somebody may want to
// revert.
func (s *Shadow) committed() bool { return len(s.work.Info().Commits) > 0 }

// discard throws the shadow away, and its terms after it.
func (s *Shadow) discard() error {
	if err := s.work.Drop(); err != nil {
		return err
	}
	return s.o.Store.DropTerms(string(s.o.Job.ID))
}

// Review counts what the run changed and does with the shadow what fate says. succeeded is whether
// the tool ended with 0. With a fault of the disk Review saves what there is. unmount ends what
// still mounts the shadow. Review is called once, and its End holds also where there is an error.
func (s *Shadow) Review(fate message.Fate, succeeded bool, fault error,
	unmount func()) (End, error) {
	// From here on the shadow has its fate, whatever else fails.
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
		// They need what it holds.
		fate = message.FateKeep
	}
	sum, digest, err := work.Peek(context.Background())
	if err == nil && sum.Total() == 0 && fate != message.FateKeep && !s.committed() {
		s.end.Workspace = "discarded"
		// Nothing is in it, and `jail workspaces` shows what stayed.
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

// settle puts on record what changed, and keeps, discards or commits it.
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
		// Its terms say what a revert needs.
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
		// It asks once, when it ends for good.
		return s.keep()
	case fate == message.FateCommit && succeeded:
		return s.commit(digest, false)
	case fate == message.FateAuto:
		return s.commit(digest, true)
	}
	return s.keep()
}

// recordChanges puts what a review found on record.
func (s *Shadow) recordChanges(digest string) error {
	return s.o.Records.Record(audit.WorkspaceChanged{Workspace: s.o.Job.Source.Name(), Digest: digest,
		Changes: audit.Changes(s.end.Changes), Files: shadows.Digests(s.work.Reviewed())})
}

// sleeps reports whether the shadow is of a session that can be woken again.
func (s *Shadow) sleeps() bool { return s.o.Job.Holds.For > 0 && !s.ended }

// keep makes the shadow outlive the run, with the terms of its commit.
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

// commit is --commit, where the caller said yes beforehand to everything but protected names. If
// plain is set, it takes what needs no person, as after an invocation. What is left of the shadow is
// kept.
func (s *Shadow) commit(digest string, plain bool) error {
	if err := s.keep(); err != nil {
		return err
	}
	done, err := s.o.Store.CommitShadow(context.Background(), s.o.Job.Caller, s.work,
		shadows.CommitRequest{Digest: digest, Auto: plain}, s.terms(false), s.o.Records.Record)
	pending, ok := errors.AsType[*problem.Error](err)
	switch {
	case err != nil && plain && !(ok && pending.Code == problem.ApprovalPending):
		// The session was right all the same, and its shadow is kept.
		s.log("commit what needs no person", err)
	case err != nil:
		return err
	// A change set of named pipes and sockets has nothing to commit.
	case plain && done.State == workspace.Committed, !plain && done.ID != "":
		s.end.Workspace = "committed"
	}
	return nil
}

// salvage keeps what the disk has of a shadow that it did not take whole, and returns the failure
// that says so. frozen is the end of its freeze, fault what the disk did before.
func (s *Shadow) salvage(frozen, fault error) error {
	id := string(s.o.Job.ID)
	s.end.Workspace = "kept"
	// The kernel reports a loss once, and has done so before.
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
	// A disk that is full may not take what a shadow needs to outlive a power loss.
	s.log("keep the shadow", s.work.Keep())
	return errors.Join(lost, err)
}
