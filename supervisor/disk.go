package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/problem"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// diskTick is how often it is asked whether the disk takes what a tool writes to its shadow.
const diskTick = time.Second

// watchDisk ends the run when the disk of the shadow did not take something that the tool wrote,
// since the tool does not learn of it. The run stops the watch when its jail is gone.
func (r *run) watchDisk() (stop func()) {
	if r.work == nil {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(diskTick)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ended:
				return
			}
			if err := r.work.Check(); err != nil {
				r.end(cause{fault: err})
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// salvage keeps what the disk has of a shadow that it did not take whole, and returns the failure
// that says so. frozen is the end of its freeze.
func (r *run) salvage(frozen error) error {
	id, res := string(r.job.id), &r.result
	res.Workspace = "kept"
	// the kernel has told of the loss before, and not again
	if frozen == nil {
		frozen = r.ended().fault
	}
	lost := problem.New(problem.Failed, "%w", frozen).
		WithHint("make room on that disk; jail diff " + id +
			" shows what was saved, and jail commit " + id + " takes it")
	sum, digest, err := r.work.Review(context.Background())
	if err != nil {
		return errors.Join(lost, err)
	}
	res.Changes = shadows.ChangesOf(sum)
	res.Usage.WorkspaceBytes = sum.Bytes
	err = r.records.Record(audit.WorkspaceChanged{Workspace: r.job.source.Name(), Digest: digest,
		Changes: audit.Changes(res.Changes), Files: shadows.Digests(r.work.Reviewed())})
	// A disk that is full may not take what a shadow needs to outlive a power loss.
	r.log("keep the shadow", r.work.Keep())
	return errors.Join(lost, err)
}

// sessionFault is the failure of an invocation whose session was ended because the disk did not
// take its shadow.
func (r *run) sessionFault() error {
	c := r.ended()
	if c == nil || c.fault == nil {
		return nil
	}
	return problem.New(problem.Failed, "session %s was ended: %w", r.job.session(), c.fault).
		WithHint("make room on that disk; jail diff " + r.job.session() + " shows what was saved")
}
